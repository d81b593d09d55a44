"""The queues of a store on SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.model.queues import Limits, Queue
from mainspring.store import queues as text
from mainspring.store.queue_rows import counted, to_exceptions, to_json
from mainspring.store.unreadable import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.store.queues import QueueCounts
    from mainspring.store.sqlite.database import Database

_SEEN = "coalesce((SELECT first_seen FROM versions WHERE versions.version = {}), 0)"
_DECLARE = f"""
  INSERT INTO queues (name, limits, retry, declared, version, created)
  VALUES (:name, :limits, :retry, :declared, :version, :now)
  ON CONFLICT (name) DO UPDATE SET limits = excluded.limits, retry = excluded.retry, declared = excluded.declared,
    version = excluded.version
  WHERE queues.declared IS NOT excluded.declared AND {_SEEN.format("queues.version")} <= {_SEEN.format("excluded.version")}
  RETURNING name
"""
_SET = """
  INSERT INTO queues (name, limits, retry, created) VALUES (:name, :limits, :retry, :now)
  ON CONFLICT (name) DO UPDATE SET limits = excluded.limits, retry = excluded.retry
"""
_SET_PARTITION = """
  INSERT INTO queue_partitions (queue, partition, limits) SELECT name, :partition, :limits FROM queues WHERE name = :queue
  ON CONFLICT (queue, partition) DO UPDATE SET limits = excluded.limits
"""


class SqliteQueues:
    """See `mainspring.store.queues.QueueStore` for what each verb promises. `tell` wakes whoever claims."""

    def __init__(self, database: Database, tell: Callable[[], None]) -> None:
        self._db = database
        self._tell = tell

    def declare(self, queues: Sequence[Queue], now: int) -> list[str]:
        changed: list[str] = []
        with self._db.write() as db:
            for queue in queues:
                values = {
                    "name": queue.name,
                    "limits": to_json(queue.limits),
                    "retry": queue.retry,
                    "declared": queue.declared,
                    "version": queue.version,
                    "now": now,
                }
                if db.execute(_DECLARE, values).fetchall():
                    changed.append(queue.name)
        if changed:
            self._tell()
        return changed

    def set(self, queue: Queue) -> bool:
        with self._db.write() as db:
            there = db.execute("SELECT 1 FROM queues WHERE name = ?", (queue.name,)).fetchone()
            values = {"name": queue.name, "limits": to_json(queue.limits), "retry": queue.retry, "now": queue.created}
            db.execute(_SET, values)
        self._tell()
        return there is None

    def set_partition(self, queue: str, partition: str, limits: Limits | None) -> bool:
        with self._db.write() as db:
            there = db.execute("SELECT 1 FROM queues WHERE name = ?", (queue,)).fetchone() is not None
            if limits is None:
                db.execute("DELETE FROM queue_partitions WHERE queue = ? AND partition = ?", (queue, partition))
            else:
                db.execute(_SET_PARTITION, {"queue": queue, "partition": partition, "limits": to_json(limits)})
        self._tell()
        return there

    def pause(self, queue: str, *, paused: bool) -> bool:
        with self._db.write() as db:
            done = db.execute("UPDATE queues SET paused = ? WHERE name = ? RETURNING name", (paused, queue)).fetchall()
        self._tell()
        return bool(done)

    def delete(self, queue: str) -> bool:
        with self._db.write() as db:
            db.execute("DELETE FROM queue_partitions WHERE queue = ?", (queue,))
            db.execute("DELETE FROM queue_starts WHERE queue = ?", (queue,))
            return bool(db.execute("DELETE FROM queues WHERE name = ? RETURNING name", (queue,)).fetchall())

    def get(self, queue: str) -> Queue | None:
        return next((each for each in self.all() if each.name == queue), None)

    def all(self) -> list[Queue]:
        with self._db.read() as db:
            exceptions = to_exceptions(db.execute(text.EXCEPTIONS).fetchall())
            rows = db.execute(f"{text.QUEUES} ORDER BY name").fetchall()
        return to_queues(rows, exceptions)

    def counts(self) -> dict[str, QueueCounts]:
        with self._db.read() as db:
            return counted(db.execute(text.COUNTS).fetchall(), lambda queue, _: queue)

    def partitions(self, queue: str) -> dict[str, QueueCounts]:
        with self._db.read() as db:
            rows = db.execute(text.COUNTS).fetchall()
        return counted([row for row in rows if row[0] == queue], lambda _, partition: partition)


def to_queues(rows: Iterable[Sequence[Any]], exceptions: dict[str, dict[str, Limits]] | None = None) -> list[Queue]:
    """Queues from their rows, without those that cannot be read: their runs wait until somebody has repaired them."""
    return readable("queues", rows, lambda row: to_queue(row, (exceptions or {}).get(row[0])))


def to_queue(row: Sequence[Any], exceptions: dict[str, Limits] | None = None) -> Queue:
    """From a row in the order of QUEUE_COLUMNS."""
    name, limits, retry, paused, declared, version, created = row
    return Queue(
        name,
        msgspec.json.decode(limits, type=Limits),
        retry,
        bool(paused),
        declared,
        version,
        created,
        exceptions or {},
    )
