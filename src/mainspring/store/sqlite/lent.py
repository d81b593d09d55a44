"""Connections that somebody else works with for a while, and what has to be taken back from them afterwards.

A SELECT that was not read to its end keeps its connection at what the database was then. After anybody else has written, such
a connection can no longer write: for as long as somebody has that cursor, in a variable, or in the traceback of an exception.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from mainspring.errors import InTransaction
from mainspring.store.transactions import OVER

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable


class Lent(sqlite3.Connection):
    """A connection that knows the cursors that were made on it, and is of use only while it is lent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        self._is_lent = True

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        if not self._is_lent:
            raise InTransaction(OVER)
        made = super().cursor(factory)
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

    def lend(self) -> None:
        self._is_lent = True

    def stop_reading(self) -> None:
        """Close what has not been read to its end."""
        close_all(self._cursors)

    def take_back(self) -> None:
        """The end of it: it reads as before, and whoever has it still can do nothing with it."""
        self.row_factory, self.text_factory = None, str
        self._is_lent = False


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
