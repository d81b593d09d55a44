"""The databases as they are, without a store in front of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg

from mainspring.store.open import sqlite_path


def _rows(url: str, query: str) -> list[tuple[object, ...]]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url))) as connection:
            return connection.execute(query).fetchall()
    with psycopg.connect(url, autocommit=True) as postgres:
        return postgres.execute(query.encode()).fetchall()


def tables(url: str) -> list[str]:
    if url.startswith("sqlite"):
        query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    else:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'mainspring' ORDER BY 1"
    return [str(row[0]) for row in _rows(url, query)]


def columns(url: str) -> dict[str, list[str]]:
    """The columns of each table, in order."""
    if url.startswith("sqlite"):
        return {table: [str(row[1]) for row in _rows(url, f"PRAGMA table_info({table})")] for table in tables(url)}
    query = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'mainspring' AND table_name = '{}'"
    return {
        table: [str(row[0]) for row in _rows(url, query.format(table) + " ORDER BY ordinal_position")]
        for table in tables(url)
    }


def described(url: str) -> list[tuple[object, ...]]:
    """All tables, columns, constraints and indexes, as the database itself describes them, and the known migrations."""
    if url.startswith("sqlite"):
        return [
            *_rows(url, "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"),
            *_rows(url, "SELECT name FROM migrations ORDER BY name"),
        ]
    return [
        *_rows(
            url,
            "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name"
            " FROM information_schema.columns WHERE table_schema = 'mainspring' ORDER BY 1, ordinal_position",
        ),
        *_rows(url, "SELECT indexdef FROM pg_indexes WHERE schemaname = 'mainspring' ORDER BY 1"),
        *_rows(
            url,
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = 'mainspring'::regnamespace ORDER BY 1, 2",
        ),
        *_rows(url, "SELECT name FROM mainspring.migrations ORDER BY name"),
    ]


def execute(url: str, statement: str) -> None:
    """Execute a statement; {schema} in it stands for where the tables are."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as connection:
            connection.execute(statement.format(schema=""))
    else:
        with psycopg.connect(url, autocommit=True) as postgres:
            postgres.execute(statement.format(schema="mainspring.").encode())


def script(url: str, text: str) -> None:
    """Execute a script as a person would, with the database's own shell."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url))) as connection:
            connection.executescript(text)
    else:
        with psycopg.connect(url, autocommit=True) as postgres:
            postgres.execute(text.encode())


def drop_everything(url: str) -> None:
    if url.startswith("sqlite"):
        execute(url, "DROP VIEW IF EXISTS scheduled_functions")
        for table in tables(url):
            execute(url, f"DROP TABLE {table}")
    else:
        execute(url, "DROP SCHEMA mainspring CASCADE")
