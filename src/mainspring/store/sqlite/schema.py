"""The tables of a SQLite file: making them, comparing them with what this code needs, finding damage."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from mainspring.errors import SchemaError
from mainspring.store import inspection, migrations
from mainspring.store.inspection import Oddity, Question
from mainspring.store.sqlite.statements import AWAITED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mainspring.store.inspection import Rows
    from mainspring.store.migrations import Migration
    from mainspring.store.protocol import SchemaReport

MIGRATIONS = migrations.load("mainspring.store.sqlite")
_REMEMBER = "CREATE TABLE IF NOT EXISTS migrations (name TEXT NOT NULL PRIMARY KEY)"
_MADE = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND sql IS NOT NULL"
_RENEW = (
    "something else has changed it: restore a backup, or change it back; `mainspring db sql` prints how it should be"
)
_JSON = {
    "runs": ("id", ("input", "output", "error", "attributes", "tick", "stranded", "retry")),
    "steps": ("run", ("output", "error", "trail")),
}
_QUESTIONS = [
    Question(
        "unreadable",
        f"SELECT {key} FROM {table} WHERE {' OR '.join(f'({column} IS NOT NULL AND NOT json_valid({column}))' for column in columns)}"
        " LIMIT :most",
        f"table {table}, row {{0}}: a value is not JSON",
        f"see which with: SELECT * FROM {table} WHERE {key} = '{{0}}'; and repair it, or delete the row",
    )
    for table, (key, columns) in _JSON.items()
]


def report(db: sqlite3.Connection) -> SchemaReport:
    """How the tables compare with what this code needs, by the names of the migrations."""
    there = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations'").fetchone()
    try:
        applied = [row[0] for row in db.execute("SELECT name FROM migrations")] if there else []
    except sqlite3.OperationalError as error:
        raise SchemaError(
            migrations.STRANGERS.format(where="this file", names="migrations", instead="another file")
        ) from error
    return migrations.compare(MIGRATIONS, applied)


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Bring the tables up to date, inside an open transaction."""
    pending = report(db).pending  # again: somebody else may have done it meanwhile
    if len(pending) == len(MIGRATIONS):
        _refuse_strangers(db, path)
    db.execute(_REMEMBER)
    for migration in MIGRATIONS:
        if migration.name in pending:
            _apply(db, migration, path)
            db.execute("INSERT INTO migrations (name) VALUES (?)", (migration.name,))


def _refuse_strangers(db: sqlite3.Connection, path: str) -> None:
    """A file in which somebody else has tables of these names."""
    ours = {name for kind, name, _ in _expected() if kind in {"table", "view"}} - {"migrations"}
    taken = sorted(ours & {name for _, name, _ in db.execute(_MADE)})
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
    """The whole schema as SQL that a person can read, review and run by hand; the store then finds it done."""
    names = "\n".join(f"INSERT INTO migrations (name) VALUES ('{migration.name}');" for migration in MIGRATIONS)
    return f"BEGIN;\n{_REMEMBER};\n\n{migrations.as_script(MIGRATIONS)}\n{names}\nCOMMIT;\n"


def _statements(script: str) -> list[str]:
    """The statements of a script; `executescript` would commit the transaction they are to be part of."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found


# -- finding out -------------------------------------------------------------------------------------------------------------
def inspect(rows: Rows, now: int, *, thorough: bool) -> Iterator[Oddity]:
    """What should not be so in a file."""
    errors = (sqlite3.Error,)
    damaged = list(_damage(rows, thorough=thorough))
    yield from damaged
    yield from _altered(rows)
    questions = [*inspection.CHEAP, inspection.awaited(AWAITED, "runs")]
    yield from inspection.ask(
        rows, [*questions, *inspection.THOROUGH, *_QUESTIONS] if thorough else questions, now, errors
    )
    yield from inspection.unreadable(rows, errors)


def _damage(rows: Rows, *, thorough: bool) -> Iterator[Oddity]:
    hint = "stop all workers and restore a backup, or save what can be read: sqlite3 FILE .recover | sqlite3 NEW"
    try:
        found: list[Any] = list(rows(f"PRAGMA integrity_check({inspection.MOST})")) if thorough else []
    except sqlite3.Error as error:
        yield Oddity("damage", f"the file cannot be read: {error}", hint)
        return
    for (text,) in found:
        for line in str(text).splitlines() if text != "ok" else ():
            yield Oddity("damage", line, hint)


def _altered(rows: Rows) -> Iterator[Oddity]:
    """Tables, columns, indexes and views that are not as the migrations make them."""
    try:
        there = {(kind, name): text for kind, name, text in rows(_MADE)}
    except sqlite3.Error as error:
        yield Oddity("tables", f"cannot be looked at: {error}", _RENEW)
        return
    with closing(_scratch()) as wanted:
        for kind, name, text in wanted.execute(_MADE).fetchall():
            found = there.get((kind, name))
            if found is None:
                yield Oddity("tables", f"the {kind} {name} is missing", f"make it anew: {_plain(text)}")
            elif kind == "table":
                right = wanted.execute(f"PRAGMA table_info({name})").fetchall()
                yield from _columns(name, right, rows(f"PRAGMA table_info({name})"))
            elif _plain(found) != _plain(text):
                yield Oddity(
                    "tables",
                    f"the {kind} {name} is not as it should be: {_plain(found)}",
                    f"DROP {kind} {name}; {_plain(text)}",
                )


def _columns(table: str, wanted: Sequence[Sequence[object]], found: Sequence[Sequence[object]]) -> Iterator[Oddity]:
    there = {row[1]: row[2:] for row in found}
    for _, name, *how in wanted:
        if name not in there:
            yield Oddity("tables", f"the column {name} of table {table} is missing", _RENEW)
        elif tuple(how) != tuple(there[name]):
            yield Oddity("tables", f"the column {name} of table {table} is not as it should be", _RENEW)


def _plain(text: str) -> str:
    """Without comments, and with single spaces."""
    return " ".join(" ".join(line.partition("--")[0] for line in text.splitlines()).split())


def _scratch() -> sqlite3.Connection:
    """A database in memory with the tables as they should be."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.execute(_REMEMBER)
    for migration in MIGRATIONS:
        made.executescript(migration.sql)
    return made


def _expected() -> list[tuple[str, str, str]]:
    with closing(_scratch()) as made:
        return made.execute(_MADE).fetchall()
