"""Ways to databases that are not the app's own: a SQLite file, or whatever a SQLAlchemy engine is for."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from mainspring.errors import InTransaction, InvalidInput, StoreUnavailable
from mainspring.store.external import sqlalchemy
from mainspring.store.external.placeholders import for_psycopg, for_sqlite
from mainspring.store.external.sessions import Again, Tx, Wants
from mainspring.store.sql.dialect import PlainDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from mainspring.store.external.sessions import Cursor
    from mainspring.store.sqlite.borrowed import BorrowedConnection
    from mainspring.store.transaction import AsyncExecutor, Executor

T = TypeVar("T")

_BUSY_SECONDS = 60
_ROLLED_BACK = {"40001", "40P01"}  # serialization failure, deadlock


class ElsewhereSession(Protocol):
    """One open transaction in another database."""

    awaited: Literal[False]
    executor: Executor

    def give(self, wants: Wants) -> Any: ...
    def settle(self) -> None: ...


class AwaitedSession(Protocol):
    """The same on a connection that is awaited."""

    awaited: Literal[True]
    executor: AsyncExecutor

    def give(self, wants: Wants) -> Any: ...
    def settle(self) -> None: ...


class Place(Protocol):
    """One way to another database."""

    def transact(self, work: Callable[[ElsewhereSession], T], wants: Wants, isolation: str | None) -> T: ...
    def close(self) -> None: ...


def _is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


# -- SQLite ------------------------------------------------------------------------------------------------------------
class _SqliteSession:
    awaited: Literal[False] = False

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
        if self._wrapped is not None and wants in {Wants.SA_CONNECTION, Wants.SA_SESSION}:
            return self._wrapped.give(wants)
        raise InTransaction(
            f"a transaction on a SQLite file has no {wants.value}; annotate its first parameter with Tx"
        )

    def settle(self) -> None:
        if self._wrapped is not None:
            self._wrapped.settle()
        self._db.require_open()


class SqlitePlace:
    """A SQLite file of the user's. Nothing is changed about how it is kept; writers wait for each other as usual."""

    def __init__(self, path: str) -> None:
        self._path = path

    def transact(self, work: Callable[[ElsewhereSession], T], wants: Wants, isolation: str | None) -> T:
        del isolation  # one writer at a time: always serializable
        if wants in {Wants.PSYCOPG, Wants.PSYCOPG_ASYNC}:
            raise InvalidInput(f"the database of this transaction is a SQLite file, which has no {wants.value}")
        with self._connected() as connection:
            wrapped = sqlalchemy.wrap("sqlite://", connection) if wants.name.startswith("SA") else None
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
            connection.stop_reading()  # closing alone would wait for the last cursor that somebody still has
            connection.close()

    def close(self) -> None:
        """There is nothing that stays open."""


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------
class _AlchemySession:
    awaited: Literal[False] = False

    def __init__(self, connection: Any) -> None:
        self._db = connection
        self._wrapped = sqlalchemy.Wrapped(connection)
        self.executor: Executor = sqlalchemy.AlchemyExecutor(connection, PlainDialect())

    def give(self, wants: Wants) -> Any:
        if wants in {Wants.SA_CONNECTION, Wants.SA_SESSION}:
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

    def settle(self) -> None:
        self._wrapped.settle()
        if self._db.dialect.name == "sqlite":
            _require_open(self._db)


class AlchemyPlace:
    """Whatever database a SQLAlchemy engine is for."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def transact(self, work: Callable[[ElsewhereSession], T], wants: Wants, isolation: str | None) -> T:
        del wants
        from sqlalchemy.exc import DBAPIError  # noqa: PLC0415

        try:
            options = {} if isolation is None else {"isolation_level": isolation.upper()}
            with self._engine.connect().execution_options(**options) as connection, connection.begin():
                _begin(connection)
                return work(_AlchemySession(connection))
        except DBAPIError as error:
            state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
            if state in _ROLLED_BACK:
                raise Again(str(error)) from error
            if error.connection_invalidated or _is_busy(error.orig):
                raise StoreUnavailable(f"the database {self._engine.url} cannot be used now: {error}") from error
            raise

    def close(self) -> None:
        """The engine is the user's."""


def _begin(connection: Any) -> None:
    """See that one transaction is open on an engine's connection.

    Python's driver of SQLite begins with the first INSERT, UPDATE or DELETE: a SAVEPOINT before that would be a transaction of its
    own, and RELEASE its commit. Where an engine asks its driver for AUTOCOMMIT, every statement would be one.
    """
    raw = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite":
        from sqlalchemy import event  # noqa: PLC0415

        if not getattr(raw, "in_transaction", True):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        event.listen(connection, "before_cursor_execute", _require_open)
    elif getattr(raw, "autocommit", None) is True:
        raise InvalidInput(
            f"the engine of {connection.engine.url} was made with AUTOCOMMIT, so each statement would commit by itself; "
            "give one without it, for example engine.execution_options(isolation_level='READ COMMITTED')"
        )


def _require_open(connection: Any, *_: object) -> None:
    """`InTransaction` if SQLite has rolled back what was begun: its driver would begin another transaction, or none."""
    if not getattr(connection.connection.dbapi_connection, "in_transaction", True):
        from mainspring.store.sqlite.borrowed import rolled_back  # noqa: PLC0415  (only the driver in use is loaded)

        raise rolled_back(None)
