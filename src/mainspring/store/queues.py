"""Queues in a store: what is kept of them, and how a claim asks which of their runs may begin.

A claim finds out what waits (`Demand`), asks a pure function what may begin (`Admission`), and takes that, all in one
transaction. Where workers have to agree, the queue's row is locked first and everything is counted in later statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def admit_nothing(demand: Demand) -> Admission:
    del demand
    return Admission()


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


AHEAD = 1_000_000
"""By how much the clocks of a fleet may differ, in microseconds. A start that is further ahead was noted when a clock was wrong."""


def ahead(rows: Sequence[Sequence[Any]], now: int) -> bool:
    """Whether some of the starts that COUNT_RECENT found were noted when a clock was ahead of what it is now."""
    return any(last > now + AHEAD for _, _, _, last in rows)


def recent(rows: Sequence[Sequence[Any]]) -> Recent:
    """What COUNT_RECENT found."""
    return {partition: (count, first) for partition, count, first, _ in rows}


# -- statements that are the same in every store -------------------------------------------------------------------------
QUEUE_COLUMNS = ("name", "limits", "retry", "paused", "declared", "version", "created")
WAITS = "state = 'queued' AND queue IS NOT NULL AND since IS NULL"
"""A run that wants to begin: exactly the condition of the index `runs_queue`."""
RESUMES = "state = 'queued' AND queue IS NOT NULL AND since IS NOT NULL"
"""A run that has begun and wants to go on: it has its place, so no limit of the fleet stands in its way."""
PLACED = "queue IS NOT NULL AND since IS NOT NULL AND state IN ('queued', 'running', 'waiting', 'cancelling')"

_NAMES = f"""
  WITH RECURSIVE names (name) AS (
    SELECT min(queue) FROM runs WHERE {WAITS}
    UNION ALL
    SELECT (SELECT min(runs.queue) FROM runs WHERE {WAITS} AND runs.queue > names.name)
    FROM names WHERE name IS NOT NULL)
"""
_AFTER = f"SELECT min(runs.partition) FROM runs WHERE {WAITS} AND queue = :queue AND runs.partition > {{after}}"
WAITING = f"""{_NAMES}
  SELECT {", ".join(f"queues.{column}" for column in QUEUE_COLUMNS)} FROM names JOIN queues ON queues.name = names.name
"""
"""The queues in which runs wait: from name to name through the index, however many runs there are."""
NAMES = """
  WITH RECURSIVE names (name) AS (
    SELECT min(workflow) FROM runs WHERE state = 'queued'
    UNION ALL
    SELECT (SELECT min(runs.workflow) FROM runs WHERE state = 'queued' AND runs.workflow > names.name)
    FROM names WHERE name IS NOT NULL)
  SELECT name FROM names WHERE name IS NOT NULL
"""
"""The functions whose runs wait, in the same way."""


def partitions(fits: str, after: str = _AFTER) -> str:
    """The statement for the partitions of a queue with runs that the asking worker can take, after a given one, in the same way.

    `fits` is the condition that there is such a run in `found.name`, `after` finds the next partition behind `{after}`. Partitions without
    one are passed over: a place that was offered to them would stay empty. Rows are made as they are read, so that no more
    partitions are looked at than it takes to find enough of them.
    """
    return f"""
  WITH RECURSIVE found (name) AS (
    SELECT ({after.format(after=":after")})
    UNION ALL
    SELECT ({after.format(after="found.name")}) FROM found WHERE name IS NOT NULL)
  SELECT name FROM found WHERE name IS NOT NULL AND {fits} LIMIT :most
"""


COUNT_PLACED = f"SELECT partition, count(*) FROM runs WHERE {PLACED} AND queue = :queue GROUP BY partition"
COUNT_RECENT = """
  SELECT partition, count(*), min(at), max(at) FROM queue_starts WHERE queue = :queue AND at > :after GROUP BY partition
"""
CLAMP_STARTS = "UPDATE queue_starts SET at = :now WHERE queue = :queue AND at > :ahead"
"""Starts that are ahead count as made now: else the queue would stand still until that time comes, or be over its rate at once."""
SWEEP_STARTS = "DELETE FROM queue_starts WHERE queue = :queue AND at <= :before"
EXCEPTIONS = "SELECT queue, partition, limits FROM queue_partitions"
QUEUES = f"SELECT {', '.join(QUEUE_COLUMNS)} FROM queues"
COUNTS = " UNION ALL ".join(
    f"SELECT queue, partition, state, since IS NOT NULL, count(*) FROM runs WHERE {condition} GROUP BY 1, 2, 3, 4"
    for condition in (
        WAITS,
        PLACED,
        "queue IS NOT NULL AND state = 'scheduled' AND owner IS NULL AND state IN ('scheduled', 'waiting')",
    )
)
"""One part for each index: what has ended is not looked at, however much of it there is."""
