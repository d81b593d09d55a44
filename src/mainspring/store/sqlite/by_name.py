"""How a claim on SQLite finds what waits, where runs wait whose functions the worker does not know.

Going through what waits in its order and leaving out what does not fit takes long where that is nearly everything. So it is looked
up function by function, by the index `runs_name`, and what is found first of each is put together in the right order. The index is named, because by its
statistics SQLite may take another one for as good.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from mainspring.store.queues import WAITS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_ANY = f"SELECT 1 FROM runs INDEXED BY runs_name WHERE {WAITS} AND queue = :queue AND workflow = :name LIMIT 1"
_PARTITION_AFTER = f"""
  SELECT min(partition) FROM runs INDEXED BY runs_name WHERE {WAITS} AND queue = :queue AND workflow = :name AND partition > :after
"""


class ByName:
    """What waits of the functions that a worker knows, `names`."""

    def __init__(self, connection: sqlite3.Connection, names: Sequence[str]) -> None:
        self._db = connection
        self._names = names

    def waits_in(self, queue: str) -> bool:
        return self._any(_ANY, queue)

    def partitions(self, statement: str, values: dict[str, Any], after: str, most: int) -> list[str]:
        """The partitions of a queue in which runs wait that fit, in order; `statement` finds those of one function."""
        found: list[str] = []
        while len(found) < most:
            each = [
                self._db.execute(_PARTITION_AFTER, {**values, "name": name, "after": after}).fetchone()[0]
                for name in self._names
            ]
            there = [partition for partition in each if partition is not None]
            if not there:
                break
            after = min(there)
            if self.fits(statement, {**values, "partition": after}):
                found.append(after)
        return found

    def fits(self, statement: str, values: dict[str, Any]) -> bool:
        """Whether a statement finds runs of any of the functions."""
        return any(self._db.execute(statement, {**values, "name": name, "limit": 1}).fetchone() for name in self._names)

    def first(self, statement: str, values: dict[str, Any], limit: int) -> list[str]:
        """The ids of the first runs of all functions: from what a statement finds of one `name`, with how they are ordered."""
        rows = [
            row for name in self._names for row in self._db.execute(statement, values | {"name": name, "limit": limit})
        ]
        return [run for run, *_ in islice(sorted(rows, key=lambda row: row[1:]), limit)]

    def _any(self, statement: str, queue: str) -> bool:
        return any(self._db.execute(statement, {"queue": queue, "name": name}).fetchone() for name in self._names)
