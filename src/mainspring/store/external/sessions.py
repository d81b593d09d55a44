"""Transactions in which a user's function and the library write together. What a store promises about them.

`transact` begins a transaction, has the work done in it, and commits it; whatever the work raises rolls it back and comes out
again. `Again` says that the database itself rolled it back, for the sake of others, and that it can be retried at once.
`StoreUnavailable` may mean that it committed and only the answer was lost: who must know has to look.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mainspring.errors import InTransaction
from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from mainspring.model.states import State
    from mainspring.store.external.engines import UsersEngine
    from mainspring.store.external.join import Joined
    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.writes import RecordStep

    Within = Callable[[], AbstractContextManager[Any]]
    """Opens a transaction on a connection of the user's, yields the connection, and commits or rolls back."""

T = TypeVar("T")

_ENDS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:COMMIT|END|ABORT|BEGIN|START\s+TRANSACTION|ROLLBACK(?!(?:\s+(?:TRANSACTION|WORK))?\s+TO))\b",
    re.IGNORECASE | re.DOTALL,
)
ENDED = "the function ends or begins the transaction that it was given by itself; leave that to @app.transaction"
ROLLED_BACK = (
    "the database has rolled this transaction back, so nothing of it is committed and nothing can be added to it: {cause}. "
    "Let the exception of the statement that did it through, or keep the database from rolling back (ON CONFLICT ROLLBACK, "
    "RAISE(ROLLBACK))"
)
SCRIPT = "executescript commits the transaction first; execute its statements one by one"
NOT_OPEN = "no transaction is open on this connection, so each statement would commit by itself; "
OVER = "the transaction is over; use what a transaction is given only inside it"
ISOLATION = ("read committed", "repeatable read", "serializable")


class Wants(Enum):
    """What a transaction's function is given, as the annotation of its first parameter says."""

    TX = "mainspring.Tx"
    SQLITE = "sqlite3.Connection"
    PSYCOPG = "psycopg.Connection"
    PSYCOPG_ASYNC = "psycopg.AsyncConnection"
    AIOSQLITE = "aiosqlite.Connection"
    SA_CONNECTION = "sqlalchemy.Connection"
    SA_SESSION = "sqlalchemy.orm.Session"
    SA_ASYNC_CONNECTION = "sqlalchemy.ext.asyncio.AsyncConnection"
    SA_ASYNC_SESSION = "sqlalchemy.ext.asyncio.AsyncSession"
    SQLMODEL_SESSION = "sqlmodel.Session"
    SQLMODEL_ASYNC_SESSION = "sqlmodel.ext.asyncio.session.AsyncSession"
    NOTHING = "connection of its own, opened by within="

    @property
    def of_sqlalchemy(self) -> bool:
        """Whether it is a connection or session of SQLAlchemy's, or of SQLModel's."""
        return self.value.startswith("sql") and self is not Wants.SQLITE

    @property
    def is_awaited(self) -> bool:
        """Whether the function that is given it is `async def`."""
        return "Async" in self.value or self is Wants.AIOSQLITE


class Again(Exception):
    """The database rolled the transaction back because of others. A retry may succeed."""


def named(session: Session) -> str:
    """The work of `store_id`: of several who want to give a name, one does."""
    execute = session.joined.executor.execute
    execute(
        "INSERT INTO meta (key, value) VALUES ('store', :id) ON CONFLICT DO NOTHING",
        {"id": IdMaker(SystemClock()).new()},
    )
    found: str = execute("SELECT value FROM meta WHERE key = 'store'", {})[0][0]
    return found


class Cursor(Protocol):
    """What `Tx.execute` answers with: the driver's own cursor, of which this is the part that all have."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    @property
    def rowcount(self) -> int: ...


@lru_cache(maxsize=512)
def leave_alone(statement: str) -> None:
    """Refuse a statement that ends the transaction it is part of, or begins one."""
    if _ENDS.match(statement):
        raise InTransaction(ENDED)


class Tx:
    """An open transaction, given to a function that is decorated with `@app.transaction`.

    Statements may spell their parameters as SQLite does (`?`, `:name`) or as psycopg does (`%s`, `%(name)s`), wherever they run.
    """

    __slots__ = ("_execute",)

    def __init__(self, execute: Callable[[str, Any], Cursor]) -> None:
        self._execute = execute

    def execute(self, statement: str, parameters: Any = (), /) -> Cursor:
        """Execute a statement. Rows are fetched from what it returns."""
        leave_alone(statement)
        return self._execute(statement, parameters)

    def executemany(self, statement: str, rows: Iterable[Any], /) -> None:
        """Execute a statement once for each row of parameters."""
        leave_alone(statement)
        for row in rows:
            self._execute(statement, row)


class Session(Protocol):
    """One open transaction: what the user's function gets of it, and the library's own way into it."""

    @property
    def joined(self) -> Joined:
        """The way in for verbs."""
        ...

    def give(self, wants: Wants) -> Any:
        """What a function that is part of this transaction is given. Raises `InTransaction` for what cannot be had here."""
        ...

    def flush(self) -> None:
        """Send what is still held back, as an ORM does, and see that the function has left the transaction open."""
        ...

    async def flush_async(self) -> None:
        """The same on a connection that is awaited."""
        ...

    def record(self, write: RecordStep, now: int) -> State | None:
        """Record the outcome of the transaction, as the last thing in it, blocking; see `mainspring.store.verbs.record.record_outcome`.

        It may be committed with that at once, so nothing may follow it.
        """
        ...


class Transactions(Protocol):
    """A database in which transactions can be made."""

    engine: UsersEngine | None
    """The user's own SQLAlchemy engine: functions that want SQLAlchemy's connections or sessions are given those of it."""
    payloads: Payloads | None
    """What seals the values that are written in transactions, if anything does."""

    def use(self, *, engine: UsersEngine | None = None, payloads: Payloads | None = None) -> None:
        """Set these two, before the first transaction."""
        ...

    def transact(self, work: Callable[[Session], T], wants: Wants = Wants.TX, isolation: str | None = None) -> T:
        """Do `work` in a transaction, blocking."""
        ...

    def transact_within(self, within: Within, work: Callable[[Session], T]) -> T:
        """Do `work` in a transaction that `within` opens on a connection of the user's and commits, blocking."""
        ...

    async def atransact(
        self,
        work: Callable[[Session], Awaitable[T]],
        wants: Wants = Wants.PSYCOPG_ASYNC,
        isolation: str | None = None,
    ) -> T:
        """The same on the running loop, where the database's driver can."""
        ...

    def store_id(self) -> str:
        """A name for this database that stays with it, made when it is first asked for."""
        ...

    def join(self, connection: Any) -> Joined:
        """A way into the transaction that is open on a user's own connection. Begins one where the driver leaves that to us."""
        ...
