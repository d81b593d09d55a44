"""Creating and checking the tables. Many processes may start at once: one migrates, the others wait for it and find it done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.store import migrations

if TYPE_CHECKING:
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.protocol import SchemaReport

_MIGRATIONS = migrations.load("mainspring.store.postgres")

# A look at a table, not `to_regclass`: that may answer from what this session knew before it waited for the lock.
_THERE = "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = :schema AND tablename = 'migrations')"
_SCHEMA_THERE = "SELECT 1 FROM pg_namespace WHERE nspname = :schema"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(:schema, 7290115))"


def report(connection: Connection, dialect: Dialect) -> SchemaReport:
    """How the tables compare with what this code needs."""
    there = connection.execute(dialect(_THERE), {"schema": dialect.name}).fetchone()
    applied: list[str] = []
    if there and there[0]:
        applied = [row[0] for row in connection.execute(dialect("SELECT name FROM migrations"))]
    return migrations.compare(_MIGRATIONS, applied)


def migrate(database: Database, dialect: Dialect, url: str) -> None:
    """Bring the tables up to date, all of it or nothing."""
    with database.connection() as connection:
        found = report(connection, dialect)
    migrations.refuse_unknown(found, url)
    if not found.pending:
        return
    with database.transaction() as connection:
        # A lock of the transaction, not of the session: behind a pooler the session is not ours.
        connection.execute(dialect(_LOCK), {"schema": dialect.name})
        found = report(connection, dialect)
        migrations.refuse_unknown(found, url)
        # Not IF NOT EXISTS: that needs the right to create schemas even where somebody has already made this one for us.
        if connection.execute(dialect(_SCHEMA_THERE), {"schema": dialect.name}).fetchone() is None:
            connection.execute(f"CREATE SCHEMA {dialect.schema}".encode())
        connection.execute(f"SET LOCAL search_path TO {dialect.schema}".encode())
        if len(found.pending) == len(_MIGRATIONS):
            connection.execute(b"CREATE TABLE IF NOT EXISTS migrations (name text NOT NULL PRIMARY KEY)")
        for migration in _MIGRATIONS:
            if migration.name in found.pending:
                connection.execute(migration.sql.encode(), prepare=False)
                connection.execute(b"INSERT INTO migrations (name) VALUES (%s)", (migration.name,))


def script(dialect: Dialect) -> str:
    """The whole schema as SQL that a person can read, review and run by hand."""
    names = "\n".join(f"INSERT INTO migrations (name) VALUES ('{migration.name}');" for migration in _MIGRATIONS)
    return (
        f"BEGIN;\nCREATE SCHEMA IF NOT EXISTS {dialect.schema};\nSET LOCAL search_path TO {dialect.schema};\n"
        "CREATE TABLE migrations (name text NOT NULL PRIMARY KEY);\n\n"
        f"{migrations.as_script(_MIGRATIONS)}\n{names}\nCOMMIT;\n"
    )
