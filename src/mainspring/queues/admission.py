"""Decide which runs of a queue may begin, from the waiting runs and those under way. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.model.queues import Limits, Queue, Window

_NO_LIMIT = 2**62
Recent = dict[str, tuple[int, int]]
"""Starts within a window by partition: their number, and the time of the first."""


class Demand(Struct, frozen=True):
    """A queue with runs that wait to start, and the number of its running ones."""

    queue: Queue
    waiting: list[str]
    """Partitions with waiting runs, beginning with the one whose turn it is."""
    placed: dict[str, int]
    """Running runs in the fleet, by partition. Counted only if a limit needs it."""
    recent: dict[int, Recent]
    """Starts within the window of each rate limit, by the window's length."""
    mine: Mapping[str, int]
    """Runs in this worker's memory, by partition."""
    room: int
    now: int


class Share(Struct, frozen=True):
    """The number of runs of a partition that may start now."""

    partition: str
    count: int


class Admission(Struct, frozen=True):
    """The runs that may start. `again` is the time at which more may."""

    shares: list[Share] = field(default_factory=list[Share])
    again: int | None = None
    open: bool = False
    """Whether more might start now if the worker had more free slots."""
    short: bool = False
    """Whether more might start if fewer of them were in this worker's memory."""
    held: bool = False
    """Whether more might start if fewer of them were running in the fleet."""


@dataclass(slots=True)
class _Allowance:
    """How many more runs may begin.

    `again` is when a rate limit admits more. `short` is True if this worker's own concurrency limits them, `held` if
    the runs under way in the fleet do.
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
    """Divide what the limits leave among the partitions in turn, so that no partition waits for another one's backlog."""
    if demand.queue.paused or demand.room <= 0:
        return Admission()
    whole = _of_queue(demand)
    budget = min(whole.count, demand.room)
    each = {name: _of_partition(demand, name) for name in demand.waiting}
    counts = _divide({name: allowance.count for name, allowance in each.items()}, budget)
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
    """Return the limits of a partition: its own if it has exceptions, otherwise those of the queue."""
    return demand.queue.exceptions.get(partition, demand.queue.limits)


def _rate(allowance: _Allowance, window: Window, count: int, first: int | None, demand: Demand) -> None:
    allowance.at_most(window.limit - count)
    allowance.later((demand.now if first is None else first) + window.per)


def _memory(allowance: _Allowance, limit: int | None, mine: int) -> None:
    if limit is not None:
        allowance.short = limit - mine <= allowance.count
        allowance.at_most(limit - mine)


def _divide(allowed: dict[str, int], budget: int) -> dict[str, int]:
    """Divide a budget evenly, in the given order. What a partition may not use goes to the others."""
    given: dict[str, int] = dict.fromkeys(allowed, 0)
    open_partitions: list[str] = [name for name, most in allowed.items() if most > 0]
    while budget > 0 and open_partitions:
        portion = max(1, budget // len(open_partitions))
        for name in open_partitions:
            more = min(portion, allowed[name] - given[name], budget)
            given[name] += more
            budget -= more
        open_partitions = [name for name in open_partitions if given[name] < allowed[name]]
    return {name: count for name, count in given.items() if count}
