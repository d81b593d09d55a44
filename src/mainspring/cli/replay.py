"""`mainspring replay`: check recorded runs against the present code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.commands import FAILED, Command, note, output_option, url_option
from mainspring.cli.target import load_app
from mainspring.cli.terminal import echo
from mainspring.operations.connect import connect
from mainspring.operations.runs.actions import records_of

if TYPE_CHECKING:
    from typing import TextIO


@click.command(cls=Command)
@click.argument("target")
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="A run in the database. Repeatable.")
@click.option("--file", "files", multiple=True, type=click.File("r", encoding="utf-8"), help="An export. Repeatable.")
@url_option
@output_option("table", "json")
@click.pass_context
def replay(
    ctx: click.Context, target: str, *, run_ids: tuple[str, ...], files: tuple[TextIO, ...], url: str, output: str
) -> None:
    """Check whether the code of an app agrees with recorded runs and their children. For CI, before a deploy.

    No step is executed and nothing is written: each run is replayed as far as its record goes. Exit code 1 if one disagrees.

    \b
      mainspring runs export order-7 > tests/order-7.jsonl
      mainspring replay shop:app --file tests/order-7.jsonl
      mainspring replay shop:app --run order-7
    """
    from mainspring.app.replay import replay as compare  # noqa: PLC0415  (imports the engine, only for this command)

    if not run_ids and not files:
        raise click.UsageError("give the runs: --run ID, or --file of an export")
    records = [record for file in files for record in records_of(file)]
    if run_ids:
        with connect(url, Settings()) as operations:
            records += records_of(list(operations.runs.export(run_ids)))
    found = asyncio.run(compare(load_app(target), records))
    if output == "json":
        display.as_json(found)
    else:
        for each in found:
            if each.agrees:
                echo(f"{each.run}\t{each.workflow}\tagrees ({display.plural(each.operations, 'operation')})")
            else:
                echo(f"{each.run}\t{each.workflow}\tDISAGREES: {each.finding}")
    if not found:
        note("there are no workflows in it that have begun")
    if not all(each.agrees for each in found):
        ctx.exit(FAILED)
