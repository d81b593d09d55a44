"""Statements that are written once for both databases.

Statements are written in PostgreSQL's SQL, with parameters as `:name` and tables by their plain names. A `Dialect` renders each for its
database once. SQLite's dialect translates these constructs, and a shared statement uses no others that SQLite does not know:

    = ANY(:ids), <> ALL(:ids)      membership in a list; the list is sent as JSON
    :value::type                   the type is left out
    least(a, b), greatest(a, b)    min, max; of values that are not NULL, see `earliest`
    FOR SHARE, FOR NO KEY UPDATE   left out: a writer on SQLite is alone
    FROM runs, JOIN steps s        the tables are called mainspring_runs, mainspring_steps
    (CASE WHEN completed IS NULL … a generated column: SQLAlchemy warns of an index on an expression, which PostgreSQL has here

A statement that differs for another reason is a `PerDatabase`, with the reason beside it; `per_database` makes one of its parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.model.runs import NewRun, Run, Step

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence


TABLES = (
    *(
        "runs",
        "steps",
        "workers",
        "versions",
        "migrations",
        "schedules",
        "ticks",
        "backfills",
        "hooks",
        "messages",
        "events",
    ),
    *(
        "streams",
        "logs",
        "queues",
        "queue_partitions",
        "queue_starts",
        "actions",
        "activity",
        "activity_totals",
        "meta",
    ),
)

_JSON = {"input", "output", "error", "trail", "blocked", "retry", "tick"}
_OF_ANNOTATION = {"int": "bigint", "bool": "boolean"}
"""By the annotation of a field: the type of its column on PostgreSQL. All other columns are text, or JSON."""


@dataclass(frozen=True, slots=True)
class PerDatabase:
    """A statement, or a part of one, with a text for each database."""

    postgres: str
    sqlite: str


Sql = str | PerDatabase

_TRANSLATIONS = (
    (re.compile(r"= ANY\((:[a-z_]+)\)"), r"IN (SELECT value FROM json_each(\1))"),
    (re.compile(r"<> ALL\((:[a-z_]+)\)"), r"NOT IN (SELECT value FROM json_each(\1))"),
    (re.compile(r"::[a-z]+\b"), ""),
    (re.compile(r"\bleast\("), "min("),
    (re.compile(r"\bgreatest\("), "max("),
    (re.compile(r"\s+FOR (?:SHARE|NO KEY UPDATE)(?: OF \w+)?(?: SKIP LOCKED)?"), ""),
)


TABLE = rf"\b(FROM|INTO|UPDATE|JOIN)(\s+)({'|'.join(TABLES)})\b"
"""The pattern of a table in a statement: the word before it, the space between them, and its name."""
_TABLE = re.compile(rf"{TABLE}(?=(\s+(?:AS\b|[a-z_]))?)")
_INDEXED = (
    (re.compile(r"(?<!AS )\(CASE WHEN (\w+\.)?scheduled_time IS NULL THEN 0 ELSE 1 END\)"), r"\1is_function"),
    (re.compile(r"(?<!AS )\(CASE WHEN (\w+\.)?completed IS NULL THEN 0 ELSE 1 END\)"), r"\1has_ended"),
)
_INDEX = re.compile(r"\bINDEXED BY (?!mainspring_)")


def for_sqlite(text: str) -> str:
    """Translate a statement from PostgreSQL's SQL to SQLite's."""
    for pattern, replacement in _TRANSLATIONS:
        text = pattern.sub(replacement, text)
    return prefixed(text)


def prefixed(text: str) -> str:
    """Rename tables, indexes and indexed expressions for SQLite: `mainspring_runs`, so that users' own tables can be in the same file.

    A table without an alias keeps its plain name as its alias, for columns that are qualified by it.
    """
    for pattern, column in _INDEXED:
        text = pattern.sub(column, text)
    found = _TABLE.sub(
        lambda each: f"{each[1]}{each[2]}mainspring_{each[3]}{'' if each[4] else f' AS {each[3]}'}", text
    )
    return _INDEX.sub("INDEXED BY mainspring_", found)


def per_database(text: str, **parts: PerDatabase) -> PerDatabase:
    """A statement in which `{name}` stands for a part that differs between the databases."""
    postgres = sqlite = text
    for name, part in parts.items():
        postgres = postgres.replace(f"{{{name}}}", part.postgres)
        sqlite = sqlite.replace(f"{{{name}}}", part.sqlite)
    return PerDatabase(postgres, for_sqlite(sqlite))


class Dialect(Protocol):
    """The SQL of one database."""

    locks: bool
    """Whether transactions lock rows. If not, a transaction that writes is the only one."""
    name: str
    """The schema of the tables; empty: none."""
    channel: str
    """The channel for notifications to other processes; empty: none."""

    def spelled(self, text: Sql) -> str:
        """The statement in the database's SQL, with parameters as `:name`."""
        ...

    def values(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of parameters as the driver takes them."""
        ...


NO_TIME = 2**63 - 1
"""A time later than all others."""


def earliest(*times: str) -> str:
    """The earliest of several times, some of which may be NULL for no time; NULL if all are.

    `least` of PostgreSQL ignores NULL. `min` of SQLite returns NULL then.
    """
    return f"nullif(least({', '.join(f'coalesce({time}, {NO_TIME})' for time in times)}), {NO_TIME})"


def distinct(column: str, condition: str) -> str:
    """The beginning of a statement with `names (name)`: the distinct values of a column in runs with a condition, and NULL.

    It walks an index that begins with the column from value to value, so its cost does not depend on the number of runs of each.
    """
    return f"""
  WITH RECURSIVE names (name) AS (
    SELECT min({column}) FROM runs WHERE {condition}
    UNION ALL
    SELECT (SELECT min(runs.{column}) FROM runs WHERE {condition} AND runs.{column} > names.name) FROM names WHERE name IS NOT NULL)
"""


def column_types(json: Container[str], *records: type) -> dict[str, str]:
    """The types on PostgreSQL of the columns that have the fields of records. The texts of some are `json`."""
    fields = {name: kind for record in records for name, kind in record.__annotations__.items()}
    types = {name: _OF_ANNOTATION.get(kind.partition(" ")[0], "text") for name, kind in fields.items()}
    return types | {name: "json" for name in types if name in json} | {"attributes": "jsonb"}


_OF_RUNS_AND_STEPS = column_types(_JSON, NewRun, Run, Step) | {"end_unprocessed": "boolean"}


def column_type(column: str) -> str:
    """The type of a column of runs or steps on PostgreSQL."""
    return _OF_RUNS_AND_STEPS.get(column, "text")


def json_columns(columns: Iterable[str]) -> list[str]:
    """Those of columns of runs or steps that are JSON."""
    return [column for column in columns if "json" in column_type(column)]


def travel_type(column: str) -> str:
    """The type of a column inside a JSON parameter: JSON is text until it is stored."""
    return "text" if "json" in column_type(column) else column_type(column)


def insert_one(table: str, columns: Sequence[str]) -> str:
    """Insert a row, whose values are the parameters with the names of its columns."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{column}' for column in columns)})"


def typed(column: str) -> str:
    """The parameter for a column, cast to its type."""
    return f":{column}::{column_type(column)}"


class PlainDialect:
    """Renders statements as they are written, for another database that only has the table of outcomes."""

    locks = False
    name = ""
    channel = ""

    def spelled(self, text: Sql) -> str:
        assert isinstance(text, str)  # noqa: S101
        return text

    def values(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values


class Where:
    """The conditions of a statement that depend on what a caller asks for, all of which must hold, and the values of their parameters.

    A condition whose value is None was not asked for, and is left out.
    """

    def __init__(self, *conditions: str, **values: Any) -> None:
        self.conditions = list(conditions)
        self.values = values

    def __str__(self) -> str:
        return f"WHERE {' AND '.join(self.conditions)}" if self.conditions else ""

    def __and__(self, condition: str) -> str:
        """The clause with one more condition."""
        return f"WHERE {' AND '.join([condition, *self.conditions])}"

    def add(self, condition: str, **values: Any) -> None:
        """A condition with its values."""
        if None not in values.values():
            self.conditions.append(condition)
            self.values |= values

    def holds(self, condition: str, wanted: bool | None) -> None:  # noqa: FBT001  (it is the value)
        """A condition that must hold, or must not."""
        if wanted is not None:
            self.conditions.append(condition if wanted else f"NOT {condition}")

    def one_of(self, column: str, choice: Sequence[str]) -> None:
        """A column has one of some values; empty: any value."""
        names = {f"{column}{number}": str(value) for number, value in enumerate(choice)}
        if names:
            self.add(f"{column} IN ({', '.join(f':{name}' for name in names)})", **names)

    def between(self, column: str, span: tuple[int | None, int | None]) -> None:
        """A column is in a span of time, which may have no beginning or no end."""
        self.add(f"{column} >= :{column}_from", **{f"{column}_from": span[0]})
        self.add(f"{column} < :{column}_to", **{f"{column}_to": span[1]})

    def begins(self, column: str, prefixes: Sequence[str]) -> None:
        """A column begins with one of some prefixes; empty: any value."""
        if prefixes:
            self.conditions.append(f"({' OR '.join(begins(column, number) for number in range(len(prefixes)))})")
            for number, prefix in enumerate(prefixes):
                self.values |= {f"prefix{number}": prefix, f"prefix_end{number}": prefix + "\U0010ffff"}


def begins(column: str, number: int) -> str:
    """The condition for one of the prefixes of `Where.begins`."""
    return f"{column} >= :prefix{number} AND {column} < :prefix_end{number}"
