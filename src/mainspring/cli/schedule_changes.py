"""`mainspring schedules create`, `update`, `apply`, `pause` and the other verbs that change something."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mainspring.app.described import changes_of, definition_of, definitions_of
from mainspring.app.settings import Settings
from mainspring.cli import display, schedule_page
from mainspring.cli.commands import Command, ids_from, note, output_option, url_option
from mainspring.cli.schedule_flags import described, describing, read_json
from mainspring.cli.terminal import data, echo
from mainspring.cli.times import future, past
from mainspring.cli.written import carry_out, reason_option
from mainspring.model.clock import to_datetime
from mainspring.operations.connect import connect

if TYPE_CHECKING:
    from mainspring.operations.connect import Operations


@click.command(cls=Command)
@click.argument("schedule", metavar="ID")
@describing
@click.option("--paused", is_flag=True, help="Make it paused.")
@click.option("--trigger", is_flag=True, help="Act once at once.")
@click.option("--backfill", multiple=True, metavar="FROM,TO", help="Take the actions of that time, too. Repeatable.")
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
    """Make a schedule.

    \b
      mainspring schedules create nightly --workflow report --arg '"eu"' --cron '0 2 * * *' --timezone Europe/Paris
      mainspring schedules create sync --workflow sync --interval 6h/5h --overlap buffer_one --catchup 10m
      mainspring schedules create quarterly --workflow bill --calendar '{"month": "1,4,7,10", "dayOfMonth": 1, "hour": 9}'
    """
    if given["workflow"] is None:
        raise click.UsageError("--workflow names the function to start")
    definition = definition_of({"id": schedule, "spec": {}, **described(given)})
    with connect(url, Settings()) as operations:
        stretches = [_stretch(text, operations) for text in backfill]
        make = lambda: operations.schedules.create(definition, paused=paused, trigger=trigger, backfill=stretches)  # noqa: E731
        carry_out(operations, "schedules.create", [schedule], make, reason=reason, paused=paused, trigger=trigger)
        _show(operations, schedule, output)


@click.command(cls=Command)
@click.argument("schedule", metavar="ID")
@describing
@click.option("--remaining", metavar="N", help="How many more runs the clock may start; none: any number.")
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
    """Change what is named, from now on; the rest stays as it is.

    Any of --cron, --interval and --calendar replaces all of them; --spec replaces all of when.

    \b
      mainspring schedules update nightly --cron '0 3 * * *'
      mainspring schedules update nightly --overlap buffer_one --revision 4
    """
    with connect(url, Settings()) as operations:
        present = operations.schedules.describe(schedule)
        named = {"spec": present.spec, "policy": present.policy, "action": present.action}
        values = changes_of(described(given, named), named, schedule)
        if remaining is not None:
            values["remaining"] = None if remaining == "none" else click.IntRange(min=0)(remaining)
        if not values:
            raise click.UsageError("nothing to change; see `mainspring schedules update --help`")
        # What was laid on top of the present definition is not to be laid on another one.
        change = lambda: operations.schedules.update(schedule, values, revision=revision or present.revision)  # noqa: E731
        said = ", ".join(sorted(values))
        carry_out(operations, "schedules.update", [schedule], change, reason=reason, changed=said)
        _show(operations, schedule, output)


@click.command(cls=Command)
@click.argument("schedules", metavar="ID…", nargs=-1, required=True)
@url_option
@reason_option
def reset(schedules: tuple[str, ...], url: str, reason: str | None) -> None:
    """Make schedules what the code, or the crontab, declares: what was changed at run time is undone. A pause stays.

    An ID of - reads ids from stdin.
    """
    with connect(url, Settings()) as operations:
        for schedule in ids_from(schedules):
            differs = operations.schedules.describe(schedule).differs
            act = partial(operations.schedules.reset, schedule)
            carry_out(operations, "schedules.reset", [schedule], act, reason=reason, differed=", ".join(differs))
            echo(f"{schedule}\t{'as declared' if not differs else 'as declared again: ' + ', '.join(differs)}")


@click.command(cls=Command)
@click.argument("file", metavar="FILE")
@click.option("--prune", is_flag=True, help="Delete those of the group that FILE does not name.")
@click.option("--group", default="applied", show_default=True, metavar="NAME", help="The set that FILE describes.")
@url_option
@reason_option
@output_option("table", "json")
def apply(file: str, url: str, reason: str | None, output: str, *, prune: bool, group: str) -> None:
    """Make the schedules of a group what FILE says, keeping pauses and counters. - reads it from stdin.

    FILE is JSON: a list of objects with id, workflow, spec, and as needed args or input, options, policy, note, attributes. Applying
    it again changes nothing.

    \b
      mainspring schedules apply schedules.json --prune
    """
    definitions = definitions_of(read_json(file))
    with connect(url, Settings()) as operations:
        apply_all = lambda: operations.schedules.apply(definitions, prune=prune, group=group)  # noqa: E731
        said = {"file": file, "prune": prune, "group": group}
        done = carry_out(operations, "schedules.apply", [], apply_all, lambda found: found, reason=reason, **said)
    if output == "json":
        display.as_json(done)
    elif done:
        display.table(("ID", "WHAT"), sorted(done.items()))
    else:
        note("no schedules")


@click.command(cls=Command)
@click.argument("schedules", metavar="ID…", nargs=-1, required=True)
@click.option(
    "--reason", help="Why; shown with it and with each tick that is left out, and written down with who did it."
)
@click.option("--until", metavar="TIME", help="Go on by itself then; 2h: in two hours.")
@url_option
def pause(schedules: tuple[str, ...], url: str, reason: str | None, until: str | None) -> None:
    """Let the clock have no effect on schedules. What is asked for by hand still happens. An ID of - reads ids from stdin."""
    with connect(url, Settings()) as operations:
        when = None if until is None else future(until, "--until", operations.clock)
        for schedule in ids_from(schedules):
            act = partial(operations.schedules.pause, schedule, reason, when)
            carry_out(operations, "schedules.pause", [schedule], act, reason=reason, until=until)
            echo(f"{schedule}\tpaused")


@click.command(cls=Command)
@click.argument("schedules", metavar="ID…", nargs=-1, required=True)
@click.option("--reason", help="Why; shown with it, and written down with who did it.")
@url_option
def resume(schedules: tuple[str, ...], url: str, reason: str | None) -> None:
    """Let the clock have its effect again. The time of the pause is not made up for: backfill does that."""
    with connect(url, Settings()) as operations:
        for schedule in ids_from(schedules):
            act = partial(operations.schedules.resume, schedule, reason)
            carry_out(operations, "schedules.resume", [schedule], act, reason=reason)
            echo(f"{schedule}\t{schedule_page.state(operations.schedules.describe(schedule))}")


@click.command(cls=Command)
@click.argument("schedule", metavar="ID")
@click.option("--overlap", metavar="POLICY", help="Instead of the schedule's own.")
@url_option
@reason_option
@output_option("table", "json")
@click.pass_context
def trigger(
    ctx: click.Context, schedule: str, url: str, overlap: str | None, output: str, *, reason: str | None
) -> None:
    """Act now, whatever the clock says, and print the id of the run. Exit code 1 if it was left out."""
    with connect(url, Settings()) as operations:
        act = partial(operations.schedules.trigger, schedule, overlap)
        tick = carry_out(
            operations, "schedules.trigger", [schedule], act, lambda made: made.run, reason=reason, overlap=overlap
        )
    if output == "json":
        display.as_json(tick)
    elif tick.run is not None:
        data(tick.run)
    if tick.run is None:
        note(f"{schedule}: {tick.outcome}: {tick.reason}")
        ctx.exit(1)


@click.command(cls=Command)
@click.argument("schedule", metavar="ID")
@click.option("--start", metavar="TIME", help="From this time on, included; 2h: two hours ago.")
@click.option("--end", metavar="TIME", default="now", show_default=True, help="Up to this time, included.")
@click.option("--overlap", metavar="POLICY", help="buffer_all, one after the other, or allow_all, side by side.")
@click.option("--again", is_flag=True, help="Also times that have a run already.")
@click.option("--stop", metavar="BACKFILL", help="Stop one instead.")
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
    """Take all actions of a stretch of time; without --start, show how far those that were asked for have come.

    \b
      mainspring schedules backfill nightly --start 2027-01-01 --end 2027-01-31T23:59
      mainspring schedules backfill nightly
      mainspring schedules backfill nightly --stop 8f0q2mc1xz
    """
    with connect(url, Settings()) as operations:
        verbs = operations.schedules
        if stop is not None:
            act = partial(verbs.stop_backfill, stop)
            found = [carry_out(operations, "schedules.stop_backfill", [schedule], act, reason=reason, backfill=stop)]
        elif start is None:
            found = verbs.backfills(schedule)
        else:
            begin, last = past(start, "--start", operations.clock), past(end, "--end", operations.clock)
            act = partial(verbs.backfill, schedule, begin, last, overlap=overlap, again=again)
            said = {"start": begin, "end": last, "overlap": overlap, "again": again}
            found = [
                carry_out(
                    operations, "schedules.backfill", [schedule], act, lambda made: made.id, reason=reason, **said
                )
            ]
    if output == "json":
        display.as_json(found)
    elif output == "ids":
        for each in found:
            data(each.id)
    elif found:
        head = ("ID", "STATE", "FROM (UTC)", "TO", "REACHED", "STARTED", "SKIPPED", "OVERLAP")
        moments = [(each.start, each.end, each.reached) for each in found]
        display.table(
            head,
            [
                (
                    each.id,
                    each.state,
                    *(f"{moment:%Y-%m-%d %H:%M:%S}" for moment in three),
                    str(each.started),
                    str(each.skipped),
                    each.overlap,
                )
                for each, three in zip(found, moments, strict=True)
            ],
        )
    else:
        note("no backfills")


@click.command(cls=Command)
@click.argument("schedule", metavar="ID")
@click.option("--at", "when", metavar="TIME", help="The tick of this nominal time instead of the next one.")
@click.option("--undo", is_flag=True, help="Do not leave it out after all.")
@url_option
@reason_option
def skip(schedule: str, url: str, reason: str | None, when: str | None, *, undo: bool) -> None:
    """Leave out the next tick, or a given one, and print its time."""
    with connect(url, Settings()) as operations:
        verb = operations.schedules.unskip if undo else operations.schedules.skip
        act = partial(verb, schedule, None if when is None else future(when, "--at", operations.clock))
        action = f"schedules.{'unskip' if undo else 'skip'}"
        moment = carry_out(operations, action, [schedule], act, lambda time: time.isoformat(), reason=reason)
    echo(f"{moment:%Y-%m-%dT%H:%M:%SZ}\t{'not skipped' if undo else 'skipped'}")


@click.command(cls=Command)
@click.argument("schedules", metavar="ID…", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
@reason_option
def delete(schedules: tuple[str, ...], url: str, reason: str | None, *, yes: bool) -> None:
    """Forget schedules and their ticks. An ID of - reads ids from stdin.

    Runs that they have started go on; those that wait for their turn are cancelled.
    """
    ids = ids_from(schedules)
    if not yes:
        if "-" in schedules:
            raise click.UsageError("with ids from stdin there is nobody to ask; add --yes")
        click.confirm(f"delete {', '.join(ids)} with all ticks?", abort=True, err=True)
    with connect(url, Settings()) as operations:
        for schedule in ids:
            carry_out(
                operations,
                "schedules.delete",
                [schedule],
                partial(operations.schedules.delete, schedule),
                reason=reason,
            )
            echo(f"{schedule}\tdeleted")


CHANGES = (create, update, reset, apply, pause, resume, trigger, backfill, skip, delete)


def _stretch(text: str, operations: Operations) -> Any:
    start, comma, end = text.partition(",")
    if not comma:
        raise click.UsageError(f"--backfill is FROM,TO, not {text!r}")
    return past(start, "--backfill", operations.clock), past(end, "--backfill", operations.clock)


def _show(operations: Operations, schedule: str, output: str) -> None:
    found = operations.schedules.describe(schedule)
    if found.unknown:  # not refused: the worker that knows it may come later; but it may be misspelt
        note(f"{found.unknown}; its runs wait until one does")
    if output == "json":
        display.as_json(found)
    elif output == "ids":
        data(schedule)
    else:
        schedule_page.show(found, to_datetime(operations.clock.now()))
