"""One statement for many rows.

`executemany` gives up the interpreter's lock once per row, and gets it back when the event loop's thread is ready to part with it:
a batch of a hundred can take longer than its commit. So rows go as one statement's parameters, in blocks of a few fixed sizes
whose statements stay prepared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_BLOCKS = (64, 16, 4, 1)


class Bulk:
    """A statement with `{rows}` where its rows go; `v.column1` … are their values, if it reads from them."""

    def __init__(self, text: str, width: int) -> None:
        row = f"({', '.join('?' * width)})"
        self._statements = {size: text.replace("{rows}", ", ".join([row] * size)) for size in _BLOCKS}

    def run(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        """Execute it for all rows; how many it changed."""
        changed = begin = 0
        for size in _BLOCKS:
            while len(rows) - begin >= size:
                values = [value for row in rows[begin : begin + size] for value in row]
                changed += db.execute(self._statements[size], values).rowcount
                begin += size
        return changed
