"""`mainspring runs export|load`: copy runs with all they recorded from one database to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.audit import carry_out, reason_option
from mainspring.cli.commands import Command, ids_from, note, url_option
from mainspring.cli.terminal import data
from mainspring.operations.connect import connect

if TYPE_CHECKING:
    from typing import TextIO


@click.command(cls=Command)
@click.argument("run_ids", metavar="ID…", nargs=-1, required=True)
@url_option
def export(run_ids: tuple[str, ...], url: str) -> None:
    """Print runs with their children and all they recorded, as lines of JSON. An ID of - reads ids from stdin.

    \b
      mainspring runs export order-7 > order-7.jsonl
      mainspring replay shop:app --file order-7.jsonl
    """
    with connect(url, Settings()) as operations:
        for line in operations.runs.export(ids_from(run_ids)):
            data(line)


@click.command(cls=Command)
@click.argument("file", type=click.File("r", encoding="utf-8"))
@url_option
@reason_option
def load(file: TextIO, url: str, reason: str | None) -> None:
    """Import runs that `export` printed, all of them or none. Existing runs stay as they are.

    Unfinished runs continue here. A FILE of - is stdin.

    \b
      mainspring runs load order-7.jsonl --url postgresql://…
    """
    with connect(url, Settings()) as operations:
        loaded = carry_out(
            operations,
            "runs.load",
            [],
            lambda: operations.runs.load(file),
            lambda found: {"new": found.new, "there": found.there},
            reason=reason,
            file=file.name,
        )
    note(
        f"{display.plural(loaded.new, 'run')} loaded" + (f", {loaded.there} were there already" if loaded.there else "")
    )


COMMANDS = (export, load)
