"""Backends for databases other than the app's own: a SQLite file, or any database of a SQLAlchemy engine.

The one for PostgreSQL is `store/postgres/transactions.py` `PostgresBackend`.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from mainspring.errors import InTransaction, InvalidInput, StoreUnavailable
from mainspring.store.external import sqlalchemy
from mainspring.store.external.engines import UsersEngine, require_open
from mainspring.store.external.join import Joined
from mainspring.store.external.transactions import JoinedSession
from mainspring.store.external.tx import Tx, Wants, for_psycopg, for_sqlite
from mainspring.store.open import sqlite_path
from mainspring.store.sql.dialect import PlainDialect
from mainspring.store.sqlite.borrowed import BorrowedConnection
from mainspring.store.sqlite.transactions import SqliteSession

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainspring.store.external.transactions import Session
    from mainspring.store.external.tx import Cursor

T = TypeVar("T")

_BUSY_SECONDS = 60
_PLAIN = PlainDialect()


class Backend(Protocol):
    """Another database in which transactions can be executed, on a blocking or an async connection as the function wants it."""

    @property
    def on_postgres(self) -> bool: ...
    async def atransact(self, work: Callable[[Session], Awaitable[T]], wants: Wants, isolation: str | None) -> T: ...
    def close(self) -> None: ...


# -- SQLite ------------------------------------------------------------------------------------------------------------
class SqliteBackend:
    """A SQLite file of the user's. Its settings are not changed; writers wait for each other as usual."""

    on_postgres = False

    def __init__(self, path: str) -> None:
        self._path = path

    async def atransact(self, work: Callable[[Session], Awaitable[T]], wants: Wants, isolation: str | None) -> T:
        del isolation  # one writer at a time: always serializable
        if wants in {Wants.PSYCOPG, Wants.PSYCOPG_ASYNC}:
            raise InvalidInput(f"the database of this transaction is a SQLite file, which has no {wants.value}")
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=BorrowedConnection
        )
        try:
            session = SqliteSession(connection)
            try:
                await session.provide(wants)
                connection.begin()
                answer = await work(session)
                session.end()
                connection.end("COMMIT")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                    raise StoreUnavailable(f"the database {self._path} is busy: {error}") from error
                raise
            finally:
                session.end()
                connection.end("ROLLBACK")
                await session.close()
        finally:
            connection.stop_reading()  # `close` alone would wait for the last open cursor
            connection.close()
        return answer

    def close(self) -> None:
        """Do nothing: no connection stays open."""


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------
class _AlchemySession(JoinedSession):
    """An open transaction on an engine's connection. A blocking one also has a `Tx` and the driver's own connection."""

    def __init__(self, connection: Any, *, is_async: bool) -> None:
        executor = sqlalchemy.AlchemyExecutor(connection, _PLAIN)
        super().__init__(Joined(_PLAIN, executor, is_async=is_async), sqlalchemy.Wrapped(connection))
        self._db = connection

    def give(self, wants: Wants) -> Any:
        if wants.of_sqlalchemy:
            return super().give(wants)
        if self.joined.is_async:
            raise InTransaction(
                f"a transaction on an AsyncEngine has no {wants.value}; annotate its first parameter with AsyncSession or AsyncConnection"
            )
        if wants is Wants.TX:
            return Tx(self._execute)
        raw = self._db.connection.dbapi_connection
        package = type(raw).__module__.partition(".")[0]
        if f"{package}.{type(raw).__name__}" == wants.value:
            return raw
        raise InTransaction(
            f"this engine's connections are of {package}, not {wants.value}; use Tx or SQLAlchemy's own"
        )

    def _execute(self, statement: str, values: Any) -> Cursor:
        spelled = for_sqlite(statement) if self._db.dialect.name == "sqlite" else for_psycopg(statement)
        by_name = hasattr(values, "keys")
        cursor: Cursor = self._db.exec_driver_sql(spelled, (values if by_name else tuple(values)) or None)
        return cursor

    def require_open(self) -> None:
        if self._db.dialect.name == "sqlite" and not self.joined.is_async:
            require_open(self._db)


class EngineBackend:
    """Any database that a SQLAlchemy engine connects to: an `Engine`, or an `AsyncEngine` for functions that are awaited."""

    def __init__(self, engine: Any) -> None:
        self._engine = UsersEngine(engine)
        self.on_postgres: bool = engine.dialect.name == "postgresql"

    async def atransact(self, work: Callable[[Session], Awaitable[T]], wants: Wants, isolation: str | None) -> T:
        del wants
        async with self._engine.begun(isolation) as connection:
            return await work(_AlchemySession(connection, is_async=self._engine.is_async))

    def close(self) -> None:
        """Do nothing: the engine is the user's."""


def backend_of(database: Any) -> Backend:
    """The backend for a database, by its URL or a SQLAlchemy engine.

    The connections of an `AsyncEngine` belong to a loop, so what blocks, such as looking for what an earlier attempt left, connects to the
    same database in another way.
    """
    if hasattr(database, "sync_engine"):
        database = UsersEngine(database)()
    if not isinstance(database, str):
        return EngineBackend(database)
    if urlsplit(database).scheme == "sqlite":
        return SqliteBackend(sqlite_path(database))
    from mainspring.store.postgres.transactions import PostgresBackend  # noqa: PLC0415  (only the driver in use is loaded)

    return PostgresBackend(database)
