"""The verbs about queues, as `mainspring.store.queues.QueueStore` specifies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store.sql import queues as sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.queues import Limits, Queue
    from mainspring.store.queues import QueueCounts
    from mainspring.store.transaction import Script, Transaction, Transactor


class Queues:
    """The queues of a store, or of a user's transaction on it."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self._read = transactor.read

    def declare(self, queues: Sequence[Queue], now: int) -> list[str]:
        """Locks nothing if the queues are as declared."""
        there = {each.name: each.declared for each in self.all()}
        changed = [each for each in queues if each.name not in there or there[each.name] != each.declared]
        if not changed:
            return []

        def work(tx: Transaction) -> Script[list[str]]:
            names: list[str] = []
            for queue in sorted(changed, key=lambda each: each.name):
                values = _values(queue) | {"declared": queue.declared, "version": queue.version, "now": tx.now}
                names += [row[0] for row in (yield from tx.execute(sql.DECLARE_QUEUE, **values))]
            tx.changes.ready = bool(names)
            return names

        return self._transactor.change(work, now)

    def set(self, queue: Queue) -> bool:
        def work(tx: Transaction) -> Script[bool]:
            yield from _lock(tx, queue.name)
            there = yield from tx.execute(sql.HAS_QUEUE, name=queue.name)
            yield from tx.execute(sql.SET_QUEUE, **_values(queue), now=queue.created)
            return not there

        return self._transactor.change(work)

    def set_partition(self, queue: str, partition: str, limits: Limits | None) -> bool:
        def work(tx: Transaction) -> Script[bool]:
            yield from _lock(tx, queue)
            there = yield from tx.execute(sql.HAS_QUEUE, name=queue)
            if limits is None:
                yield from tx.execute(sql.RESET_PARTITION, queue=queue, partition=partition)
            else:
                yield from tx.execute(sql.SET_PARTITION, queue=queue, partition=partition, limits=sql.to_json(limits))
            return bool(there)

        return self._transactor.change(work)

    def pause(self, queue: str, *, paused: bool) -> bool:
        def work(tx: Transaction) -> Script[bool]:
            yield from _lock(tx, queue)
            return bool((yield from tx.execute(sql.PAUSE_QUEUE, name=queue, paused=paused)))

        return self._transactor.change(work)

    def delete(self, queue: str) -> bool:
        def work(tx: Transaction) -> Script[bool]:
            yield from _lock(tx, queue)
            found: list[Any] = []
            for statement in sql.DELETE_QUEUE:
                found = yield from tx.execute(statement, name=queue)
            return bool(found)

        return self._transactor.change(work)

    def get(self, queue: str) -> Queue | None:
        return next((each for each in self.all() if each.name == queue), None)

    def all(self) -> list[Queue]:
        exceptions = sql.to_exceptions(self._read(sql.EXCEPTIONS))
        return sql.to_queues(self._read(sql.LIST_QUEUES), exceptions)

    def counts(self) -> dict[str, QueueCounts]:
        return sql.counted(self._read(sql.COUNTS), lambda queue, _: queue)

    def partitions(self, queue: str) -> dict[str, QueueCounts]:
        rows = [row for row in self._read(sql.COUNTS) if row[0] == queue]
        return sql.counted(rows, lambda _, partition: partition)


def _lock(tx: Transaction, queue: str) -> Script[None]:
    """Lock a queue before a change. After the commit, no claim uses the old limits.

    A user's transaction may be long, and so takes no lock that claims wait for.
    """
    tx.changes.ready = True
    if not tx.users:
        yield from tx.execute(sql.LOCK_QUEUE, schema=tx.dialect.name, queue=queue)


def _values(queue: Queue) -> dict[str, Any]:
    return {"name": queue.name, "limits": sql.to_json(queue.limits), "retry": queue.retry}
