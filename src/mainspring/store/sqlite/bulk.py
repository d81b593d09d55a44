"""One statement for many rows.

`executemany` gives up the interpreter's lock once per row, and gets it back when the event loop's thread is ready to part with it:
a batch of a hundred can take longer than its commit. So rows go as one statement's parameters, in blocks of a few fixed sizes
whose statements stay prepared. A row that is alone is not put into a table to be read from: that takes longer than the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mainspring.store.sql.dialect import for_sqlite

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

_BLOCKS = (64, 16, 4, 1)
_SOURCE = re.compile(r"\s*FROM \(VALUES \{rows\}\) v\b")
_VALUE = re.compile(r"\bv\.column(\d+)")


class Bulk:
    """A statement with `{rows}` where its rows go; `v.column1` … are their values, if it reads from them."""

    def __init__(self, text: str, width: int) -> None:
        text = for_sqlite(text)
        row = f"({', '.join('?' * width)})"
        self._statements = {size: text.replace("{rows}", ", ".join([row] * size)) for size in _BLOCKS}
        self._order: tuple[int, ...] = tuple(range(width))
        if _SOURCE.search(text):  # not `?1`, of which Python 3.12 warns at first
            alone = _SOURCE.sub("", text)
            self._order = tuple(int(number) - 1 for number in _VALUE.findall(alone))
            self._statements[1] = _VALUE.sub("?", alone)

    def run(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        """Execute it for all rows; how many it changed."""
        return sum(cursor.rowcount for cursor in self._executed(db, rows))

    def rows(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Execute it for all rows; those that it returns."""
        return [found for cursor in self._executed(db, rows) for found in cursor.fetchall()]

    def _executed(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> Iterator[sqlite3.Cursor]:
        begin = 0
        for size in _BLOCKS:
            while len(rows) - begin >= size:
                if size == 1:
                    values = [rows[begin][number] for number in self._order]
                else:
                    values = [value for row in rows[begin : begin + size] for value in row]
                yield db.execute(self._statements[size], values)
                begin += size
