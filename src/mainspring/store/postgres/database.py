"""Connections to PostgreSQL: opened when first needed, closed when idle or broken; and what its errors mean here."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any

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
    """A connection of psycopg with its raw side, for those who are in a hurry."""

    wire: Wire
    begin: tuple[str, ...] = ("BEGIN",)
    """The statements that begin a transaction."""

    @contextlib.contextmanager
    def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002  (psycopg's own)
    ) -> Generator[psycopg.Transaction]:
        """A transaction as psycopg's, which ends by itself when this process stops in the middle of it."""
        outermost = self.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with super().transaction(savepoint_name, force_rollback) as made:
            for statement in self.begin[1:] if outermost else ():
                self.execute(statement.encode())
            yield made


# A peer that vanished without a word is noticed within half a minute, instead of the two hours that systems default to.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_LONGEST_NAME = 63
"""What PostgreSQL keeps of an application's name."""
_SHORTEST_IDLE = 1.0
"""Seconds. A process on a busy machine may need as long between two statements of a transaction."""
_LIMIT = "idle_in_transaction_session_timeout"

LOCKED = (pg.LockNotAvailable, pg.DeadlockDetected, pg.SerializationFailure)
"""Another transaction was in the way; this one is rolled back and can be retried at once."""
BAD_DATA = (
    psycopg.DataError,
    psycopg.IntegrityError,
    pg.ProgramLimitExceeded,  # an id too long for an index
    pg.StatementTooComplex,  # JSON nested too deeply
    UnicodeError,
    OverflowError,
)
"""A value is refused, by the driver or by the database, and would be refused again."""


def application_name(process: str) -> str:
    """The name of the sessions of a process, `HOST-PID`."""
    return f"mainspring {process}"[:_LONGEST_NAME]


def describe(url: str) -> str:
    """The URL without its password, for messages."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "postgresql://…"
    where = f"{parts.get('host') or 'localhost'}{':' + str(parts['port']) if parts.get('port') else ''}"
    return f"postgresql://{where}/{parts.get('dbname') or ''}"


def translate(error: psycopg.Error, where: str) -> Exception:
    """The library's error for what the database cannot help with; anything else as it is."""
    state = error.sqlstate or ""
    if state == "53100":
        return StoreFull(f"no room on the disk of {where}: {error}; work goes on when there is")
    if state in {"42P01", "3F000", "42703"}:
        return SchemaError(f"the tables at {where} are not there as this code needs them: {error}")
    if state == "42501":
        return StoreError(f"{where}: {error}")
    # Class 08: the connection; 53: resources; 57: shut down, starting or cancelled; 25006: a standby that is read only;
    # 25P03, 25P04: this process did not go on with its transaction for so long that the server ended it.
    # A bare DatabaseError without a state is libpq's own: the server sent nothing, the connection broke.
    bare = type(error) is psycopg.DatabaseError
    lost = not state and (bare or isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)))
    if lost or isinstance(error, LOCKED) or state[:2] in {"08", "53", "57"} or state in {"25006", "25P03", "25P04"}:
        return StoreUnavailable(f"the database {where} cannot be used now: {error}")
    return error


class Database:
    """Connections to one database, shared by the threads of a process.

    `prepare=None` finds out whether a pooler stands in between, and leaves prepared statements alone if one does: a pooler
    that lends connections by transaction may give the next one to another client.

    The server ends a transaction that stands still for half of the `lease` (seconds): its process is frozen or gone, and others
    wait for the rows that it has locked.

    `connections` is the largest number that this process opens, one that listens and those of users' transactions included.
    """

    def __init__(
        self, url: str, *, prepare: bool | None = None, lease: float = 15.0, connections: int = DEFAULT
    ) -> None:
        self.on_loss: Callable[[], None] = lambda: None
        """Called when a connection broke: the statement may have been executed, and its answer was lost."""
        self.where = describe(url)
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise InvalidInput(f"{self.where} cannot be read as a PostgreSQL URL: {error}") from error
        name = {"application_name": application_name(f"{socket.gethostname()}-{os.getpid()}")}
        self._conninfo = make_conninfo(
            "", **(_DEFAULTS | name | {name: str(value) for name, value in given.items() if value is not None})
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
        """A connection in autocommit mode, for this thread while the block lasts."""
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
        """A connection on which all that is read is of one moment."""
        with self.transaction() as connection:
            connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield connection

    def connect(self) -> Connection:
        """A connection of the caller's own."""
        # Only the wire prepares statements: psycopg would deallocate all of them, its own and ours, after every rollback.
        connection = Connection.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        try:
            self._prepare_for_use(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare_for_use(self, connection: Connection) -> None:
        # Values are JSON text on both sides; what they mean is the codec's business.
        for name in ("json", "jsonb"):
            connection.adapters.register_loader(name, TextLoader)
        pooled, isolation = self._surroundings(connection)
        if pooled:
            # What is set for a session would be set for its next client; what is set for a transaction ends with it.
            connection.begin = ("BEGIN", f"SET LOCAL {_LIMIT} = {self._idle_limit}")
        if self._prepare is None:
            self._prepare = not pooled
        if isolation != "read committed":
            self._insist(connection, pooled=pooled)
        connection.wire = Wire(connection, prepare=self._prepare)

    def _surroundings(self, connection: Connection) -> tuple[bool, str]:
        """Whether a pooler stands in between, and how isolated transactions are unless they say so.

        A pooler makes up the process number that it announces; the server behind it tells its real one. Where they are the same
        the session is ours, and the limit for transactions that stand still is set for all of it.
        """
        row = connection.execute(
            f"SELECT pg_backend_pid() <> %s, current_setting('default_transaction_isolation'),"
            f" CASE WHEN pg_backend_pid() = %s THEN set_config('{_LIMIT}', %s, false) END".encode(),
            (connection.info.backend_pid, connection.info.backend_pid, str(self._idle_limit)),
        ).fetchone()
        return (row[0], row[1]) if row else (True, "")

    def _insist(self, connection: Connection, *, pooled: bool) -> None:
        """Every lock here is followed by a look at what was committed before it was granted; a snapshot would hide that."""
        if pooled:
            raise StoreError(
                f"{self.where}: default_transaction_isolation must be 'read committed', and behind a pooler it cannot be "
                "set for a connection; ALTER ROLE … SET default_transaction_isolation = 'read committed'"
            )
        connection.execute(b"SET default_transaction_isolation = 'read committed'")

    def close(self) -> None:
        self.slots.close()

    def _take(self) -> Connection:
        connection: Connection | None = self.slots.take(LIBRARY)
        # One that the server closed meanwhile, as it does when it is restarted, must not be found out by who uses it next.
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
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if not (usable and idle):
            connection.close()
        self.slots.give_back(LIBRARY, connection if usable and idle else None)
        if not usable:
            # Where one connection broke, those that were idle are broken as well, more often than not.
            self.slots.close_idle(LIBRARY)
            self.on_loss()


def roll_back(connection: Connection) -> None:
    """End a transaction that an exception left open."""
    if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        connection.execute(b"ROLLBACK")
