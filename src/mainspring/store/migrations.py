"""Named migrations: SQL files beside each store, applied in order, each once, remembered by name in the database."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from mainspring.errors import SchemaError
from mainspring.store.protocol import SchemaReport

STRANGERS = "{where} has tables already that are not mainspring's and have the names of its own: {names}. Give it {instead}; nothing was changed."
IN_THE_WAY = (
    "the migration {name} cannot be applied at {where}: {error}. Something with that name is there that this library did not make; "
    "rename it, or use another place. Nothing was changed."
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One change of the tables. The name says what it does; its number gives the order."""

    name: str
    sql: str


def load(package: str) -> list[Migration]:
    """The migrations in a package's `migrations` folder, in order."""
    folder = files(package).joinpath("migrations")
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return [
        Migration(entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in sorted(found, key=lambda entry: entry.name)
    ]


def compare(migrations: list[Migration], applied: list[str]) -> SchemaReport:
    """How the applied migrations compare with those this code has."""
    known = [migration.name for migration in migrations]
    return SchemaReport(
        current=max(applied, default=None),
        wanted=known[-1],
        pending=[name for name in known if name not in applied],
        unknown=sorted(set(applied) - set(known)),
    )


def refuse_unknown(report: SchemaReport, url: str) -> None:
    """Raise if the tables were made by newer code than this."""
    if report.unknown:
        raise SchemaError(
            f"the tables at {url} are newer than this version of mainspring: they have {', '.join(report.unknown)}, "
            f"this code knows up to {report.wanted}. Install the newer version here as well."
        )


def require_current(report: SchemaReport, url: str) -> None:
    """Raise if the tables are not exactly what this code needs."""
    refuse_unknown(report, url)
    if report.pending:
        raise SchemaError(
            f"the tables at {url} lack {', '.join(report.pending)}. Run `mainspring db migrate --url {url}`, "
            "or let the app migrate by itself (setting migrate=True)."
        )


def as_script(migrations: list[Migration]) -> str:
    """All of it as SQL that a person can read, review and run by hand."""
    parts = [f"-- {migration.name}\n{migration.sql.rstrip()}\n" for migration in migrations]
    return "\n".join(parts)
