"""Transactions of users' functions on SQLite: a turn at writing, BEGIN IMMEDIATE, the function, COMMIT.

A function that is given a `Tx` works on the connection that everything is written with; one that wants a connection of its
own to play with is given another one, because what it does to that must not stay.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from mainspring.errors import InTransaction, InvalidInput
from mainspring.model.states import State
from mainspring.store import alchemy, sql
from mainspring.store.conversations import carry
from mainspring.store.joined import Joined
from mainspring.store.joining import Joining
from mainspring.store.ops import Write
from mainspring.store.placeholders import for_sqlite
from mainspring.store.sqlite.database import translated
from mainspring.store.sqlite.joining import RECORD_FIRST, TEXTS, AsyncWords, Words, inside
from mainspring.store.sqlite.lent import Lent, close_all, rolled_back
from mainspring.store.transactions import NOT_OPEN, OVER, Tx, Wants, named

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainspring.store.alchemy import Wrapped
    from mainspring.store.conversations import Rows, Talk
    from mainspring.store.protocol import Signal
    from mainspring.store.sqlite.database import Database
    from mainspring.store.transactions import Cursor, Session

T = TypeVar("T")


class SqliteSession:
    """An open transaction on one connection: on the one that everything is written with, or on one that is lent."""

    def __init__(self, connection: sqlite3.Connection, wrapped: Wrapped | None = None) -> None:
        self._db = connection
        self._wrapped = wrapped
        self._over = False
        self._reading: WeakSet[sqlite3.Cursor] | None = None
        self._cause: sqlite3.Error | None = None
        self._joined: Joined | None = None

    @property
    def joined(self) -> Joined:
        """Made when first asked for: most transactions are left alone."""
        if self._joined is None:
            self._joined = Joined(Joining(TEXTS), inside, tongue=_OpenWords(self))
        return self._joined

    @property
    def news(self) -> Signal | None:
        """What is to be told when it has committed."""
        joined = self._joined
        return joined.joining.signal() if joined is not None and joined.joining.news else None

    def give(self, wants: Wants) -> Any:
        if wants is Wants.TX:
            return Tx(self._execute)
        if wants is Wants.SQLITE and isinstance(self._db, Lent):
            return self._db
        if self._wrapped is not None and wants in {Wants.SA_CONNECTION, Wants.SA_SESSION}:
            return self._wrapped.give(wants)
        raise InTransaction(
            f"a transaction that wants a {wants.value} is called inside one that has none; "
            f"annotate the first parameter of the outer one with {wants.value} too"
        )

    @property
    def connection(self) -> sqlite3.Connection:
        return self._db

    def settle(self) -> None:
        if self._wrapped is not None:
            self._wrapped.settle()
        self.require_open()

    def require_open(self) -> None:
        """`InTransaction` if SQLite has rolled the transaction back: what comes now would commit by itself."""
        if not self._db.in_transaction:
            if isinstance(self._db, Lent):
                self._db.require_open()
            raise rolled_back(self._cause)

    def record(self, write: Write, now: int) -> State | None:
        """See `mainspring.store.transactions.Session`.

        That nothing has come in between is seen by the statement that writes. If something has, it writes nothing.
        """
        if type(write) is Write and write.mood is None and self._joined is None:
            try:
                self._db.execute(RECORD_FIRST, (*sql.step_values(write.step), write.owner))
            except sqlite3.IntegrityError:
                pass  # it is being stopped, or another's, or begun and recorded before: there are other words for that
            else:
                return State.RUNNING
        return self.joined.do(self.joined.joining.checkpoint(write, now))

    def end(self) -> None:
        """The function has had its say: what it was given is of no more use, and what it has not read is not read."""
        self._over = True
        if isinstance(self._db, Lent):
            self._db.stop_reading()
        elif self._reading is not None:
            close_all(self._reading)

    def close(self) -> None:
        if self._wrapped is not None:
            self._wrapped.close()

    def _execute(self, statement: str, parameters: Any) -> Cursor:
        if self._over:
            raise InTransaction(OVER)
        self.require_open()
        try:
            cursor = self._db.execute(for_sqlite(statement), parameters)
        except sqlite3.Error as error:
            if self._cause is None and not self._db.in_transaction:
                self._cause = error
            raise
        if cursor.description is not None:
            if self._reading is None:
                self._reading = WeakSet()
            self._reading.add(cursor)
        found: Cursor = cursor
        return found


class SqliteTransactions:
    """See `mainspring.store.transactions.Transactions`."""

    def __init__(self, database: Database, tell: Callable[[Signal], None]) -> None:
        self._db = database
        self._tell = tell
        self._lent: list[Lent] = []
        self._store_id: str | None = None

    def transact(self, work: Callable[[Session], T], wants: Wants = Wants.TX, isolation: str | None = None) -> T:
        del isolation  # one writer at a time: always serializable
        database, own = self._db, wants is Wants.TX
        if not own:
            _refuse_psycopg(wants)
        database.lend_turn()
        try:
            connection = database.writer() if own else self._lend()
            session = SqliteSession(connection, None if own else _wrapped(connection, wants))
            try:
                self._begin(connection)
                answer = work(session)
                session.end()
                self._commit(connection)
            except BaseException as error:
                session.end()
                _roll_back(connection)
                _explain(error)
                raise
            finally:
                if isinstance(connection, Lent):
                    session.close()
                    connection.take_back()
                    self._lent.append(connection)
        finally:
            database.take_back_turn()
        if (news := session.news) is not None:
            self._tell(news)
        return answer

    def _lend(self) -> Lent:
        with translated(self._db.path):
            connection = self._lent.pop() if self._lent else self._db.another()
            connection.lend()
            return connection

    def _begin(self, connection: sqlite3.Connection) -> None:
        with translated(self._db.path):
            if isinstance(connection, Lent):
                connection.begin()
            else:
                connection.execute("BEGIN IMMEDIATE")

    def _commit(self, connection: sqlite3.Connection) -> None:
        with translated(self._db.path):
            if isinstance(connection, Lent):
                connection.end("COMMIT")
            else:
                connection.execute("COMMIT")

    async def atransact(
        self, work: Callable[[Session], Awaitable[T]], wants: Wants = Wants.PSYCOPG_ASYNC, isolation: str | None = None
    ) -> T:
        del self, work, wants, isolation
        raise InvalidInput(
            "an `async def` transaction on a SQLite file would hold up every other writer while it awaits; "
            "write it as `def` and call it with `await ….aio(…)`"
        )

    def store_id(self) -> str:
        if self._store_id is None:
            self._store_id = self.transact(named)
        return self._store_id

    def join(self, connection: Any) -> Joined:
        raw, tongue, async_tongue = alchemy.unwrap(connection, native=_native)
        if raw is None:
            return Joined(Joining(TEXTS), inside, tongue=tongue, async_tongue=async_tongue, check=self._check_file)
        if not isinstance(raw, sqlite3.Connection):
            raise InvalidInput(
                f"the app's database is the SQLite file {self._db.path}; {type(raw).__module__}.{type(raw).__name__} cannot write to it"
            )
        carry(self._check_file(), Words(raw))
        words = _JoinedWords(raw)
        words.begin()
        return Joined(Joining(TEXTS), inside, tongue=words)

    def _check_file(self) -> Talk[None]:
        files = {name: file for _, name, file in (yield "PRAGMA database_list", {})}
        if not files["main"] or not Path(files["main"]).samefile(self._db.path):
            raise InvalidInput(
                f"this connection is to {files['main'] or 'a database in memory'}, but the app's database is {self._db.path}; "
                "only what is in one file commits together"
            )


class _OpenWords(Words):
    """What the library itself says in a transaction of its own. What SQLite has rolled back must not go on statement by statement."""

    def __init__(self, session: SqliteSession) -> None:
        super().__init__(session.connection)
        self._session = session

    def ask(self, text: str, values: Any) -> Rows:
        self._session.require_open()
        return super().ask(text, values)


class _JoinedWords(Words):
    """What is said on a connection of the user's, who may have ended one transaction since, and not begun the next."""

    def begin(self) -> None:
        if not self._db.in_transaction:
            if self._db.isolation_level is None:
                raise InvalidInput(f'{NOT_OPEN}execute "BEGIN IMMEDIATE" first')
            self._db.execute("BEGIN IMMEDIATE")

    def ask(self, text: str, values: Any) -> Rows:
        self.begin()
        return super().ask(text, values)


def _roll_back(connection: sqlite3.Connection) -> None:
    if isinstance(connection, Lent):
        connection.end("ROLLBACK")
    elif connection.in_transaction:
        connection.execute("ROLLBACK")


def _refuse_psycopg(wants: Wants) -> None:
    if wants in {Wants.PSYCOPG, Wants.PSYCOPG_ASYNC}:
        raise InvalidInput(
            f"a transaction here is on a SQLite file, which has no {wants.value}; annotate its first parameter with Tx"
        )


def _wrapped(connection: sqlite3.Connection, wants: Wants) -> Wrapped | None:
    return alchemy.wrap("sqlite://", connection) if wants.name.startswith("SA") else None


def _native(raw: Any) -> AsyncWords | None:
    return AsyncWords(raw) if type(raw).__module__.startswith("aiosqlite") else None


def _explain(error: BaseException) -> None:
    if isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
        error.add_note(
            "the transaction itself has the turn at writing: inside it, use the connection that the function was given"
        )
