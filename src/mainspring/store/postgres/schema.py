"""The tables in a schema of PostgreSQL: create them, compare them with what this code needs, find damage.

Many processes may start at once: one migrates, the others wait and find the migrations applied.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import errors as pg

from mainspring.errors import SchemaError, StoreError
from mainspring.store import migrations
from mainspring.store.bad_rows import describe
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.verbs import defects
from mainspring.store.verbs.defects import Defect, Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mainspring.store.migrations import Migration
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.protocol import SchemaReport
    from mainspring.store.verbs.defects import Rows

MIGRATIONS = migrations.load("mainspring.store.postgres")

# A query of a table, not `to_regclass`: that may return what this session knew before it waited for the lock. And not of the view `pg_tables`:
# it costs twice as much, in each session that opens a database.
_THERE = """
  SELECT EXISTS (
    SELECT 1 FROM pg_class WHERE relname = 'migrations' AND relkind IN ('r', 'p')
      AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema))
"""
_SCHEMA_THERE = "SELECT 1 FROM pg_namespace WHERE nspname = :schema"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(:schema, 7290115))"
_MIGRATIONS_TABLE = """
-- The migrations that were applied.
CREATE TABLE IF NOT EXISTS migrations (
  name     text NOT NULL PRIMARY KEY, -- name of the file
  checksum text NOT NULL              -- SHA-256 of its statements
)"""
_TIMEOUTS = """
  SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout')
"""
"""Limits that administrators set for queries. A migration takes as long as it needs, and waits for that of another process."""
_IN_THE_WAY = (
    pg.DuplicateTable,
    pg.DuplicateObject,
    pg.DuplicateColumn,
    pg.UndefinedColumn,
    pg.UndefinedTable,
    pg.WrongObjectType,
)


def report(connection: Connection, dialect: Dialect) -> SchemaReport:
    """Compare the tables with what this code needs, by the names and checksums of the migrations."""
    there = connection.execute(dialect(_THERE), {"schema": dialect.name}).fetchone()
    applied: dict[str, str] = {}
    if there and there[0]:
        try:
            applied = dict(connection.execute(dialect(migrations.APPLIED)).fetchall())
        except pg.UndefinedColumn as error:
            where = f"the schema {dialect.name}"
            raise SchemaError(
                migrations.STRANGERS.format(where=where, names="migrations", instead="another schema")
            ) from error
    return migrations.compare(MIGRATIONS, applied)


def migrate(database: Database, dialect: Dialect, url: str) -> None:
    """Apply the missing migrations, all of them or none."""
    with database.connection() as connection:
        found = report(connection, dialect)
    migrations.refuse_foreign(found, url)
    if not found.pending:
        return
    with database.transaction() as connection:
        connection.execute(_TIMEOUTS.encode())
        # A lock of the transaction, not of the session: behind a pooler the session is not ours.
        connection.execute(dialect(_LOCK), {"schema": dialect.name})
        found = report(connection, dialect)
        migrations.refuse_foreign(found, url)
        # Not IF NOT EXISTS: that needs the right to create schemas even if an administrator has already created this one.
        if connection.execute(dialect(_SCHEMA_THERE), {"schema": dialect.name}).fetchone() is None:
            connection.execute(f"CREATE SCHEMA {dialect.schema}".encode())
        connection.execute(f"SET LOCAL search_path TO {dialect.schema}".encode())
        if len(found.pending) == len(MIGRATIONS):
            connection.execute(_MIGRATIONS_TABLE.encode())
        for migration in MIGRATIONS:
            if migration.name in found.pending:
                _apply(connection, migration, f"the schema {dialect.name} of {url}")
                values = {"name": migration.name, "checksum": migration.checksum}
                connection.execute(dialect(migrations.RECORD), values)


def _apply(connection: Connection, migration: Migration, where: str) -> None:
    try:
        connection.execute(migration.sql.encode(), prepare=False)
    except _IN_THE_WAY as error:
        raise SchemaError(
            migrations.IN_THE_WAY.format(where=where, name=migration.name, error=error.diag.message_primary)
        ) from error


def script(schema: str = "mainspring") -> str:
    """Return the schema as SQL that an operator can review and execute."""
    dialect = Dialect(schema)
    return (
        f"BEGIN;\nCREATE SCHEMA IF NOT EXISTS {dialect.schema};\nSET LOCAL search_path TO {dialect.schema};\n"
        f"{_MIGRATIONS_TABLE};\n\n{migrations.as_script(MIGRATIONS)}COMMIT;\n"
    )


# -- checks ------------------------------------------------------------------------------------------------------------------
_COLUMNS = """
  SELECT c.relname, a.attname, CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END,
    format_type(a.atttypid, a.atttypmod), a.attnotnull
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  WHERE c.relnamespace = %(space)s AND c.relkind IN ('r', 'p', 'v') ORDER BY 1, a.attnum
"""
_INDEXES = """
  SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  WHERE c.relnamespace = %(space)s ORDER BY 1
"""
_SPACE = "SELECT oid FROM pg_namespace WHERE nspname = %(name)s"
_SCRATCH = "SELECT oid FROM pg_namespace WHERE oid = pg_my_temp_schema()"
_OF_SCHEMA = re.compile(r' ON (?:"(?:[^"]|"")*"|[^\s."]+)\.')
_CHECKSUMS = "SELECT checksum_failures FROM pg_stat_database WHERE datname = current_database()"
_QUESTIONS = [
    Question(
        "unreadable",
        "SELECT id FROM runs WHERE jsonb_typeof(attributes) <> 'object' OR json_typeof(input) <> 'object' LIMIT :most",
        "table runs, row {0}: its input or its attributes are not a JSON object",
        "UPDATE runs SET attributes = '{{}}', input = '{{}}' WHERE id = '{0}', or delete the row",
    )
]


class _Shape(NamedTuple):
    """Columns and indexes of a schema, without its name."""

    columns: dict[tuple[str, str], tuple[Any, ...]]
    indexes: dict[str, tuple[str, bool]]


def inspect(database: Database, dialect: Dialect, now: int, *, thorough: bool) -> Iterator[Defect]:
    """Find damage and differences in a schema."""
    errors = (psycopg.Error, StoreError)

    def rows(statement: str, **values: Any) -> Sequence[Sequence[Any]]:
        with database.connection() as connection:
            return connection.execute(dialect(statement), values).fetchall()

    yield from _damage(rows)
    try:
        yield from _altered(database, dialect)
    except errors as error:
        yield Defect(
            "tables",
            f"cannot be compared: {describe(error)}",
            "compare them in a session that may write, of a role with the right TEMPORARY",
            wrong=False,
        )
    questions = [*defects.CHEAP, *defects.THOROUGH, *_QUESTIONS] if thorough else defects.CHEAP
    found = defects.ask(rows, questions, now, errors)
    for each in (*found, *defects.unreadable(rows, errors)):
        yield Defect(each.what, each.which, dialect.spelled(each.hint), each.wrong)


def _damage(rows: Rows) -> Iterator[Defect]:
    """Pages whose checksums were wrong when they were read, as counted by the server."""
    try:
        found = rows(_CHECKSUMS)
    except (psycopg.Error, StoreError):
        return
    count = found[0][0] if found else None
    if count:
        yield Defect(
            "damage",
            f"the server has read {count} pages with a wrong checksum",
            "see its log; restore a backup, or look with pg_amcheck",
        )


def _altered(database: Database, dialect: Dialect) -> Iterator[Defect]:
    """Tables, columns and indexes that differ from those of the migrations, which are created as temporary ones and rolled back."""
    with database.connection() as connection:
        there = _shape(connection, _SPACE, name=dialect.name)
        with connection.transaction(force_rollback=True):
            connection.execute(b"SET LOCAL search_path TO pg_temp")
            connection.execute(b"SET LOCAL check_function_bodies TO off")  # no function is looked up in pg_temp
            connection.execute(_MIGRATIONS_TABLE.encode())
            for migration in MIGRATIONS:
                connection.execute(migration.sql.encode(), prepare=False)
            right = _shape(connection, _SCRATCH)
    found = {table for table, _ in there.columns}
    kinds = {table: str(kind) for (table, _), (kind, *_) in right.columns.items()}
    for table, kind in kinds.items():
        if table not in found:
            yield Defect("tables", f"the {kind} {table} is missing", defects.ALTERED)
    for (table, column), how in right.columns.items():
        if table in found and there.columns.get((table, column)) != how:
            fault = "is not as it should be" if (table, column) in there.columns else "is missing"
            yield Defect("tables", f"the column {column} of {kinds[table]} {table} {fault}", defects.ALTERED)
    for index, (text, _) in right.indexes.items():
        made = text.replace(" ON ", f" ON {dialect.schema}.", 1)
        if index not in there.indexes:
            yield Defect("tables", f"the index {index} is missing", f"create it again: {made}")
        elif there.indexes[index] != (text, True):
            fault = "is not as it should be" if there.indexes[index][1] else "is not valid"
            yield Defect("tables", f"the index {index} {fault}", f"DROP INDEX {dialect.schema}.{index}; {made}")


def _shape(connection: Connection, space: str, **values: str) -> _Shape:
    row = connection.execute(space.encode(), values).fetchone()
    if row is None:
        return _Shape({}, {})
    oid = row[0]
    columns = connection.execute(_COLUMNS.encode(), {"space": oid}).fetchall()
    indexes = connection.execute(_INDEXES.encode(), {"space": oid}).fetchall()
    return _Shape(
        {(table, column): tuple(how) for table, column, *how in columns},
        {index: (_OF_SCHEMA.sub(" ON ", text, count=1), valid) for index, text, valid in indexes},
    )
