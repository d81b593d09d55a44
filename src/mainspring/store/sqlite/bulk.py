"""One statement for many rows.

`executemany` gives up the interpreter's lock once per row, and gets it back when the event loop's thread is ready to part with it:
a batch of a hundred can take longer than its commit. So rows go as one statement's parameters, in blocks of a few fixed sizes
whose statements stay prepared. A row that is alone is not put into a table to be read from: that takes longer than the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mainspring.store.sql.dialect import prefixed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_BLOCKS = (64, 16, 4, 1)
_SOURCE = re.compile(r"\s*FROM \(VALUES \{rows\}\) v\b")
_VALUE = re.compile(r"\bv\.column(\d+)")


class Bulk:
    """A statement with `{rows}` where its rows go; `v.column1` … are their values, if it reads from them."""

    def __init__(self, text: str, width: int) -> None:
        text = prefixed(text)
        row = f"({', '.join('?' * width)})"
        self._statements = {size: text.replace("{rows}", ", ".join([row] * size)) for size in _BLOCKS}
        if _SOURCE.search(text):
            self._statements[1] = _VALUE.sub(r"?\1", _SOURCE.sub("", text))

    def run(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        """Execute it for all rows; how many it changed."""
        changed = begin = 0
        for size in _BLOCKS:
            while len(rows) - begin >= size:
                values = [value for row in rows[begin : begin + size] for value in row]
                changed += db.execute(self._statements[size], values).rowcount
                begin += size
        return changed

    def rows(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Execute it for all rows; those that it returns."""
        found: list[tuple[Any, ...]] = []
        begin = 0
        for size in _BLOCKS:
            while len(rows) - begin >= size:
                values = [value for row in rows[begin : begin + size] for value in row]
                found += db.execute(self._statements[size], values).fetchall()
                begin += size
        return found
