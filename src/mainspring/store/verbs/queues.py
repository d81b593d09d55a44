"""The verbs about queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store.sql import queues as sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.queues import Limits, Queue, QueueCounts
    from mainspring.store.transaction import Script, Transaction, Transactor


class Queues:
    """The queues of a store, or of a user's transaction on it."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self._read = transactor.read

    def declare(self, queues: Sequence[Queue], now: int) -> list[str]:
        """Create the queues that the code of a version declares, and change those that it declares differently than before.

        Changes at run time stay while the declaration is the same as before. Declarations of a version that was first seen later stay as
        well. Returns the names that were created or changed. Locks nothing if the queues are as declared.
        """
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
        """Create a queue, or change its limits and retries. Return True if it is new. A paused queue stays paused."""

        def work(tx: Transaction) -> Script[bool]:
            yield from _lock(tx, queue.name)
            there = yield from tx.execute(sql.HAS_QUEUE, name=queue.name)
            yield from tx.execute(sql.SET_QUEUE, **_values(queue), now=queue.created)
            return not there

        return self._transactor.change(work)

    def set_partition(self, queue: str, partition: str, limits: Limits | None) -> bool:
        """Give a partition limits of its own; None: those of the queue. Return False if there is no such queue."""

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
        """Pause a queue, so that no run of it starts, or continue it. Return False if there is no such queue."""

        def work(tx: Transaction) -> Script[bool]:
            yield from _lock(tx, queue)
            return bool((yield from tx.execute(sql.PAUSE_QUEUE, name=queue, paused=paused)))

        return self._transactor.change(work)

    def delete(self, queue: str) -> bool:
        """Delete a queue. Its runs that have not started wait for a queue of that name. Return False if there is no such queue."""

        def work(tx: Transaction) -> Script[bool]:
            yield from _lock(tx, queue)
            found: list[Any] = []
            for statement in sql.DELETE_QUEUE:
                found = yield from tx.execute(statement, name=queue)
            return bool(found)

        return self._transactor.change(work)

    def get(self, queue: str) -> Queue | None:
        """One queue with the limits of its partitions, or None."""
        return next((each for each in self.all() if each.name == queue), None)

    def all(self) -> list[Queue]:
        """All queues, by name."""
        exceptions = sql.to_exceptions(self._read(sql.EXCEPTIONS))
        return sql.to_queues(self._read(sql.LIST_QUEUES), exceptions)

    def counts(self) -> dict[str, QueueCounts]:
        """The counts of each queue, including queues that runs name and that do not exist."""
        return sql.counted(self._read(sql.COUNTS), lambda queue, _: queue)

    def partitions(self, queue: str) -> dict[str, QueueCounts]:
        """The counts of each partition of a queue."""
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
