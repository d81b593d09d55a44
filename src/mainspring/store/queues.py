"""Queues in a store: what is kept of them, and how a claim asks which of their runs may begin.

A claim finds out what waits (`Demand`), asks a pure function what may begin (`Admission`), and takes that, all in one
transaction. Where workers have to agree, the queue's row is locked first and everything is counted in later statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mainspring.model.queues import Limits, Queue

Recent = dict[str, tuple[int, int]]
"""Starts within a window by partition: how many, and when the first of them was."""


class Demand(Struct, frozen=True):
    """A queue with runs that wait to begin, and what is under way."""

    queue: Queue
    waiting: list[str]
    """Partitions with runs that wait, the one whose turn it is first."""
    placed: dict[str, int]
    """Runs under way in the fleet, by partition; only where a limit needs it."""
    recent: dict[int, Recent]
    """Starts within each window that a limit speaks of, by the window's length."""
    mine: Mapping[str, int]
    """Runs in this worker's memory, by partition."""
    room: int
    now: int


class Share(Struct, frozen=True):
    """How many runs of a partition may begin now."""

    partition: str
    count: int


class Admission(Struct, frozen=True):
    """What may begin. `again` is when more may, by time alone."""

    shares: list[Share] = field(default_factory=list[Share])
    again: int | None = None
    open: bool = False
    """Whether more might begin now if there was more room."""
    short: bool = False
    """Whether more might begin if this worker had fewer of them in memory."""
    held: bool = False
    """Whether more might begin if fewer were under way in the fleet."""


Admit = Callable[[Demand], Admission]


# -- what a claim takes --------------------------------------------------------------------------------------------------
class Resumable(Struct, frozen=True):
    """Runs that a worker may go on with. `short`: there are some that it has no slot for; `mine`: what it then has."""

    ids: list[str]
    more: bool
    """There are more than were asked for."""
    short: bool
    mine: Mapping[str, Mapping[str, int]]


class Claimant(Protocol):
    """The worker that claims: the queues that it takes from (None: all), and the runs of queues in its memory."""

    @property
    def queues(self) -> frozenset[str] | None: ...
    @property
    def mine(self) -> Mapping[str, Mapping[str, int]]: ...
    @property
    def now(self) -> int: ...


class Allotment(Protocol):
    """What a claim may take from one queue."""

    queue: Queue
    admission: Admission

    @property
    def turn(self) -> str:
        """The partition that was served last."""
        ...

    def most_partitions(self, placed: Mapping[str, int], recent: Mapping[int, Recent]) -> int:
        """How many partitions are worth looking at."""
        ...

    def decide(self, waiting: Sequence[str], placed: dict[str, int], recent: dict[int, Recent]) -> Admission:
        """What may be taken; `waiting` are partitions in their turn, some perhaps twice."""
        ...

    def took(self, partitions: Sequence[str]) -> None:
        """What there was to take: the partition of each."""
        ...


class Demands(Protocol):
    """The queues that a claim may take from. False if there are none."""

    queues: list[Queue]

    def __bool__(self) -> bool: ...

    def alone(self, queue: str) -> Demands:
        """One of the queues, as it was before any of them was locked."""
        ...

    def room_for_plain(self, room: int) -> int:
        """How much of the room is for runs without a queue."""
        ...

    def turn_of(self, queue: str) -> str:
        """The partition of a queue that was served last."""
        ...

    def refresh(self, queues: Iterable[Queue], exceptions: Mapping[str, dict[str, Limits]]) -> None:
        """Put queues as they were found under a lock in place of what they were before."""
        ...

    def each(self, room: int) -> Iterator[Allotment]:
        """One queue after the other, each with its part of what is left of the room."""
        ...

    @property
    def more(self) -> bool:
        """Whether there was more to take than there was room for."""
        ...

    @property
    def held(self) -> bool:
        """Whether more might be taken if fewer runs were under way in the fleet."""
        ...

    @property
    def short(self) -> bool:
        """Whether more might be taken if this worker had fewer runs in memory."""
        ...

    @property
    def again(self) -> int | None:
        """When one of the queues may admit more, by time alone."""
        ...


class ClaimPolicy(Protocol):
    """Decides what a claim takes. Pure; a store only finds what waits, and takes what was decided on."""

    def half(self, room: int, turn: int) -> int:
        """Half of the room; of an odd slot, every other time."""
        ...

    def divide(self, claimant: Claimant, waiting: Sequence[Queue], turn: int, turns: dict[str, str]) -> Demands:
        """The queues to take from, in an order that changes with each claim. `turns` remembers, for each queue, the partition that was
        served last: the next one is served first.
        """
        ...

    def resumable(
        self, claimant: Claimant, rows: Iterable[Sequence[Any]], queues: Mapping[str, Queue], limit: int
    ) -> Resumable:
        """Of runs that want to go on (id, queue, partition, …) the first that this worker may have in memory.

        No more rows are read than it takes to find so many; but those that there is no slot for are passed over, however many.
        """
        ...


# -- queues --------------------------------------------------------------------------------------------------------------
class QueueCounts(Struct, frozen=True):
    """What is in a queue: ready to begin, due later, and under way."""

    ready: int = 0
    scheduled: int = 0
    under_way: int = 0


class QueueStore(Protocol):
    """The queues of a store."""

    def declare(self, queues: Sequence[Queue], now: int) -> list[str]:
        """Make the queues that the code of a version declares, and change those that it declares otherwise than before.

        What was changed since at run time stays, as long as the code says the same as before; and so does what a version
        that was first seen later has declared. Answers with the names that were made or changed.
        """
        ...

    def set(self, queue: Queue) -> bool:
        """Make a queue, or change its limits and retries; True if it is new. Its state of being paused stays."""
        ...

    def set_partition(self, queue: str, partition: str, limits: Limits | None) -> bool:
        """Give a partition limits of its own, or with None those of the queue again; False if there is no such queue."""
        ...

    def pause(self, queue: str, *, paused: bool) -> bool:
        """Begin nothing new, or begin again; False if there is no such queue."""
        ...

    def delete(self, queue: str) -> bool:
        """Forget a queue; its runs that have not begun wait for one of that name. False if there is no such queue."""
        ...

    def get(self, queue: str) -> Queue | None:
        """One queue with its exceptions, or None."""
        ...

    def all(self) -> list[Queue]:
        """All queues, by name."""
        ...

    def counts(self) -> dict[str, QueueCounts]:
        """What is in each queue, also in those that are named by runs and do not exist."""
        ...

    def partitions(self, queue: str) -> dict[str, QueueCounts]:
        """What is in each partition of a queue."""
        ...
