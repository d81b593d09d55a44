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
from mainspring.store.external.colours import entered, ready, whole
from mainspring.store.external.join import Joined
from mainspring.store.external.sqlalchemy import Wrapped
from mainspring.store.external.transactions import JoinedSession, Transactions
from mainspring.store.external.tx import CONFLICTS, NOT_OPEN, Again, Wants
from mainspring.store.postgres.database import Database
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.postgres.executor import UsersExecutor
from mainspring.store.postgres.libpq import Wire
from mainspring.store.postgres.sessions import Borrowed, BorrowedAsync, PostgresSession, TxSession
from mainspring.store.postgres.slots import USERS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from mainspring.store.changes import Signal
    from mainspring.store.external.engines import UsersEngine
    from mainspring.store.external.transactions import Session
    from mainspring.store.postgres.executor import UsersConnection
    from mainspring.store.transaction import AsyncExecutor, Script, Transaction

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

    async def atransact(self, work: Callable[[Session], Awaitable[T]], wants: Wants, isolation: str | None = None) -> T:
        if wants in {Wants.SQLITE, Wants.AIOSQLITE}:
            raise InvalidInput(
                f"a transaction here is on PostgreSQL, which has no {wants.value}; annotate its first parameter with "
                f"{'psycopg.AsyncConnection' if wants.is_awaited else 'Tx'}"
            )
        if self.engine is not None and self.engine.provides(wants):
            return await self._transact_on(self.engine.begun(isolation), work, self.engine)
        async with self._borrowed(wants) as connection:
            session = await self._session(connection, wants)
            try:
                answer = await session.make(work, isolation)
            except BaseException as error:
                raise self._judged(error, session, closed=connection.closed) from error
            finally:
                await session.end()
        joined = session.joined_if_any
        if joined is not None:
            await self._committed(joined)
        return answer

    async def _transact_on(
        self, opened: Any, work: Callable[[Session], Awaitable[T]], engine: UsersEngine | None = None
    ) -> T:
        joined: Joined | None = None
        try:
            async with entered(opened) as connection:
                joined = self._join(connection, self._origin)
                await joined.check_async()
                answer = await work(JoinedSession(joined, None if engine is None else Wrapped(connection)))
        except Again as again:
            again.lock = None if joined is None else joined.refused
            raise
        await self._committed(joined)
        return answer

    async def _committed(self, joined: Joined) -> None:
        """Publish the changes of a transaction, and wake runs that it could not find because its snapshot was too old."""
        if joined.hidden:
            wants = Wants.PSYCOPG_ASYNC if joined.is_async else Wants.TX
            waking = self.atransact(lambda session: _wake_hidden(joined, session), wants, "read committed")
            try:
                await (whole(waking) if joined.is_async else waking)
            except StoreUnavailable as error:  # the transaction is committed all the same
                log.warning(
                    "runs that wait for the changes of a transaction may wake late, at the next poll: %s", error
                )
        if joined.changes:
            self._notify(joined.changes.signal())

    async def _session(self, connection: Borrowed | BorrowedAsync, wants: Wants) -> PostgresSession:
        if wants is Wants.TX and isinstance(connection, Borrowed):
            return TxSession(connection, self._sql, self._own)
        if isinstance(connection, Borrowed):
            connection.wire.sure, connection.dirty = False, True
        wrapped = await sqlalchemy.wrap("postgresql+psycopg://", connection, wants) if wants.of_sqlalchemy else None
        return PostgresSession(connection, self._sql, self._own, wrapped)

    def join(self, connection: Any) -> Joined:
        return self._join(connection, ALL_PROCESSES)

    def _join(self, connection: Any, origin: str) -> Joined:
        raw, executor = sqlalchemy.unwrap(connection, self._sql, self._native)
        if isinstance(raw, (psycopg.Connection, psycopg.AsyncConnection)):
            users: UsersConnection = raw  # pyright: ignore[reportUnknownVariableType]
            _require_transaction(users)
            executor = UsersExecutor(users, self._sql, _require_transaction)
        elif executor is None:
            raise InvalidInput(
                f"the app's database is {self._db.where}; {type(raw).__module__}.{type(raw).__name__} cannot write to it. "
                "A psycopg connection can be joined, or a SQLAlchemy Connection or Session"
            )
        is_async = raw is None or isinstance(raw, psycopg.AsyncConnection)
        return self._joined(origin, executor, is_async=is_async, check=self._identity.check)

    def _native(self, raw: Any) -> UsersExecutor | None:
        known = issubclass(type(raw), psycopg.AsyncConnection)
        return UsersExecutor(raw, self._sql) if known else None

    def close(self) -> None:
        self._db.close()

    # -- connections and errors ----------------------------------------------------------------------------------------
    def _joined(
        self,
        origin: str,
        executor: AsyncExecutor,
        *,
        is_async: bool,
        check: Callable[[], Script[None]] | None = None,
    ) -> Joined:
        origin = origin if self.notify else ""
        return Joined(self._sql, executor, is_async=is_async, origin=origin, check=check, payloads=self.payloads)

    def _own(self, executor: UsersExecutor) -> Joined:
        return self._joined(self._origin, executor, is_async=executor.is_async)

    def _judged(self, error: BaseException, session: PostgresSession, *, closed: bool) -> BaseException:
        """Translate an exception that left a transaction: rolled back because of others, perhaps committed, or the function's own."""
        found = getattr(error, "orig", None) or error
        state = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
        if state in CONFLICTS or (state == _ABORTED and session.rolled_back):
            joined = session.joined_if_any
            return Again(str(error), None if joined is None else joined.refused)
        if state == _ABORTED:
            error.add_note(_WENT_ON)
        if closed and isinstance(found, psycopg.Error):
            return StoreUnavailable(f"the connection to {self._db.where} was lost: {error}")
        return error

    @contextlib.asynccontextmanager
    async def _borrowed(self, wants: Wants) -> AsyncGenerator[Borrowed | BorrowedAsync]:
        """A connection for a function. For a `Tx`, BEGIN resets it."""
        slots, loop = self._db.slots, asyncio.get_running_loop() if wants.is_awaited else None
        connection: Borrowed | BorrowedAsync | None
        connection = slots.take(USERS) if loop is None else await slots.take_async(loop)
        kept = False
        try:
            # A connection that the server has closed, for instance by a restart, must not fail the function.
            if connection is None or not _is_ready(connection, fresh=wants is not Wants.TX):
                connection = await self._connect(wants)
            try:
                yield connection
            finally:
                given: Any = connection
                given.row_factory = tuple_row
                given.cursor_factory = psycopg.Cursor if loop is None else psycopg.AsyncCursor
                kept = _usable(connection) and (not connection.dirty or await _reset(connection))
        finally:
            if connection is not None and not kept:
                await ready(connection.close())
            slots.give_back(loop or USERS, connection if kept else None)

    async def _connect(self, wants: Wants) -> Borrowed | BorrowedAsync:
        kind: Any = BorrowedAsync if wants.is_awaited else Borrowed
        threshold = 5 if self._db.prepares else None
        try:
            connection: Borrowed | BorrowedAsync = await ready(
                kind.connect(self._db.conninfo, autocommit=True, prepare_threshold=threshold)
            )
        except psycopg.Error as error:
            raise StoreUnavailable(f"the database {self._db.where} cannot be used now: {error}") from error
        if isinstance(connection, Borrowed):
            connection.wire = Wire(connection, prepare=self._db.prepares)
        return connection


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


def _wake_hidden(joined: Joined, session: Session) -> Awaitable[None]:
    """Wake the runs that wait for what a committed transaction changed."""

    def work(tx: Transaction) -> Script[None]:
        tx.changes.ended |= joined.changes.ended
        tx.changes.published |= joined.changes.published
        yield from ()

    return session.joined.run_async(work, joined.last_change)


def _require_transaction(connection: UsersConnection) -> None:
    """Raise if no transaction is open on a user's connection: the user may have ended it."""
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise InvalidInput(f"{NOT_OPEN}open one with `with connection.transaction():` first")


def _is_ready(connection: Borrowed | BorrowedAsync, *, fresh: bool) -> bool:
    """Whether an idle connection can be given to a function. If not, it is closed."""
    with contextlib.suppress(psycopg.Error):
        if connection.is_ready(fresh=fresh):
            return True
    connection.pgconn.finish()
    return False


def _usable(connection: Borrowed | BorrowedAsync) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


async def _reset(connection: Borrowed | BorrowedAsync) -> bool:
    """Reset the session state that a user's function left on a pooled connection. Return False if the connection must be closed."""
    try:
        return bool(await ready(connection.reset()))
    except psycopg.Error:  # its transaction is committed all the same
        return False
