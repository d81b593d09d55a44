"""SQLAlchemy's connections and sessions: made around a connection of ours, or somebody's own to be joined.

SQLAlchemy is imported only where somebody uses it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput, MissingExtra
from mainspring.store.external.sessions import Wants
from mainspring.store.sql.dialect import PlainDialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.sql.dialect import Dialect, Sql
    from mainspring.store.transaction import AsyncExecutor, Executor, Rows, Values

    Native = Callable[[Any], AsyncExecutor | None]


class Wrapped:
    """Wraps one of our connections as a SQLAlchemy connection, for the length of a transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._session: Any = None

    def give(self, wants: Wants) -> Any:
        if wants is Wants.SA_CONNECTION:
            return self._connection
        if self._session is None:
            from sqlalchemy.orm import Session  # noqa: PLC0415

            self._session = Session(bind=self._connection)
            _follow(self._session)
        return self._session

    def settle(self) -> None:
        if self._session is not None:
            self._session.flush()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._connection.close()


def wrap(url: str, raw: Any) -> Wrapped:
    """SQLAlchemy's view of a connection on which no transaction is open yet."""
    try:
        from sqlalchemy import create_engine  # noqa: PLC0415
        from sqlalchemy.pool import StaticPool  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("this transaction wants SQLAlchemy: pip install 'mainspring[sqlalchemy]'") from error
    engine = create_engine(url, creator=lambda: raw, poolclass=StaticPool)
    connection = engine.connect()
    connection.begin()
    return Wrapped(connection)


class AlchemyExecutor:
    """Executes statements through a SQLAlchemy connection."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self._db = connection
        self._dialect = dialect

    def execute(self, sql: Sql, values: Values) -> Rows:
        return _rows(self._db.execute(_text(self._dialect.spelled(sql)), self._dialect.values(values)))


class AlchemyAsyncExecutor:
    """Executes statements through an asyncio connection or session of SQLAlchemy's.

    `native` makes an executor for a driver's own connection, for drivers that are known; the others are used through SQLAlchemy.
    """

    def __init__(self, given: Any, dialect: Dialect, native: Native) -> None:
        self._given = given
        self._dialect = dialect
        self._native = native
        self._executor: AsyncExecutor | None = None
        self._db: Any = None

    async def execute(self, sql: Sql, values: Values) -> Rows:
        if self._db is None:
            self._db = await self._begun()
        if self._executor is not None:
            return await self._executor.execute(sql, values)
        return _rows(await self._db.execute(_text(self._dialect.spelled(sql)), self._dialect.values(values)))

    async def _begun(self) -> Any:
        from sqlalchemy.ext.asyncio import AsyncSession  # noqa: PLC0415

        db: Any = await self._given.connection() if isinstance(self._given, AsyncSession) else self._given
        if not db.in_transaction():
            await db.begin()
        self._executor = self._native((await db.get_raw_connection()).driver_connection)
        return db


def _follow(session: Any) -> None:
    """Have a session make its savepoints when it is asked for them: by itself it waits for its own next statement, and ours are not its own."""
    from sqlalchemy import event  # noqa: PLC0415

    if not event.contains(session, "after_transaction_create", _make_savepoint):
        event.listen(session, "after_transaction_create", _make_savepoint)


def _make_savepoint(session: Any, transaction: Any) -> None:
    if transaction.nested:
        session.connection()


def _text(text: str) -> Any:
    from sqlalchemy import text as clause  # noqa: PLC0415

    return clause(text.replace("::", r"\:\:"))


def _rows(result: Any) -> Rows:
    return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


def _none(raw: Any) -> None:
    del raw


def unwrap(given: Any, dialect: Dialect, native: Native = _none) -> tuple[Any, Executor | None, AsyncExecutor | None]:
    """The driver's own connection behind a user's (None for an asynchronous one), and an executor for it.

    `native` is for `AlchemyAsyncExecutor`. A connection that is not SQLAlchemy's comes back as it is.
    """
    if not type(given).__module__.startswith("sqlalchemy.") and "sqlalchemy" not in sys.modules:
        return given, None, None
    from sqlalchemy import Connection  # noqa: PLC0415
    from sqlalchemy.orm import Session  # noqa: PLC0415

    if isinstance(given, Session):
        _follow(given)
        given = given.connection()
    if isinstance(given, Connection):
        if not given.in_transaction():
            given.begin()
        return given.connection.dbapi_connection, AlchemyExecutor(given, dialect), None
    if type(given).__module__.startswith("sqlalchemy.ext.asyncio"):
        if hasattr(given, "sync_session"):
            _follow(given.sync_session)
        return None, None, AlchemyAsyncExecutor(given, dialect, native)
    if type(given).__module__.startswith("sqlalchemy."):
        raise InvalidInput(f"a SQLAlchemy Connection or Session can be joined, not {type(given).__name__}")
    return given, None, None


def has_begun(given: Any) -> bool:
    """Whether a transaction is open in SQLite on a user's connection. Of SQLAlchemy's asynchronous ones that is not known without awaiting."""
    raw, _, _ = unwrap(given, PlainDialect())
    return bool(getattr(raw, "in_transaction", False))  # no driver of another database's has this


async def has_begun_async(given: Any) -> bool:
    """The same for every connection."""
    if not type(given).__module__.startswith("sqlalchemy.ext.asyncio"):
        return has_begun(given)
    db = await given.connection() if hasattr(given, "sync_session") else given
    raw = (await db.get_raw_connection()).driver_connection
    return bool(getattr(raw, "in_transaction", False))
