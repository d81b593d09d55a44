"""Connections to databases other than the app's own: a SQLite file, or any database of a SQLAlchemy engine."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from mainspring.errors import InTransaction, InvalidInput, StoreUnavailable
from mainspring.store.external import sqlalchemy
from mainspring.store.external.engines import UsersEngine, require_open
from mainspring.store.external.placeholders import for_psycopg, for_sqlite
from mainspring.store.external.tx import Tx, Wants
from mainspring.store.sql.dialect import PlainDialect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from mainspring.store.external.tx import Cursor
    from mainspring.store.sqlite.borrowed import BorrowedConnection
    from mainspring.store.transaction import AsyncExecutor, Executor

T = TypeVar("T")

_BUSY_SECONDS = 60


class ElsewhereSession(Protocol):
    """One open transaction in another database."""

    awaited: Literal[False]
    on_postgres: bool
    executor: Executor

    def give(self, wants: Wants) -> Any: ...
    def flush(self) -> None: ...


class AwaitedSession(Protocol):
    """An open transaction in another database, on an async connection."""

    awaited: Literal[True]
    on_postgres: bool
    executor: AsyncExecutor

    def give(self, wants: Wants) -> Any: ...
    async def flush_async(self) -> None: ...


class Place(Protocol):
    """Another database in which transactions can be executed."""

    def transact(self, work: Callable[[ElsewhereSession], T], wants: Wants, isolation: str | None) -> T: ...
    def close(self) -> None: ...


class AwaitedPlace(Protocol):
    """Another database in which transactions can be executed on async connections."""

    async def atransact(
        self, work: Callable[[AwaitedSession], Awaitable[T]], wants: Wants, isolation: str | None
    ) -> T: ...


def _is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


# -- SQLite ------------------------------------------------------------------------------------------------------------
class _SqliteSession:
    awaited: Literal[False] = False
    on_postgres = False

    def __init__(self, connection: BorrowedConnection, wrapped: sqlalchemy.Wrapped | None) -> None:
        from mainspring.store.sqlite.executor import UsersExecutor  # noqa: PLC0415

        self._db = connection
        self._wrapped = wrapped
        self.executor: Executor = UsersExecutor(connection)

    def give(self, wants: Wants) -> Any:
        if wants is Wants.TX:
            return Tx(lambda statement, values: self._db.execute(for_sqlite(statement), values))
        if wants is Wants.SQLITE:
            return self._db
        if self._wrapped is not None and wants.of_sqlalchemy:
            return self._wrapped.give(wants)
        raise InTransaction(
            f"a transaction on a SQLite file has no {wants.value}; annotate its first parameter with Tx"
        )

    def flush(self) -> None:
        if self._wrapped is not None:
            self._wrapped.flush()
        self._db.require_open()


class SqlitePlace:
    """A SQLite file of the user's. Its settings are not changed; writers wait for each other as usual."""

    def __init__(self, path: str) -> None:
        self._path = path

    def transact(self, work: Callable[[ElsewhereSession], T], wants: Wants, isolation: str | None) -> T:
        del isolation  # one writer at a time: always serializable
        if wants in {Wants.PSYCOPG, Wants.PSYCOPG_ASYNC}:
            raise InvalidInput(f"the database of this transaction is a SQLite file, which has no {wants.value}")
        with self._connected() as connection:
            wrapped = sqlalchemy.wrap("sqlite://", connection) if wants.of_sqlalchemy else None
            try:
                connection.begin()
                answer = work(_SqliteSession(connection, wrapped))
                connection.stop_reading()
                connection.end("COMMIT")
            except sqlite3.OperationalError as error:
                if _is_busy(error):
                    raise StoreUnavailable(f"the database {self._path} is busy: {error}") from error
                raise
            finally:
                connection.end("ROLLBACK")
                if wrapped is not None:
                    wrapped.close()
        return answer

    @contextlib.contextmanager
    def _connected(self) -> Generator[BorrowedConnection]:
        from mainspring.store.sqlite.borrowed import BorrowedConnection  # noqa: PLC0415

        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=BorrowedConnection
        )
        try:
            yield connection
        finally:
            connection.stop_reading()  # `close` alone would wait for the last open cursor
            connection.close()

    def close(self) -> None:
        """Do nothing: no connection stays open."""


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------
class _AlchemySession:
    awaited: Literal[False] = False

    def __init__(self, connection: Any) -> None:
        self._db = connection
        self.on_postgres: bool = connection.dialect.name == "postgresql"
        self._wrapped = sqlalchemy.Wrapped(connection)
        self.executor: Executor = sqlalchemy.AlchemyExecutor(connection, PlainDialect())

    def give(self, wants: Wants) -> Any:
        if wants.of_sqlalchemy:
            return self._wrapped.give(wants)
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

    def flush(self) -> None:
        self._wrapped.flush()
        if self._db.dialect.name == "sqlite":
            require_open(self._db)


class _AwaitedAlchemySession:
    awaited: Literal[True] = True

    def __init__(self, connection: Any) -> None:
        self.on_postgres: bool = connection.dialect.name == "postgresql"
        self._wrapped = sqlalchemy.Wrapped(connection)
        self.executor: AsyncExecutor = sqlalchemy.AlchemyAsyncExecutor(connection, PlainDialect(), lambda _: None)

    def give(self, wants: Wants) -> Any:
        if wants.of_sqlalchemy:
            return self._wrapped.give(wants)
        raise InTransaction(
            f"a transaction on an AsyncEngine has no {wants.value}; annotate its first parameter with AsyncSession or AsyncConnection"
        )

    async def flush_async(self) -> None:
        await self._wrapped.flush_async()


class AwaitedAlchemyPlace:
    """The database of an AsyncEngine, for functions that are awaited."""

    def __init__(self, engine: Any) -> None:
        self._engine = UsersEngine(engine)

    async def atransact(self, work: Callable[[AwaitedSession], Awaitable[T]], wants: Wants, isolation: str | None) -> T:
        del wants
        async with self._engine.begun_async(isolation) as connection:
            return await work(_AwaitedAlchemySession(connection))


class AlchemyPlace:
    """Any database that a SQLAlchemy engine connects to."""

    def __init__(self, engine: Any) -> None:
        self._engine = UsersEngine(engine)

    def transact(self, work: Callable[[ElsewhereSession], T], wants: Wants, isolation: str | None) -> T:
        del wants
        with self._engine.begun(isolation) as connection:
            return work(_AlchemySession(connection))

    def close(self) -> None:
        """Do nothing: the engine is the user's."""
