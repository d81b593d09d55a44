"""The queues of a store on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.model.queues import Limits, Queue
from mainspring.store import queues as text
from mainspring.store.postgres.news import News
from mainspring.store.queue_rows import counted, to_exceptions, to_json
from mainspring.store.unreadable import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.store.postgres.database import Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.queues import QueueCounts


def lock_key(name: str) -> str:
    """The key of the lock under which claims agree on what a queue admits; `name` is an SQL expression."""
    return f"hashtextextended(:schema || '.' || {name}, 7290116)"


LOCK = f"SELECT pg_advisory_xact_lock({lock_key(':queue::text')})"
_SEEN = "coalesce((SELECT first_seen FROM versions v WHERE v.version = {}), 0)"
_DECLARE = f"""
  INSERT INTO queues (name, limits, retry, declared, version, created)
  VALUES (:name, :limits::json, :retry::json, :declared::json, :version, :now)
  ON CONFLICT (name) DO UPDATE SET limits = excluded.limits, retry = excluded.retry, declared = excluded.declared,
    version = excluded.version
  WHERE queues.declared::text IS DISTINCT FROM excluded.declared::text
    AND {_SEEN.format("queues.version")} <= {_SEEN.format("excluded.version")}
  RETURNING name
"""
_SET = """
  INSERT INTO queues (name, limits, retry, created) VALUES (:name, :limits::json, :retry::json, :now)
  ON CONFLICT (name) DO UPDATE SET limits = excluded.limits, retry = excluded.retry RETURNING xmax = 0
"""
_SET_PARTITION = """
  INSERT INTO queue_partitions (queue, partition, limits)
  SELECT name, :partition, :limits::json FROM queues WHERE name = :queue
  ON CONFLICT (queue, partition) DO UPDATE SET limits = excluded.limits RETURNING queue
"""


class PostgresQueues:
    """See `mainspring.store.queues.QueueStore` for what each verb promises. `tell` wakes this process's claimer.

    `joined`: everything is part of a user's transaction, which may take long and so takes no locks that claims wait for.
    """

    def __init__(
        self, database: Database, dialect: Dialect, origin: str, tell: Callable[[News], None], *, joined: bool = False
    ) -> None:
        self._db = database
        self._sql = dialect
        self._origin = origin
        self._tell = tell
        self._joined = joined

    def declare(self, queues: Sequence[Queue], now: int) -> list[str]:
        """Nothing is locked, or waited for, where the queues are as they are declared."""
        there = {each.name: each.declared for each in self.all()}
        statements: list[tuple[str, dict[str, Any]]] = []
        ordered = sorted(queues, key=lambda queue: queue.name)
        ordered = [each for each in ordered if each.name not in there or there[each.name] != each.declared]
        for queue in ordered:
            values = {
                "name": queue.name,
                "limits": to_json(queue.limits),
                "retry": queue.retry,
                "declared": queue.declared,
                "version": queue.version,
                "now": now,
            }
            statements.append((_DECLARE, values))
        done = self._change(*statements) if statements else []
        return [queue.name for queue, rows in zip(ordered, done, strict=True) if rows]

    def set(self, queue: Queue) -> bool:
        values = {"name": queue.name, "limits": to_json(queue.limits), "retry": queue.retry, "now": queue.created}
        (rows,) = self._change((_SET, values), queue=queue.name)
        return bool(rows[0][0])

    def set_partition(self, queue: str, partition: str, limits: Limits | None) -> bool:
        values = {"queue": queue, "partition": partition, "limits": None if limits is None else to_json(limits)}
        change = "DELETE FROM queue_partitions WHERE queue = :queue AND partition = :partition RETURNING queue"
        look = "SELECT 1 FROM queues WHERE name = :queue"
        rows, _ = self._change((look, values), (change if limits is None else _SET_PARTITION, values), queue=queue)
        return bool(rows)

    def pause(self, queue: str, *, paused: bool) -> bool:
        values = {"name": queue, "paused": paused}
        change = "UPDATE queues SET paused = :paused WHERE name = :name RETURNING name"
        (rows,) = self._change((change, values), queue=queue)
        return bool(rows)

    def delete(self, queue: str) -> bool:
        values = {"queue": queue}
        rows, *_ = self._change(
            ("DELETE FROM queues WHERE name = :queue RETURNING name", values),
            ("DELETE FROM queue_partitions WHERE queue = :queue RETURNING queue", values),
            ("DELETE FROM queue_starts WHERE queue = :queue RETURNING queue", values),
            queue=queue,
        )
        return bool(rows)

    def get(self, queue: str) -> Queue | None:
        return next((each for each in self.all() if each.name == queue), None)

    def all(self) -> list[Queue]:
        exceptions = to_exceptions(self._rows(text.EXCEPTIONS))
        return to_queues(self._rows(f"{text.QUEUES} ORDER BY name"), exceptions)

    def counts(self) -> dict[str, QueueCounts]:
        return counted(self._rows(text.COUNTS), lambda queue, _: queue)

    def partitions(self, queue: str) -> dict[str, QueueCounts]:
        rows = [row for row in self._rows(text.COUNTS) if row[0] == queue]
        return counted(rows, lambda _, partition: partition)

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self._db.connection() as db:
            return db.execute(self._sql(statement)).fetchall()

    def _change(self, *statements: tuple[str, dict[str, Any]], queue: str | None = None) -> list[list[tuple[Any, ...]]]:
        """Execute in one transaction and wake the claimers of all processes: the rows that each changed or found.

        With the lock of the `queue`: once it is changed, no claim goes by what it was before.
        """
        news = News(ready=True)
        found: list[list[tuple[Any, ...]]] = []
        with self._db.transaction() as db:
            if queue is not None and not self._joined:
                db.execute(self._sql(LOCK), {"schema": self._sql.name, "queue": queue})
            for statement, values in statements:
                found.append(db.execute(self._sql(statement), values).fetchall())
            news.notify(db, self._sql, self._origin)
        self._tell(news)
        return found


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
        paused,
        declared,
        version,
        created,
        exceptions or {},
    )
