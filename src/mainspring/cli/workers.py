"""`mainspring workers`: the processes that execute runs."""

from __future__ import annotations

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.commands import Group, output_option, url_option
from mainspring.cli.terminal import data
from mainspring.model.clock import to_datetime
from mainspring.operations.connect import connect


@click.group(cls=Group)
def workers() -> None:
    """Show the processes that execute runs."""


@workers.command(name="list")
@url_option
@output_option("table", "json", "ids")
def list_(url: str, output: str) -> None:
    """List workers, oldest first: host, version, last heartbeat, and how many runs they own.

    A worker that stops in order disappears from the list. One that was killed disappears when another worker has recovered its runs.

    \b
      mainspring workers list
    """
    with connect(url, Settings()) as operations:
        found = operations.workers.list()
        loads = operations.watch.loads()
        now = to_datetime(operations.clock.now())
    if output == "json":
        display.as_json(found)
    elif output == "ids":
        for each in found:
            data(each.id)
    else:
        rows = (
            [
                each.id,
                f"{each.host}, {each.pid}",
                each.version,
                display.ago(each.started, now),
                display.ago(each.seen, now),
                str(loads.get(each.id, 0)),
            ]
            for each in found
        )
        display.table(("WORKER", "HOST, PID", "VERSION", "STARTED", "SEEN", "RUNS"), rows)
