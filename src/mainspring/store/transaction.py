"""An open transaction, and scripts of statements that run in one.

A verb of a store is a script: a generator that yields statements and receives their rows. The carrier of the transaction executes them:
the store's own connection, a user's blocking connection, or a user's awaited one. So each verb is written once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import threading
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

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
    from contextlib import AbstractContextManager

    from mainspring.store.sql.dialect import Dialect, Sql

T = TypeVar("T")

Rows = list[tuple[Any, ...]]
Values = Mapping[str, Any]
Script = Generator[tuple["Sql", Values], Rows, T]
"""Yields statements with their values, receives rows, returns its answer."""

_LIMIT_WAITING = "SELECT set_config('lock_timeout', '100ms', true)"
NOTIFY = "SELECT pg_notify(:channel, :payload)"
_OLD_SNAPSHOT = "SELECT current_setting('transaction_isolation') <> 'read committed'"
_FREE_ATTEMPTS = 5
"""How often a transaction waits for all of the rows that it looks for, before it takes those that are free."""


class Executor(Protocol):
    """Executes statements on a connection, blocking."""

    def execute(self, sql: Sql, values: Values) -> Rows: ...


class AsyncExecutor(Protocol):
    """Executes statements on a connection, awaited."""

    async def execute(self, sql: Sql, values: Values) -> Rows: ...


class Transactor(Protocol):
    """A way to run scripts in transactions: a store's own, or one that a user has opened."""

    def change(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        """Run a script in one transaction: all of it is committed, or nothing. It may be run again when rows are locked."""
        ...

    def execute(self, sql: Sql, **values: Any) -> Rows:
        """Change with one statement, which is a transaction by itself."""
        ...

    def execute_many(self, *work: tuple[str, Sequence[Mapping[str, Any]]]) -> None:
        """Execute statements for each of their values, all in one transaction."""
        ...

    def read(self, sql: Sql, **values: Any) -> Rows:
        """Read with one statement."""
        ...

    def snapshot(self, ids: Sequence[str]) -> AbstractContextManager[Read]:
        """Read with several statements as of one moment. Where that cannot be had, runs and their descendants are locked."""
        ...


class Read(Protocol):
    """Reads with one statement."""

    def __call__(self, sql: Sql, **values: Any) -> Rows: ...


class Blocked(Exception):
    """Rows that a transaction needs are locked by another one. The transaction is rolled back and run again."""

    def __init__(self, runs: Iterable[str]) -> None:
        super().__init__()
        self.runs = sorted(runs)


class Transaction:
    """An open transaction: its time, its locks, and what it changed.

    A transaction of the library's own never waits for a row while it holds another: it raises `Blocked`, is rolled back, waits
    for that row alone and is run again, so that no two of them can wait for each other. One that `waits` takes rows in the order of
    their ids; a user's transaction does, because it keeps its locks whatever we do. PostgreSQL ends a deadlock then, and only the
    owner of the transaction can run it again.
    """

    __slots__ = ("attempt", "changes", "dialect", "hidden", "informed", "locking", "now", "started", "users", "waits")

    def __init__(
        self, dialect: Dialect, now: int, *, attempt: int = 1, waits: bool = False, users: bool = False
    ) -> None:
        self.dialect = dialect
        self.now = now
        self.attempt = attempt
        """Which attempt at this transaction it is."""
        self.waits = waits or users
        self.users = users
        """It is a user's: nothing may change its settings."""
        self.changes = Changes()
        self.informed: set[str] = set()
        """Workers that learn of ended runs in memory, so that a notification would be late."""
        self.started: list[str] = []
        """Runs that it has started."""
        self.hidden = False
        """Runs that began to wait since the transaction began cannot be found in it: its snapshot is older."""
        self.locking: tuple[Sql, Values] | None = None
        """The statement with which a user's transaction locks rows at this moment."""

    # -- statements ----------------------------------------------------------------------------------------------------
    def execute(self, sql: Sql, **values: Any) -> Script[Rows]:
        """Execute one statement."""
        return (yield sql, values)

    def limit_waiting(self) -> Script[None]:
        """Have the statements that follow fail rather than wait long for a row, while others may wait for rows of this one."""
        if self.dialect.locks and not self.users:
            yield _LIMIT_WAITING, {}

    def savepoint(self, work: Script[T]) -> Script[T]:
        """Run a part of the transaction. What fails in the middle of it leaves no trace, and what was done before stays."""
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
        """Execute a statement that locks rows. If it raises, `locking` is what was refused."""
        self.locking = sql, values
        rows = yield sql, values
        self.locking = None
        return rows

    def lock_runs(self, ids: Sequence[str], *, share: bool = False) -> Script[dict[str, tuple[Any, ...]]]:
        """Lock runs: the rows of those that exist, by id, as `LOCKED_COLUMNS`. Raises `Blocked`.

        A claim that comes by meanwhile passes over locked runs that are ready, so there is a claim to make afterwards.
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
        """Lock runs and all their descendants; their ids. `with_deadline`: only descendants that have one.

        It looks again until nothing new turns up: a locked run starts no more children.
        """
        return (yield from self.lock_found(TREE_WITH_DEADLINE if with_deadline else TREE, ids=list(ids)))

    def lock_found(self, find: Sql, *, free: bool = False, **values: Any) -> Script[list[str]]:
        """Lock the runs that a statement finds; their ids. `free`: after a few attempts, those that no other transaction has locked.

        Rows that turn up after the first look are out of order, so the library's own transactions never wait for those.
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

    # -- what it changed -----------------------------------------------------------------------------------------------
    def close(self, origin: str = "") -> Script[None]:
        """Wake the runs that wait for what was changed, and notify other processes. The last statements of a transaction.

        Later statements than those that locked the runs which ended or were written to: a run that begins to wait holds the lock
        of the run that it waits for until it has committed. So at this moment every waiter is committed, and found by this
        statement because it is a new one, or it has not got the lock yet, and will see the change when it has.
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
        """Whether the snapshot of a user's transaction hides what was committed since it began."""
        if self.users and self.dialect.locks and not self.hidden:
            self.hidden = bool((yield _OLD_SNAPSHOT, {})[0][0])
        return self.hidden

    def wake(self, runs: Iterable[str]) -> Script[None]:
        """Wake runs: those without an owner are queued, the owners of the others are notified."""
        ids = sorted(runs)
        if ids:
            if self.dialect.locks:
                yield from self.lock_runs(ids)
            self.changes.woke(
                row[0] for row in (yield WAKE, {"ids": ids, "informed": sorted(self.informed), "now": self.now})
            )


def run_script(script: Script[T], executor: Executor) -> T:
    """Run a script to its end, blocking."""
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


async def run_script_async(script: Script[T], executor: AsyncExecutor) -> T:
    """Run a script to its end, awaited."""
    try:
        statement = next(script)
        while True:
            try:
                rows = await executor.execute(*statement)
            except BaseException as error:  # noqa: BLE001  (a script may roll back to a savepoint)
                statement = script.throw(error)
            else:
                statement = script.send(rows)
    except StopIteration as done:
        answer: T = done.value
        return answer


class BlockingExecutor:
    """Executes statements on a user's awaited connection for code that blocks on a thread: on the loop, one after the other."""

    def __init__(self, executor: AsyncExecutor, loop: asyncio.AbstractEventLoop) -> None:
        self._executor = executor
        self._loop = loop

    def execute(self, sql: Sql, values: Values) -> Rows:
        return asyncio.run_coroutine_threadsafe(self._executor.execute(sql, values), self._loop).result()


async def on_thread(work: Callable[..., T], *args: Any) -> T:
    """Do something blocking for an awaited transaction, on a thread of its own.

    The threads that others share may all be waiting for that very transaction to end.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def answer(value: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", value))

    def run() -> None:
        value, caught = None, None
        try:
            value = context.run(work, *args)
        except BaseException as error:  # noqa: BLE001  (it is raised where the work is awaited)
            caught = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(answer, value, caught)

    context = contextvars.copy_context()
    threading.Thread(target=run, name="mainspring-transaction", daemon=True).start()
    return await done
