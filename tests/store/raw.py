"""The databases as they are, without a store in front of them."""

from __future__ import annotations

import re
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


def columns(url: str, *, views: bool = False) -> dict[str, list[str]]:
    """The columns of each table, and of each view if these are wanted, in order."""
    if url.startswith("sqlite"):
        kinds = "'table', 'view'" if views else "'table'"
        query = f"SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type IN ({kinds}) ORDER BY t.name, c.cid"
    else:
        kinds = "'BASE TABLE', 'VIEW'" if views else "'BASE TABLE'"
        query = (
            "SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)"
            f" WHERE table_schema = 'mainspring' AND table_type IN ({kinds}) ORDER BY 1, ordinal_position"
        )
    found: dict[str, list[str]] = {}
    for table, column in _rows(url, query):
        found.setdefault(str(table).removeprefix("mainspring_"), []).append(str(column))
    return found


def types(url: str) -> dict[str, dict[str, str]]:
    """The types of the columns of tables and views in PostgreSQL."""
    query = (
        "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'mainspring'"
    )
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in _rows(url, query):
        found.setdefault(str(table), {})[str(column)] = str(kind)
    return found


def checks(url: str) -> dict[tuple[str, str], set[str]]:
    """The values that a CHECK allows, by table and column."""
    if url.startswith("sqlite"):
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    else:
        query = (
            "SELECT relname, 'CHECK ' || pg_get_expr(conbin, conrelid) FROM pg_constraint JOIN pg_class c ON c.oid = conrelid"
            " WHERE connamespace = 'mainspring'::regnamespace AND contype = 'c'"
        )
    found: dict[tuple[str, str], set[str]] = {}
    for table, text in _rows(url, query):
        for check in re.findall(r"CHECK \((.*?)\)(?=,?\n|$)", str(text), re.DOTALL):
            column = re.match(r"\W*(\w+)", check)
            assert column is not None
            found[str(table).removeprefix("mainspring_"), column[1]] = set(re.findall(r"'(\w+)'", check))
    return found


def described(url: str) -> list[tuple[object, ...]]:
    """All tables, columns, constraints and indexes, as the database itself describes them, and the known migrations."""
    if url.startswith("sqlite"):
        return [
            *_rows(url, "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"),
            *_rows(url, "SELECT name, checksum FROM mainspring_migrations ORDER BY name"),
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
        *_rows(url, "SELECT viewname, definition FROM pg_views WHERE schemaname = 'mainspring' ORDER BY 1"),
        *_rows(url, "SELECT name, checksum FROM mainspring.migrations ORDER BY name"),
    ]


def execute(url: str, statement: str) -> None:
    """Execute a statement; {schema} in it stands for where the tables are."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as connection:
            connection.execute(statement.format(schema="mainspring_"))
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
