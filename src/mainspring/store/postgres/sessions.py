"""Open transactions of users' functions on PostgreSQL.

A function that is given a connection may execute anything, and psycopg tracks its state. A function that is given a `Tx` has no other
access: BEGIN is sent without waiting for its response, and the record of the outcome is sent together with COMMIT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from mainspring.errors import InTransaction
from mainspring.model.states import State
from mainspring.store.external.colours import entered, ready
from mainspring.store.external.transactions import Session
from mainspring.store.external.tx import CONFLICTS, ENDED, OVER, Again, Tx, Wants, for_psycopg
from mainspring.store.postgres.dialect import Statement
from mainspring.store.postgres.executor import UsersExecutor
from mainspring.store.postgres.libpq import stale
from mainspring.store.sql.dialect import typed
from mainspring.store.sql.records import RECORDED_COLUMNS, step_values
from mainspring.store.sql.steps import ON_STEP_OR_FAIL
from mainspring.store.writes import RecordStep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainspring.store.external.join import Joined
    from mainspring.store.external.sqlalchemy import Wrapped
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.postgres.libpq import Wire
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import Rows, Values

T = TypeVar("T")

LEVELS = {
    "read committed": psycopg.IsolationLevel.READ_COMMITTED,
    "repeatable read": psycopg.IsolationLevel.REPEATABLE_READ,
    "serializable": psycopg.IsolationLevel.SERIALIZABLE,
}
_COMMIT = Statement(b"COMMIT", ())
_RECORD = f"""
  WITH mine AS MATERIALIZED (SELECT id, owner, epoch, state FROM runs WHERE id = :run FOR SHARE)
  INSERT INTO steps ({", ".join(RECORDED_COLUMNS)})
  VALUES (
    (SELECT id FROM mine WHERE owner = :owner AND epoch = :epoch AND state IN ('running', 'waiting', 'cancelling')),
    {", ".join(typed(column) for column in RECORDED_COLUMNS[1:])})
  {ON_STEP_OR_FAIL} RETURNING (SELECT state FROM mine)
"""
"""The fast path of `record_outcome`. A refusal must fail the transaction, so the run or the epoch of the step is NULL then."""


_RELEASE = Statement(b"SELECT pg_advisory_unlock_all(), current_user <> $1 OR pg_my_temp_schema() <> 0", ("user",))
"""Sent after COMMIT, in the same round trip: no transaction may wait for advisory locks of an idle session.

It also returns whether the session has another role, or had temporary tables, which prepared statements may name.
"""
_AFRESH = b"RESET ALL; UNLISTEN *; "
"""Sent before BEGIN, in the same round trip. Settings of a function, by any statement or trigger, must not reach the next one.

To query whether there are any would take longer, and DISCARD ALL would also deallocate prepared statements. No statement here takes a
snapshot, so the isolation level can still be set.
"""
RESET = b"""
  SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *;
  SELECT pg_advisory_unlock_all(),
    pg_my_temp_schema() <> 0 OR EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql)"""
"""Resets the session. Returns whether state is left that this does not undo and that conflicts with prepared statements."""
_FORGETTING = ("ROLLBACK", "DROP", "ALTER", "DISCARD", "DEALLOCATE")
"""Statements after which psycopg, or the database itself, may forget all prepared statements of a connection."""
_LASTING = ("PREPARE", "LISTEN", "DECLARE", "DO", "CALL")
"""Statements after which a session is reset at once, instead of when it is used next."""
_FAILED = "a statement of this transaction failed"
_REFUSED = {"run", "epoch"}


class BorrowedAsync(psycopg.AsyncConnection[tuple[Any, ...]]):
    """An async connection for users' functions. Its session is always reset after use."""

    dirty = True

    def is_ready(self, *, fresh: bool) -> bool:
        """See `Borrowed.is_ready`."""
        del fresh
        return not self.closed and not stale(self.pgconn)

    async def reset(self) -> bool:
        """See `Borrowed.reset`."""
        cursor = await self.execute(RESET)
        while cursor.description is None:
            cursor.nextset()
        return not any(left for *_, left in await cursor.fetchall())


class Borrowed(psycopg.Connection[tuple[Any, ...]]):
    """A connection for users' functions. psycopg does not know of transactions that are begun on its wire, and must not end them."""

    wire: Wire
    held = False
    """Whether a transaction is open that was begun on the wire."""
    dirty = False
    """Whether the session must be reset before it becomes idle."""
    fresh = True
    """Whether the session was reset since its last use, or was never used."""

    def is_ready(self, *, fresh: bool) -> bool:
        """Whether the idle connection can be given to a function. One that is given the connection itself needs a `fresh` one."""
        return not self.closed and not self.wire.stale() and (not fresh or self.fresh or self.reset())

    def reset(self) -> bool:
        """Reset the session state that a function left. Return False if some of it remains."""
        self.dirty, self.fresh = False, True
        self.wire.send(RESET)
        return not any(left for rows in self.wire.answer() for *_, left in rows)

    def commit(self) -> None:
        if self.held:
            raise InTransaction(ENDED)
        super().commit()

    def rollback(self) -> None:
        if self.held:
            raise InTransaction(ENDED)
        super().rollback()


class PostgresSession(Session):
    """An open transaction on one connection. A function may have been given the connection itself."""

    def __init__(
        self,
        connection: Borrowed | BorrowedAsync,
        dialect: Dialect,
        own: Callable[[UsersExecutor], Joined],
        wrapped: Wrapped | None = None,
    ) -> None:
        super().__init__(wrapped)
        self._db = connection
        self._sql = dialect
        self._own = own
        self._over = False
        self.rolled_back = False
        """Whether the database has rolled the transaction back because of others, even if the function has caught that error."""

    def _join(self) -> Joined:
        return self._own(UsersExecutor(self._db, self._sql))

    async def make(self, work: Callable[[Session], Awaitable[T]], isolation: str | None) -> T:
        """Begin, call `work`, and commit or roll back."""
        await ready(self._db.set_isolation_level(LEVELS[isolation] if isolation else None))
        async with entered(self._db.transaction()):
            return await work(self)

    def give(self, wants: Wants) -> Any:
        if wants is Wants.TX and isinstance(self._db, psycopg.Connection):
            return Tx(self._execute)
        if wants is (Wants.PSYCOPG if isinstance(self._db, psycopg.Connection) else Wants.PSYCOPG_ASYNC):
            return self._db
        return super().give(wants)

    async def end(self) -> None:
        """Refuse further use of what the function was given: another client will get the connection."""
        self._over = True
        if self._wrapped is not None and not self._db.closed:
            await self._wrapped.close()

    def require_open(self) -> None:
        status = self._db.pgconn.transaction_status
        if status == TransactionStatus.IDLE:
            raise InTransaction(ENDED)
        if status == TransactionStatus.INERROR:  # COMMIT would roll back without an error
            raise psycopg.errors.InFailedSqlTransaction(_FAILED)

    def _execute(self, statement: str, parameters: Any) -> psycopg.Cursor[Any]:
        assert isinstance(self._db, psycopg.Connection)  # noqa: S101
        if self._over:
            raise InTransaction(OVER)
        try:
            return self._db.execute(for_psycopg(statement).encode(), parameters or None)
        except psycopg.Error as error:
            self.rolled_back = self.rolled_back or error.sqlstate in CONFLICTS
            raise


class TxSession(PostgresSession):
    """An open transaction of a function with a `Tx`, so that every statement passes here."""

    _db: Borrowed

    def __init__(self, connection: Borrowed, dialect: Dialect, own: Callable[[UsersExecutor], Joined]) -> None:
        super().__init__(connection, dialect, own)
        self._wire = connection.wire
        self._begun = False
        self._committed = False
        self._who = {"user": connection.info.user}

    def _join(self) -> Joined:
        return self._own(_TxExecutor(self, self._db, self._sql))

    async def make(self, work: Callable[[Session], Awaitable[T]], isolation: str | None) -> T:
        wire, connection = self._wire, self._db
        wire.make_sure()
        connection.fresh = False
        wire.send(_AFRESH + (f"BEGIN ISOLATION LEVEL {isolation}".encode() if isolation else b"BEGIN"))
        connection.held = True
        try:
            answer = await work(self)
            if not self._committed:
                self._commit()
        except BaseException:
            self._roll_back()
            raise
        finally:
            connection.held = False
        return answer

    def give(self, wants: Wants) -> Any:
        if wants is not Wants.TX:
            self.begun()
            self._db.dirty = True
            self.doubt()
        return super().give(wants)

    async def flush(self) -> None:
        self.begun()
        self.require_open()

    def begun(self) -> None:
        """Wait for the response to BEGIN, if it is outstanding. Nothing else can be sent before."""
        if not self._begun:
            self._begun = True
            self._wire.answer()

    def doubt(self) -> None:
        """Note that prepared statements of this connection may have been deallocated."""
        self._wire.sure = False

    async def record(self, write: RecordStep, now: int) -> State | None:
        """Record the outcome and commit, in one round trip: if the record is refused, the database does not execute COMMIT."""
        self.begun()
        alone = (
            type(write) is RecordStep
            and write.run_state is None
            and (self.joined_if_any is None or not self.joined_if_any.started)
        )
        if not (alone and self._wire.sure and self._wire.speaks_unicode):
            return await super().record(write, now)
        values = dict(zip(RECORDED_COLUMNS, step_values(write.step), strict=True), owner=write.owner)
        try:
            with self._db.lock:
                record = (self._sql.raw(_RECORD), values)
                recorded, _, ((_, left),) = self._wire.execute(record, (_COMMIT, {}), (_RELEASE, self._who))
        except psycopg.errors.NotNullViolation as error:
            if self._refused(error):
                return None
            raise
        except psycopg.errors.InvalidSqlStatementName as error:  # a function in the database can deallocate it, too
            raise Again(str(error)) from error
        self._committed = True
        self._db.dirty = self._db.dirty or bool(left)
        return State(recorded[0][0])

    def _refused(self, error: psycopg.Error) -> bool:
        found = error.diag
        return (found.schema_name, found.table_name) == (self._sql.name, "steps") and found.column_name in _REFUSED

    def _commit(self) -> None:
        self.begun()
        self.require_open()
        with self._db.lock:
            if self._wire.sure:
                _, ((_, left),) = self._wire.execute((_COMMIT, {}), (_RELEASE, self._who))
            else:
                self._wire.send(_COMMIT.query)
                self._wire.answer()
                left = True
        self._db.dirty = self._db.dirty or bool(left)

    def _roll_back(self) -> None:
        """Roll back the open transaction. If that fails, the connection is closed, which its owner notices."""
        self.doubt()
        self._db.held, self._db.dirty = False, True
        try:
            self.begun()
            self._db.rollback()
        except psycopg.Error:
            pass

    def _execute(self, statement: str, parameters: Any) -> psycopg.Cursor[Any]:
        self.begun()
        if (
            not self._over and self._db.pgconn.transaction_status == TransactionStatus.IDLE
        ):  # ended by a text of several statements, or by a procedure
            raise InTransaction(ENDED)
        cursor = super()._execute(statement, parameters)
        if (tag := cursor.statusmessage) is not None:
            if tag.startswith(_FORGETTING):
                self.doubt()
            elif tag.startswith(_LASTING):
                self._db.dirty = True
        return cursor


class _TxExecutor(UsersExecutor):
    """Executes the library's statements in a transaction of a `Tx`."""

    def __init__(self, session: TxSession, connection: Borrowed, dialect: Dialect) -> None:
        super().__init__(connection, dialect)
        self._session = session

    async def execute(self, sql: Sql, values: Values) -> Rows:
        self._session.begun()
        if isinstance(sql, str) and sql.startswith(_FORGETTING):
            self._session.doubt()
        return await super().execute(sql, values)
