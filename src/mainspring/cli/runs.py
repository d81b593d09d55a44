"""`mainspring runs`: seeing and stopping runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mainspring.app.settings import Settings
from mainspring.cli import display, manage, run_page
from mainspring.cli.commands import NOT_FOUND, Group, ids_from, note, output_option, url_option
from mainspring.cli.run_options import filter_options, filters_of
from mainspring.cli.terminal import data, echo
from mainspring.cli.times import time
from mainspring.cli.written import carry_out
from mainspring.errors import NotFound
from mainspring.model.clock import to_datetime, to_micros
from mainspring.model.states import State
from mainspring.operations.connect import connect

if TYPE_CHECKING:
    from datetime import datetime

    from mainspring.operations.connect import Operations
    from mainspring.operations.runs import RunInfo


@click.group(cls=Group)
def runs() -> None:
    """See runs, stop them, let them go on."""


for command in manage.COMMANDS:
    runs.add_command(command)


@runs.command(name="list")
@url_option
@filter_options
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="Go on after a page that said so.")
@output_option("table", "json", "ids")
def list_(url: str, limit: int, after: str | None, output: str, **filters: Any) -> None:
    """List runs, newest first.

    \b
      mainspring runs list --state running --state waiting
      mainspring runs list --workflow checkout --attribute tenant=acme --limit 10
      mainspring runs list --id-prefix order- -o ids | mainspring runs cancel -
    """
    with connect(url, Settings()) as operations:
        page = operations.runs.list(after=after, limit=limit, **filters_of(filters))
        now = to_datetime(operations.clock.now())
    if output == "json":
        display.as_json(page)
    elif output == "ids":
        for run in page.runs:
            data(run.id)
    elif page.runs:
        display.table(("ID", "WORKFLOW", "STATE", "CREATED", "TOOK", "NOTE"), [_row(run, now) for run in page.runs])
    else:
        note("no runs")
    if page.next:
        note(f"there are more: --after {page.next}")


def _row(run: RunInfo, now: datetime) -> tuple[str, ...]:
    took = "" if run.started is None else display.span((run.completed or now) - run.started)
    return run.id, run.workflow, run.state, display.briefly(run.created, now), took, run_page.remark(run, now)


@runs.command
@click.argument("run_id", metavar="ID")
@url_option
@output_option("table", "json")
def show(run_id: str, url: str, output: str) -> None:
    """Show one run: its state and times, input and output, steps and children.

    \b
      mainspring runs show order-7
      mainspring runs show order-7 -o json | jq '.steps[] | {name, attempts}'
    """
    with connect(url, Settings()) as operations:
        run = operations.runs.get(run_id)
        steps = operations.runs.steps(run_id)
        children = operations.runs.list(parent=run_id, limit=run_page.MOST_CHILDREN)
        logs = operations.runs.logs(run_id)
        now = to_datetime(operations.clock.now())
    if output == "json":
        ids = [child.id for child in children.runs]
        display.as_json({"run": run, "steps": steps, "children": ids, "logs": logs})
    else:
        run_page.show(run, steps, children, now)
        run_page.show_logs(logs)


@runs.command
@click.argument("run_ids", metavar="[ID]…", nargs=-1)
@url_option
@click.option(
    "--functions", is_flag=True, help="All functions of run_after and run_at that are pending, instead of ids."
)
@click.option("--name", multiple=True, metavar="NAME", help="With --functions: only those of this name. Repeatable.")
@click.option("--due-after", type=time, metavar="TIME", help="With --functions: only due at this time or later.")
@click.option("--due-before", type=time, metavar="TIME", help="With --functions: only due before this time.")
@click.option("--reason", help="Why; recorded with each run, and written down with who did it.")
@click.option(
    "--terminate", is_flag=True, help="End them at once instead of asking their worker to stop before the next step."
)
@click.pass_context
def cancel(
    ctx: click.Context,
    /,
    run_ids: tuple[str, ...],
    url: str,
    reason: str | None,
    *,
    terminate: bool,
    functions: bool,
    **which: Any,
) -> None:
    """Cancel runs and their children. An ID of - reads ids from stdin.

    A run that a worker has in hand stops before its next step, and is `cancelling` until then. Prints each id with the state
    it is in now. Exit code 4 if one of them does not exist.

    \b
      mainspring runs cancel order-7 --reason "customer called"
      mainspring runs list --workflow import_all --state queued -o ids | mainspring runs cancel -
      mainspring runs cancel --functions --name remind --due-before 2026-02-01
    """
    given = [name for name, value in which.items() if value not in (None, ())]
    if functions:
        if run_ids or terminate:
            raise click.UsageError("--functions says which: leave ids and --terminate out")
        _cancel_functions(url, reason, **which)
        return
    if given or not run_ids:
        raise click.UsageError("give ids, or --functions for all that are pending")
    ids = ids_from(run_ids)
    with connect(url, Settings()) as operations:
        verb = operations.runs.terminate if terminate else operations.runs.cancel
        action = f"runs.{'terminate' if terminate else 'cancel'}"
        done = carry_out(operations, action, ids, lambda: verb(ids, reason), lambda found: found, reason=reason)
        found = [_after_cancel(operations, run_id, done=done[run_id]) for run_id in ids]
    if not ids:
        note("no ids on stdin")
    if not all(found):
        ctx.exit(NOT_FOUND)


def _cancel_functions(
    url: str, reason: str | None, name: tuple[str, ...], due_after: datetime | None, due_before: datetime | None
) -> None:
    with connect(url, Settings()) as operations:
        count = carry_out(
            operations,
            "scheduled_functions.cancel_all",
            [],
            lambda: operations.runs.functions.cancel_all(
                name=name or None,
                after=None if due_after is None else to_micros(due_after),
                before=None if due_before is None else to_micros(due_before),
                reason=reason,
            ),
            lambda found: found,
            reason=reason,
            name=list(name) or None,
            due_after=due_after,
            due_before=due_before,
        )
    data(str(count))
    note(f"cancelled {display.plural(count, 'pending function')}")


def _after_cancel(operations: Operations, run_id: str, *, done: bool) -> bool:
    try:
        state = operations.runs.get(run_id).state
    except NotFound as error:
        note(str(error))
        return False
    echo(f"{run_id}\t{state}")
    if not done:
        note(f"{run_id} had {'been asked to stop' if state is State.CANCELLING else 'ended'} already")
    return True
