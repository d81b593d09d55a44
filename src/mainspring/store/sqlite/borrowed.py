"""Connections that user code borrows for a while, and what has to be taken back from them afterwards.

A SELECT that was not read to its end keeps its connection at what the database was then. After another connection has written, such
a connection can no longer write: for as long as that cursor is alive, in a variable, or in the traceback of an exception.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from mainspring.errors import InTransaction
from mainspring.store.external.tx import ENDED, OVER, ROLLED_BACK, SCRIPT, leave_alone

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable


class BorrowedConnection(sqlite3.Connection):
    """A connection that knows the cursors that were made on it, and is of use only while it is borrowed.

    Between `begin` and `commit` it executes nothing outside the transaction: after SQLite has rolled that back, statements would
    commit one by one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        self._is_borrowed = True
        self._begun = False
        self._cause: sqlite3.Error | None = None

    def cursor(self, factory: Any = None) -> Any:
        if not self._is_borrowed:
            raise InTransaction(OVER)
        made = super().cursor(factory or BorrowedCursor)
        self._cursors.add(made)
        return made

    def execute(self, *args: Any) -> sqlite3.Cursor:
        made: sqlite3.Cursor = self.cursor()
        return made.execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        made: sqlite3.Cursor = self.cursor()
        return made.executemany(*args)

    def executescript(self, *args: Any) -> sqlite3.Cursor:
        made: sqlite3.Cursor = self.cursor()
        return made.executescript(*args)

    def begin(self) -> None:
        """Begin the transaction that the borrower is to stay in."""
        self.cursor().execute("BEGIN IMMEDIATE")
        self._begun, self._cause = True, None

    def end(self, how: str) -> None:
        """End it: COMMIT, or ROLLBACK if there is still something to roll back."""
        self._begun = False
        if how == "COMMIT" or self.in_transaction:
            self.cursor().execute(how)

    def commit(self) -> None:
        if self._begun:
            raise InTransaction(ENDED)
        super().commit()

    def rollback(self) -> None:
        if self._begun:
            raise InTransaction(ENDED)
        super().rollback()

    def require_open(self) -> None:
        """`InTransaction` if the transaction that was begun is over."""
        if self._begun and not self.in_transaction:
            raise rolled_back(self._cause)

    def note(self, error: sqlite3.Error) -> None:
        """A statement failed; it may have rolled the transaction back."""
        if self._begun and self._cause is None and not self.in_transaction:
            self._cause = error

    def check(self, statement: str) -> None:
        """Refuse a statement that would be made outside the transaction, or would end it."""
        if self._begun:
            self.require_open()
            leave_alone(statement)

    def refuse_script(self) -> None:
        if self._begun:
            raise InTransaction(SCRIPT)

    def lend(self) -> None:
        self._is_borrowed = True

    def stop_reading(self) -> None:
        """Close what has not been read to its end."""
        close_all(self._cursors)

    def take_back(self) -> None:
        """The end of it: it reads as before, and a borrower that still has it can do nothing with it."""
        self.row_factory, self.text_factory = None, str
        self._is_borrowed = False


class BorrowedCursor(sqlite3.Cursor):
    """A cursor on such a connection."""

    connection: BorrowedConnection  # pyright: ignore[reportIncompatibleMethodOverride]

    def execute(self, *args: Any) -> Self:
        self.connection.check(args[0])
        try:
            return super().execute(*args)
        except sqlite3.Error as error:
            self.connection.note(error)
            raise

    def executemany(self, *args: Any) -> Self:
        self.connection.check(args[0])
        try:
            return super().executemany(*args)
        except sqlite3.Error as error:
            self.connection.note(error)
            raise

    def executescript(self, *args: Any) -> sqlite3.Cursor:
        self.connection.refuse_script()
        return super().executescript(*args)


def rolled_back(cause: BaseException | None) -> InTransaction:
    """The error for a function that goes on after its transaction was rolled back."""
    error = InTransaction(ROLLED_BACK.format(cause=cause or "it is no longer open"))
    error.__cause__ = cause
    return error


def close_all(cursors: Iterable[sqlite3.Cursor]) -> None:
    """Close cursors: nothing of what they have not read is read any more."""
    for cursor in list(cursors):
        cursor.close()


@contextlib.contextmanager
def as_text(connection: Any) -> Generator[None]:
    """Texts are read as `str` meanwhile, whatever the owner of a connection has made of them."""
    factory = connection.text_factory
    connection.text_factory = str
    try:
        yield
    finally:
        connection.text_factory = factory
