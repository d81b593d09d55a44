"""Connections to PostgreSQL, opened when first needed and closed when idle or broken, and the translation of its errors."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import TextLoader

from mainspring.errors import InvalidInput, SchemaError, StoreError, StoreFull, StoreUnavailable
from mainspring.store.postgres.libpq import Wire
from mainspring.store.postgres.slots import DEFAULT, LIBRARY, Slots

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection of psycopg with its raw side, for the most frequent statements."""

    wire: Wire
    begin: tuple[str, ...] = ("BEGIN",)
    """The statements that begin a transaction."""

    @contextlib.contextmanager
    def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002  (psycopg's own)
    ) -> Generator[psycopg.Transaction]:
        """A transaction like psycopg's, which the server ends if this process stops in the middle of it."""
        outermost = self.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with super().transaction(savepoint_name, force_rollback) as made:
            for statement in self.begin[1:] if outermost else ():
                self.execute(statement.encode())
            yield made


# A peer that vanished without closing is noticed within half a minute, instead of the two hours that systems default to.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_ALWAYS = {"client_encoding": "utf8"}
"""The wire sends UTF-8, whatever the URL, `PGCLIENTENCODING`, the role or the database say."""
_OLDEST = 14
"""The oldest major version that is supported and tested."""
_LONGEST_NAME = 63
"""The length to which PostgreSQL truncates an application's name."""
_SHORTEST_IDLE = 1.0
"""Seconds. A process on a busy machine may need as long between two statements of a transaction."""
_LIMIT = "idle_in_transaction_session_timeout"
_SESSION = {
    "default_transaction_isolation": "read committed",
    "standard_conforming_strings": "on",
    "idle_session_timeout": "0",  # an idle connection of the library is not a forgotten one
}
"""Settings of the library's own sessions, whatever the role, the database or the server sets."""

_TOO_ISOLATED = (
    "{where}: default_transaction_isolation must be 'read committed', and behind a pooler it cannot be "
    "set for a connection; ALTER ROLE … SET default_transaction_isolation = 'read committed'"
)
"""After each lock a query must see what was committed before the lock was granted."""

LOCKED = (pg.LockNotAvailable, pg.DeadlockDetected, pg.SerializationFailure)
"""Errors because of another transaction. This one is rolled back and can be retried at once."""
BAD_DATA = (
    psycopg.DataError,
    psycopg.IntegrityError,
    pg.ProgramLimitExceeded,  # an id too long for an index
    pg.StatementTooComplex,  # JSON nested too deeply
    UnicodeError,
    OverflowError,
)
"""Errors because of a value that the driver or the database refuses, and would refuse again."""


def application_name(process: str) -> str:
    """The name of the sessions of a process, `HOST-PID`."""
    return f"mainspring {process}"[:_LONGEST_NAME]


def describe(url: str) -> str:
    """The URL without its password and its options, for messages. It can be pasted into a command."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "postgresql://…"
    given = {name: str(parts.get(name) or "") for name in ("user", "host", "port", "dbname")}
    user = f"{quote(given['user'], safe='')}@" if given["user"] else ""
    name = quote(given["dbname"], safe="")
    if given["host"].startswith(("/", "@")):  # the folder of a socket, which has no place before the path
        socket = {"host": given["host"], **({"port": given["port"]} if given["port"] else {})}
        return f"postgresql://{user}/{name}?{urlencode(socket)}"
    hosts, ports = given["host"].split(","), given["port"].split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = [
        f"{f'[{host}]' if ':' in host else host or 'localhost'}{f':{port}' if port else ''}"
        for host, port in zip(hosts, ports, strict=False)
    ]
    return f"postgresql://{user}{','.join(places)}/{name}"


def translate(error: psycopg.Error, where: str) -> Exception:
    """Translate an error that means that the database cannot be used into the library's. Return others as they are."""
    state = error.sqlstate or ""
    if state == "53100":
        return StoreFull(f"the disk of {where} is full: {error}; work continues when there is space")
    if state in {"42P01", "3F000", "42703"}:
        return SchemaError(f"the tables at {where} are not there as this code needs them: {error}")
    if state == "42501":
        return StoreError(
            f"{where}: {error}; a role needs USAGE on the schema and SELECT, INSERT, UPDATE, DELETE on its tables, or only SELECT to look; "
            "`mainspring db sql` prints the statements that create them"
        )
    if state == "25006":
        return StoreUnavailable(
            f"the database {where} is read-only: {error}; a standby accepts writes once it is promoted, and a session once "
            "default_transaction_read_only is off for its role and database"
        )
    # Class 08: the connection; 53: resources; 57: shut down, starting or cancelled; 25P03, 25P04: the server ended a transaction because
    # it took too long, or because this process was idle in it. A bare DatabaseError without a state is libpq's own: the server sent
    # nothing, the connection broke.
    bare = type(error) is psycopg.DatabaseError
    lost = not state and (bare or isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)))
    if lost or isinstance(error, LOCKED) or state[:2] in {"08", "53", "57"} or state in {"25P03", "25P04"}:
        return StoreUnavailable(f"the database {where} cannot be used now: {error}")
    return error


class Database:
    """Connections to one database, shared by the threads of a process.

    `prepare=None` detects a pooler, and does not prepare statements behind one: a pooler in transaction mode may give the connection to
    another client.

    The server ends a transaction that is idle for half of the `lease` (seconds): its process is frozen or gone, and others wait for the
    rows that it has locked.

    `connections` is the largest number that this process opens, including the listener's and those of users' transactions.
    """

    def __init__(
        self, url: str, *, prepare: bool | None = None, lease: float = 15.0, connections: int = DEFAULT
    ) -> None:
        self.on_loss: Callable[[], None] = lambda: None
        """Called when a connection broke: the statement may have been executed, and its response was lost."""
        self.where = describe(url)
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise InvalidInput(f"{self.where} cannot be read as a PostgreSQL URL: {error}") from error
        name = {"application_name": application_name(f"{socket.gethostname()}-{os.getpid()}")}
        self._conninfo = make_conninfo(
            "",
            **(_DEFAULTS | name | {name: str(value) for name, value in given.items() if value is not None} | _ALWAYS),
        )
        self._idle_limit = round(max(lease / 2, _SHORTEST_IDLE) * 1_000)
        self._prepare = prepare
        self.slots = Slots(self.where, connections)

    @property
    def conninfo(self) -> str:
        return self._conninfo

    @property
    def prepares(self) -> bool:
        """Whether statements may be prepared: not behind a pooler."""
        return self._prepare is not False

    @contextlib.contextmanager
    def connection(self) -> Generator[Connection]:
        """A connection in autocommit mode, for this thread within the block."""
        try:
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)
        except psycopg.Error as error:
            translated = translate(error, self.where)
            if translated is error:
                raise
            raise translated from error

    @contextlib.contextmanager
    def transaction(self) -> Generator[Connection]:
        """A connection inside a transaction: committed at the end of the block, rolled back by an exception."""
        with self.connection() as connection, connection.transaction():
            yield connection

    @contextlib.contextmanager
    def snapshot(self) -> Generator[Connection]:
        """A connection on which all reads see one snapshot."""
        with self.transaction() as connection:
            connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield connection

    def connect(self) -> Connection:
        """Open a connection for the caller alone."""
        # Only the wire prepares statements: psycopg would deallocate all of them, its own and ours, after every rollback.
        connection = Connection.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        try:
            self._prepare_for_use(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare_for_use(self, connection: Connection) -> None:
        # Values are JSON text on both sides; the codec decodes them.
        for name in ("json", "jsonb"):
            connection.adapters.register_loader(name, TextLoader)
        self._require_supported(connection)
        pooled, isolation = self._surroundings(connection)
        if pooled:
            if isolation != "read committed":
                raise StoreError(_TOO_ISOLATED.format(where=self.where))
            # A session setting would apply to the pooler's next client; a setting of a transaction ends with it.
            connection.begin = ("BEGIN", f"SET LOCAL {_LIMIT} = {self._idle_limit}")
        if self._prepare is None:
            self._prepare = not pooled
        connection.wire = Wire(connection, prepare=self._prepare)

    def _require_supported(self, connection: Connection) -> None:
        """Refuse a server that is too old, and a database that cannot store every text."""
        version = connection.info.server_version
        if version // 10_000 < _OLDEST:
            raise StoreError(
                f"{self.where} is PostgreSQL {version // 10_000}.{version % 10_000}; Mainspring needs PostgreSQL {_OLDEST} or newer"
            )
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in {"UTF8", None}:
            raise StoreError(
                f"{self.where} has the encoding {encoding}, in which not every text can be stored; Mainspring needs UTF8: "
                "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
            )

    def _surroundings(self, connection: Connection) -> tuple[bool, str]:
        """Detect a pooler, and the default isolation level of transactions.

        A pooler invents the process id that it announces, and the server behind it returns its real one. If they are the same, the session
        is ours, and gets the library's settings.
        """
        wanted = _SESSION | {_LIMIT: str(self._idle_limit)}
        row = connection.execute(
            b"WITH pooled AS MATERIALIZED (SELECT pg_backend_pid() <> %(pid)s AS yes)"
            b" SELECT yes, current_setting('default_transaction_isolation'), (SELECT count(set_config(name, value, false))"
            b" FROM unnest(%(names)s::text[], %(values)s::text[]) AS wanted (name, value) WHERE NOT yes) FROM pooled",
            {"pid": connection.info.backend_pid, "names": list(wanted), "values": list(wanted.values())},
        ).fetchone()
        return (row[0], row[1]) if row else (True, "")

    def close(self) -> None:
        self.slots.close()

    def _take(self) -> Connection:
        connection: Connection | None = self.slots.take(LIBRARY)
        # A connection that the server has closed, for instance by a restart, must not fail its next user.
        if connection is not None and not connection.wire.stale():
            return connection
        try:
            if connection is not None:
                connection.close()
            return self.connect()
        except BaseException:
            self.slots.give_back(LIBRARY, None)
            raise

    def _give_back(self, connection: Connection) -> None:
        usable = connection.pgconn.status == psycopg.pq.ConnStatus.OK
        idle = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if not (usable and idle):
            connection.close()
        self.slots.give_back(LIBRARY, connection if usable and idle else None)
        if not usable:
            # If one connection broke, the idle ones are usually broken as well.
            self.slots.close_idle(LIBRARY)
            self.on_loss()


def roll_back(connection: Connection) -> None:
    """Roll back a transaction that an exception left open."""
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        connection.execute(b"ROLLBACK")
