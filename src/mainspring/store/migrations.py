"""Named migrations: SQL files beside each store. Each is applied once, in order, and recorded by name and checksum in the database."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING

from mainspring.errors import SchemaError
from mainspring.store.protocol import SchemaReport

if TYPE_CHECKING:
    from collections.abc import Mapping

APPLIED = "SELECT name, checksum FROM migrations"
RECORD = "INSERT INTO migrations (name, checksum) VALUES (:name, :checksum)"
EDITED = (
    "it was edited after it was applied. Install the version of mainspring that made the tables, or undo the edit: what changes tables "
    "belongs in a new migration. If the tables are right (`mainspring db sql` prints how they should be), set its checksum in the table "
    "migrations to {checksum}"
)
STRANGERS = "{where} has tables already that are not mainspring's and have the names of its own: {names}. Give it {instead}; nothing was changed."
IN_THE_WAY = (
    "the migration {name} cannot be applied at {where}: {error}. Something with that name is there that this library did not make; "
    "rename it, or use another place. Nothing was changed."
)


_QUOTED_OR_COMMENT = re.compile(r"('(?:[^']|'')*')|--[^\n]*")


@dataclass(frozen=True)
class Migration:
    """One change of the tables. The name says what it changes, and its number gives the order."""

    name: str
    sql: str

    @cached_property
    def checksum(self) -> str:
        """A digest of the statements. Comments and line breaks are not part of it, so that a comment can be corrected."""
        return hashlib.sha256(statements_only(self.sql).encode()).hexdigest()


def statements_only(sql: str) -> str:
    """The SQL without comments and with single spaces."""
    return " ".join(_QUOTED_OR_COMMENT.sub(lambda found: found[1] or "", sql).split())


def load(package: str) -> list[Migration]:
    """Return the migrations in a package's `migrations` folder, in order."""
    folder = files(package).joinpath("migrations")
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return [
        Migration(entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in sorted(found, key=lambda entry: entry.name)
    ]


def compare(migrations: list[Migration], applied: Mapping[str, str]) -> SchemaReport:
    """Compare the applied migrations, as checksums by name, with those of this code."""
    known = [migration.name for migration in migrations]
    return SchemaReport(
        current=max(applied, default=None),
        wanted=known[-1],
        pending=[name for name in known if name not in applied],
        unknown=sorted(applied.keys() - set(known)),
        edited={
            migration.name: migration.checksum
            for migration in migrations
            if applied.get(migration.name, migration.checksum) != migration.checksum
        },
    )


def refuse_foreign(report: SchemaReport, url: str) -> None:
    """Raise if the tables were created by newer code than this, or by migrations that were edited since."""
    if report.unknown:
        raise SchemaError(
            f"the tables at {url} are newer than this version of mainspring: they have {', '.join(report.unknown)}, "
            f"this code knows up to {report.wanted}. Install the newer version here as well."
        )
    for name, checksum in report.edited.items():
        raise SchemaError(
            f"the migration {name} is not the one that made the tables at {url}: {EDITED.format(checksum=checksum)}."
        )


def require_current(report: SchemaReport, url: str) -> None:
    """Raise if the tables are not those that this code needs."""
    refuse_foreign(report, url)
    if report.pending:
        raise SchemaError(
            f"the tables at {url} lack {', '.join(report.pending)}. Run `mainspring db migrate --url {url}`, "
            "or let the app migrate by itself (setting migrate=True)."
        )


def as_script(migrations: list[Migration]) -> str:
    """Return the migrations as SQL that an operator can review and execute. The store then finds them applied."""
    parts = [f"-- {migration.name}\n{migration.sql.rstrip()}\n" for migration in migrations]
    names = [
        f"INSERT INTO migrations (name, checksum) VALUES ('{migration.name}', '{migration.checksum}');\n"
        for migration in migrations
    ]
    return "\n".join([*parts, *names])
