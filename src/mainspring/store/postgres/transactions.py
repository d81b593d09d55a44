"""Transactions of users' functions on PostgreSQL, on connections apart from the library's: session state of a function must not stay."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from mainspring.errors import InvalidInput, StoreUnavailable
from mainspring.store.external import sqlalchemy
from mainspring.store.external.join import EngineSession, Joined, JoinedSession
from mainspring.store.external.sqlalchemy import Wrapped
from mainspring.store.external.transactions import Transactions
from mainspring.store.external.tx import NOT_OPEN, Again, Wants
from mainspring.store.postgres.database import Database
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.postgres.executor import UsersAsyncExecutor, UsersExecutor
from mainspring.store.postgres.libpq import Wire, stale
from mainspring.store.postgres.sessions import (
    LEVELS,
    RESET,
    ROLLED_BACK,
    Async,
    Borrowed,
    PostgresSession,
    Sync,
    TxSession,
)
from mainspring.store.postgres.slots import USERS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from contextlib import AbstractContextManager

    from mainspring.store.changes import Signal
    from mainspring.store.external.transactions import Session
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import AsyncExecutor, Executor, Rows, Script, Transaction, Values

T = TypeVar("T")
log = logging.getLogger("mainspring.store")

_ABORTED = "25P02"
_WENT_ON = (
    "a statement of this transaction failed before, and the function went on. PostgreSQL does nothing more then: let the exception "
    "through, or put what may fail between SAVEPOINT and ROLLBACK TO SAVEPOINT"
)
_WHO = """
  SELECT current_database(), extract(epoch FROM pg_postmaster_start_time())::text, to_regclass(:runs)::oid::bigint
"""
"""A server is identified by its start time: names and addresses depend on the route to it."""
ALL_PROCESSES = "-"
"""The sender of a user's own commit: this process must be notified of it like the others."""


class PostgresTransactions(Transactions):
    """See `mainspring.store.external.transactions.Transactions`."""

    def __init__(self, database: Database, dialect: Dialect, origin: str, notify: Callable[[Signal], None]) -> None:
        self._db = database
        self._sql = dialect
        self._origin = origin
        self._notify = notify
        self._identity = _Identity(database, dialect)
        self.notify = True

    def transact(self, work: Callable[[Session], T], wants: Wants = Wants.TX, isolation: str | None = None) -> T:
        if wants is not Wants.TX:
            _refuse_sqlite(wants)
            if self.engine is not None and self.engine.provides(wants):
                return self._transact_on(self.engine.begun(isolation), work, on_engine=True)
        with self._borrowed(fresh=wants is not Wants.TX) as connection:
            session = self._session(connection, wants)
            try:
                answer = session.make(work, isolation)
            except BaseException as error:
                raise self._judged(error, session, closed=connection.closed) from error
            finally:
                session.end()
        joined = session.joined_if_any
        if joined is not None:
            self._committed(joined)
        return answer

    def _transact_on(self, opened: AbstractContextManager[Any], work: Callable[[Session], T], *, on_engine: bool) -> T:
        joined: Joined | None = None
        with _noting_refusal(lambda: joined), opened as connection:
            joined = self._join(connection, self._origin)
            answer = work(EngineSession(joined, Wrapped(connection)) if on_engine else JoinedSession(joined))
        self._committed(joined)
        return answer

    def _committed(self, joined: Joined) -> None:
        if joined.hidden:
            self._wake_hidden(joined)
        self._publish(joined)

    def _session(self, connection: Borrowed, wants: Wants) -> PostgresSession:
        if wants is Wants.TX:
            return TxSession(connection, self._own, self._sql)
        connection.wire.sure, connection.dirty = False, True
        wrapped = sqlalchemy.wrap("postgresql+psycopg://", connection) if wants.of_sqlalchemy else None
        return PostgresSession(connection, lambda: self._own(UsersExecutor(connection, self._sql)), wrapped)

    async def atransact(
        self, work: Callable[[Session], Awaitable[T]], wants: Wants = Wants.PSYCOPG_ASYNC, isolation: str | None = None
    ) -> T:
        _refuse_sqlite(wants)
        if self.engine is not None and self.engine.provides(wants):
            joined: Joined | None = None
            with _noting_refusal(lambda: joined):
                async with self.engine.begun_async(isolation) as connection:
                    joined = self._join(connection, self._origin)
                    await joined.check_async()
                    answer = await work(EngineSession(joined, Wrapped(connection)))
        else:
            answer, joined = await self._awaited(work, wants, isolation)
        if joined.hidden:
            await asyncio.to_thread(self._wake_hidden, joined)
        self._publish(joined)
        return answer

    async def _awaited(
        self, work: Callable[[Session], Awaitable[T]], wants: Wants, isolation: str | None
    ) -> tuple[T, Joined]:
        """Call `work` in a transaction on the library's own async connection."""
        async with self._borrowed_async() as connection:
            joined = self._joined(self._origin, async_executor=UsersAsyncExecutor(connection, self._sql))
            wrapped = await sqlalchemy.wrap_async("postgresql+psycopg://", connection) if wants.of_sqlalchemy else None
            session = PostgresSession(connection, lambda: joined, wrapped)
            try:
                await connection.set_isolation_level(LEVELS[isolation] if isolation else None)
                async with connection.transaction():
                    answer = await work(session)
            except BaseException as error:
                raise self._judged(error, session, closed=connection.closed) from error
            finally:
                await session.end_async()
        return answer, joined

    def join(self, connection: Any) -> Joined:
        return self._join(connection, ALL_PROCESSES)

    def _join(self, connection: Any, origin: str) -> Joined:
        raw, executor, async_executor = sqlalchemy.unwrap(connection, self._sql, self._native)
        check = self._identity.check
        if raw is None or (executor is not None and not _is(raw, psycopg.Connection)):
            return self._joined(origin, executor=executor, async_executor=async_executor, check=check)
        blocking = _is(raw, psycopg.Connection)
        if blocking or _is(raw, psycopg.AsyncConnection):
            _require_transaction(raw)
            if blocking:
                return self._joined(origin, executor=_JoinedExecutor(raw, self._sql), check=check)
            return self._joined(origin, async_executor=_AsyncJoinedExecutor(raw, self._sql), check=check)
        raise InvalidInput(
            f"the app's database is {self._db.where}; {type(raw).__module__}.{type(raw).__name__} cannot write to it. "
            "A psycopg connection can be joined, or a SQLAlchemy Connection or Session"
        )

    def _native(self, raw: Any) -> UsersAsyncExecutor | None:
        return UsersAsyncExecutor(raw, self._sql) if _is(raw, psycopg.AsyncConnection) else None

    def close(self) -> None:
        self._db.close()

    # -- connections and errors ----------------------------------------------------------------------------------------
    def _joined(
        self,
        origin: str,
        *,
        executor: Executor | None = None,
        async_executor: AsyncExecutor | None = None,
        check: Callable[[], Script[None]] | None = None,
    ) -> Joined:
        return Joined(
            self._sql,
            origin=origin if self.notify else "",
            executor=executor,
            async_executor=async_executor,
            check=check,
            payloads=self.payloads,
        )

    def _own(self, executor: Executor) -> Joined:
        return self._joined(self._origin, executor=executor)

    def _publish(self, joined: Joined) -> None:
        if joined.changes:
            self._notify(joined.changes.signal())

    def _wake_hidden(self, joined: Joined) -> None:
        """Wake runs that a committed transaction could not find because its snapshot was too old."""

        def work(tx: Transaction) -> Script[None]:
            tx.changes.ended |= joined.changes.ended
            tx.changes.published |= joined.changes.published
            yield from ()

        try:
            self.transact(lambda session: session.joined.run(work, joined.last_change), isolation="read committed")
        except StoreUnavailable as error:  # the transaction is committed all the same
            log.warning("runs that wait for what a transaction did may be woken late: %s", error)

    def _judged(self, error: BaseException, session: PostgresSession, *, closed: bool) -> BaseException:
        """Translate an exception that left a transaction: rolled back because of others, perhaps committed, or the function's own."""
        found = getattr(error, "orig", None) or error
        state = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
        if state in ROLLED_BACK or (state == _ABORTED and session.rolled_back):
            joined = session.joined_if_any
            return Again(str(error), None if joined is None else joined.refused)
        if state == _ABORTED:
            error.add_note(_WENT_ON)
        if closed and isinstance(found, psycopg.Error):
            return StoreUnavailable(f"the connection to {self._db.where} was lost: {error}")
        return error

    @contextlib.contextmanager
    def _borrowed(self, *, fresh: bool) -> Generator[Borrowed]:
        """A connection for a function. A function that is given the connection itself needs a `fresh` one; for a `Tx`, BEGIN resets it."""
        slots = self._db.slots
        connection: Borrowed | None = slots.take(USERS)
        kept = False
        try:
            # A connection that the server has closed, for instance by a restart, must not fail the function.
            if connection is None or not _ready(connection, fresh=fresh):
                connection = self._connect()
            try:
                yield connection
            finally:
                connection.row_factory, connection.cursor_factory = tuple_row, psycopg.Cursor
                kept = _usable(connection) and (not connection.dirty or _reset(connection))
        finally:
            if connection is not None and not kept:
                connection.close()
            slots.give_back(USERS, connection if kept else None)

    def _connect(self) -> Borrowed:
        threshold = 5 if self._db.prepares else None
        try:
            connection = Borrowed.connect(self._db.conninfo, autocommit=True, prepare_threshold=threshold)
            connection.wire = Wire(connection, prepare=self._db.prepares)
            return connection
        except psycopg.Error as error:
            raise StoreUnavailable(f"the database {self._db.where} cannot be used now: {error}") from error

    @contextlib.asynccontextmanager
    async def _borrowed_async(self) -> AsyncGenerator[Async]:
        slots, loop = self._db.slots, asyncio.get_running_loop()
        connection: Async | None = await slots.take_async(loop)
        kept = False
        try:
            if connection is not None and stale(connection.pgconn):
                await connection.close()
            if connection is None or connection.closed:
                connection = await self._connect_async()
            try:
                yield connection
            finally:
                connection.row_factory, connection.cursor_factory = tuple_row, psycopg.AsyncCursor
                kept = _usable(connection) and await _reset_async(connection)
        finally:
            slots.give_back(loop, connection if kept else None)
            if connection is not None and not kept:
                await connection.close()

    async def _connect_async(self) -> Async:
        threshold = 5 if self._db.prepares else None
        try:
            return await psycopg.AsyncConnection.connect(
                self._db.conninfo, autocommit=True, prepare_threshold=threshold
            )
        except psycopg.Error as error:
            raise StoreUnavailable(f"the database {self._db.where} cannot be used now: {error}") from error


class PostgresBackend(PostgresTransactions):
    """Another PostgreSQL database than the app's own; see `mainspring.store.external.backends.Backend`."""

    on_postgres = True

    def __init__(self, url: str) -> None:
        super().__init__(Database(url), Dialect("mainspring"), "", lambda _: None)


class _Identity:
    """The identity of the app's own database, read when first needed. Verbs that join a user's transaction must be in that database."""

    def __init__(self, database: Database, dialect: Dialect) -> None:
        self._db = database
        self._sql = dialect
        self._values = {"runs": f"{dialect.schema}.runs"}
        self._own: tuple[Any, ...] | None = None

    def check(self) -> Script[None]:
        """Raise if the connection is to another database or server. Before that, the identity of the app's own is read again."""
        (there,) = yield _WHO, self._values
        if there == self._own or there == self._asked():
            return
        reason = (
            f"which has no table {self._values['runs']}"
            if there[2] is None
            else "on another server"
            if self._own is not None and there[0] == self._own[0]
            else "another one"
        )
        raise InvalidInput(
            f"this connection is to the database {there[0]!r}, {reason}, but the app's database is {self._db.where}; "
            "only what is in one database commits together"
        )

    def _asked(self) -> tuple[Any, ...]:
        with self._db.connection() as db:
            self._own = tuple(db.execute(self._sql(_WHO), self._values).fetchall()[0])
        return self._own


class _JoinedExecutor(UsersExecutor):
    """Executes statements on a user's connection. Checks that a transaction is open: the user may have ended it."""

    def execute(self, sql: Sql, values: Values) -> Rows:
        _require_transaction(self._db)
        return super().execute(sql, values)


class _AsyncJoinedExecutor(UsersAsyncExecutor):
    """Executes statements on a user's async connection. Checks that a transaction is open: the user may have ended it."""

    async def execute(self, sql: Sql, values: Values) -> Rows:
        _require_transaction(self._db)
        return await super().execute(sql, values)


@contextlib.contextmanager
def _noting_refusal(joined: Callable[[], Joined | None]) -> Generator[None]:
    """Add to an `Again` the statement that was refused, on a user's connection."""
    try:
        yield
    except Again as again:
        found = joined()
        again.lock = None if found is None else found.refused
        raise


def _require_transaction(connection: Sync | Async) -> None:
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise InvalidInput(f"{NOT_OPEN}open one with `with connection.transaction():` first")


def _is(connection: object, kind: Any) -> bool:
    """Call isinstance without narrowing the type of its argument."""
    return isinstance(connection, kind)


def _ready(connection: Borrowed, *, fresh: bool) -> bool:
    """Whether an idle connection can be given to a function. If not, it is closed."""
    ready = not connection.closed and not connection.wire.stale()
    if ready and fresh and not connection.fresh:
        ready = _reset(connection)
    if not ready:
        connection.close()
    return ready


def _usable(connection: Sync | Async) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


def _reset(connection: Borrowed) -> bool:
    """Reset the session state that a user's function left on a pooled connection. Return False if the connection must be closed."""
    try:
        return connection.reset()
    except psycopg.Error:  # its transaction is committed all the same
        return False


async def _reset_async(connection: Async) -> bool:
    """Reset the session state of a pooled async connection. Return False if the connection must be closed."""
    try:
        cursor = await connection.execute(RESET)
        while cursor.description is None:
            cursor.nextset()
        rows = await cursor.fetchall()
    except psycopg.Error:
        return False
    except BaseException:  # the caller was cancelled in the middle of it
        await connection.close()
        raise
    return not any(left for *_, left in rows)


def _refuse_sqlite(wants: Wants) -> None:
    if wants in {Wants.SQLITE, Wants.AIOSQLITE}:
        raise InvalidInput(
            f"a transaction here is on PostgreSQL, which has no {wants.value}; annotate its first parameter with "
            f"{'psycopg.AsyncConnection' if wants.is_awaited else 'Tx'}"
        )
