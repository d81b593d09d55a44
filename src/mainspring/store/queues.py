"""Queues in a store: their rows, and the limits that decide which of their runs a claim may start.

A claim counts the waiting runs (`Demand`), calls a pure function that decides which of them may start (`Admission`), and claims those, all
in one transaction. Where workers must agree, the queue's row is locked first, and later statements count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mainspring.model.queues import Limits, Queue

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


Admit = Callable[[Demand], Admission]


# -- claims --------------------------------------------------------------------------------------------------------------
class Resumable(Struct, frozen=True):
    """Runs that a worker may continue. `short`: it has no slot for some. `mine`: its runs in memory, these included."""

    ids: list[str]
    more: bool
    """Whether there are more runs than the limit."""
    short: bool
    mine: Mapping[str, Mapping[str, int]]


class Claimant(Protocol):
    """The worker that claims: its queues (None: all), and its runs of queues in memory."""

    @property
    def queues(self) -> frozenset[str] | None: ...
    @property
    def mine(self) -> Mapping[str, Mapping[str, int]]: ...
    @property
    def now(self) -> int: ...


class Allotment(Protocol):
    """The runs that a claim may take from one queue."""

    queue: Queue
    admission: Admission

    @property
    def turn(self) -> str:
        """The partition that was served last."""
        ...

    def most_partitions(self, placed: Mapping[str, int], recent: Mapping[int, Recent]) -> int:
        """The most partitions to look up."""
        ...

    def decide(self, waiting: Sequence[str], placed: dict[str, int], recent: dict[int, Recent]) -> Admission:
        """Return the shares of the partitions. `waiting` are partitions in the order of their turns, with possible repetitions."""
        ...

    def took(self, partitions: Sequence[str]) -> None:
        """Count the claimed runs, given the partition of each."""
        ...


class Demands(Protocol):
    """The queues that a claim may take from. False if there are none."""

    queues: list[Queue]

    def __bool__(self) -> bool: ...

    def alone(self, queue: str) -> Demands:
        """One of the queues, as read before any queue was locked."""
        ...

    def room_for_plain(self, room: int) -> int:
        """The number of slots for runs without a queue."""
        ...

    def turn_of(self, queue: str) -> str:
        """The partition of a queue that was served last."""
        ...

    def refresh(self, queues: Iterable[Queue], exceptions: Mapping[str, dict[str, Limits]]) -> None:
        """Replace queues by their rows as read under the lock."""
        ...

    def each(self, room: int) -> Iterator[Allotment]:
        """Iterate over the queues, each with its share of the free slots."""
        ...

    @property
    def more(self) -> bool:
        """Whether more runs were ready than the claim had slots for."""
        ...

    @property
    def held(self) -> bool:
        """Whether more might be claimed if fewer runs were running in the fleet."""
        ...

    @property
    def short(self) -> bool:
        """Whether more might be claimed if fewer runs were in this worker's memory."""
        ...

    @property
    def again(self) -> int | None:
        """The time at which one of the queues may admit more."""
        ...


class ClaimPolicy(Protocol):
    """Decides which runs a claim takes. Pure: a store only finds the waiting runs, and claims those that were decided on."""

    def half(self, room: int, turn: int) -> int:
        """Half of the free slots. An odd slot is included every other time."""
        ...

    def divide(self, claimant: Claimant, waiting: Sequence[Queue], turn: int, turns: dict[str, str]) -> Demands:
        """The queues to claim from, in an order that changes with each claim.

        `turns` remembers, for each queue, the partition that was served last. The next one is served first.
        """
        ...

    def resumable(
        self, claimant: Claimant, rows: Iterable[Sequence[Any]], queues: Mapping[str, Queue], limit: int
    ) -> Resumable:
        """Of runs to continue (id, queue, partition, …), the first that this worker may have in memory.

        Rows are read only until enough are found. Runs without a free slot are skipped, however many.
        """
        ...


# -- queues --------------------------------------------------------------------------------------------------------------
class QueueCounts(Struct, frozen=True):
    """The number of runs in a queue: ready to start, due later, and running."""

    ready: int = 0
    scheduled: int = 0
    under_way: int = 0


class QueueStore(Protocol):
    """The queues of a store."""

    def declare(self, queues: Sequence[Queue], now: int) -> list[str]:
        """Create the queues that the code of a version declares, and change those that it declares differently than before.

        Changes at run time stay while the declaration is the same as before. Declarations of a version that was first seen later stay as
        well. Returns the names that were created or changed.
        """
        ...

    def set(self, queue: Queue) -> bool:
        """Create a queue, or change its limits and retries. Return True if it is new. A paused queue stays paused."""
        ...

    def set_partition(self, queue: str, partition: str, limits: Limits | None) -> bool:
        """Give a partition limits of its own; None: those of the queue. Return False if there is no such queue."""
        ...

    def pause(self, queue: str, *, paused: bool) -> bool:
        """Pause a queue, so that no run of it starts, or continue it. Return False if there is no such queue."""
        ...

    def delete(self, queue: str) -> bool:
        """Delete a queue. Its runs that have not started wait for a queue of that name. Return False if there is no such queue."""
        ...

    def get(self, queue: str) -> Queue | None:
        """One queue with the limits of its partitions, or None."""
        ...

    def all(self) -> list[Queue]:
        """All queues, by name."""
        ...

    def counts(self) -> dict[str, QueueCounts]:
        """The counts of each queue, including queues that runs name and that do not exist."""
        ...

    def partitions(self, queue: str) -> dict[str, QueueCounts]:
        """The counts of each partition of a queue."""
        ...
