"""Statements about the tables `queues`, `queue_partitions` and `queue_starts` and about runs in queues, and the decoding of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.model.clock import CLOCK_ERROR
from mainspring.model.queues import Limits, Queue, QueueCounts
from mainspring.store.bad_rows import readable
from mainspring.store.sql.conditions import LATER, PLACED, READY, RESUMES, WAITS
from mainspring.store.sql.dialect import PerDatabase, distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.queues.admission import Recent

# -- queues --------------------------------------------------------------------------------------------------------------
QUEUE_COLUMNS = ("name", "limits", "retry", "paused", "declared", "version", "created")
QUEUES = f"SELECT {', '.join(QUEUE_COLUMNS)} FROM queues"
LIST_QUEUES = f"{QUEUES} ORDER BY name"
EXCEPTIONS = "SELECT queue, partition, limits FROM queue_partitions"
HAS_QUEUE = "SELECT 1 FROM queues WHERE name = :name"
_SEEN = "coalesce((SELECT v.first_seen FROM versions v WHERE v.version = {}), 0)"
DECLARE_QUEUE = f"""
  INSERT INTO queues (name, limits, retry, declared, version, created)
  VALUES (:name, :limits::json, :retry::json, :declared::json, :version, :now)
  ON CONFLICT (name) DO UPDATE SET limits = excluded.limits, retry = excluded.retry, declared = excluded.declared,
    version = excluded.version
  WHERE coalesce(queues.declared::text, '') <> coalesce(excluded.declared::text, '')
    AND {_SEEN.format("queues.version")} <= {_SEEN.format("excluded.version")}
  RETURNING name
"""
SET_QUEUE = """
  INSERT INTO queues (name, limits, retry, created) VALUES (:name, :limits::json, :retry::json, :now)
  ON CONFLICT (name) DO UPDATE SET limits = excluded.limits, retry = excluded.retry
"""
SET_PARTITION = """
  INSERT INTO queue_partitions (queue, partition, limits)
  SELECT name, :partition, :limits::json FROM queues WHERE name = :queue
  ON CONFLICT (queue, partition) DO UPDATE SET limits = excluded.limits
"""
RESET_PARTITION = "DELETE FROM queue_partitions WHERE queue = :queue AND partition = :partition"
PAUSE_QUEUE = "UPDATE queues SET paused = :paused WHERE name = :name RETURNING name"
DELETE_QUEUE = (
    "DELETE FROM queue_partitions WHERE queue = :name",
    "DELETE FROM queue_starts WHERE queue = :name",
    "DELETE FROM queues WHERE name = :name RETURNING name",
)


def lock_key(name: str) -> str:
    """The key of the advisory lock under which claims share a queue's limits, on PostgreSQL. `name` is an SQL expression."""
    return f"hashtextextended(:schema || '.' || {name}, 7290116)"


LOCK_QUEUE = PerDatabase(  # an advisory lock; a writer on SQLite is alone
    postgres=f"SELECT pg_advisory_xact_lock({lock_key(':queue::text')})", sqlite="SELECT :schema, :queue"
)

# -- runs in queues ------------------------------------------------------------------------------------------------------
QUEUED_RUNS = f"(SELECT * FROM runs WHERE {READY} UNION ALL SELECT * FROM runs WHERE {RESUMES}) runs"
"""All queued runs, each part by its own index."""

WAITING = f"""{distinct("queue", WAITS)}
  SELECT {", ".join(f"queues.{column}" for column in QUEUE_COLUMNS)} FROM names JOIN queues ON queues.name = names.name
"""
"""The queues with waiting runs."""

COUNT_PLACED = f"SELECT partition, count(*) FROM runs WHERE {PLACED} AND queue = :queue GROUP BY partition"
COUNT_RECENT = """
  SELECT partition, count(*), min(at), max(at) FROM queue_starts WHERE queue = :queue AND at > :after GROUP BY partition
"""
CLAMP_STARTS = "UPDATE queue_starts SET at = :now WHERE queue = :queue AND at > :ahead"
"""Starts with a future time count as made now. Otherwise the queue would stop until that time, or exceed its rate at once."""
SWEEP_STARTS = "DELETE FROM queue_starts WHERE queue = :queue AND at <= :before"
COUNTS = " UNION ALL ".join(
    f"SELECT queue, partition, state, attempt_started IS NOT NULL, count(*) FROM runs WHERE {condition} GROUP BY 1, 2, 3, 4"
    for condition in (
        WAITS,
        PLACED,
        f"queue IS NOT NULL AND state = 'scheduled' AND {LATER}",
    )
)
"""One part for each index, so that ended runs are not read."""


# -- rows ----------------------------------------------------------------------------------------------------------------
def ahead(rows: Sequence[Sequence[Any]], now: int) -> bool:
    """Whether some of the starts that COUNT_RECENT found are ahead of the clock: they came from a wrong one."""
    return any(last > now + CLOCK_ERROR for _, _, _, last in rows)


def swept_before(now: int, windows: Iterable[int]) -> int:
    """The time before which starts no longer count, also for a claim by a clock that is behind this one."""
    return now - max(windows) - CLOCK_ERROR


def recent(rows: Sequence[Sequence[Any]]) -> Recent:
    """Decode the rows of COUNT_RECENT."""
    return {partition: (count, first) for partition, count, first, _ in rows}


def to_json(limits: Limits) -> str:
    return msgspec.json.encode(limits).decode()


def to_exceptions(rows: Sequence[Sequence[Any]]) -> dict[str, dict[str, Limits]]:
    """Limits of single partitions by queue, from rows of queue, partition and limits."""
    found: dict[str, dict[str, Limits]] = {}
    read = readable(
        "queue_partitions",
        rows,
        lambda row: (row[0], row[1], msgspec.json.decode(row[2], type=Limits)),
        lambda row: f"{row[0]}/{row[1]}",
    )
    for queue, partition, limits in read:
        found.setdefault(queue, {})[partition] = limits
    return found


def to_queue_with(queue: Queue, exceptions: dict[str, dict[str, Limits]]) -> Queue:
    """Decode a queue with the limits of its single partitions."""
    return msgspec.structs.replace(queue, exceptions=exceptions.get(queue.name, {}))


def counted(rows: Sequence[Sequence[Any]], group: Callable[[str, str], str]) -> dict[str, QueueCounts]:
    """The counts of each group, from rows of queue, partition, state, begun and count."""
    totals: dict[str, list[int]] = {}
    for queue, partition, state, begun, count in rows:
        total = totals.setdefault(group(queue, partition), [0, 0, 0])
        total[1 if state == "scheduled" else 2 if begun else 0] += count
    return {name: QueueCounts(*total) for name, total in totals.items()}


def to_queues(rows: Iterable[Sequence[Any]], exceptions: dict[str, dict[str, Limits]] | None = None) -> list[Queue]:
    """Decode queues, without those that cannot be decoded. Their runs wait until the row is repaired."""
    return readable("queues", rows, lambda row: to_queue(row, (exceptions or {}).get(row[0])))


def to_queue(row: Sequence[Any], exceptions: dict[str, Limits] | None = None) -> Queue:
    """Decode a row in the order of QUEUE_COLUMNS."""
    name, limits, retry, paused, declared, version, created = row
    limited = msgspec.json.decode(limits, type=Limits)
    return Queue(name, limited, retry, bool(paused), declared, version, created, exceptions or {})
