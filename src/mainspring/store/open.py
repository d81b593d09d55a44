"""From a URL to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.store.protocol import Store

_SQLITE = "sqlite://"
_POSTGRES = ("postgresql://", "postgres://")


def open_store(
    url: str, *, schema: str = "mainspring", synchronous: str = "FULL", prepare: bool | None = None
) -> Store:
    """The store at a URL, not connected yet.

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://` (temporary: gone when closed), `postgresql://…`. `schema`
    and `prepare` concern PostgreSQL, `synchronous` SQLite.
    """
    if url.startswith(_SQLITE):
        from mainspring.store.sqlite.store import SqliteStore  # noqa: PLC0415  (only what is used is loaded)

        return SqliteStore(_sqlite_path(url), url=url, synchronous=synchronous)
    if url.startswith(_POSTGRES):
        from mainspring.store.postgres.store import PostgresStore  # noqa: PLC0415

        return PostgresStore(url, schema=schema, prepare=prepare)
    raise InvalidInput(
        f"{url!r} is not the URL of a store; write sqlite:///file.db (four slashes for an absolute path), sqlite:// for a "
        "temporary one, or postgresql://user@host/database"
    )


def _sqlite_path(url: str) -> str:
    rest = url.removeprefix(_SQLITE)
    if rest in {"", "/"} or rest == "/:memory:":
        return ""
    if not rest.startswith("/"):
        raise InvalidInput(
            f"{url!r} names a host; write three slashes before a relative path and four before an absolute one"
        )
    if "?" in rest or "#" in rest:
        raise InvalidInput(f"{url!r}: a SQLite URL takes no options; they are settings")
    return unquote(rest[1:])
