"""Connections to a SQLite file: one that writes, a few that read, and turns between processes.

Writers wait twice before they reach SQLite: for a lock in the process, then for a lock file between processes (`turns.py`). SQLite's own
busy handler sleeps and retries, which is unfair and slow when several processes write.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NoReturn, TypeVar
from weakref import WeakSet

from mainspring.errors import InTransaction, StoreError, StoreFull, StoreReplaced, StoreUnavailable
from mainspring.store.sqlite import turns
from mainspring.store.sqlite.borrowed import BorrowedConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection)

log = logging.getLogger("mainspring.store")

_BUSY_SECONDS = 30.0
_SILENT_SECONDS = 2.0
"""How many seconds a write waits for SQLite's lock before it logs that."""
_LEAST_BUSY_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_OLDEST = (3, 35)
"""The oldest SQLite that has `RETURNING`."""
_UNAVAILABLE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}


def raise_translated(error: sqlite3.Error, path: str) -> NoReturn:
    """Raise the library's error for a database that cannot be used. Raise any other error as it is."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        raise StoreFull(f"the disk of {path} is full: {error}; work continues when there is space") from error
    if code in _UNAVAILABLE:
        others = "".join(f"; {holder}" for holder in turns.holders(path)) if code == sqlite3.SQLITE_BUSY else ""
        raise StoreUnavailable(f"the database {path} cannot be used now: {error}{others}") from error
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_PERM}:
        raise StoreError(f"the database {path}: {error}") from error
    raise error


class translated:  # noqa: N801  (it reads as the function it could be, but every write goes through it)
    """Raise the library's errors for a database that cannot be used."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise_translated(error, self._path)


class Turn:
    """A turn at writing, for a `with` statement. Not a generator: every write goes through it."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.take_turn()

    def __exit__(self, *exc: object) -> None:
        self._database.end_turn()


class Prompt:
    """A turn that is taken only if it is free, for a `with` statement, which returns True if it was."""

    __slots__ = ("_database", "_taken")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._taken = False

    def __enter__(self) -> bool:
        self._taken = self._database.try_turn()
        return self._taken

    def __exit__(self, *exc: object) -> None:
        if self._taken:
            self._database.leave_turn()


_all_open: WeakSet[Database] = WeakSet()


class Database:
    """A SQLite file, or a temporary one if `path` is empty, which is deleted on close and does not wait for the disk."""

    def __init__(self, path: str, *, synchronous: str = "FULL", lease: float = 15.0) -> None:
        self._temporary = None if path else tempfile.TemporaryDirectory(prefix="mainspring-")
        self.path = _absolute(path) if self._temporary is None else str(Path(self._temporary.name, "memory.db"))
        """Absolute, so that a process that changes its folder keeps its file."""
        self._synchronous = "OFF" if self._temporary else synchronous
        self._lock = threading.Lock()
        self._readers: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._all: list[sqlite3.Connection] = []
        self._lending = threading.Lock()
        self._reading: set[sqlite3.Connection] = set()
        self._turns: turns.Turns | None = None
        self._writer: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._borrowed_by: int | None = None
        self._turn = Turn(self)
        self._taken_by: int | None = None
        self._lease = lease
        self._patience = _BUSY_SECONDS

    def open(self, *, wait: bool = True) -> None:
        """Connect. `wait`: other transactions on the file may end. One of the caller's own does not while this waits."""
        if sqlite3.sqlite_version_info < _OLDEST:
            raise StoreError(
                f"this Python uses SQLite {sqlite3.sqlite_version}; Mainspring needs SQLite {'.'.join(map(str, _OLDEST))} or newer: use a "
                "Python that was built with a newer one, or PostgreSQL"
            )
        with translated(self.path):
            folder = Path(self.path).parent
            if not folder.is_dir():
                raise StoreUnavailable(f"there is no folder {folder} to keep the database {Path(self.path).name} in")
            if turns.POSSIBLE and self._temporary is None:
                self._turns = self._open_turns()
            _all_open.add(self)
            self._writer = self._connect()
            if self._writer.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                # Only if there is something to write: the holder of the turn may be waiting for a transaction of the caller.
                with self._turn:
                    self._use_wal(self._writer, _BUSY_SECONDS if wait else 0.0)
            self._opened = None if self._temporary is not None else _identity(self.path)

    def _use_wal(self, connection: sqlite3.Connection, patience: float) -> None:
        """Change the journal mode. SQLite itself does not wait for the transactions of other programs here."""
        for last in (*[False] * round(patience / _PAUSE_SECONDS), True):
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if last or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    def _open_turns(self) -> turns.Turns:
        try:
            return turns.Turns(self.path, self._lease)
        except OSError as error:
            raise StoreError(
                f"the database {self.path} cannot be used: {error.strerror} for {error.filename}. A process that uses it, also one that "
                f"only looks, needs to write to the folder {Path(self.path).parent}"
            ) from error

    def close(self) -> None:
        with self._lock, self._lending:
            for connection in self._all:
                if (
                    connection not in self._reading
                ):  # that would crash the process; the reading thread closes it afterwards
                    connection.close()
            self._all.clear()
            self._writer = None
            if self._turns is not None:
                self._turns.close()
                self._turns = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def leave_to_parent(self) -> None:
        """Give up the right to take turns, in a forked process.

        All processes that have the lock file open share the turn, so a child would keep a turn that its parent had taken before it died.
        """
        if self._turns is not None:
            self._turns.close()
        self._turns = self._writer = None

    @contextlib.contextmanager
    def write(self) -> Generator[sqlite3.Connection]:
        """A write transaction: committed at the end of the block, rolled back by an exception."""
        with translated(self.path), self._turn:
            connection = self.writer()
            self.patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def patiently(self, begin: Callable[[], T]) -> T:
        """Execute a statement that takes SQLite's write lock. A long wait is logged, with the holder of the lock."""
        try:
            return begin()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or self._patience > _SILENT_SECONDS:
                raise
        others = "; ".join(map(str, turns.holders(self.path))) or "another connection writes to it"
        log.warning("the database %s is locked, waiting for up to %d s: %s", self.path, _BUSY_SECONDS, others)
        self._be_patient(_BUSY_SECONDS - _SILENT_SECONDS)
        return begin()

    @contextlib.contextmanager
    def write_alone(self) -> Generator[sqlite3.Connection]:
        """A connection for one statement that writes, `patiently`, in a transaction of its own, which saves two statements."""
        with translated(self.path), self._turn:
            yield self.writer()

    @property
    def prompt(self) -> bool:
        """Whether a write waits neither for a disk nor for another process."""
        return self._temporary is not None

    def at_once(self) -> Prompt:
        """Take the turn at writing for this thread within the block, if it is free now. Returns True if it was."""
        return Prompt(self)

    def try_turn(self) -> bool:
        """Take the turn at writing for this thread, if it is free now."""
        if not self._lock.acquire(blocking=False):
            return False
        self._taken_by = threading.get_ident()
        return True

    def leave_turn(self) -> None:
        """Release a turn taken with `try_turn`."""
        self._taken_by = None
        self._lock.release()

    def lend_turn(self) -> None:
        """Take a turn at writing for a user's function on this thread. Other writes of this thread raise until it ends."""
        self.take_turn()
        self._borrowed_by = threading.get_ident()

    def take_back_turn(self) -> None:
        """End the turn of a user's function."""
        self._borrowed_by = None
        self.end_turn()

    def another(self) -> BorrowedConnection:
        """Another connection that can write, to be borrowed within a turn. Closed with the others."""
        self.writer()
        return self._connect(BorrowedConnection)

    def discard(self, connection: sqlite3.Connection) -> None:
        """Close a connection that `another` returned."""
        if connection in self._all:
            self._all.remove(connection)
        connection.close()

    @contextlib.contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """A connection to read with. Several threads can have one each."""
        with translated(self.path), self.read_untranslated() as connection:
            yield connection

    @contextlib.contextmanager
    def read_untranslated(self) -> Generator[sqlite3.Connection]:
        """A connection to read with, whose errors are SQLite's own."""
        self._require_same_file()
        connection = self._reader()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def size(self) -> int:
        """The size of the file in bytes."""
        return os.stat(self.path).st_size  # noqa: PTH116  (as below)

    @contextlib.contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection]:
        """A connection to read with, in one snapshot."""
        with self.read() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    def _reader(self) -> sqlite3.Connection:
        with self._lending:
            self.writer()  # raises if the database is closed: those that are left in `_readers` are, too
            try:
                connection = self._readers.get_nowait()
            except Empty:
                connection = self._connect()
                connection.execute("PRAGMA query_only = 1")
            self._reading.add(connection)
        return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lending:
            self._reading.discard(connection)
            if self._writer is None:
                connection.close()
            else:
                self._readers.put(connection)

    def foreign_commits(self) -> int:
        """A number that changes when another connection than this object's has written to the file."""
        with translated(self.path), self._lock:
            version: int = self.writer().execute("PRAGMA data_version").fetchone()[0]
            return version

    def changes(self) -> int:
        """The number of rows that the writer has changed so far."""
        return self.writer().total_changes

    def writer(self) -> sqlite3.Connection:
        """The connection that writes. Use it only within a turn."""
        if self._writer is None:
            raise StoreUnavailable(f"the database {self.path} is closed")
        return self._writer

    def _connect(self, kind: type[C] = sqlite3.Connection) -> C:  # type: ignore[assignment]
        connection = sqlite3.connect(
            self.path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=kind,
        )
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA temp_store = MEMORY")
        self._all.append(connection)
        return connection

    def take_turn(self) -> None:
        """Wait until no other connection writes, in this process and in others."""
        if self._borrowed_by is not None and self._borrowed_by == threading.get_ident():
            raise InTransaction(
                "this thread is inside a transaction, and what it asks for is another one on the same SQLite file, which would "
                "wait for the first for ever; do it before or after, or through the transaction's own connection"
            )
        if self._taken_by is not None and self._has_turn():
            return
        self._lock.acquire()
        if self._turns is not None:
            try:
                if self._turns.take():
                    self._be_patient(_SILENT_SECONDS)
                else:
                    self._be_patient(max(_BUSY_SECONDS - self._lease, _LEAST_BUSY_SECONDS))
                self._require_same_file()
            except BaseException:
                self.end_turn()
                raise

    def _require_same_file(self) -> None:
        """Raise if the file was removed or replaced: writes to the open file would be visible to no other process."""
        if self._opened is not None and self._opened != _identity(self.path):
            raise StoreReplaced(
                f"the database {self.path} was removed or replaced since it was opened; put it back, or restart this process"
            )

    def _has_turn(self) -> bool:
        """Whether this thread has a turn taken with `at_once`."""
        return self._taken_by == threading.get_ident()

    def end_turn(self) -> None:
        """Release the turn. A forked process has nothing to release: the turn was the parent's."""
        if self._taken_by is not None and self._has_turn():
            return
        try:
            if self._turns is not None:
                self._turns.give_back()
        finally:
            self._lock.release()

    def _be_patient(self, seconds: float) -> None:
        """Set how long SQLite waits for its own lock: only briefly without the turn, which was waited for already."""
        if seconds != self._patience and self._writer is not None:
            self._writer.execute(f"PRAGMA busy_timeout = {round(seconds * 1_000)}")
            self._patience = seconds


def _absolute(path: str) -> str:
    try:
        return str(Path(path).absolute())
    except FileNotFoundError as error:
        raise StoreUnavailable(
            f"the database {path} cannot be found: the current folder of this process was removed; write the whole path into the URL"
        ) from error


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (before every write)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _in_child() -> None:
    for database in list(_all_open):
        database.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
