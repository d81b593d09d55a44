"""The tables of a SQLite file: create them, compare them with what this code needs, find damage."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mainspring.errors import SchemaError
from mainspring.store import migrations
from mainspring.store.migrations import statements_only
from mainspring.store.sql.dialect import json_columns, prefixed
from mainspring.store.sql.records import RUN_COLUMNS, STEP_COLUMNS
from mainspring.store.verbs import defects
from mainspring.store.verbs.defects import Defect, Question

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mainspring.store.migrations import Migration
    from mainspring.store.protocol import SchemaReport
    from mainspring.store.verbs.defects import Rows

MIGRATIONS = migrations.load("mainspring.store.sqlite")
_MIGRATIONS_TABLE = """
-- The migrations that were applied.
CREATE TABLE IF NOT EXISTS mainspring_migrations (
  name     TEXT NOT NULL PRIMARY KEY, -- name of the file
  checksum TEXT NOT NULL              -- SHA-256 of its statements
)"""
_MADE = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND sql IS NOT NULL"
_JSON = {"runs": ("id", json_columns(RUN_COLUMNS)), "steps": ("run", json_columns(STEP_COLUMNS))}
_QUESTIONS = [
    Question(
        "unreadable",
        f"SELECT {key} FROM {table} WHERE {' OR '.join(f'({column} IS NOT NULL AND NOT json_valid({column}))' for column in columns)}"
        " LIMIT :most",
        f"table mainspring_{table}, row {{0}}: a value is not JSON",
        f"see which with: SELECT * FROM mainspring_{table} WHERE {key} = '{{0}}'; and repair it, or delete the row",
    )
    for table, (key, columns) in _JSON.items()
]


def report(db: sqlite3.Connection) -> SchemaReport:
    """Compare the tables with what this code needs, by the names and checksums of the migrations."""
    there = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'mainspring_migrations'").fetchone()
    try:
        applied: dict[str, str] = dict(db.execute(prefixed(migrations.APPLIED)).fetchall()) if there else {}
    except sqlite3.OperationalError as error:
        raise SchemaError(
            migrations.STRANGERS.format(where="this file", names="mainspring_migrations", instead="another file")
        ) from error
    return migrations.compare(MIGRATIONS, applied)


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Bring the tables up to date, inside an open transaction."""
    pending = report(db).pending  # again: another process may have migrated since
    if len(pending) == len(MIGRATIONS):
        _refuse_strangers(db, path)
    db.execute(_MIGRATIONS_TABLE)
    for migration in MIGRATIONS:
        if migration.name in pending:
            _apply(db, migration, path)
            db.execute(prefixed(migrations.RECORD), {"name": migration.name, "checksum": migration.checksum})


def _refuse_strangers(db: sqlite3.Connection, path: str) -> None:
    """Raise for a file in which another program has tables of these names."""
    taken = sorted(_tables(*MIGRATIONS) & {name for _, name, _ in db.execute(_MADE)})
    if taken:
        raise SchemaError(migrations.STRANGERS.format(where=path, names=", ".join(taken), instead="another file"))


def _apply(db: sqlite3.Connection, migration: Migration, path: str) -> None:
    try:
        for statement in _statements(migration.sql):
            db.execute(statement)
    except sqlite3.OperationalError as error:
        if "already exists" in str(error) or "duplicate column" in str(error):
            raise SchemaError(migrations.IN_THE_WAY.format(where=path, name=migration.name, error=error)) from error
        raise


def script() -> str:
    """Return the schema as SQL that an operator can review and execute. The store then finds it applied."""
    return f"BEGIN;{_MIGRATIONS_TABLE};\n\n{prefixed(migrations.as_script(MIGRATIONS))}COMMIT;\n"


@cache
def _statements(script: str) -> list[str]:
    """The statements of a script, split once for all files. `executescript` would commit the open transaction."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found


# -- checks ------------------------------------------------------------------------------------------------------------------
def inspect(rows: Rows, now: int, *, thorough: bool) -> Iterator[Defect]:
    """Find damage and differences in a file."""
    for found in _inspect(rows, now, thorough=thorough):
        yield replace(found, hint=prefixed(found.hint))


def _inspect(rows: Rows, now: int, *, thorough: bool) -> Iterator[Defect]:
    errors = (sqlite3.Error,)
    damaged = list(_damage(rows, thorough=thorough))
    yield from damaged
    yield from _altered(rows)
    questions = [*defects.CHEAP, *defects.THOROUGH, *_QUESTIONS] if thorough else defects.CHEAP
    yield from defects.ask(rows, questions, now, errors)
    yield from defects.unreadable(rows, errors)


def _damage(rows: Rows, *, thorough: bool) -> Iterator[Defect]:
    hint = "stop all workers and restore a backup, or save what can be read: sqlite3 FILE .recover | sqlite3 NEW"
    try:
        found: list[Any] = list(rows(f"PRAGMA integrity_check({defects.MOST})")) if thorough else []
    except sqlite3.Error as error:
        yield Defect("damage", f"the file cannot be read: {error}", hint)
        return
    for (text,) in found:
        for line in str(text).splitlines() if text != "ok" else ():
            yield Defect("damage", line, hint)


def _altered(rows: Rows) -> Iterator[Defect]:
    """Tables, columns, indexes and views that differ from those of the migrations."""
    try:
        there = {(kind, name): text for kind, name, text in rows(_MADE)}
    except sqlite3.Error as error:
        yield Defect("tables", f"cannot be looked at: {error}", defects.ALTERED)
        return
    with closing(_scratch(MIGRATIONS)) as wanted:
        for kind, name, text in wanted.execute(_MADE).fetchall():
            found = there.get((kind, name))
            if found is None:
                yield Defect("tables", f"the {kind} {name} is missing", f"create it again: {statements_only(text)}")
            elif kind == "table":
                right = wanted.execute(f"PRAGMA table_info({name})").fetchall()
                yield from _columns(name, right, rows(f"PRAGMA table_info({name})"))
            elif statements_only(found) != statements_only(text):
                yield Defect(
                    "tables",
                    f"the {kind} {name} is not as it should be: {statements_only(found)}",
                    f"DROP {kind} {name}; {statements_only(text)}",
                )


def _columns(table: str, wanted: Sequence[Sequence[object]], found: Sequence[Sequence[object]]) -> Iterator[Defect]:
    there = {row[1]: row[2:] for row in found}
    for _, name, *how in wanted:
        if name not in there:
            yield Defect("tables", f"the column {name} of table {table} is missing", defects.ALTERED)
        elif tuple(how) != tuple(there[name]):
            yield Defect("tables", f"the column {name} of table {table} is not as it should be", defects.ALTERED)


def _scratch(applied: Iterable[Migration]) -> sqlite3.Connection:
    """A database in memory with the tables of the migrations."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.execute(_MIGRATIONS_TABLE)
    for migration in applied:
        made.executescript(migration.sql)
    return made


@cache
def _tables(*applied: Migration) -> frozenset[str]:
    """The tables and views that the migrations make, found out once for all new files."""
    with closing(_scratch(applied)) as made:
        found = made.execute(_MADE).fetchall()
    return frozenset(name for kind, name, _ in found if kind in {"table", "view"}) - {"mainspring_migrations"}
