"""`mainspring runs resume|retry|complete|fail|reschedule`: by id, or for all runs that filters find."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from mainspring.app.options import micros
from mainspring.app.settings import Settings
from mainspring.cli.commands import FAILED, NOT_FOUND, Command, ids_from, note, url_option
from mainspring.cli.run_options import duration, filter_options, filters_of
from mainspring.cli.terminal import data
from mainspring.cli.written import carry_out
from mainspring.errors import NotFound
from mainspring.operations.connect import connect
from mainspring.store.by_hand import Move

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.operations.connect import Operations
    from mainspring.operations.run_filters import RunFilters

F = TypeVar("F", bound="Callable[..., Any]")

_NOT_ENDED = "has ended without failing, or is owned by a worker"


class Chosen(NamedTuple):
    """Which runs a command is about, in which database, why, and whether it may go ahead without asking."""

    ids: list[str]
    filters: RunFilters
    url: str
    reason: str | None
    yes: bool


def _chosen(function: F) -> F:
    """Ids or filters, and what all of these commands take besides."""
    decorators = (
        click.argument("run_ids", metavar="[ID]…", nargs=-1),
        url_option,
        filter_options,
        click.option("--reason", help="Why; written down with who did it, and recorded with runs that this ends."),
        click.option("--yes", is_flag=True, help="Do not ask, when filters choose the runs."),
    )
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def _choice(run_ids: tuple[str, ...], url: str, *, reason: str | None, yes: bool, **filters: Any) -> Chosen:
    chosen = Chosen(ids_from(run_ids), filters_of(filters), url, reason, yes)
    if run_ids and chosen.filters:
        raise click.UsageError("give ids or filters, not both")
    if not run_ids and not chosen.filters:
        raise click.UsageError("which runs? Give ids, - for ids from stdin, or filters such as --workflow and --queue")
    return chosen


def _carry_out(
    verb: str,
    which: dict[str, Any],
    otherwise: str,
    act: Callable[[Operations, Chosen], dict[str, bool]],
    **details: Any,
) -> None:
    """Do it, write down who did it and why, and print the ids of the runs that it was done to."""
    chosen = _choice(**which)
    with connect(chosen.url, Settings()) as operations:
        if chosen.filters and not chosen.yes:
            _confirm(operations, verb, chosen)
        said = {**chosen.filters, **details}
        done = carry_out(
            operations, f"runs.{verb}", chosen.ids, lambda: act(operations, chosen), _told, reason=chosen.reason, **said
        )
        missing = [each for each in chosen.ids if not done.get(each) and not _is_there(operations, each)]
    for run_id, acted in done.items():
        if acted:
            data(run_id)
        else:
            note(f"there is no run {run_id!r}, or no longer" if run_id in missing else f"{run_id} {otherwise}")
    if not done:
        note("no runs")
    if chosen.ids and not all(done.values()):
        click.get_current_context().exit(NOT_FOUND if missing else FAILED)


def _is_there(operations: Operations, run_id: str) -> bool:
    try:
        operations.runs.get(run_id)
    except NotFound:
        return False
    return True


def _confirm(operations: Operations, verb: str, chosen: Chosen) -> None:
    figures = operations.runs.aggregate((), None, chosen.filters)
    count = sum(each.count for each in figures)
    click.confirm(f"{verb.capitalize()} what can be, of {count:,} runs?", abort=True, err=True)


def _told(done: dict[str, bool]) -> dict[str, int]:
    return {"changed": sum(done.values()), "left": len(done) - sum(done.values())}


@click.command(cls=Command)
@_chosen
def resume(**which: Any) -> None:
    """Let cancelled runs go on where they stopped, and those that were recovered too often. An ID of - reads ids from stdin.

    Children that were cancelled along go on as well. Prints the ids of the runs that go on.

    \b
      mainspring runs resume order-7
      mainspring runs resume --workflow import_all --state cancelled --reason "the disk is back"
    """
    _carry_out(
        "resume",
        which,
        "has nothing to resume",
        lambda operations, chosen: operations.runs.resume(chosen.ids, chosen.filters),
    )


@click.command(cls=Command)
@_chosen
def retry(**which: Any) -> None:
    """Let failed runs go on from what they have achieved. An ID of - reads ids from stdin.

    The exception that ended a run is forgotten, with what was recorded after it; steps that succeeded before are not executed
    again. Prints the ids of the runs that go on.

    \b
      mainspring runs retry order-7
      mainspring runs retry --workflow checkout --completed-after 2026-01-31 --reason "the bank is back"
    """
    _carry_out(
        "retry", which, "has not failed", lambda operations, chosen: operations.runs.retry(chosen.ids, chosen.filters)
    )


@click.command(cls=Command)
@_chosen
@click.option(
    "--result", metavar="JSON", default="null", help="What they are to have returned; null if it is not given."
)
def complete(result: str, **which: Any) -> None:
    """End runs that no worker owns, or that have failed, as if they had succeeded. An ID of - reads ids from stdin.

    Options that choose runs mean failed ones only with --state failed. The result is stored as it is given: this command does not know what the functions return. Prints the ids of those that
    ended.

    \b
      mainspring runs complete order-7 --result '{"parcel": 9}' --reason "sent by hand"
    """
    try:
        text = json.dumps(json.loads(result), ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise click.BadParameter(f"{result!r} is not JSON: {error}", param_hint="--result") from None

    def act(operations: Operations, chosen: Chosen) -> dict[str, bool]:
        return operations.runs.complete(chosen.ids, lambda _: text, chosen.reason, chosen.filters)

    _carry_out("complete", which, _NOT_ENDED, act, result=result)


@click.command(cls=Command)
@_chosen
def fail(**which: Any) -> None:
    """End runs that no worker owns as failed, without further attempts. An ID of - reads ids from stdin.

    Runs that have failed are marked with the reason, as dealt with; options that choose runs mean them only with --state failed.
    Prints the ids of those that ended or were marked.

    \b
      mainspring runs fail --queue emails --created-before 2026-01-31 --reason "nobody wants them any more" --yes
    """
    _carry_out(
        "fail",
        which,
        _NOT_ENDED,
        lambda operations, chosen: operations.runs.fail(chosen.ids, chosen.reason, chosen.filters),
    )


@click.command(cls=Command)
@_chosen
@click.option("--after", type=duration, metavar="DURATION", help="Begin so long from now, such as 1h30m; 0 is at once.")
@click.option("--priority", type=int, help="Smaller first.")
@click.option("--attempts", type=click.IntRange(min=0), help="How many attempts count as made.")
def reschedule(after: float | str | None, priority: int | None, attempts: int | None, **which: Any) -> None:
    """Change when runs begin that have not begun, or are to be tried again. An ID of - reads ids from stdin.

    Runs that have failed are retried at that time; options that choose runs mean them only with --state failed.

    \b
      mainspring runs reschedule --state scheduled --queue emails --after 0s
      mainspring runs reschedule --state failed --queue emails --after 2h
    """
    if after is None and priority is None and attempts is None:
        raise click.UsageError("what is to change? Give --after, --priority or --attempts")
    wait = None if after is None else micros(after)

    def act(operations: Operations, chosen: Chosen) -> dict[str, bool]:
        due = None if wait is None else operations.clock.now() + wait
        return operations.runs.reschedule(chosen.ids, Move(due, priority, attempts), chosen.filters)

    details = {"after": after, "priority": priority, "attempts": attempts}
    _carry_out("reschedule", which, "has begun, or has ended without failing", act, **details)


COMMANDS = (resume, retry, complete, fail, reschedule)
