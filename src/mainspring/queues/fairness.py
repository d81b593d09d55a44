"""Decide what a claim takes from each of the queues with waiting runs. Pure functions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from mainspring.model.queues import Limits
from mainspring.queues.admission import Admission, Demand, admit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mainspring.model.queues import Queue
    from mainspring.queues.admission import Recent


class Claimant(Protocol):
    """The worker that claims: its queues (None: all), and its runs of queues in memory."""

    @property
    def queues(self) -> frozenset[str] | None: ...
    @property
    def mine(self) -> Mapping[str, Mapping[str, int]]: ...
    @property
    def now(self) -> int: ...


class Resumable(Struct, frozen=True):
    """Runs that a worker may continue. `short`: it has no slot for some. `mine`: its runs in memory, these included."""

    ids: list[str]
    more: bool
    """Whether there are more runs than the limit."""
    short: bool
    mine: Mapping[str, Mapping[str, int]]


class Fairness:
    """The claim policy of workers. Pure: a store only finds the waiting runs, and claims those that were decided on.

    A store counts the waiting runs (`Demand`), decides here which of them may start (`Admission`), and claims those, all in one
    transaction. Where workers must agree, the queue's row is locked first, and later statements count.
    """

    def half(self, room: int, turn: int) -> int:
        """Half of the free slots. An odd slot is included every other time."""
        return (room + turn % 2) // 2

    def divide(self, claimant: Claimant, waiting: Sequence[Queue], turn: int, turns: dict[str, str]) -> Demands:
        """The queues to claim from, in an order that changes with each claim.

        `turns` remembers, for each queue, the partition that was served last. The next one is served first.
        """
        return Demands(self, claimant, waiting, turn, turns)

    def resumable(
        self, claimant: Claimant, rows: Iterable[Sequence[Any]], queues: Mapping[str, Queue], limit: int
    ) -> Resumable:
        """Return the first runs to resume, of rows (id, queue, partition, …), that this worker may have in memory.

        Reads no more rows than it needs to find `limit` runs. Runs without a free slot are skipped, however many they are.
        """
        mine = {name: dict(partitions) for name, partitions in claimant.mine.items()}
        found: list[str] = []
        short = False
        for run, name, partition, *_ in rows:
            if not _takes_from(claimant, name):
                continue
            here = mine.setdefault(name, {})
            limits = queues[name].limits if name in queues else Limits()
            whole, part = limits.worker_concurrency, limits.partition_worker_concurrency
            if (whole is not None and sum(here.values()) >= whole) or (
                part is not None and here.get(partition, 0) >= part
            ):
                short = True
                continue
            if len(found) == limit:
                return Resumable(found, more=True, short=short, mine=mine)
            here[partition] = here.get(partition, 0) + 1
            found.append(run)
        return Resumable(found, more=False, short=short, mine=mine)


FAIR = Fairness()


class Demands:
    """The queues that a claim may take from, in an order that changes with each claim.

    `turns` has, for each queue, the partition that was served last. The next one is served first.
    """

    def __init__(
        self, policy: Fairness, claimant: Claimant, waiting: Sequence[Queue], turn: int, turns: dict[str, str]
    ) -> None:
        open_ = [queue for queue in waiting if not queue.paused and _takes_from(claimant, queue.name)]
        begin = turn % len(open_) if open_ else 0
        self.queues = [*open_[begin:], *open_[:begin]]
        self._waiting = waiting
        self._policy = policy
        self._claimant = claimant
        self._turn = turn
        self._turns = turns
        self._allotments: list[Allotment] = []
        self._left_out = False

    def __bool__(self) -> bool:
        return bool(self.queues)

    def alone(self, queue: str) -> Demands:
        """Return the demands of a single queue, as it was before any queue was locked."""
        alone = [each for each in self._waiting if each.name == queue]
        return self._policy.divide(self._claimant, alone, self._turn, self._turns)

    def room_for_plain(self, room: int) -> int:
        """Return the slots for runs without a queue: half of the room if runs wait in queues, so that neither kind starves."""
        return self._policy.half(room, self._turn) if self.queues else room

    def turn_of(self, queue: str) -> str:
        """Return the partition of a queue that was served last."""
        return self._turns.get(queue, "")

    def refresh(self, queues: Iterable[Queue], exceptions: Mapping[str, dict[str, Limits]]) -> None:
        """Replace the queues by their state under the lock, with the limits of single partitions.

        A shared queue that is missing in `queues` is locked by another claim or was deleted, and is dropped.
        """
        locked = {queue.name: queue for queue in queues}
        self.queues = [
            replace(locked.get(queue.name, queue), exceptions=exceptions.get(queue.name, {}))
            for queue in self.queues
            if queue.name in locked or not queue.shared
        ]

    def each(self, room: int) -> Iterator[Allotment]:
        """Yield one queue after the other, each with its part of the remaining room."""
        left = room
        for number, queue in enumerate(self.queues):
            if left <= 0:
                self._left_out = True
                return
            part = max(1, left // (len(self.queues) - number))
            allotment = Allotment(self._claimant, queue, part, self._turns)
            self._allotments.append(allotment)
            yield allotment
            left -= allotment.taken

    @property
    def more(self) -> bool:
        """Whether there was more to take than there was room for."""
        return self._left_out or any(allotment.more for allotment in self._allotments)

    @property
    def held(self) -> bool:
        """Whether the runs under way in the fleet held back a queue."""
        return any(allotment.admission.held and not allotment.emptied for allotment in self._allotments)

    @property
    def short(self) -> bool:
        """Whether this worker's own concurrency held back a queue."""
        return any(allotment.admission.short and not allotment.emptied for allotment in self._allotments)

    @property
    def again(self) -> int | None:
        """When a rate limit of one of the queues admits more."""
        times = [allotment.admission.again for allotment in self._allotments]
        return min((when for when in times if when is not None), default=None)


class Allotment:
    """What a claim may take from one queue."""

    def __init__(self, claimant: Claimant, queue: Queue, room: int, turns: dict[str, str]) -> None:
        self._now = claimant.now
        self._turns = turns
        self._mine: Mapping[str, int] = claimant.mine.get(queue.name, {})
        self.queue = queue
        self._room = room
        self.admission = Admission()
        self._waiting = 0
        """The number of partitions with waiting runs."""
        self.taken = 0
        self.more = self.emptied = False

    @property
    def turn(self) -> str:
        """The partition that was served last."""
        return self._turns.get(self.queue.name, "")

    def most_partitions(self, placed: Mapping[str, int], recent: Mapping[int, Recent]) -> int:
        """Return how many partitions to look at: only partitions with runs under way can be at their limits."""
        begun = set(placed).union(self._mine, *recent.values())
        return self._room + len(begun)

    def decide(self, waiting: Sequence[str], placed: dict[str, int], recent: dict[int, Recent]) -> Admission:
        """Decide what may be taken. `waiting` are partitions in turn, possibly with duplicates."""
        partitions = list(dict.fromkeys(waiting))
        demand = Demand(self.queue, partitions, placed, recent, self._mine, self._room, self._now)
        self.admission = admit(demand)
        self._waiting = len(partitions)
        self.taken = sum(share.count for share in self.admission.shares)
        return self.admission

    def took(self, partitions: Sequence[str]) -> None:
        """Record the partition of each run that was claimed."""
        self.taken = len(partitions)
        found = Counter(partitions)
        used_up = any(found[share.partition] == share.count for share in self.admission.shares)
        self.more = self.admission.open and used_up
        self.emptied = len(self.admission.shares) == self._waiting and not used_up
        if self.admission.shares:
            self._turns[self.queue.name] = self.admission.shares[-1].partition


def _takes_from(claimant: Claimant, queue: str) -> bool:
    return claimant.queues is None or queue in claimant.queues
