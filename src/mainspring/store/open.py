"""Open the store that a URL names, and describe the database behind it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote, urlsplit

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.store.protocol import Store


_PASSWORD = re.compile(r"^([\w+]+://[^:@/]*:)[^/]*@")
"""A password as libpq reads it: also one with a character that ends this part of other URLs."""
_SECRETS = re.compile(r"([?&](?:(?:ssl)?password|oauth_client_secret|scram_(?:client|server)_key)=)[^&]*")
"""Options of a PostgreSQL URL that are secret."""


class StoreSettings(Protocol):
    """The part of `Settings` that concerns the store."""

    @property
    def synchronous(self) -> str: ...
    @property
    def schema(self) -> str: ...
    @property
    def lease(self) -> float: ...
    @property
    def connections(self) -> int: ...
    @property
    def notify(self) -> bool: ...


def open_store(url: str, settings: StoreSettings) -> Store:
    """Return the store that a URL names, not yet connected.

    `sqlite:///file.db`, `sqlite:////absolute/file.db`, `sqlite://` (temporary), or `postgresql://…`.
    """
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from mainspring.store.sqlite.store import SqliteStore  # noqa: PLC0415  (only the store in use is loaded)

        return SqliteStore(sqlite_path(url), url=url, synchronous=settings.synchronous, lease=settings.lease)
    if scheme in {"postgresql", "postgres"}:
        from mainspring.store.postgres.store import PostgresStore  # noqa: PLC0415

        return PostgresStore(
            url,
            schema=settings.schema,
            lease=settings.lease,
            connections=settings.connections,
            notify=settings.notify,
        )
    raise InvalidInput(
        f"{shown(url)!r} is not a database URL; write sqlite:///file.db, sqlite:////absolute/file.db or postgresql://user@host/name"
    )


def sqlite_path(url: str) -> str:
    """The file of a SQLite URL; empty for a temporary database."""
    rest = url.removeprefix("sqlite:")
    if rest in {"//", "///", "///:memory:"}:
        return ""
    if not rest.startswith("///"):
        raise InvalidInput(f"{url!r}: a SQLite URL has three slashes and then the path: sqlite:///file.db")
    return unquote(rest.removeprefix("///"))


def shown(url: str) -> str:
    """The URL without its passwords, for display."""
    return _SECRETS.sub(r"\1***", _PASSWORD.sub(r"\1***@", url))


def facts(url: str) -> dict[str, str]:
    """Versions and modes of an existing database. Changes nothing."""
    return _sqlite(sqlite_path(url)) if urlsplit(url).scheme == "sqlite" else _postgres(url)


def _sqlite(path: str) -> dict[str, str]:
    import sqlite3  # noqa: PLC0415  (only the database in use is loaded)

    connection = sqlite3.connect(f"file:{quote(str(Path(path).absolute()))}?mode=ro", uri=True)
    try:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        connection.close()
    return {"SQLite": sqlite3.sqlite_version, "journal mode": mode, "size": f"{Path(path).stat().st_size:,} bytes"}


def _postgres(url: str) -> dict[str, str]:
    from importlib.metadata import version  # noqa: PLC0415

    from mainspring.store.postgres.database import Database  # noqa: PLC0415  (only where it is used; names the missing extra)

    database = Database(url)
    try:
        with database.connection() as connection:
            number = connection.info.server_version
    finally:
        database.close()
    return {"PostgreSQL": f"{number // 10_000}.{number % 10_000}", "psycopg": version("psycopg")}
