"""Which runs of a queue may begin. Pure: from what waits and what is under way to what may be taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainspring.store.queues import Admission, Share

if TYPE_CHECKING:
    from mainspring.model.queues import Limits, Window
    from mainspring.store.queues import Demand, Recent

_NO_LIMIT = 2**62


@dataclass(slots=True)
class _Allowance:
    """How many more may begin. `again` is when time alone brings more, `short` whether this worker's
    memory is in the way, `held` whether what is under way in the fleet is.
    """

    count: int = _NO_LIMIT
    again: int | None = None
    short: bool = False
    held: bool = False

    def at_most(self, count: int) -> None:
        self.count = min(self.count, max(0, count))

    def later(self, when: int) -> None:
        self.again = when if self.again is None else min(self.again, when)


def admit(demand: Demand) -> Admission:
    """Share out what the limits leave among the partitions in their turn, so that none has to wait for the rest of another."""
    if demand.queue.paused or demand.room <= 0:
        return Admission()
    whole = _of_queue(demand)
    budget = min(whole.count, demand.room)
    each = {name: _of_partition(demand, name) for name in demand.waiting}
    counts = _shared_out({name: allowance.count for name, allowance in each.items()}, budget)
    taken = sum(counts.values())
    blocked = [allowance for name, allowance in each.items() if allowance.count <= counts.get(name, 0)]
    times = [allowance.again for allowance in blocked if allowance.again is not None]
    if whole.count <= taken and whole.again is not None:
        times.append(whole.again)
    return Admission(
        shares=[Share(name, count) for name, count in counts.items()],
        again=min(times, default=None),
        open=whole.count > taken and len(blocked) < len(each),
        held=(whole.held and whole.count <= taken) or any(allowance.held for allowance in blocked),
        short=(whole.short and whole.count <= taken) or any(allowance.short for allowance in blocked),
    )


def _of_queue(demand: Demand) -> _Allowance:
    limits, allowance = demand.queue.limits, _Allowance()
    if limits.concurrency is not None:
        allowance.at_most(limits.concurrency - sum(demand.placed.values()))
        allowance.held = True
    if limits.rate is not None:
        recent = demand.recent[limits.rate.per].values()
        _rate(
            allowance,
            limits.rate,
            sum(count for count, _ in recent),
            min((at for _, at in recent), default=None),
            demand,
        )
    _memory(allowance, limits.worker_concurrency, sum(demand.mine.values()))
    return allowance


def _of_partition(demand: Demand, name: str) -> _Allowance:
    limits, allowance = limits_of(demand, name), _Allowance()
    if limits.partition_concurrency is not None:
        allowance.at_most(limits.partition_concurrency - demand.placed.get(name, 0))
        allowance.held = True
    if limits.partition_rate is not None:
        recent: Recent = demand.recent[limits.partition_rate.per]
        count, first = recent.get(name, (0, None))
        _rate(allowance, limits.partition_rate, count, first, demand)
    _memory(allowance, limits.partition_worker_concurrency, demand.mine.get(name, 0))
    return allowance


def limits_of(demand: Demand, partition: str) -> Limits:
    """The limits of a partition: its own where it has any, else those that the queue has for all."""
    return demand.queue.exceptions.get(partition, demand.queue.limits)


def _rate(allowance: _Allowance, window: Window, count: int, first: int | None, demand: Demand) -> None:
    allowance.at_most(window.limit - count)
    allowance.later((demand.now if first is None else first) + window.per)


def _memory(allowance: _Allowance, limit: int | None, mine: int) -> None:
    if limit is not None:
        allowance.short = limit - mine <= allowance.count
        allowance.at_most(limit - mine)


def _shared_out(allowed: dict[str, int], budget: int) -> dict[str, int]:
    """Divide a budget evenly, in the order given; what one may not have goes to the others."""
    given: dict[str, int] = dict.fromkeys(allowed, 0)
    hungry: list[str] = [name for name, most in allowed.items() if most > 0]
    while budget > 0 and hungry:
        portion = max(1, budget // len(hungry))
        for name in hungry:
            more = min(portion, allowed[name] - given[name], budget)
            given[name] += more
            budget -= more
        hungry = [name for name in hungry if given[name] < allowed[name]]
    return {name: count for name, count in given.items() if count}
