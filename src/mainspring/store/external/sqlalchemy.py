"""SQLAlchemy's connections and sessions: around a connection of the library, or a user's own to be joined.

SQLAlchemy is imported only where it is used.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput, MissingExtra, StoreUnavailable
from mainspring.store.external.colours import ready
from mainspring.store.external.tx import CONFLICTS, Again, Wants, no_such
from mainspring.store.sql.dialect import PlainDialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.sql.dialect import Dialect, Sql
    from mainspring.store.transaction import AsyncExecutor, Rows, Values

    Native = Callable[[Any], AsyncExecutor | None]


_EXTRA = "pip install 'mainspring[sqlalchemy]'"
_JSON = {114, 3802}
"""The oids of json and jsonb in PostgreSQL."""
_SQLITE_BUSY = 5
"""As in `sqlite3`, which is not imported for this alone."""


class Wrapped:
    """A SQLAlchemy connection for the duration of a transaction, and the sessions on it that functions are given."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._sessions: list[Any] = []

    def give(self, wants: Wants) -> Any:
        """The connection or session that a function wants. Raises `InTransaction` if it wants an async one here and this is blocking, or vice versa."""
        if not wants.of_sqlalchemy or wants.is_awaited is not self._is_async:
            raise no_such(wants)
        if wants in {Wants.SA_CONNECTION, Wants.SA_ASYNC_CONNECTION}:
            return self._connection
        kind = _session_class(wants)
        for session in self._sessions:
            if isinstance(session, kind):
                return session
        made = kind(bind=self._connection)
        _follow(getattr(made, "sync_session", made))
        self._sessions.append(made)
        return made

    @property
    def _is_async(self) -> bool:
        return hasattr(self._connection, "sync_connection")

    async def flush(self) -> None:
        """Send the pending statements of sessions."""
        for session in self._sessions:
            await ready(session.flush())

    async def close(self) -> None:
        for each in (*self._sessions, self._connection):
            await ready(each.close())


def _session_class(wants: Wants) -> Any:
    path, _, name = wants.value.rpartition(".")
    try:
        return getattr(importlib.import_module(path), name)
    except ImportError as error:
        raise MissingExtra(f"this transaction wants a {wants.value}, and {path} cannot be imported: {error}") from error


async def wrap(url: str, raw: Any, wants: Wants) -> Wrapped:
    """Wrap a connection without an open transaction as SQLAlchemy's."""
    if wants.is_awaited:
        require_greenlet()
    try:
        from sqlalchemy import create_engine  # noqa: PLC0415
        from sqlalchemy.pool import StaticPool  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(f"this transaction wants SQLAlchemy: {_EXTRA}") from error
    if wants.is_awaited:
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

        async def given(*_: object, **__: object) -> Any:
            return raw

        engine: Any = create_async_engine(url, async_creator=given, poolclass=StaticPool)
    else:
        engine = create_engine(url, creator=lambda: raw, poolclass=StaticPool)
    connection = await ready(engine.connect())
    await ready(connection.begin())
    return Wrapped(connection)


def require_greenlet() -> None:
    """Raise `MissingExtra` if SQLAlchemy, or the greenlet that its async connections need, is not installed."""
    for needed in ("sqlalchemy", "greenlet"):
        try:
            importlib.import_module(needed)
        except ImportError as error:
            raise MissingExtra(f"asynchronous connections of SQLAlchemy need {needed}: {_EXTRA}") from error


def judged(error: Any, where: str) -> Exception:
    """Translate a database error of SQLAlchemy's: rolled back because of others, unreachable, or the error itself."""
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    if state in CONFLICTS:
        return Again(str(error))
    busy = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == _SQLITE_BUSY
    if error.connection_invalidated or busy:
        return StoreUnavailable(f"the database {where} cannot be used now: {error}")
    found: Exception = error
    return found


class AlchemyExecutor:
    """Executes statements through a connection of SQLAlchemy's, blocking or async."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self._db = connection
        self._dialect = dialect

    async def execute(self, sql: Sql, values: Values) -> Rows:
        found = self._db.execute(_text(self._dialect.spelled(sql)), self._dialect.values(values))
        return _rows(await ready(found))


class JoinedAlchemyExecutor:
    """Executes statements through a user's async connection or session of SQLAlchemy's, which is looked at when first used.

    `native` makes an executor for the connection of a known driver. Other drivers are used through SQLAlchemy.
    """

    def __init__(self, given: Any, dialect: Dialect, native: Native) -> None:
        self._given = given
        self._dialect = dialect
        self._native = native
        self._executor: AsyncExecutor | None = None

    async def execute(self, sql: Sql, values: Values) -> Rows:
        if self._executor is None:
            db = await _connection_of(self._given)
            if not db.in_transaction():
                await db.begin()
            raw = (await db.get_raw_connection()).driver_connection
            self._executor = self._native(raw) or AlchemyExecutor(db, self._dialect)
        return await self._executor.execute(sql, values)


def _follow(session: Any) -> None:
    """Make a session send its savepoints at once: it waits for its own next statement, and the library's statements are not its own."""
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
    if not result.returns_rows:
        return []
    parsed = [place for place, column in enumerate(result.cursor.description) if column[1] in _JSON]
    rows = [tuple(row) for row in result.fetchall()]
    return [_with_text(row, parsed) for row in rows] if parsed else rows


def _with_text(row: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
    """A row with JSON as text, as on the library's connections. Drivers other than psycopg 3 decode it."""
    texts = {place: json.dumps(row[place], ensure_ascii=False) for place in places if row[place] is not None}
    return tuple(texts.get(place, value) for place, value in enumerate(row))


def _none(raw: Any) -> None:
    del raw


def unwrap(given: Any, dialect: Dialect, native: Native = _none) -> tuple[Any, AsyncExecutor | None]:
    """The driver's connection behind a user's, and an executor for it. An async one has no connection yet: None.

    `native` is for `JoinedAlchemyExecutor`. A connection that is not SQLAlchemy's is returned as it is.
    """
    if "sqlalchemy" not in sys.modules:
        return given, None
    from sqlalchemy import Connection  # noqa: PLC0415
    from sqlalchemy.orm import Session, scoped_session  # noqa: PLC0415

    if isinstance(given, scoped_session):
        registry: Any = given  # pyright: ignore[reportUnknownVariableType]
        return unwrap(registry(), dialect, native)
    if isinstance(given, Session):
        _follow(given)
        given = given.connection()
    if isinstance(given, Connection):
        if not given.in_transaction():
            given.begin()
        return given.connection.dbapi_connection, AlchemyExecutor(given, dialect)
    if _is_awaited(given):
        require_greenlet()
        if hasattr(given, "sync_session"):
            _follow(given.sync_session)
        return None, JoinedAlchemyExecutor(given, dialect, native)
    if type(given).__module__.startswith("sqlalchemy."):
        raise InvalidInput(f"a SQLAlchemy Connection or Session can be joined, not {type(given).__name__}")
    return given, None


def _is_awaited(given: Any) -> bool:
    """Whether this is an async connection or session of SQLAlchemy's, or of a subclass."""
    if "sqlalchemy.ext.asyncio" not in sys.modules:
        return False
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session  # noqa: PLC0415

    return isinstance(given, (AsyncConnection, AsyncSession, async_scoped_session))


async def _connection_of(given: Any) -> Any:
    """The connection behind an asynchronous session, or the connection itself."""
    return given if hasattr(given, "sync_connection") else await given.connection()


def has_begun(given: Any) -> bool:
    """Whether a transaction is open on a user's SQLite connection. Unknown for async ones of SQLAlchemy's."""
    raw, _ = unwrap(given, PlainDialect())
    return bool(getattr(raw, "in_transaction", False))  # drivers of other databases do not have this attribute


async def has_begun_async(given: Any) -> bool:
    """Whether a transaction is open on a user's SQLite connection, also for async ones."""
    if not _is_awaited(given):
        return has_begun(given)
    raw = (await (await _connection_of(given)).get_raw_connection()).driver_connection
    return bool(getattr(raw, "in_transaction", False))
