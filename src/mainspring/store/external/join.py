"""A user's open transaction, and the verbs that become part of it.

No code here begins, commits or rolls back the transaction, or relies on it being committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from mainspring.errors import InTransaction
from mainspring.store.changes import Changes
from mainspring.store.external.colours import BlockingExecutor, finished, on_thread, run_script_async
from mainspring.store.sql_store import SqlStore
from mainspring.store.transaction import Transaction, run_script

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.sql.dialect import Dialect, Sql
    from mainspring.store.transaction import AsyncExecutor, Executor, Rows, Script, Values

T = TypeVar("T")
Inside: TypeAlias = SqlStore
"""The verbs of a store inside a user's transaction."""


class Joined:
    """A user's open transaction on a blocking or an async connection, and the changes that verbs made in it.

    `check` is a script that runs before all others. It raises if the connection is not to the database that has the app's tables.
    """

    def __init__(
        self,
        dialect: Dialect,
        executor: AsyncExecutor,
        *,
        is_async: bool = False,
        origin: str = "",
        check: Callable[[], Script[None]] | None = None,
        payloads: Payloads | None = None,
    ) -> None:
        self.dialect = dialect
        self.executor = executor
        self.is_async = is_async
        self._payloads = payloads
        self.changes = Changes()
        """The changes so far, to be published after the commit."""
        self.started: list[str] = []
        """Runs that verbs started in the transaction."""
        self.hidden = False
        """Whether runs may wait for the changes and that this transaction's snapshot hides. They are woken after the commit."""
        self.last_change = 0
        self.refused: tuple[Sql, Values] | None = None
        """The statement that failed to lock rows in the script that failed last, if it was one."""
        self._origin = origin
        self._check = check

    async def check_async(self) -> None:
        """Check that the connection is to the right database, once."""
        if self._check is not None:
            check, self._check = self._check, None
            await run_script_async(check(), self.executor)

    def check(self) -> None:
        """Check that a blocking connection is to the right database. An async one is checked before the first verb."""
        if not self.is_async:
            finished(self.check_async())

    # -- scripts -------------------------------------------------------------------------------------------------------
    async def run_async(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        """Run a script as part of the transaction."""
        await self.check_async()
        tx = Transaction(self.dialect, now, users=True)
        answer = await run_script_async(self.script(tx, work), self.executor)
        self.add(tx)
        return answer

    def run(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        """Run a script as part of the transaction, on a blocking connection."""
        return finished(self.run_async(work, now))

    def script(self, tx: Transaction, work: Callable[[Transaction], Script[T]]) -> Script[T]:
        """The statements of `work`, and those that end a script: wake-ups and the notification."""
        try:
            answer = yield from work(tx)
            yield from tx.close(self._origin)
        finally:
            self.refused = tx.locking
        return answer

    def add(self, tx: Transaction) -> None:
        """Add the changes of a script that has ended to those of the transaction."""
        if tx.changes:
            self.last_change = tx.now
        self.changes.add(tx.changes)
        self.started += tx.started
        self.hidden = self.hidden or (tx.hidden and bool(tx.changes.ended or tx.changes.published))

    async def lock(self, locks: Sequence[tuple[Sql, Values]]) -> None:
        """Execute the statements that failed to lock rows in earlier attempts."""
        for statement in locks:
            await self.executor.execute(*statement)

    def within(self, work: Callable[[Inside], T]) -> T:
        """Call a function with the parts of a store, inside the transaction on a blocking connection."""
        return work(self._inside(BlockingExecutor(self.executor)))

    async def within_async(self, work: Callable[[Inside], T]) -> T:
        """Call a function with the parts of a store, inside the transaction: for an async connection, on a thread."""
        if not self.is_async:
            return self.within(work)
        await self.check_async()
        return await on_thread(work, self._inside(BlockingExecutor(self.executor, asyncio.get_running_loop())))

    def _inside(self, executor: Executor) -> Inside:
        inside = SqlStore(_JoinedTransactor(self, executor))
        if self._payloads is None:
            return inside
        from mainspring.store.sealing.verbs import SealedVerbs  # noqa: PLC0415  (only where values are sealed)

        return cast("Inside", SealedVerbs(inside, self._payloads))


class _JoinedTransactor:
    """Runs scripts as parts of a user's transaction. A script that fails is rolled back to a savepoint."""

    def __init__(self, joined: Joined, executor: Executor) -> None:
        self._joined = joined
        self._executor = executor

    def change(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        joined = self._joined
        tx = Transaction(joined.dialect, now, users=True)
        answer = run_script(tx.savepoint(joined.script(tx, work)), self._executor)
        joined.add(tx)
        return answer

    def execute(self, sql: Sql, **values: Any) -> Rows:
        return self._executor.execute(sql, values)

    read = execute

    def execute_many(self, *work: tuple[str, Sequence[Mapping[str, Any]]]) -> None:
        for statement, rows in work:
            for values in rows:
                self._executor.execute(statement, values)

    def snapshot(self, script: Script[T], ids: Sequence[str] = ()) -> T:
        """Run a script that reads. Its statements may see different snapshots, so the runs are locked."""
        tx = Transaction(self._joined.dialect, 0, users=True)
        run_script(tx.lock_tree(ids), self._executor)
        return run_script(script, self._executor)


_SAVEPOINT: tuple[str, dict[str, Any]] = ("SAVEPOINT mainspring_nested", {})
_ROLL_BACK: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ROLLBACK TO SAVEPOINT mainspring_nested", {}),
    ("RELEASE SAVEPOINT mainspring_nested", {}),
)


@contextlib.asynccontextmanager
async def nested(executor: AsyncExecutor) -> AsyncGenerator[None]:
    """A savepoint in an open transaction: an exception rolls back to it."""
    await executor.execute(*_SAVEPOINT)
    try:
        yield
    except BaseException:
        with contextlib.suppress(InTransaction):  # the database has already rolled back the transaction
            for statement in _ROLL_BACK:
                await executor.execute(*statement)
        raise
    await executor.execute(*_ROLL_BACK[1])
