"""Connections that user code borrows, and their cleanup afterwards.

A SELECT that was not read to its end keeps the snapshot of its connection. After another connection has written, such a connection can no
longer write while that cursor is referenced, by a variable or by the traceback of an exception.
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
    """A connection that tracks its cursors, and that can only be used while it is borrowed.

    Between `begin` and `commit` it executes nothing outside of the transaction: after SQLite has rolled back, statements would commit one
    by one.
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
        """Begin the transaction of the borrower."""
        self.cursor().execute("BEGIN IMMEDIATE")
        self._begun, self._cause = True, None

    def end(self, how: str) -> None:
        """End the transaction: COMMIT, or ROLLBACK if it is still open."""
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
        """Raise `InTransaction` if the transaction has ended."""
        if self._begun and not self.in_transaction:
            raise rolled_back(self._cause)

    def note(self, error: sqlite3.Error) -> None:
        """Note that a statement failed, which may have rolled the transaction back."""
        if self._begun and self._cause is None and not self.in_transaction:
            self._cause = error

    def check(self, statement: str) -> None:
        """Refuse a statement outside of the transaction, or one that would end it."""
        if self._begun:
            self.require_open()
            leave_alone(statement)

    def refuse_script(self) -> None:
        if self._begun:
            raise InTransaction(SCRIPT)

    def lend(self) -> None:
        self._is_borrowed = True

    def stop_reading(self) -> None:
        """Close the cursors that were not read to their end."""
        close_all(self._cursors)

    def take_back(self) -> None:
        """End the loan: restore the settings, and refuse further use by the borrower."""
        self.row_factory, self.text_factory = None, str
        self._is_borrowed = False


class BorrowedCursor(sqlite3.Cursor):
    """A cursor on a borrowed connection."""

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
    """The error for a function that continues after its transaction was rolled back."""
    error = InTransaction(ROLLED_BACK.format(cause=cause or "it is no longer open"))
    error.__cause__ = cause
    return error


def close_all(cursors: Iterable[sqlite3.Cursor]) -> None:
    """Close cursors and drop their unread rows."""
    for cursor in list(cursors):
        cursor.close()


@contextlib.contextmanager
def as_text(connection: Any) -> Generator[None]:
    """Read texts as `str` within the block, whatever `text_factory` the owner of the connection has set."""
    factory = connection.text_factory
    connection.text_factory = str
    try:
        yield
    finally:
        connection.text_factory = factory
