"""Create, check and print the tables, and find the sessions and processes that hold their locks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mainspring.errors import InvalidInput, MainspringError, SchemaError
from mainspring.operations.connect import missing_file, require_there
from mainspring.store import migrations
from mainspring.store.open import open_store, shown

if TYPE_CHECKING:
    from mainspring.store.open import StoreSettings
    from mainspring.store.protocol import SchemaReport

DIALECTS = ("sqlite", "postgres")


def migrate(url: str, settings: StoreSettings, *, dry_run: bool = False) -> list[str]:
    """Migrate the tables. Return the names of the migrations that were applied, or with `dry_run` would be."""
    if missing_file(url) is None:
        report = check(url, settings)
    else:
        report = migrations.compare(migrations.load("mainspring.store.sqlite"), {})
    migrations.refuse_foreign(report, shown(url))
    if not dry_run:
        store = open_store(url, settings)
        try:
            store.open()
        finally:
            store.close()
    return report.pending


def check(url: str, settings: StoreSettings) -> SchemaReport:
    """Compare the tables with those that this code needs. Changes nothing."""
    require_there(url)
    store = open_store(url, settings)
    try:
        with contextlib.suppress(SchemaError):  # the report has the same, in detail
            store.open(migrate=False)
        return store.schema_report()
    finally:
        store.close()


def script(dialect: str, settings: StoreSettings) -> str:
    """Return all tables as SQL, for a review or for executing it manually. Needs no database."""
    if dialect == "sqlite":
        from mainspring.store.sqlite import schema as sqlite  # noqa: PLC0415  (only the store in use is loaded)

        return sqlite.script()
    if dialect == "postgres":
        from mainspring.store.postgres import schema as postgres  # noqa: PLC0415

        return postgres.script(settings.schema)
    raise InvalidInput(f"there is no dialect {dialect!r}; there are {', '.join(DIALECTS)}")


def dialect_of(url: str) -> str:
    """Return the dialect of the database that a URL names."""
    return "sqlite" if urlsplit(url).scheme == "sqlite" else "postgres"


def blockers(url: str, settings: StoreSettings, *, everywhere: bool = False) -> list[str]:
    """Return descriptions of the sessions or processes that block this process. With `everywhere`: that block any process of the library.

    Returns an empty list if they cannot be found out, because the caller reports another problem.
    """
    try:
        store = open_store(url, settings)
    except MainspringError:
        return []
    try:
        return store.blockers(everywhere=everywhere)
    except MainspringError:
        return []
    finally:
        store.close()
