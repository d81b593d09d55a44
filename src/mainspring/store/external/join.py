"""A user's open transaction, and the verbs that become part of it.

No code here begins, commits or rolls back the transaction, or relies on it being committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mainspring.errors import InTransaction
from mainspring.store.changes import Changes
from mainspring.store.external.tx import Wants
from mainspring.store.transaction import BlockingExecutor, Transaction, on_thread, run_script, run_script_async
from mainspring.store.verbs import stop
from mainspring.store.verbs.manage import Management
from mainspring.store.verbs.queues import Queues
from mainspring.store.verbs.record import record_outcome
from mainspring.store.verbs.scheduled_functions import Functions
from mainspring.store.verbs.schedules import Schedules

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence

    from mainspring.model.states import State
    from mainspring.store.external.sqlalchemy import Wrapped
    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.sql.dialect import Dialect, Sql
    from mainspring.store.transaction import AsyncExecutor, Executor, Read, Rows, Script, Transactor, Values
    from mainspring.store.writes import RecordStep

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inside:
    """The parts of a store whose verbs work inside a user's transaction."""

    schedules: Schedules
    functions: Functions
    management: Management
    queues: Queues
    transactor: Transactor

    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        """See `Store.cancel`."""
        return self.transactor.change(lambda tx: stop.cancel(tx, ids, reason), now)

    def terminate(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        """See `Store.terminate`."""
        return self.transactor.change(lambda tx: stop.terminate(tx, ids, reason), now)


class Joined:
    """A user's open transaction on a blocking or an async connection, and the changes that verbs made in it.

    `check` is a script that runs before all others. It raises if the connection is not to the database that has the app's tables.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        origin: str = "",
        executor: Executor | None = None,
        async_executor: AsyncExecutor | None = None,
        check: Callable[[], Script[None]] | None = None,
        payloads: Payloads | None = None,
    ) -> None:
        self.dialect = dialect
        self._payloads = payloads
        self.changes = Changes()
        """The changes so far, to be published after the commit."""
        self.started: list[str] = []
        """Runs that verbs started in the transaction."""
        self.hidden = False
        """Whether runs may wait for the changes that this transaction's snapshot hides; see `wake_hidden`."""
        self.last_change = 0
        self.refused: tuple[Sql, Values] | None = None
        """The statement that failed to lock rows in the script that failed last, if it was one."""
        self._origin = origin
        self._executor = executor
        self._async_executor = async_executor
        self._check = check

    @property
    def is_async(self) -> bool:
        return self._executor is None

    # -- scripts -------------------------------------------------------------------------------------------------------
    def run(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        """Run a script as part of the transaction, on a blocking connection."""
        tx = Transaction(self.dialect, now, users=True)
        answer = run_script(self._whole(tx, work), self.executor)
        self._note(tx)
        return answer

    async def run_async(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        """Run a script as part of the transaction, on a blocking or an async connection."""
        if self._executor is not None:
            return self.run(work, now)
        await self.check_async()
        tx = Transaction(self.dialect, now, users=True)
        answer = await run_script_async(self._whole(tx, work), self.async_executor)
        self._note(tx)
        return answer

    def _whole(self, tx: Transaction, work: Callable[[Transaction], Script[T]]) -> Script[T]:
        try:
            answer = yield from work(tx)
            yield from tx.close(self._origin)
        finally:
            self.refused = tx.locking
        return answer

    def _note(self, tx: Transaction) -> None:
        if tx.changes:
            self.last_change = tx.now
        self.changes.add(tx.changes)
        self.started += tx.started
        self.hidden = self.hidden or (tx.hidden and bool(tx.changes.ended or tx.changes.published))

    def lock(self, locks: Sequence[tuple[Sql, Values]]) -> None:
        """Execute a statement that failed to lock rows in an earlier attempt, on a blocking connection."""
        for statement in locks:
            self.executor.execute(*statement)

    async def lock_async(self, locks: Sequence[tuple[Sql, Values]]) -> None:
        """Execute a statement that failed to lock rows in an earlier attempt, on an async connection."""
        for statement in locks:
            await self.async_executor.execute(*statement)

    def within(self, work: Callable[[Inside], T]) -> T:
        """Call a function with the parts of a store, inside the transaction on a blocking connection."""
        return work(self._inside(self.executor))

    async def within_async(self, work: Callable[[Inside], T]) -> T:
        """Call a function with the parts of a store, inside the transaction on an async connection."""
        await self.check_async()
        executor = BlockingExecutor(self.async_executor, asyncio.get_running_loop())
        return await on_thread(work, self._inside(executor))

    def _inside(self, executor: Executor) -> Inside:
        transactor = _JoinedTransactor(self, executor)
        inside = Inside(
            Schedules(transactor),
            Functions(transactor.read),
            Management(transactor),
            Queues(transactor),
            transactor,
        )
        if self._payloads is None:
            return inside
        from mainspring.store.sealing import nouns  # noqa: PLC0415  (only where values are sealed)

        return replace(
            inside,
            schedules=cast("Schedules", nouns.SealedSchedules(inside.schedules, self._payloads)),
            functions=cast("Functions", nouns.SealedFunctions(inside.functions, self._payloads)),
            management=cast("Management", nouns.SealedManagement(inside.management, self._payloads)),
        )

    # -- connections ---------------------------------------------------------------------------------------------------
    @property
    def executor(self) -> Executor:
        """The executor of a blocking connection."""
        assert self._executor is not None  # noqa: S101
        return self._executor

    @property
    def async_executor(self) -> AsyncExecutor:
        """The executor of an async connection."""
        assert self._async_executor is not None  # noqa: S101
        return self._async_executor

    def check(self) -> None:
        """Check that a blocking connection is to the right database. An async one is checked before the first verb."""
        if self._check is not None and self._executor is not None:
            check, self._check = self._check, None
            run_script(check(), self._executor)

    async def check_async(self) -> None:
        """Check that the connection is to the right database."""
        self.check()
        if self._check is not None and self._async_executor is not None:
            check, self._check = self._check, None
            await run_script_async(check(), self._async_executor)


class JoinedSession:
    """A transaction on a user's connection, opened for one function. See `mainspring.store.external.transactions.Session`."""

    def __init__(self, joined: Joined) -> None:
        joined.check()
        self.joined = joined

    def give(self, wants: Wants) -> Any:
        if wants is not Wants.NOTHING:
            raise InTransaction(
                f"a transaction that wants a {wants.value} is called inside one on a connection of yours (within=); "
                "call them one after the other"
            )

    def flush(self) -> None:
        """Do nothing: the owner of the connection has sent its statements."""

    async def flush_async(self) -> None:
        """Do nothing: the owner of the connection has sent its statements."""

    def record(self, write: RecordStep, now: int) -> State | None:
        return self.joined.run(lambda tx: record_outcome(tx, write, self.joined.started), now)


class EngineSession(JoinedSession):
    """A transaction on a connection of the user's SQLAlchemy engine. Functions are given its connections and sessions."""

    def __init__(self, joined: Joined, wrapped: Wrapped) -> None:
        super().__init__(joined)
        self._wrapped = wrapped

    def give(self, wants: Wants) -> Any:
        return self._wrapped.give(wants)

    def flush(self) -> None:
        self._wrapped.flush()

    async def flush_async(self) -> None:
        await self._wrapped.flush_async()


class _JoinedTransactor:
    """Runs scripts as parts of a user's transaction. A script that fails is rolled back to a savepoint."""

    def __init__(self, joined: Joined, executor: Executor) -> None:
        self._joined = joined
        self._executor = executor

    def change(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        joined = self._joined
        tx = Transaction(joined.dialect, now, users=True)
        answer = run_script(tx.savepoint(joined._whole(tx, work)), self._executor)  # noqa: SLF001
        joined._note(tx)  # noqa: SLF001
        return answer

    def execute(self, sql: Sql, **values: Any) -> Rows:
        return self._executor.execute(sql, values)

    read = execute

    def execute_many(self, *work: tuple[str, Sequence[Mapping[str, Any]]]) -> None:
        for statement, rows in work:
            for values in rows:
                self._executor.execute(statement, values)

    @contextlib.contextmanager
    def snapshot(self, ids: Sequence[str]) -> Generator[Read]:
        """Statements of a user's transaction may see different snapshots, so the runs are locked instead."""
        tx = Transaction(self._joined.dialect, 0, users=True)
        run_script(tx.lock_tree(ids), self._executor)
        yield self.read


_SAVEPOINT: tuple[str, dict[str, Any]] = ("SAVEPOINT mainspring_nested", {})
_ROLL_BACK: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ROLLBACK TO SAVEPOINT mainspring_nested", {}),
    ("RELEASE SAVEPOINT mainspring_nested", {}),
)


@contextlib.contextmanager
def nested(executor: Executor) -> Generator[None]:
    """A savepoint in an open transaction: an exception rolls back to it."""
    executor.execute(*_SAVEPOINT)
    try:
        yield
    except BaseException:
        with contextlib.suppress(InTransaction):  # the database has already rolled back the transaction
            for statement in _ROLL_BACK:
                executor.execute(*statement)
        raise
    executor.execute(*_ROLL_BACK[1])


@contextlib.asynccontextmanager
async def nested_async(executor: AsyncExecutor) -> AsyncGenerator[None]:
    """A savepoint in an open transaction on an async connection: an exception rolls back to it."""
    await executor.execute(*_SAVEPOINT)
    try:
        yield
    except BaseException:
        with contextlib.suppress(InTransaction):
            for statement in _ROLL_BACK:
                await executor.execute(*statement)
        raise
    await executor.execute(*_ROLL_BACK[1])
