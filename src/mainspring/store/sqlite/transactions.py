"""Transactions of users' functions on SQLite: a turn at writing, BEGIN IMMEDIATE, the function, COMMIT.

A function that is given a `Tx` works on the store's writing connection. A function that wants a connection is given another one, because
its changes to the connection's settings must not stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from mainspring.errors import InTransaction, InvalidInput, MissingExtra
from mainspring.model.states import State
from mainspring.store.external import sqlalchemy
from mainspring.store.external.colours import entered, finished, on_thread, run_script_async, whole
from mainspring.store.external.join import Joined
from mainspring.store.external.sqlalchemy import Wrapped
from mainspring.store.external.transactions import JoinedSession, Session, Transactions
from mainspring.store.external.tx import NOT_OPEN, OVER, Tx, Wants, for_sqlite
from mainspring.store.sql.dialect import prefixed
from mainspring.store.sql.records import RECORDED_COLUMNS, step_values
from mainspring.store.sqlite.borrowed import BorrowedConnection, close_all, rolled_back
from mainspring.store.sqlite.database import translated
from mainspring.store.sqlite.dialect import DIALECT
from mainspring.store.sqlite.executor import UsersAsyncExecutor, UsersExecutor
from mainspring.store.writes import RecordStep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainspring.store.changes import Signal
    from mainspring.store.external.engines import UsersEngine
    from mainspring.store.external.tx import Cursor
    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.sqlite.database import Database
    from mainspring.store.transaction import Script

T = TypeVar("T")

_RECORD_FIRST = prefixed(
    f"""
  INSERT INTO steps ({", ".join(RECORDED_COLUMNS)}) VALUES (
    (SELECT id FROM runs WHERE owner = ? AND epoch = ? AND id = ? AND state = 'running'),
    {", ".join("?" * (len(RECORDED_COLUMNS) - 1))})
"""
)
"""The fast path of `record_outcome`, in half the time, for an owned run and a step without a record. Otherwise a constraint refuses it.

Its values are the owner, the epoch, and those of the step.
"""


class SqliteSession(Session):
    """An open transaction on one connection: the store's writing connection, or a borrowed one, which aiosqlite may make async."""

    def __init__(self, connection: sqlite3.Connection, payloads: Payloads | None = None) -> None:
        super().__init__()
        self._payloads = payloads
        self._db = connection
        self._awaited: Any = None
        self._over = False
        self._reading: WeakSet[sqlite3.Cursor] | None = None
        self._cause: sqlite3.Error | None = None

    async def provide(self, wants: Wants) -> None:
        """Make the kind of connection that a function wants, before the transaction begins."""
        if wants.is_awaited:
            self._awaited = await _aiosqlite(self._db)
        if wants.of_sqlalchemy:
            url = "sqlite+aiosqlite://" if wants.is_awaited else "sqlite://"
            self._wrapped = await sqlalchemy.wrap(url, self._awaited or self._db, wants)

    def _join(self) -> Joined:
        is_async = self._awaited is not None
        executor = UsersAsyncExecutor(self._awaited) if is_async else UsersExecutor(self._db, self.require_open)
        return Joined(DIALECT, executor, is_async=is_async, payloads=self._payloads)

    def give(self, wants: Wants) -> Any:
        if wants is Wants.TX and self._awaited is None:
            return Tx(self._execute)
        if wants is Wants.AIOSQLITE and self._awaited is not None:
            return self._awaited
        if wants is Wants.SQLITE and self._awaited is None and isinstance(self._db, BorrowedConnection):
            return self._db
        return super().give(wants)

    def require_open(self) -> None:
        """Raise `InTransaction` if SQLite has rolled the transaction back: later statements would commit one by one."""
        if not self._db.in_transaction:
            if isinstance(self._db, BorrowedConnection):
                self._db.require_open()
            raise rolled_back(self._cause)

    async def record(self, write: RecordStep, now: int) -> State | None:
        """See `mainspring.store.external.transactions.Session`.

        The statement that writes also checks that nothing changed in between. If something did, it writes nothing.
        """
        if (
            type(write) is RecordStep
            and write.run_state is None
            and self.joined_if_any is None
            and self._awaited is None
        ):
            try:
                self._db.execute(_RECORD_FIRST, (write.owner, write.step.epoch, *step_values(write.step)))
            except sqlite3.IntegrityError:
                pass  # the run is being stopped or not owned, or the step was recorded before
            else:
                return State.RUNNING
        return await super().record(write, now)

    def end(self) -> None:
        """Refuse further use of what the function was given, and close its unread cursors."""
        self._over = True
        if isinstance(self._db, BorrowedConnection):
            self._db.stop_reading()
        elif self._reading is not None:
            close_all(self._reading)

    async def close(self) -> None:
        """Close what functions were given. Errors of async ones are ignored, because the transaction has ended."""
        if self._wrapped is not None:
            with contextlib.suppress(*(() if self._awaited is None else (Exception,))):
                await self._wrapped.close()
        if self._awaited is not None:
            await self._awaited.close()

    def _execute(self, statement: str, parameters: Any) -> Cursor:
        if self._over:
            raise InTransaction(OVER)
        self.require_open()
        try:
            cursor = self._db.execute(for_sqlite(statement), parameters)
        except sqlite3.Error as error:
            if self._cause is None and not self._db.in_transaction:
                self._cause = error
            raise
        if cursor.description is not None:
            if self._reading is None:
                self._reading = WeakSet()
            self._reading.add(cursor)
        found: Cursor = cursor
        return found


class SqliteTransactions(Transactions):
    """See `mainspring.store.external.transactions.Transactions`."""

    def __init__(self, database: Database, notify: Callable[[Signal], None]) -> None:
        self._db = database
        self._notify = notify
        self._borrowed: list[BorrowedConnection] = []
        self._awaiting: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def atransact(self, work: Callable[[Session], Awaitable[T]], wants: Wants, isolation: str | None = None) -> T:
        del isolation  # one writer at a time: always serializable
        if wants is Wants.PSYCOPG or wants is Wants.PSYCOPG_ASYNC:
            raise InvalidInput(
                f"a transaction here is on a SQLite file, which has no {wants.value}; annotate its first parameter with Tx"
            )
        if self.engine is not None and self.engine.provides(wants):
            return await self._transact_on(self.engine.begun(None), work, self.engine)
        own, awaited = wants is Wants.TX, wants.is_awaited
        await self._take_turn() if awaited else self._db.lend_turn()
        try:
            connection = self._db.writer() if own else await self._lend(wants)
            session = SqliteSession(connection, self.payloads)
            try:
                if not own:
                    await session.provide(wants)
                await _do(self._begin, connection) if awaited else self._begin(connection)
                answer = await work(session)
                session.end()
                await _do(self._commit, connection) if awaited else self._commit(connection)
            except BaseException as error:
                session.end()
                await _do(_roll_back, connection) if awaited else _roll_back(connection)
                _explain(error)
                raise
            finally:
                if isinstance(connection, BorrowedConnection):
                    await self._take_back(connection, session, awaited=awaited)
        finally:
            self._end_turn() if awaited else self._db.take_back_turn()
        self._publish(session.joined_if_any)
        return answer

    async def _transact_on(
        self, opened: Any, work: Callable[[Session], Awaitable[T]], engine: UsersEngine | None = None
    ) -> T:
        awaited = engine is not None and engine.is_async
        await self._take_turn() if awaited else self._db.lend_turn()
        try:
            async with entered(opened) as connection:
                joined = self.join(connection)
                await joined.check_async()
                answer = await work(JoinedSession(joined, None if engine is None else Wrapped(connection)))
        finally:
            self._end_turn() if awaited else self._db.take_back_turn()
        self._publish(joined)
        return answer

    def _publish(self, joined: Joined | None) -> None:
        """Publish the changes of a committed transaction."""
        if joined is not None and joined.changes:
            self._notify(joined.changes.signal())

    async def _lend(self, wants: Wants) -> BorrowedConnection:
        """A connection apart from the library's own. aiosqlite closes the connections that it uses, so each of those is a new one."""
        if wants.is_awaited:
            return await on_thread(self._another)
        connection = self._borrowed.pop() if self._borrowed else self._another()
        connection.lend()
        return connection

    def _another(self) -> BorrowedConnection:
        with translated(self._db.path):
            return self._db.another()

    async def _take_back(self, connection: BorrowedConnection, session: SqliteSession, *, awaited: bool) -> None:
        if awaited:
            try:
                await whole(session.close())
            finally:
                self._db.discard(connection)
        else:
            await session.close()
            connection.take_back()
            self._borrowed.append(connection)

    def _begin(self, connection: sqlite3.Connection) -> None:
        with translated(self._db.path):
            if isinstance(connection, BorrowedConnection):
                connection.begin()
            else:
                self._db.patiently(lambda: connection.execute("BEGIN IMMEDIATE"))

    def _commit(self, connection: sqlite3.Connection) -> None:
        with translated(self._db.path):
            if isinstance(connection, BorrowedConnection):
                connection.end("COMMIT")
            else:
                connection.execute("COMMIT")

    async def _take_turn(self) -> None:
        """Wait for a turn at writing on a thread, for an async transaction.

        The callers of one loop wait for each other first, so that one thread waits for all.
        """
        lock = self._awaiting.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        await lock.acquire()
        taking = asyncio.ensure_future(on_thread(self._db.take_turn))
        try:
            await asyncio.shield(taking)
        except BaseException:
            lock.release()
            taking.add_done_callback(self._unwanted)
            raise

    def _end_turn(self) -> None:
        """End the turn of an async transaction."""
        self._db.end_turn()
        self._awaiting[asyncio.get_running_loop()].release()

    def _unwanted(self, taking: asyncio.Future[None]) -> None:
        """Release a turn whose waiter was cancelled, if it was taken."""
        if not taking.cancelled() and taking.exception() is None:
            self._db.end_turn()

    def join(self, connection: Any) -> Joined:
        raw, executor = sqlalchemy.unwrap(connection, DIALECT, native=_native)
        if raw is None and executor is not None:
            return Joined(DIALECT, executor, is_async=True, check=self._check_file, payloads=self.payloads)
        if not isinstance(raw, sqlite3.Connection):
            raise InvalidInput(
                f"the app's database is the SQLite file {self._db.path}; {type(raw).__module__}.{type(raw).__name__} cannot write to it"
            )
        finished(run_script_async(self._check_file(), UsersExecutor(raw)))
        begin = partial(_begin_if_ended, raw)
        begin()
        return Joined(DIALECT, UsersExecutor(raw, begin), payloads=self.payloads)

    def _check_file(self) -> Script[None]:
        files = {name: file for _, name, file in (yield "PRAGMA database_list", {})}
        if not files["main"] or not Path(files["main"]).samefile(self._db.path):
            raise InvalidInput(
                f"this connection is to {files['main'] or 'a database in memory'}, but the app's database is {self._db.path}; "
                "only what is in one file commits together"
            )


def _begin_if_ended(connection: sqlite3.Connection) -> None:
    """Begin a transaction on a user's connection, if the user has ended one and not begun the next."""
    if not connection.in_transaction:
        if connection.isolation_level is None:
            raise InvalidInput(f'{NOT_OPEN}execute "BEGIN IMMEDIATE" first')
        connection.execute("BEGIN IMMEDIATE")


def _roll_back(connection: sqlite3.Connection) -> None:
    if isinstance(connection, BorrowedConnection):
        connection.end("ROLLBACK")
    elif connection.in_transaction:
        connection.execute("ROLLBACK")


async def _aiosqlite(connection: sqlite3.Connection) -> Any:
    """Wrap a connection as aiosqlite's, which uses it on a thread of its own."""
    try:
        import aiosqlite  # noqa: PLC0415  (only where it is used)
    except ImportError as error:
        raise MissingExtra(
            "an `async def` transaction on SQLite needs aiosqlite: pip install 'mainspring[sqlalchemy]'"
        ) from error
    return await aiosqlite.Connection(lambda: connection, iter_chunk_size=64)


async def _do(work: Callable[[sqlite3.Connection], None], connection: sqlite3.Connection) -> None:
    """Call a blocking function on a thread, uninterrupted."""
    await whole(on_thread(work, connection))


def _native(raw: Any) -> UsersAsyncExecutor | None:
    return UsersAsyncExecutor(raw) if type(raw).__module__.startswith("aiosqlite") else None


def _explain(error: BaseException) -> None:
    if isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
        error.add_note(
            "the transaction itself has the turn at writing: inside it, use the connection that the function was given"
        )
