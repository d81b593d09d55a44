"""A user's own SQLAlchemy engine: the URL of its database, and transactions on its connections."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, unquote, urlencode, urlsplit

from mainspring.errors import InTransaction, InvalidInput
from mainspring.store.external.colours import entered, ready
from mainspring.store.external.sqlalchemy import judged
from mainspring.store.external.tx import ENDED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from mainspring.store.external.tx import Wants

T = TypeVar("T")

_INSTEAD = "give App a URL, and the engine's connections to app.joined(…) or @app.transaction(database=engine)"
_ALIASES = {"database": "dbname", "passwd": "password", "username": "user"}
_SSL = {"ssl", "ssl_context", "sslcontext", "direct_tls"}


class _Seen(Exception):
    """Raised in place of connecting, with the arguments that an engine would have connected with."""

    def __init__(self, args: tuple[Any, ...], arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.args_given = args
        self.arguments = dict(arguments)


class UsersEngine:
    """An `Engine` or `AsyncEngine`. A call returns the URL of its database, as the store connects to it."""

    def __init__(self, engine: Any) -> None:
        if not hasattr(engine, "dialect") or not hasattr(engine, "connect") or not hasattr(engine, "url"):
            raise InvalidInput(f"engine= takes a SQLAlchemy Engine or AsyncEngine, not {engine!r}")
        self.engine = engine
        self.is_async = hasattr(engine, "sync_engine")
        self._url: str | None = None

    def __call__(self) -> str:
        if self._url is None:
            self._url = _url_of(self.engine.sync_engine if self.is_async else self.engine)
        return self._url

    def __repr__(self) -> str:
        return repr(self.engine)

    def provides(self, wants: Wants) -> bool:
        """Whether the engine provides this kind of connection to functions: its connections are all blocking or all async."""
        return wants.of_sqlalchemy and wants.is_awaited is self.is_async

    @contextlib.asynccontextmanager
    async def begun(self, isolation: str | None) -> AsyncGenerator[Any]:
        """A connection with one open transaction, committed at the end of the block, rolled back by an exception."""
        from sqlalchemy.exc import DBAPIError  # noqa: PLC0415

        try:
            async with entered(self.engine.connect()) as connection:
                await ready(connection.execution_options(**_options(isolation)))
                async with entered(connection.begin()):
                    guard = await self._on(connection, _begin)
                    try:
                        yield connection
                    finally:
                        await self._on(connection, guard.end)
        except DBAPIError as error:
            _raise(error, self.engine)

    async def _on(self, connection: Any, work: Callable[[Any], T]) -> T:
        """Call a function with the connection, or with the blocking one behind an async connection."""
        return cast("T", await connection.run_sync(work)) if self.is_async else work(connection)


def _options(isolation: str | None) -> dict[str, Any]:
    return {} if isolation is None else {"isolation_level": isolation.upper()}


def _raise(error: Any, engine: Any) -> None:
    found = judged(error, str(engine.url))
    if found is error:
        raise error
    raise found from error


class _Guard:
    """Keeps a function from ending the transaction that it was given."""

    over = False

    def refuse(self, _connection: Any) -> None:
        if not self.over:
            raise InTransaction(ENDED)

    def end(self, connection: Any) -> None:
        """Leave the transaction to the block that opened it.

        SQLAlchemy takes a commit that was refused for the end of the transaction: without a rollback here, the connection would return
        to its pool with the transaction open, and with its locks.
        """
        self.over = True
        transaction = connection.get_transaction()
        if transaction is not None and not transaction.is_active and not connection.invalidated:
            connection.connection.rollback()


def _begin(connection: Any) -> _Guard:
    """Open one transaction on an engine's connection.

    Python's driver of SQLite begins a transaction with the first INSERT, UPDATE or DELETE. A SAVEPOINT before that would be a transaction
    of its own, and RELEASE its commit. If an engine sets AUTOCOMMIT, every statement would be a transaction.
    """
    from sqlalchemy import event  # noqa: PLC0415

    raw = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        if not getattr(raw, "in_transaction", True):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        event.listen(connection, "before_cursor_execute", require_open)
    elif getattr(raw, "autocommit", None) is True:
        raise InvalidInput(
            f"the engine of {connection.engine.url} was made with AUTOCOMMIT, so each statement would commit by itself; "
            "give one without it, for example engine.execution_options(isolation_level='READ COMMITTED')"
        )
    guard = _Guard()
    event.listen(connection, "commit", guard.refuse)
    event.listen(connection, "rollback", guard.refuse)
    return guard


def require_open(connection: Any, *_: object) -> None:
    """Raise `InTransaction` if SQLite has rolled back the transaction: its driver would begin another one, or none."""
    if not getattr(connection.connection.driver_connection, "in_transaction", True):
        from mainspring.store.sqlite.borrowed import rolled_back  # noqa: PLC0415  (only the driver in use is loaded)

        raise rolled_back(None)


# -- URLs --------------------------------------------------------------------------------------------------------------
def _url_of(engine: Any) -> str:
    """The URL of an engine's database, with the arguments that it connects with."""
    name = engine.dialect.name
    if name not in {"sqlite", "postgresql"}:
        raise InvalidInput(
            f"Mainspring's tables are in SQLite or PostgreSQL, and this engine is for {name}; {_INSTEAD}"
        )
    if name == "sqlite" and engine.dialect.driver not in {"pysqlite", "aiosqlite"}:
        raise InvalidInput(f"the driver {engine.dialect.driver} keeps files that sqlite3 cannot open; {_INSTEAD}")
    args, arguments = _arguments(engine)
    return _sqlite(args, arguments) if name == "sqlite" else _postgresql(arguments)


def _arguments(engine: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that an engine connects with: its URL, `connect_args=`, changes by listeners to `do_connect`. Opens no connection."""
    from sqlalchemy import event  # noqa: PLC0415

    def seen(_dialect: Any, _record: Any, args: Any, arguments: Any) -> None:
        raise _Seen(tuple(args), arguments)

    event.listen(engine, "do_connect", seen)
    try:
        connection = engine.pool.recreate().connect()
    except _Seen as found:
        return found.args_given, found.arguments
    except Exception as error:
        raise InvalidInput(
            f"this engine connects by a function of its own, which failed: {error}; {_INSTEAD}"
        ) from error
    finally:
        event.remove(engine, "do_connect", seen)
    connection.close()
    raise InvalidInput(
        f"this engine connects by a function of its own (creator=…, or a listener to do_connect), so nothing says where to; {_INSTEAD}"
    )


def _sqlite(args: tuple[Any, ...], arguments: Mapping[str, Any]) -> str:
    name = str(args[0] if args else arguments.get("database", ""))
    if name.startswith("file:"):
        parts = urlsplit(name)
        if "mode=ro" in parts.query or "immutable" in parts.query:
            raise InvalidInput(f"this engine opens {name}, which cannot be written to; {_INSTEAD}")
        name = "" if "mode=memory" in parts.query else unquote(parts.path)
    if not name or name == ":memory:":
        raise InvalidInput(
            "this engine's database is in memory, where no other connection can reach it; give the engine a file"
        )
    return f"sqlite:///{quote(os.path.abspath(name))}"  # noqa: PTH100  (links are not followed)


def _postgresql(arguments: Mapping[str, Any]) -> str:
    from psycopg.pq import Conninfo  # noqa: PLC0415  (only for PostgreSQL)

    importlib.import_module("mainspring.store.postgres")  # raises an error that names the missing extra

    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    found = _as_libpq(arguments)
    options = {key: str(value) for key, value in found.items() if key in known and value is not None}
    user, password = options.pop("user", ""), options.pop("password", "")
    host, port, name = options.pop("host", ""), options.pop("port", ""), options.pop("dbname", "")
    if "/" in host or "," in host:  # a socket, or several servers
        options["host"], host = host, ""
        if port:
            options["port"], port = port, ""
    place = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    place += ("@" if place else "") + (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{place}/{quote(name, safe='')}{query}"


def _as_libpq(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by psycopg's names. Drivers that do not use libpq have other names for some."""
    found = {_ALIASES.get(key, key): value for key, value in arguments.items()}
    for key in _SSL & found.keys():
        mode = found.pop(key)
        if isinstance(mode, str):
            found.setdefault("sslmode", mode)
        elif mode:
            raise InvalidInput(
                f"this engine encrypts its connections by {key}={mode!r}, which psycopg cannot use; give the engine's URL sslmode=… and "
                f"sslrootcert=… with the driver psycopg, or {_INSTEAD}"
            )
    settings = found.pop("server_settings", None)
    if settings:
        options = " ".join(f"-c {key}={str(value).replace(' ', chr(92) + ' ')}" for key, value in settings.items())
        found["options"] = f"{found.get('options', '')} {options}".strip()
    return found
