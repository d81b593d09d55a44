"""`mainspring runs`: list, watch, show, count, export and load runs."""

from __future__ import annotations

import contextlib
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.audit import carry_out, reason_option
from mainspring.cli.commands import FAILED, Group, ids_from, note, output_option, url_option
from mainspring.cli.options import filter_options, filters_of
from mainspring.cli.runs import actions, page
from mainspring.cli.terminal import data, echo, safe
from mainspring.model.clock import to_datetime
from mainspring.model.states import State
from mainspring.operations.connect import connect
from mainspring.operations.figures import GROUPS, LATEST, MOST_RUNS
from mainspring.operations.filters import TRAITS
from mainspring.operations.runs.info import RunPage
from mainspring.recurrence.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import TextIO

    from mainspring.operations.connect import Operations
    from mainspring.operations.figures import Figures, StepFigures
    from mainspring.operations.filters import RunFilters
    from mainspring.operations.runs.info import RunInfo
    from mainspring.operations.runs.lists import RunSummary

_MOST_WATCHED = 500
_LONG = (
    *("ID", "WORKFLOW", "STATE", "CREATED", "TOOK", "QUEUE", "SCHEDULE"),
    *("VERSION", "PARENT", "ATTRIBUTES", "NOTE"),
)


@click.group(cls=Group)
def runs() -> None:
    """Show runs, stop them, and let them continue."""


for command in actions.COMMANDS:
    runs.add_command(command)


@runs.command(name="list")
@url_option
@filter_options(TRAITS)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The largest number to print.")
@click.option("--after", metavar="CURSOR", help="Continue after a page: the cursor that it printed.")
@click.option("--long", "is_long", is_flag=True, help="More columns: queue, schedule, version, parent and attributes.")
@output_option("table", "json", "jsonl", "ids")
def list_(url: str, limit: int, after: str | None, output: str, *, is_long: bool, **filters: Any) -> None:
    """List runs, newest first.

    \b
      mainspring runs list --state running --state waiting
      mainspring runs list --workflow checkout --attribute tenant=acme --limit 10
      mainspring runs list --id-prefix order- -o ids | mainspring runs cancel -
    """
    with connect(url, Settings()) as operations:
        page = _page(operations, after, limit, filters_of(TRAITS, filters, operations.clock))
        now = to_datetime(operations.clock.now())
    display.listing(
        output,
        page.runs,
        page=page,
        name=lambda run: run.id,
        head=_LONG if is_long else ("ID", "WORKFLOW", "STATE", "CREATED", "TOOK", "NOTE"),
        row=lambda run: (_long_row if is_long else _row)(run, now),
        none="no runs",
    )


def _page(operations: Operations, after: str | None, limit: int, filters: RunFilters) -> RunPage:
    """Return as many runs as requested. Fetches further pages while one stops before the end of the history."""
    found = operations.runs.list(after=after, limit=limit, **filters)
    while found.further and len(found.runs) < limit:
        more = operations.runs.list(after=found.next, limit=limit - len(found.runs), **filters)
        found = RunPage([*found.runs, *more.runs], more.next, more.further)
    return found


def _row(run: RunInfo, now: datetime) -> tuple[str, ...]:
    took = "" if run.started is None else display.span((run.completed or now) - run.started)
    return run.id, run.workflow, run.state, display.briefly(run.created, now), took, page.remark(run, now)


def _long_row(run: RunInfo, now: datetime) -> tuple[str, ...]:
    *first, remark = _row(run, now)
    attributes = display.compact(run.attributes) if run.attributes else ""
    return *first, run.queue or "", run.schedule or "", run.version or "", run.parent or "", attributes, remark


@runs.command
@click.argument("run_ids", metavar="[ID]…", nargs=-1)
@url_option
@filter_options(TRAITS)
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between two refreshes."
)
@output_option("table", "jsonl", "ids")
@click.pass_context
def watch(ctx: click.Context, /, run_ids: tuple[str, ...], url: str, every: float, output: str, **filters: Any) -> None:
    """Print each run whose state changes: runs of ids until all have ended, others until ^C.

    Runs that match filters are printed from their next change on. An ID of - reads ids from stdin. Exit code 0 if all of these ids have
    succeeded, 1 if one has not, 4 if one does not exist.

    \b
      mainspring runs watch order-7
      mainspring runs watch --workflow checkout --state failed -o jsonl
    """
    with connect(url, Settings()) as operations:
        named = ids_from(run_ids)
        chosen = filters_of(TRAITS, filters, operations.clock)
        if run_ids and chosen:
            raise click.UsageError("give ids or filters, not both")
        for run_id in named:
            operations.runs.get(run_id)
        asked: RunFilters = {"ids": named} if run_ids else chosen
        found: list[RunSummary] = [] if run_ids else operations.runs.summaries(limit=_MOST_WATCHED, **asked).runs
        seen: dict[str, str] = {run.id: run.state for run in found}
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                found = operations.runs.summaries(limit=_MOST_WATCHED, **asked).runs
                for run in reversed(found):
                    if seen.get(run.id) != run.state:
                        seen[run.id] = run.state
                        _show_change(run, output)
                if run_ids and all(run.state.ended for run in found):
                    break
                sleep(every)
    if run_ids and any(run.state is not State.SUCCEEDED for run in found):
        ctx.exit(FAILED)


def _show_change(run: RunSummary, output: str) -> None:
    if output == "jsonl":
        display.as_jsonl([run])
    elif output == "ids":
        data(run.id)
    else:
        why = run.message or run.reason
        when = run.completed or run.started or run.created
        line = f"{when:%H:%M:%S}  {display.coloured(run.state)}  {safe(run.workflow)}  {safe(run.id)}"
        echo(line + (f": {safe(why)}" if why else ""))


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
        children = operations.runs.list(parent=run_id, limit=page.MOST_CHILDREN)
        logs = operations.runs.logs(run_id)
        unserved = operations.why_unserved(run)
        now = to_datetime(operations.clock.now())
    if output == "json":
        ids = [child.id for child in children.runs]
        display.as_json(
            {"run": run, "unserved": unserved and unserved.found, "steps": steps, "children": ids, "logs": logs}
        )
    else:
        page.show(run, steps, children, now, unserved)
        page.show_logs(logs)


@runs.command
@url_option
@click.option(
    "--by", multiple=True, type=click.Choice(GROUPS), help="The fields to group by. Repeatable. Default: state."
)
@click.option("--bucket", metavar="DURATION", help="Also group by intervals of the creation time, such as 1h.")
@filter_options(TRAITS)
@output_option("table", "json")
def count(url: str, by: tuple[str, ...], bucket: str | None, output: str, **filters: Any) -> None:
    """Count runs, with their wait for a worker and their durations.

    \b
      mainspring runs count --by workflow --by state
      mainspring runs count --state failed --bucket 1h --created-after 2026-01-01
    """
    keys = by or ("state",)
    span = None if bucket is None else parse_duration(bucket)
    with connect(url, Settings()) as operations:
        figures = operations.runs.aggregate(keys, span, filters_of(TRAITS, filters, operations.clock))
    since = ["SINCE"] if span else []
    head = [*since, *(key.upper() for key in keys), "RUNS", "LONGEST WAIT", "AVERAGE", "LONGEST"]
    display.listing(output, figures, head=head, row=lambda each: _figures_row(each, keys), none="no runs")
    if output != "json" and figures and figures[0].newest is not None:
        note(f"of the newest {figures[0].newest:,} runs; give --created-after for all since a time")


@runs.command("step-figures")
@click.argument("function")
@url_option
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1, MOST_RUNS),
    default=LATEST,
    show_default=True,
    help="Use the latest N runs.",
)
@output_option("table", "json")
def step_figures(function: str, url: str, last: int, output: str) -> None:
    """Print figures of the steps of a function: failures, attempts and durations.

    \b
      mainspring runs step-figures checkout
      mainspring runs step-figures checkout --last 100 -o json
    """
    with connect(url, Settings()) as operations:
        found = operations.runs.step_figures(function, last)
    head = ("STEP", "KIND", "CALLS", "FAILED", "ATTEMPTS", "P50", "P95")
    none = f"no run of {function} has ended, or none of them had steps"
    display.listing(output, found, head=head, row=_step_row, none=none)


def _step_row(each: StepFigures) -> list[str]:
    failed = f"{each.failed} ({100 * each.failure_rate:.1f} %)" if each.failed else "0"
    times = (display.seconds(each.p50), display.seconds(each.p95))
    return [each.name, each.kind, str(each.count), failed, f"{each.attempts:.2f}", *times]


def _figures_row(figures: Figures, keys: Iterable[str]) -> list[str]:
    times = (figures.longest_wait, figures.average_time, figures.longest_time)
    return [
        *([f"{figures.since:%Y-%m-%d %H:%M}"] if figures.since else []),
        *(figures.group[key] or "" for key in keys),
        str(figures.count),
        *("" if time is None else display.seconds(time) for time in times),
    ]


@runs.command
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


@runs.command
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
