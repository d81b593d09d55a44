"""`mainspring db`: the tables."""

from __future__ import annotations

import click

from mainspring.app.client_api import runtime_of
from mainspring.app.settings import Settings
from mainspring.cli.audit import carry_out, reason_option
from mainspring.cli.commands import FAILED, Group, note, url_option
from mainspring.cli.target import load_app
from mainspring.cli.terminal import echo
from mainspring.operations import database
from mainspring.operations.connect import connect, shown
from mainspring.operations.retention import chosen, keep_of
from mainspring.store.migrations import EDITED


@click.group(cls=Group)
def db() -> None:
    """Create, check and print the tables, and delete old rows."""


@db.command
@url_option
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
def migrate(url: str, *, dry_run: bool) -> None:
    """Migrate the tables to this version. Safe to run from many places at once.

    Apps do this by themselves when they connect, unless the setting `migrate` is off.

    \b
      mainspring db migrate --url postgresql://deploy@db/shop
      mainspring db migrate --dry-run
    """
    names = database.migrate(url, Settings(), dry_run=dry_run)
    for name in names:
        echo(name)
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
    help="The SQL dialect.  [default: that of $MAINSPRING_URL, else sqlite]",
)
@click.option("--url", envvar="MAINSPRING_URL", default="sqlite:", hidden=True)
def sql(dialect: str | None, url: str) -> None:
    """Print all tables as SQL. Needs no database.

    For databases that only an administrator may change: run the script there, then give the app the setting migrate=False.

    \b
      mainspring db sql --dialect postgres | psql postgresql://admin@db/shop
    """
    echo(database.script(dialect or database.dialect_of(url), Settings()), nl=False)


@db.command
@click.argument("target", required=False)
@url_option
@click.option(
    "--older-than",
    metavar="DURATION",
    help="Delete runs that ended longer ago than this.  [default: the setting retention]",
)
@click.option(
    "--functions-older-than",
    metavar="DURATION",
    help="Delete scheduled functions that ended longer ago than this.  [default: the setting function_retention, 7d]",
)
@click.option(
    "--keep-last",
    metavar="N",
    type=click.IntRange(1),
    help="Keep the latest N runs of each function.  [default: the setting keep_last]",
)
@click.option("--name", "names", metavar="NAME", multiple=True, help="Only runs of this function. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Only print how many there are.")
@reason_option
def prune(
    target: str | None,
    url: str,
    older_than: str | None,
    functions_older_than: str | None,
    *,
    keep_last: int | None,
    names: tuple[str, ...],
    reason: str | None,
    dry_run: bool,
) -> None:
    """Delete runs that ended long ago, with all they recorded, in small batches.

    Workers do this by themselves, by the settings and their functions. With TARGET (module:app) this does what that app's workers
    would do, also in other databases with transactions of the app. Data that unfinished runs and schedules need is kept.

    \b
      mainspring db prune --older-than 30d --dry-run
      mainspring db prune --older-than 1d --name ping
      mainspring db prune --keep-last 1000
      mainspring db prune shop:app
    """
    app = None if target is None else load_app(target)
    if app is None:
        keep = keep_of(Settings(), {}, {})
    else:
        keep, url = runtime_of(app).keep, app.url
    keep = chosen(keep, runs=older_than, functions=functions_older_than, last=keep_last, names=names)
    with connect(url, Settings()) as operations:
        found = operations.pruning.expired(keep)
        for name, count in sorted(found.items()):
            echo(f"{count}\t{name}")
        if dry_run:
            note(f"{sum(found.values())} runs could be deleted at {shown(url)}")
        else:
            details = {
                "older_than": older_than,
                "functions_older_than": functions_older_than,
                "keep_last": keep_last,
                "names": ", ".join(names) or None,
            }
            forgotten = carry_out(
                operations,
                "db.prune",
                [],
                lambda: operations.pruning.prune(keep),
                lambda count: count,
                reason=reason,
                **details,
            )
            note(f"deleted {forgotten} runs at {shown(url)}")
            if app is not None and runtime_of(app).other_databases:
                note(f"deleted {operations.pruning.sweep(runtime_of(app).other_databases)} outcomes in other databases")
            if app is not None and (offloaded := runtime_of(app).offloaded) is not None:
                note(f"deleted {operations.pruning.sweep_values(offloaded)} values outside of the database")


@db.command
@url_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@reason_option
def empty(url: str, *, yes: bool, reason: str | None) -> None:
    """Delete all runs, schedules, queues and versions, with all they recorded. The tables and the audit log stay.

    For test and demo databases. Refused while workers live: stop them first, or wait a minute if they were killed.

    \b
      mainspring db empty --url sqlite:///demo.db --yes
    """
    if not yes:
        click.confirm(f"delete everything at {shown(url)}?", abort=True, err=True)
    with connect(url, Settings()) as operations:
        found = carry_out(operations, "db.empty", [], operations.pruning.empty, lambda counts: counts, reason=reason)
    for table, count in found.items():
        if count:
            echo(f"{count}\t{table}")
    note(f"deleted {sum(found.values())} rows at {shown(url)}")


@db.command
@url_option
@click.pass_context
def check(ctx: click.Context, url: str) -> None:
    """Compare the tables with those of this version, and find damage and rows that no worker can continue.

    Reads the whole database. Prints one line per finding: what, which, and what to do. Exit code 1 if something is wrong.
    """
    report = database.check(url, Settings())
    echo(report.current or "no tables")
    if report.unknown:
        note(
            f"newer than this version of mainspring, which does not know {', '.join(report.unknown)}: install a newer one"
        )
    elif report.edited:
        for name, checksum in report.edited.items():
            note(f"the migration {name} is not the one that made the tables: {EDITED.format(checksum=checksum)}")
    elif report.pending:
        note(f"behind by {', '.join(report.pending)}: run `mainspring db migrate --url {shown(url)}`")
    if report.unknown or report.edited or report.pending:
        ctx.exit(FAILED)
    with connect(url, Settings()) as operations:
        found = operations.inspect(thorough=True)
    for odd in found:
        echo(f"{'wrong' if odd.wrong else 'look'}\t{odd.what}\t{odd.which}\t{odd.hint}")
    if any(odd.wrong for odd in found):
        ctx.exit(FAILED)
    note(f"the tables at {shown(url)} are up to date")
