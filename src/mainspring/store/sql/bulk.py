"""Statements that write many rows at once.

Rows are sent as one JSON parameter, `rows`, which each database reads in its own way. SQLite reads rows from JSON four times as slowly as
from single values, so the store's SQLite connection executes the `values` of such a statement (`sqlite/executor.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.store.sql.dialect import PerDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class JsonRows(str):
    """Rows as JSON objects, with the tuples that they were made from."""

    __slots__ = ("tuples",)
    tuples: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Bulk(PerDatabase):
    """A statement for many rows, given as `rows=`; see `Bulk.rows`."""

    columns: tuple[str, ...]
    values: str
    """The statement for SQLite, with `{rows}` in place of the lists of values."""

    def rows(self, tuples: Iterable[tuple[Any, ...]]) -> JsonRows:
        """The parameter for these rows, whose values are in the order of the columns."""
        found = list(tuples)
        objects = [dict(zip(self.columns, row, strict=True)) for row in found]
        made = JsonRows(msgspec.json.encode(objects).decode())
        made.tuples = found
        return made


def insert(table: str, columns: Sequence[str], kind: Callable[[str], str], tail: str = "") -> Bulk:
    """Insert rows. `kind` is the type of a column on PostgreSQL, `tail` ends the statement."""
    names = ", ".join(columns)
    return Bulk(
        postgres=f"INSERT INTO {table} ({names}) SELECT {_typed(columns, kind)} FROM {_recordset(columns, kind)} {tail}",
        sqlite=f"INSERT INTO {table} ({names}) SELECT {_extracted(columns)} FROM json_each(:rows) WHERE true {tail}",
        columns=tuple(columns),
        values=f"INSERT INTO {table} ({names}) VALUES {{rows}} {tail}",
    )


def update(table: str, columns: Sequence[str], kind: Callable[[str], str]) -> Bulk:
    """Update columns of rows, found by their id, which is the first value of each."""
    given = ("id", *columns)
    numbered = ", ".join(f"{column} = v.column{number + 2}" for number, column in enumerate(columns))
    return Bulk(
        postgres=f"""
  UPDATE {table} AS r SET {", ".join(f"{column} = v.{column}::{kind(column)}" for column in columns)}
  FROM {_recordset(given, kind)} WHERE r.id = v.id
""",
        sqlite=f"""
  UPDATE {table} SET {", ".join(f"{column} = v.{column}" for column in columns)}
  FROM (SELECT {", ".join(f"json_extract(value, '$.{column}') AS {column}" for column in given)} FROM json_each(:rows)) v
  WHERE {table}.id = v.id
""",
        columns=given,
        values=f"UPDATE {table} SET {numbered} FROM (VALUES {{rows}}) v WHERE id = v.column1",
    )


def _typed(columns: Sequence[str], kind: Callable[[str], str]) -> str:
    return ", ".join(f"v.{column}::{kind(column)}" for column in columns)


def _recordset(columns: Sequence[str], kind: Callable[[str], str]) -> str:
    """The rows of a JSON parameter. JSON columns are text until they are stored, so that they are stored as written."""
    typed = (f"{column} {'text' if kind(column) in {'json', 'jsonb'} else kind(column)}" for column in columns)
    return f"json_to_recordset(:rows::json) AS v ({', '.join(typed)})"


def _extracted(columns: Sequence[str]) -> str:
    return ", ".join(f"json_extract(value, '$.{column}')" for column in columns)
