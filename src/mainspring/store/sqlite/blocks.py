"""One statement for many rows.

`executemany` releases the interpreter's lock once per row, and waits for it while the event loop's thread has it: a batch of a hundred can
take longer than its commit. So rows are the parameters of one statement, in blocks of a few fixed sizes whose statements stay prepared. A
single row is not read from a VALUES table, which would take longer than the rest.
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


class Blocks:
    """A statement with `{rows}` in place of its rows. `v.column1` … are their values, if it reads from them."""

    def __init__(self, text: str, width: int) -> None:
        text = for_sqlite(text)
        row = f"({', '.join('?' * width)})"
        self._statements = {size: text.replace("{rows}", ", ".join([row] * size)) for size in _BLOCKS}
        self._order: tuple[int, ...] = tuple(range(width))
        if _SOURCE.search(text):  # not `?1`: Python 3.12 warns of it
            alone = _SOURCE.sub("", text)
            self._order = tuple(int(number) - 1 for number in _VALUE.findall(alone))
            self._statements[1] = _VALUE.sub("?", alone)

    def run(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        """Execute the statement for all rows. Return the number of changed rows."""
        return sum(cursor.rowcount for cursor in self._executed(db, rows))

    def rows(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Execute the statement for all rows. Return the rows that it returns."""
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
