"""`mainspring runs`: beginning runs anew, deleting them, taking them out and bringing them in, counting them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mainspring.app.options import micros
from mainspring.app.settings import Settings
from mainspring.cli import by_hand, display
from mainspring.cli.commands import NOT_FOUND, Command, ids_from, note, output_option, url_option
from mainspring.cli.run_options import filter_options, filters_of
from mainspring.cli.terminal import data
from mainspring.cli.written import carry_out, reason_option
from mainspring.operations.connect import connect
from mainspring.operations.managing import GROUPS
from mainspring.recurrence import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from mainspring.operations.managing import Figures


@click.command(cls=Command)
@click.argument("run_ids", metavar="ID…", nargs=-1, required=True)
@url_option
@click.option("--step", metavar="STEP", help="The first step to make anew: its position or its name.")
@click.option("--failed", is_flag=True, help="Begin with what ended each run, or else with the last thing it recorded.")
@click.option("--id", "new_id", metavar="ID", help="The id of the new run, if there is one.")
@click.option("--version", metavar="VERSION", help="The version of the app that is to execute it.")
@click.option("--queue", metavar="QUEUE", help="The queue it waits in.")
@click.option("--timeout", metavar="DURATION", help="How long it may take, such as 1h30m.")
@reason_option
def fork(
    run_ids: tuple[str, ...],
    url: str,
    *,
    reason: str | None,
    step: str | None,
    failed: bool,
    new_id: str | None,
    version: str | None,
    queue: str | None,
    timeout: str | None,
) -> None:
    """Start new runs that have done what others had done up to a step, and go on from there. The others stay as they are.

    Without --step and --failed they begin at the beginning. An ID of - reads ids from stdin. Prints the ids of the new runs.

    \b
      mainspring runs fork order-7 --step pack
      mainspring runs list --state failed -o ids | mainspring runs fork - --failed
    """
    ids = ids_from(run_ids)
    if failed and (step is not None or new_id is not None):
        raise click.UsageError("--failed finds the step by itself, and makes the ids; leave --step and --id out")
    if len(ids) > 1 and new_id is not None:
        raise click.UsageError("--id is for one run")
    length = None if timeout is None else micros(parse_duration(timeout))
    with connect(url, Settings()) as operations:
        said = {"step": step, "failed": failed or None, "version": version, "queue": queue, "timeout": timeout}

        def act() -> list[str]:
            how: Any = {"version": version, "queue": queue, "timeout": length}
            if failed:
                return [*operations.runs.fork_failed(ids, **how).values()]
            return [operations.runs.fork(run_id, step, id=new_id, **how) for run_id in ids]

        for made in carry_out(operations, "runs.fork", ids, act, lambda forks: forks, reason=reason, **said):
            data(made)


@click.command(cls=Command)
@click.argument("run_ids", metavar="ID…", nargs=-1, required=True)
@url_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@reason_option
@click.pass_context
def delete(ctx: click.Context, run_ids: tuple[str, ...], url: str, reason: str | None, *, yes: bool) -> None:
    """Delete ended runs with their children and all they recorded. An ID of - reads ids from stdin, and needs --yes.

    Nothing is deleted if one of them has not ended. Exit code 4 if one of them does not exist.

    \b
      mainspring runs export order-7 > order-7.jsonl && mainspring runs delete order-7 --yes
    """
    ids = ids_from(run_ids)
    if "-" in run_ids and not yes:
        raise click.UsageError("ids from stdin are deleted with --yes only")
    if not yes:
        click.confirm(f"Delete {', '.join(ids)}, with children and all that was recorded?", abort=True, err=True)
    with connect(url, Settings()) as operations:
        done = carry_out(
            operations, "runs.delete", ids, lambda: operations.runs.delete(ids), lambda found: found, reason=reason
        )
        for run_id, there in done.items():
            if there:
                data(run_id)
            else:
                note(f"there is no run {run_id!r}, or no longer")
    if not all(done.values()):
        ctx.exit(NOT_FOUND)


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
    """Bring runs in that `export` printed: all of them, or none. Those that are there already stay as they are.

    Runs that had not ended go on here. A FILE of - is stdin.

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


@click.command(cls=Command)
@url_option
@click.option("--by", multiple=True, type=click.Choice(GROUPS), help="What to count by. Repeatable; default: state.")
@click.option("--bucket", metavar="DURATION", help="Also by spans of the time of creation, such as 1h.")
@filter_options
@output_option("table", "json")
def count(url: str, by: tuple[str, ...], bucket: str | None, output: str, **filters: Any) -> None:
    """Count runs: how many, how long they waited for a worker, how long they took.

    \b
      mainspring runs count --by workflow --by state
      mainspring runs count --state failed --bucket 1h --created-after 2026-01-01
    """
    keys = by or ("state",)
    span = None if bucket is None else parse_duration(bucket)
    with connect(url, Settings()) as operations:
        figures = operations.runs.aggregate(keys, span, filters_of(filters))
    if output == "json":
        display.as_json(figures)
    elif figures:
        head = [
            *(["SINCE"] if span else []),
            *(key.upper() for key in keys),
            "RUNS",
            "LONGEST WAIT",
            "AVERAGE",
            "LONGEST",
        ]
        display.table(head, (_row(each, keys) for each in figures))
    else:
        note("no runs")


def _row(figures: Figures, keys: Iterable[str]) -> list[str]:
    times = (figures.longest_wait, figures.average_time, figures.longest_time)
    return [
        *([f"{figures.since:%Y-%m-%d %H:%M}"] if figures.since else []),
        *(figures.group[key] or "" for key in keys),
        str(figures.count),
        *("" if time is None else display.seconds(time) for time in times),
    ]


COMMANDS = (*by_hand.COMMANDS, fork, delete, export, load, count)
