"""The connection that a transaction's function is given, the notation of its parameters, and the statements that it must not execute."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.errors import InTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import Values


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
CONFLICTS = {"40001", "40P01"}
"""The SQLSTATEs of a serialization failure and of a deadlock: the transaction was rolled back because of others."""
ISOLATION = ("read committed", "repeatable read", "serializable")


class Wants(Enum):
    """The kind of connection that a transaction's function is given, by the annotation of its first parameter."""

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

    def __init__(self, name: str) -> None:
        self.of_sqlalchemy = name.startswith("sql") and name != "sqlite3.Connection"
        """Whether this is a connection or session of SQLAlchemy's or SQLModel's."""
        self.is_awaited = "Async" in name or name == "aiosqlite.Connection"
        """Whether functions with this kind are `async def`."""


def no_such(wants: Wants) -> InTransaction:
    """The error for a function that wants a connection or session which the transaction around it does not have."""
    return InTransaction(
        f"a transaction that wants a {wants.value} is called inside one that has none; "
        f"annotate the first parameter of the outer one with {wants.value} too"
    )


class Again(Exception):
    """The database rolled the transaction back because of others. A retry may succeed.

    `lock` is the refused statement of the library, if it locks rows: another transaction had changed them since the snapshot was taken. A
    retry executes it first, so that its snapshot is taken when it has the lock. Otherwise rows that change more often than the function
    takes would be refused for ever.
    """

    def __init__(self, reason: str = "", lock: tuple[Sql, Values] | None = None) -> None:
        super().__init__(reason)
        self.lock = lock

    def add_to(self, locks: list[tuple[Sql, Values]]) -> None:
        """Add the statement to execute first in the next attempt. Earlier ones stay, because they may be refused again."""
        if self.lock is not None and self.lock not in locks:
            locks.append(self.lock)


class Cursor(Protocol):
    """The result of `Tx.execute`: the driver's own cursor, with the methods that all drivers have."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    @property
    def rowcount(self) -> int: ...


@lru_cache(maxsize=512)
def leave_alone(statement: str) -> None:
    """Refuse a statement that begins or ends a transaction."""
    if _ENDS.match(statement):
        raise InTransaction(ENDED)


class Tx:
    """An open transaction, given to a function that is decorated with `@app.transaction`.

    Statements may have parameters in SQLite's notation (`?`, `:name`) or in psycopg's (`%s`, `%(name)s`), on every database.
    """

    __slots__ = ("_execute",)

    def __init__(self, execute: Callable[[str, Any], Cursor]) -> None:
        self._execute = execute

    def execute(self, statement: str, parameters: Any = (), /) -> Cursor:
        """Execute a statement. Fetch rows from the returned cursor."""
        leave_alone(statement)
        return self._execute(statement, parameters)

    def executemany(self, statement: str, rows: Iterable[Any], /) -> None:
        """Execute a statement once for each row of parameters."""
        leave_alone(statement)
        for row in rows:
            self._execute(statement, row)


# Parameters have one notation for all databases: SQLite takes `?` and `:name`, psycopg `%s` and `%(name)s`, and a statement may use either.
_PIECES = re.compile(
    r"""
      (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\2\$ )
    | (?P<cast> :: )
    | (?P<question> \? )
    | :(?P<colon> [A-Za-z_]\w* )
    | (?P<escaped> %% )
    | (?P<bare> %s )
    | %\((?P<percent> [^)]+ )\)s
    | (?P<sign> % )
    """,
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=512)
def for_sqlite(text: str) -> str:
    """Convert a statement to `?` and `:name`."""

    def piece(found: re.Match[str]) -> str:
        if found["bare"]:
            return "?"
        if found["percent"]:
            return f":{found['percent']}"
        return found[0]

    return _PIECES.sub(piece, text)


@lru_cache(maxsize=512)
def for_psycopg(text: str) -> str:
    """Convert a statement to `%s` and `%(name)s`. One that already has those stays as it is: its `?` is an operator."""
    if any(found["bare"] or found["percent"] for found in _PIECES.finditer(text)):
        return text

    def piece(found: re.Match[str]) -> str:
        if found["question"]:
            return "%s"
        if found["colon"]:
            return f"%({found['colon']})s"
        return found[0].replace("%", "%%") if not found["escaped"] else found[0]

    return _PIECES.sub(piece, text)
