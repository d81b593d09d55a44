"""Open transactions, and the scripts of statements that run in one.

A verb of a store is a script: a generator that yields statements and receives their rows. The statements are executed on the store's own
connection, on a user's blocking connection, or on a user's async connection. So each verb is written once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mainspring.model.states import State
from mainspring.store.changes import Changes
from mainspring.store.sql.messages import SUBSCRIBERS
from mainspring.store.sql.runs import (
    EXISTING,
    LOCK_RUNS,
    PARENTS,
    SHARE_RUNS,
    SKIP_LOCKED,
    TREE,
    TREE_WITH_DEADLINE,
    WAKE,
)
from mainspring.store.sql.steps import WAITERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.store.sql.dialect import Dialect, Sql

T = TypeVar("T")

Rows = list[tuple[Any, ...]]
Values = Mapping[str, Any]
Script = Generator[tuple["Sql", Values], Rows, T]
"""A generator that yields statements with their values, receives their rows, and returns the result of the verb."""

PATIENCE = "100ms"
"""How long a transaction on PostgreSQL that has locked rows waits for another one's."""
LIMIT_WAITING = "SELECT set_config('lock_timeout', :patience, true)"
NOTIFY = "SELECT pg_notify(:channel, :payload)"
_OLD_SNAPSHOT = "SELECT current_setting('transaction_isolation') <> 'read committed'"
_FREE_ATTEMPTS = 5
"""How many attempts of a transaction wait for all rows that it needs. After those, it locks only the rows that are free."""


class Executor(Protocol):
    """A connection of the library's own, which executes statements."""

    def execute(self, sql: Sql, values: Values) -> Rows: ...


class AsyncExecutor(Protocol):
    """A user's connection, which executes statements. On a blocking one `execute` never suspends."""

    async def execute(self, sql: Sql, values: Values) -> Rows: ...


class Transactor(Protocol):
    """Runs scripts in transactions: in the store's own, or in one that a user has opened."""

    def change(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        """Run a script in one transaction: all of it is committed, or nothing. A script that meets locked rows may be run again."""
        ...

    def execute(self, sql: Sql, **values: Any) -> Rows:
        """Execute one statement that writes, in a transaction of its own."""
        ...

    def execute_many(self, *work: tuple[str, Sequence[Mapping[str, Any]]]) -> None:
        """Execute statements for each of their values, all in one transaction."""
        ...

    def read(self, sql: Sql, **values: Any) -> Rows:
        """Read with one statement."""
        ...

    def snapshot(self, script: Script[T], ids: Sequence[str] = ()) -> T:
        """Run a script that only reads, in one snapshot. Without one, these runs and their descendants are locked instead."""
        ...


class Read(Protocol):
    """A function that reads with one statement."""

    def __call__(self, sql: Sql, **values: Any) -> Rows: ...


class Blocked(Exception):
    """Raised when another transaction has locked rows that this one needs. The transaction is rolled back and retried."""

    def __init__(self, runs: Iterable[str]) -> None:
        super().__init__()
        self.runs = sorted(runs)


class Transaction:
    """An open transaction: its time, its locks, and what it changed.

    A transaction of the library's own never waits for a row while it holds another: it raises `Blocked`, is rolled back, waits for that row
    alone and is retried. So no two of them can deadlock. A transaction with `waits` locks rows in the order of their ids. A user's
    transaction does so, because the library cannot release its locks. There, PostgreSQL ends a deadlock, and only the user can retry the
    transaction.
    """

    __slots__ = ("attempt", "changes", "dialect", "hidden", "informed", "locking", "now", "started", "users", "waits")

    def __init__(
        self, dialect: Dialect, now: int, *, attempt: int = 1, waits: bool = False, users: bool = False
    ) -> None:
        self.dialect = dialect
        self.now = now
        self.attempt = attempt
        """The number of this attempt."""
        self.waits = waits or users
        self.users = users
        """Whether a user opened this transaction. Then the library does not change its settings."""
        self.changes = Changes()
        self.informed: set[str] = set()
        """Workers that learn of ended runs in memory, and need no notification of them."""
        self.started: list[str] = []
        """Runs that this transaction has started."""
        self.hidden = False
        """Whether runs that began to wait since the transaction began cannot be found in it, because its snapshot is older."""
        self.locking: tuple[Sql, Values] | None = None
        """The statement that a user's transaction is locking rows with."""

    # -- statements ----------------------------------------------------------------------------------------------------
    def execute(self, sql: Sql, **values: Any) -> Script[Rows]:
        """Execute one statement."""
        return (yield sql, values)

    def limit_waiting(self) -> Script[None]:
        """Let later statements fail rather than wait long for a row: other transactions may wait for rows that this one has locked."""
        if self.dialect.locks and not self.users:
            yield LIMIT_WAITING, {"patience": PATIENCE}

    def savepoint(self, work: Script[T]) -> Script[T]:
        """Run a part of the transaction. If it fails, only that part is rolled back."""
        yield "SAVEPOINT mainspring", {}
        try:
            answer = yield from work
        except GeneratorExit:
            raise
        except BaseException:
            yield "ROLLBACK TO SAVEPOINT mainspring", {}
            yield "RELEASE SAVEPOINT mainspring", {}
            raise
        yield "RELEASE SAVEPOINT mainspring", {}
        return answer

    # -- locks ---------------------------------------------------------------------------------------------------------
    def lock(self, sql: Sql, **values: Any) -> Script[Rows]:
        """Execute a statement that locks rows. If it raises, `locking` is the statement that was refused."""
        self.locking = sql, values
        rows = yield sql, values
        self.locking = None
        return rows

    def lock_runs(self, ids: Sequence[str], *, share: bool = False) -> Script[dict[str, tuple[Any, ...]]]:
        """Lock runs. Return the rows of those that exist, by id, as `LOCKED_COLUMNS`. Raises `Blocked`.

        A claim skips ready runs that are locked, so the commit notifies workers to claim again.
        """
        lock = SHARE_RUNS if share else LOCK_RUNS
        skip = self.dialect.locks and not self.waits
        locked = yield from self.lock(f"{lock}{SKIP_LOCKED}" if skip else lock, ids=list(ids))
        found = {row[0]: row for row in locked}
        if self.dialect.locks:
            unowned = (State(row[3]) for row in found.values() if row[1] is None)
            self.changes.ready = self.changes.ready or any(not state.ended for state in unowned)
        missing = [run for run in ids if run not in found]
        if skip and missing:
            others = yield EXISTING, {"ids": missing}
            if others:
                raise Blocked(row[0] for row in others)
        return found

    def lock_tree(self, ids: Sequence[str], *, with_deadline: bool = False) -> Script[list[str]]:
        """Lock runs and all their descendants. Return their ids. `with_deadline`: only descendants that have a deadline.

        The query is repeated until it finds no new run: a locked run starts no more children.
        """
        return (yield from self.lock_found(TREE_WITH_DEADLINE if with_deadline else TREE, ids=list(ids)))

    def lock_found(self, find: Sql, *, free: bool = False, **values: Any) -> Script[list[str]]:
        """Lock the runs that a statement finds. Return their ids. `free`: after a few attempts, lock only those that are not locked.

        Rows that only a repeated query finds are out of order, so the library's own transactions never wait for those.
        """
        if not self.dialect.locks:
            return [row[0] for row in (yield find, values)]
        locked: set[str] = set()
        lock = LOCK_RUNS if self.waits else f"{LOCK_RUNS}{SKIP_LOCKED}"
        while fresh := {row[0] for row in (yield find, values)} - locked:
            got = {row[0] for row in (yield from self.lock(lock, ids=sorted(fresh)))}
            if free and self.attempt > _FREE_ATTEMPTS:
                return sorted(got)
            if not self.users:
                if got != fresh:
                    raise Blocked(fresh - got)
                lock = f"{LOCK_RUNS}{SKIP_LOCKED}"
            locked |= fresh
        return sorted(locked)

    # -- changes -------------------------------------------------------------------------------------------------------
    def close(self, origin: str = "") -> Script[None]:
        """Wake the runs that wait for what was changed, and notify other processes. These are the last statements of a transaction.

        The statements run after the changed runs were locked. A run that begins to wait holds the lock of the run that it waits for until
        it has committed. So every waiter has committed and is found here, or it does not have the lock yet and will see the change.
        """
        changes = self.changes
        if changes.ended:
            yield from self._wake_waiters(changes.ended)
        if changes.published:
            yield from self._wake_subscribers()
        if origin and self.dialect.channel and changes.concerns_others:
            yield NOTIFY, {"channel": self.dialect.channel, "payload": changes.payload(origin)}

    def _wake_waiters(self, ended: set[str]) -> Script[None]:
        ids = sorted(ended)
        found = {row[0] for row in (yield WAITERS, {"ids": ids})}
        if (yield from self._is_old()):
            found |= {row[0] for row in (yield PARENTS, {"ids": ids})}
        yield from self.wake(found)

    def _wake_subscribers(self) -> Script[None]:
        published = sorted(self.changes.published)
        found = {row[0] for row in (yield SUBSCRIBERS, {"published": json.dumps(published)})}
        if (yield from self._is_old()):
            found |= {run for run, kind, _ in published if kind in {"receive", "question"}}
        yield from self.wake(found)

    def _is_old(self) -> Script[bool]:
        """Whether the snapshot of a user's transaction hides rows that were committed after it began."""
        if self.users and self.dialect.locks and not self.hidden:
            self.hidden = bool((yield _OLD_SNAPSHOT, {})[0][0])
        return self.hidden

    def wake(self, runs: Iterable[str]) -> Script[None]:
        """Wake runs: enqueue those without an owner, and notify the owners of the others."""
        ids = sorted(runs)
        if ids:
            if self.dialect.locks:
                yield from self.lock_runs(ids)
            self.changes.woke(
                row[0] for row in (yield WAKE, {"ids": ids, "informed": sorted(self.informed), "now": self.now})
            )


def run_script(script: Script[T], executor: Executor) -> T:
    """Run a script to its end on a blocking connection."""
    try:
        statement = next(script)
        while True:
            try:
                rows = executor.execute(*statement)
            except BaseException as error:  # noqa: BLE001  (a script may roll back to a savepoint)
                statement = script.throw(error)
            else:
                statement = script.send(rows)
    except StopIteration as done:
        answer: T = done.value
        return answer
