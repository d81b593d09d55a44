"""`mainspring db`: the tables."""

from __future__ import annotations

import click

from mainspring.app.settings import Settings
from mainspring.cli.commands import FAILED, Group, note, url_option
from mainspring.operations import database
from mainspring.operations.connect import shown


@click.group(cls=Group)
def db() -> None:
    """Make, check and print the tables."""


@db.command
@url_option
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
def migrate(url: str, *, dry_run: bool) -> None:
    """Bring the tables up to date. Safe to run from many places at once.

    Apps do this by themselves when they connect, unless the setting `migrate` is off.

    \b
      mainspring db migrate --url postgresql://deploy@db/shop
      mainspring db migrate --dry-run
    """
    names = database.migrate(url, Settings(), dry_run=dry_run)
    for name in names:
        click.echo(name)
    if not names:
        note(f"the tables at {shown(url)} are up to date")
    elif dry_run:
        note(f"{len(names)} to apply at {shown(url)}; `mainspring db sql` prints the statements")
    else:
        note(f"applied {len(names)} at {shown(url)}")


@db.command
@click.option(
    "--dialect",
    type=click.Choice(database.DIALECTS),
    help="Whose SQL.  [default: that of $MAINSPRING_URL, else sqlite]",
)
@click.option("--url", envvar="MAINSPRING_URL", default="sqlite:", hidden=True)
def sql(dialect: str | None, url: str) -> None:
    """Print all tables as SQL. Needs no database.

    For databases that only an administrator may change: run the script there, then give the app the setting migrate=False.

    \b
      mainspring db sql --dialect postgres | psql postgresql://admin@db/shop
    """
    click.echo(database.script(dialect or database.dialect_of(url), Settings()), nl=False)


@db.command
@url_option
@click.pass_context
def check(ctx: click.Context, url: str) -> None:
    """Compare the tables with what this version needs. Exit code 1 if they are older or newer."""
    report = database.check(url, Settings())
    click.echo(report.current or "no tables")
    if report.unknown:
        note(
            f"newer than this version of mainspring, which does not know {', '.join(report.unknown)}: install a newer one"
        )
    elif report.pending:
        note(f"behind by {', '.join(report.pending)}: run `mainspring db migrate --url {shown(url)}`")
    else:
        note(f"the tables at {shown(url)} are up to date")
    if report.unknown or report.pending:
        ctx.exit(FAILED)
