"""`mainspring workers`: the processes that execute runs."""

from __future__ import annotations

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.commands import Group, output_option, url_option
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
    display.listing(
        output,
        found,
        name=lambda worker: worker.id,
        head=("WORKER", "HOST, PID", "VERSION", "STARTED", "SEEN", "RUNS"),
        row=lambda worker: (
            worker.id,
            f"{worker.host}, {worker.pid}",
            worker.version,
            display.ago(worker.started, now),
            display.ago(worker.seen, now),
            str(loads.get(worker.id, 0)),
        ),
        none="no workers",
    )
