"""`mainspring schedules create`, `update`, `apply`, `pause` and the other verbs that change schedules."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.app.declarations.schedules_json import changes_of, definition_of, definitions_of
from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.audit import perform, reason_option
from mainspring.cli.commands import Command, ids_from, note, output_option, url_option
from mainspring.cli.options import future, past
from mainspring.cli.schedules import page
from mainspring.cli.schedules.flags import described, describing, read_json
from mainspring.cli.terminal import data, echo
from mainspring.model.clock import to_datetime
from mainspring.operations.connect import connect
from mainspring.operations.schedules.actions import SCHEDULE_ACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.operations.connect import Operations
    from mainspring.operations.schedules.info import BackfillInfo

R = TypeVar("R")


def _command(verb: str, notes: str = "") -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function the command of a verb. Its help is the summary of the verb, and notes."""
    return click.command(cls=Command, help=f"{SCHEDULE_ACTIONS[verb].summary} {notes}".strip())


@_command(
    "create",
    """

\b
  mainspring schedules create nightly --workflow report --arg '"eu"' --cron '0 2 * * *' --timezone Europe/Paris
  mainspring schedules create sync --workflow sync --interval 6h/5h --overlap buffer_one --catchup 10m
  mainspring schedules create quarterly --workflow bill --calendar '{"month": "1,4,7,10", "dayOfMonth": 1, "hour": 9}'
""",
)
@click.argument("schedule", metavar="ID")
@describing
@click.option("--paused", is_flag=True, help="Create it paused.")
@click.option("--trigger", is_flag=True, help="Also start a run at once.")
@click.option("--backfill", multiple=True, metavar="FROM,TO", help="Also start the runs of that span. Repeatable.")
@url_option
@reason_option
@output_option("table", "json", "ids")
def create(
    schedule: str,
    url: str,
    reason: str | None,
    output: str,
    *,
    paused: bool,
    trigger: bool,
    backfill: tuple[str, ...],
    **given: Any,
) -> None:
    if given["workflow"] is None:
        raise click.UsageError("--workflow names the function to start")
    definition = definition_of({"id": schedule, "spec": {}, **described(given)})
    with connect(url, Settings()) as operations:
        spans = [_span(text, operations) for text in backfill]
        make = partial(operations.schedules.create, definition, paused=paused, trigger=trigger, backfill=spans)
        _perform(operations, "create", schedule, make, reason=reason, paused=paused, trigger=trigger)
        _show(operations, schedule, output)


@_command(
    "update",
    """

Any of --cron, --interval and --calendar replaces all of them. --spec replaces the whole spec.

\b
  mainspring schedules update nightly --cron '0 3 * * *'
  mainspring schedules update nightly --overlap buffer_one --revision 4
""",
)
@click.argument("schedule", metavar="ID")
@describing
@click.option("--remaining", metavar="N", help="How many more runs the clock may start. none: any number.")
@click.option("--revision", type=int, metavar="N", help="Only if it is still at this revision.")
@url_option
@reason_option
@output_option("table", "json", "ids")
def update(
    schedule: str,
    url: str,
    reason: str | None,
    output: str,
    *,
    remaining: str | None,
    revision: int | None,
    **given: Any,
) -> None:
    with connect(url, Settings()) as operations:
        present = operations.schedules.describe(schedule)
        named = {"spec": present.spec, "policy": present.policy, "action": present.action}
        values = changes_of(described(given, named), named, schedule)
        if remaining is not None:
            values["remaining"] = None if remaining == "none" else click.IntRange(min=0)(remaining)
        if not values:
            raise click.UsageError("nothing to change; see `mainspring schedules update --help`")
        # Values were computed from the present definition, so they must not be applied to another revision.
        change = partial(operations.schedules.update, schedule, values, revision=revision or present.revision)
        _perform(operations, "update", schedule, change, reason=reason, changed=", ".join(sorted(values)))
        _show(operations, schedule, output)


@_command(
    "reset",
    """

An ID of - reads ids from stdin.
""",
)
@click.argument("schedules", metavar="ID…", nargs=-1, required=True)
@url_option
@reason_option
def reset(schedules: tuple[str, ...], url: str, reason: str | None) -> None:
    with connect(url, Settings()) as operations:
        for schedule in ids_from(schedules):
            differs = operations.schedules.describe(schedule).differs
            act = partial(operations.schedules.reset, schedule)
            _perform(operations, "reset", schedule, act, reason=reason, differed=", ".join(differs))
            echo(f"{schedule}\t{'as declared' if not differs else 'as declared again: ' + ', '.join(differs)}")


@_command(
    "apply",
    """- reads FILE from stdin.

FILE is JSON: a list of objects with id, workflow, spec, and optionally args or input, options, policy, note, attributes. Applying
it again changes nothing.

\b
  mainspring schedules apply schedules.json --prune""",
)
@click.argument("file", metavar="FILE")
@click.option("--prune", is_flag=True, help="Delete schedules of the group that FILE does not have.")
@click.option("--group", default="applied", show_default=True, metavar="NAME", help="The group that FILE describes.")
@url_option
@reason_option
@output_option("table", "json")
def apply(file: str, url: str, reason: str | None, output: str, *, prune: bool, group: str) -> None:
    definitions = definitions_of(read_json(file))
    with connect(url, Settings()) as operations:
        apply_all = partial(operations.schedules.apply, definitions, prune=prune, group=group)
        done = _perform(operations, "apply", "", apply_all, reason=reason, file=file, prune=prune, group=group)
    if output == "json":
        display.as_json(done)
    elif done:
        display.table(("ID", "WHAT"), sorted(done.items()))
    else:
        note("no schedules")


@_command("pause", "An ID of - reads ids from stdin.")
@click.argument("schedules", metavar="ID…", nargs=-1, required=True)
@click.option(
    "--reason",
    help="The reason. Shown with the schedule and its skipped ticks, and recorded in the audit log with the user.",
)
@click.option("--until", metavar="TIME", help="Resume at this time. 2h: in two hours.")
@url_option
def pause(schedules: tuple[str, ...], url: str, reason: str | None, until: str | None) -> None:
    with connect(url, Settings()) as operations:
        when = None if until is None else future(until, "--until", operations.clock)
        for schedule in ids_from(schedules):
            act = partial(operations.schedules.pause, schedule, reason, when)
            _perform(operations, "pause", schedule, act, reason=reason, until=until)
            echo(f"{schedule}\tpaused")


@_command("resume")
@click.argument("schedules", metavar="ID…", nargs=-1, required=True)
@click.option("--reason", help="The reason. Shown with the schedule, and recorded in the audit log with the user.")
@url_option
def resume(schedules: tuple[str, ...], url: str, reason: str | None) -> None:
    with connect(url, Settings()) as operations:
        for schedule in ids_from(schedules):
            act = partial(operations.schedules.resume, schedule, reason)
            _perform(operations, "resume", schedule, act, reason=reason)
            echo(f"{schedule}\t{operations.schedules.describe(schedule).state}")


@_command("trigger", "Prints the id of the run. Exit code 1 if none was started.")
@click.argument("schedule", metavar="ID")
@click.option("--overlap", metavar="POLICY", help="The overlap policy for this run.  [default: the schedule's own]")
@url_option
@reason_option
@output_option("table", "json")
@click.pass_context
def trigger(
    ctx: click.Context, schedule: str, url: str, overlap: str | None, output: str, *, reason: str | None
) -> None:
    with connect(url, Settings()) as operations:
        act = partial(operations.schedules.trigger, schedule, overlap)
        tick = _perform(operations, "trigger", schedule, act, reason=reason, overlap=overlap)
    if output == "json":
        display.as_json(tick)
    elif tick.run is not None:
        data(tick.run)
    if tick.run is None:
        note(SCHEDULE_ACTIONS["trigger"].answer(schedule, tick).message)
        ctx.exit(1)


@_command(
    "backfill",
    """Without --start, show the progress of the backfills of the schedule.

\b
  mainspring schedules backfill nightly --start 2027-01-01 --end 2027-01-31T23:59
  mainspring schedules backfill nightly
  mainspring schedules backfill nightly --stop 8f0q2mc1xz""",
)
@click.argument("schedule", metavar="ID")
@click.option("--start", metavar="TIME", help="From this time on, included. 2h: two hours ago.")
@click.option("--end", metavar="TIME", default="now", show_default=True, help="Up to this time, included.")
@click.option("--overlap", metavar="POLICY", help="buffer_all: one after the other. allow_all: in parallel.")
@click.option("--again", is_flag=True, help="Also times that already have a run.")
@click.option("--stop", metavar="BACKFILL", help="Stop this backfill instead.")
@url_option
@reason_option
@output_option("table", "json", "ids")
def backfill(
    schedule: str,
    url: str,
    start: str | None,
    end: str,
    overlap: str | None,
    *,
    reason: str | None,
    again: bool,
    stop: str | None,
    output: str,
) -> None:
    with connect(url, Settings()) as operations:
        verbs = operations.schedules
        if stop is not None:
            halt = partial(verbs.stop_backfill, stop)
            found = [_perform(operations, "stop_backfill", schedule, halt, reason=reason, backfill=stop)]
        elif start is None:
            found = verbs.backfills(schedule)
        else:
            begin, last = past(start, "--start", operations.clock), past(end, "--end", operations.clock)
            act = partial(verbs.backfill, schedule, begin, last, overlap=overlap, again=again)
            details = {"start": begin, "end": last, "overlap": overlap, "again": again}
            found = [_perform(operations, "backfill", schedule, act, reason=reason, **details)]
    head = ("ID", "STATE", "FROM (UTC)", "TO", "REACHED", "STARTED", "SKIPPED", "OVERLAP")
    display.listing(output, found, name=lambda each: each.id, head=head, row=_backfill_row, none="no backfills")


def _backfill_row(info: BackfillInfo) -> tuple[str, ...]:
    moments = [f"{moment:%Y-%m-%d %H:%M:%S}" for moment in (info.start, info.end, info.reached)]
    return info.id, info.state, *moments, str(info.started), str(info.skipped), info.overlap


@_command("skip", "Prints its time.")
@click.argument("schedule", metavar="ID")
@click.option("--at", "when", metavar="TIME", help="The tick of this nominal time instead of the next one.")
@click.option("--undo", is_flag=True, help="Undo the skip.")
@url_option
@reason_option
def skip(schedule: str, url: str, reason: str | None, when: str | None, *, undo: bool) -> None:
    with connect(url, Settings()) as operations:
        verb = operations.schedules.unskip if undo else operations.schedules.skip
        act = partial(verb, schedule, None if when is None else future(when, "--at", operations.clock))
        moment = _perform(operations, "unskip" if undo else "skip", schedule, act, reason=reason)
    echo(f"{moment:%Y-%m-%dT%H:%M:%SZ}\t{'not skipped' if undo else 'skipped'}")


@_command("delete", "An ID of - reads ids from stdin.")
@click.argument("schedules", metavar="ID…", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
@reason_option
def delete(schedules: tuple[str, ...], url: str, reason: str | None, *, yes: bool) -> None:
    ids = ids_from(schedules)
    if not yes:
        if "-" in schedules:
            raise click.UsageError("ids come from stdin, so there is no prompt; add --yes")
        click.confirm(f"delete {', '.join(ids)} with all ticks?", abort=True, err=True)
    with connect(url, Settings()) as operations:
        for schedule in ids:
            _perform(operations, "delete", schedule, partial(operations.schedules.delete, schedule), reason=reason)
            echo(f"{schedule}\tdeleted")


CHANGES = (create, update, reset, apply, pause, resume, trigger, backfill, skip, delete)


def _perform(
    operations: Operations, verb: str, schedule: str, act: Callable[[], R], *, reason: str | None, **details: Any
) -> R:
    """Execute an action and record it in the audit log."""
    return perform(operations, SCHEDULE_ACTIONS[verb], schedule, act, reason=reason, **details)[0]


def _span(text: str, operations: Operations) -> Any:
    start, comma, end = text.partition(",")
    if not comma:
        raise click.UsageError(f"--backfill is FROM,TO, not {text!r}")
    return past(start, "--backfill", operations.clock), past(end, "--backfill", operations.clock)


def _show(operations: Operations, schedule: str, output: str) -> None:
    found = operations.schedules.describe(schedule)
    if found.unknown:  # not refused, since its worker may start later, but the name may be misspelt
        note(f"{found.unknown}; its runs wait until one does")
    if output == "json":
        display.as_json(found)
    elif output == "ids":
        data(schedule)
    else:
        page.show_schedule(found, to_datetime(operations.clock.now()))
