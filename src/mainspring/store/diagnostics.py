"""What kind of database stands behind a URL, for people who look after it."""

from __future__ import annotations

import sqlite3
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote, urlsplit

from msgspec import Struct

from mainspring.store.open import sqlite_path


class Snapshot(Struct, frozen=True):
    """A transaction whose snapshot keeps dead rows from being removed."""

    pid: int | None
    """The server's process; None: a prepared transaction."""
    name: str
    """The name of the application, or of the prepared transaction."""
    state: str
    seconds: float
    """For how long it has been open."""


class DeadRows(Struct, frozen=True):
    """Rows of a table that vacuum has yet to remove, as the server estimates them."""

    table: str
    live: int
    dead: int


class ServerState(Struct, frozen=True):
    """What a database server says of itself."""

    connections: int
    allowed: int
    """Connections that roles without special rights may open."""
    snapshot: Snapshot | None
    """The oldest one of the database, if there is any besides this very question."""
    dead_rows: list[DeadRows]


def facts(url: str) -> dict[str, str]:
    """Versions and modes of a database that is there. Changes nothing."""
    return _sqlite(sqlite_path(url)) if urlsplit(url).scheme == "sqlite" else _postgres(url)


def _sqlite(path: str) -> dict[str, str]:
    connection = sqlite3.connect(f"file:{quote(str(Path(path).absolute()))}?mode=ro", uri=True)
    try:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        connection.close()
    return {"SQLite": sqlite3.sqlite_version, "journal mode": mode, "size": f"{Path(path).stat().st_size:,} bytes"}


def _postgres(url: str) -> dict[str, str]:
    from mainspring.store.postgres.database import Database  # noqa: PLC0415  (only where it is used; names the missing extra)

    database = Database(url)
    try:
        with database.connection() as connection:
            number = connection.info.server_version
    finally:
        database.close()
    return {"PostgreSQL": f"{number // 10_000}.{number % 10_000}", "psycopg": version("psycopg")}
