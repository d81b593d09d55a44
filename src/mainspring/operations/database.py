"""The tables: making them, checking them, printing them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mainspring.errors import InvalidInput, SchemaError
from mainspring.operations.connect import missing_file, require_there
from mainspring.store import migrations
from mainspring.store.open import open_store, shown

if TYPE_CHECKING:
    from mainspring.store.open import StoreSettings
    from mainspring.store.protocol import SchemaReport

DIALECTS = ("sqlite", "postgres")


def migrate(url: str, settings: StoreSettings, *, dry_run: bool = False) -> list[str]:
    """Bring the tables up to date; the names of the migrations that this took, or that it would take."""
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
    """How the tables compare with what this code needs. Changes nothing."""
    require_there(url)
    store = open_store(url, settings)
    try:
        with contextlib.suppress(SchemaError):  # the report says the same, in parts
            store.open(migrate=False)
        return store.schema_report()
    finally:
        store.close()


def script(dialect: str, settings: StoreSettings) -> str:
    """All tables as SQL, to be read, reviewed and executed by a person. Needs no database."""
    if dialect == "sqlite":
        from mainspring.store.sqlite import store as sqlite  # noqa: PLC0415  (only the store in use is loaded)

        return sqlite.script()
    if dialect == "postgres":
        from mainspring.store.postgres import store as postgres  # noqa: PLC0415

        return postgres.script(settings.schema)
    raise InvalidInput(f"there is no dialect {dialect!r}; there are {', '.join(DIALECTS)}")


def dialect_of(url: str) -> str:
    """The dialect of the database that a URL names."""
    return "sqlite" if urlsplit(url).scheme == "sqlite" else "postgres"
