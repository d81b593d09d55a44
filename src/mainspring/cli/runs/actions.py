"""`mainspring runs cancel`, `retry` and the other verbs that change runs, made from the operator verbs: by id, or by filters."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.audit import carry_out, reason_option
from mainspring.cli.commands import FAILED, NOT_FOUND, Command, fault, ids_from, note, url_option
from mainspring.cli.options import filter_options, filters_of, pairs
from mainspring.cli.terminal import data, safe
from mainspring.operations.connect import connect
from mainspring.operations.filters import TRAITS
from mainspring.operations.runs.actions import RUN_ACTIONS, not_found, result_text
from mainspring.operations.runs.bulk import Progress
from mainspring.operations.scheduled_functions import FUNCTION_ACTIONS
from mainspring.recurrence.durations import micros, typed_duration
from mainspring.store.verbs.manage import Move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.operations.connect import Operations
    from mainspring.operations.filters import RunFilters
    from mainspring.operations.runs.actions import Changed, RunAction
    from mainspring.operations.runs.info import Runs

F = TypeVar("F", bound="Callable[..., Any]")


class Chosen(NamedTuple):
    """The runs that a command acts on, and the reason."""

    ids: list[str]
    filters: RunFilters
    reason: str | None
    now: int


def _command(
    name: str,
    notes: str,
    act: Callable[[Runs, Chosen, dict[str, Any]], Changed],
    options: Iterable[Callable[[Any], Any]] = (),
    *,
    asks: bool = False,
    states: bool = False,
) -> click.Command:
    """Return the command of a verb. `asks`: it confirms ids too. `states`: it prints the new state of each run."""
    action = RUN_ACTIONS[name]

    def invoke(
        *, run_ids: tuple[str, ...], url: str, reason: str | None, yes: bool, **given: Any
    ) -> None:  # the options of a click command
        if asks and "-" in run_ids and not yes:
            raise click.UsageError("ids from stdin need --yes")
        with connect(url, Settings()) as operations:
            filters: RunFilters = filters_of(TRAITS, given, operations.clock)
            details = {name: value for name, value in given.items() if name not in TRAITS}
            _refuse_both(run_ids, filters)
            chosen = Chosen(ids_from(run_ids), filters, reason, operations.clock.now())
            if not yes and (asks or filters):
                _confirm(operations, action, chosen)
            _carry_out(operations, action, chosen, lambda runs: act(runs, chosen, given), details, states=states)

    made: Callable[..., Any] = invoke
    decorators: tuple[Callable[[Any], Any], ...] = (
        click.argument("run_ids", metavar="[ID]…", nargs=-1),
        url_option,
        filter_options(TRAITS),
        *options,
        click.option(
            "--reason", help="The reason. Recorded in the audit log, with the user, and with runs that this ends."
        ),
        click.option("--yes", is_flag=True, help="Do not ask."),
    )
    for decorator in reversed(decorators):
        made = decorator(made)
    text = f"{action.summary} An ID of - reads ids from stdin.\n\n{notes}"
    return click.command(name.replace("_", "-"), cls=Command, help=text)(made)


def _refuse_both(run_ids: Sequence[str], filters: RunFilters) -> None:
    if run_ids and filters:
        raise click.UsageError("give ids or filters, not both")
    if not run_ids and not filters:
        raise click.UsageError("which runs? Give ids, - for ids from stdin, or filters such as --workflow and --queue")


def _confirm(operations: Operations, action: RunAction, chosen: Chosen) -> None:
    verb = action.name.replace("_", " ")
    if chosen.ids:
        question = f"{verb.capitalize()} {', '.join(safe(each) for each in chosen.ids)}?"
    else:
        count = operations.runs.count(action.name, chosen.filters)
        question = f"{verb.capitalize()} {display.plural(count, 'run')}?"
    click.confirm(question, abort=True, err=True)


def _carry_out(
    operations: Operations,
    action: RunAction,
    chosen: Chosen,
    act: Callable[[Runs], Changed],
    details: dict[str, Any],
    *,
    states: bool,
) -> None:
    """Execute the verb, record it in the audit log, and print the ids of the changed runs. The texts are those of the dashboard."""
    verbs = operations.runs_with(Progress(on_batch=_show_progress))
    changed = carry_out(
        operations,
        action.label,
        chosen.ids,
        lambda: act(verbs),
        lambda found: dict(found) if chosen.ids else {"changed": len(found)},
        reason=chosen.reason,
        **{**chosen.filters, **details},
    )
    answer = operations.runs.answer(action.name, changed)
    for run_id in answer.changed:
        data(f"{run_id}\t{operations.runs.get(run_id).state}" if states else run_id)
    for run_id in answer.left:
        note(f"{run_id} {action.otherwise}")
    for run_id in answer.missing:
        fault(not_found(run_id))
    if not changed.keys():
        note("no runs")
    elif chosen.filters:
        note(answer.message)
    if chosen.ids and (answer.left or answer.missing):
        click.get_current_context().exit(NOT_FOUND if answer.missing else FAILED)


def _show_progress(progress: Progress) -> None:
    if progress.place is not None and sys.stderr is not None and sys.stderr.isatty():
        note(f"{progress.changed:,} runs …")


def _complete(runs: Runs, chosen: Chosen, given: dict[str, Any]) -> Changed:
    text = result_text(given["result"])
    return runs.complete(chosen.ids, lambda _: text, chosen.reason, chosen.filters)


def _reschedule(runs: Runs, chosen: Chosen, given: dict[str, Any]) -> Changed:
    after, priority, attempts = given["after"], given["priority"], given["attempts"]
    if after is None and priority is None and attempts is None:
        raise click.UsageError("what is to change? Give --after, --priority or --attempts")
    due = None if after is None else chosen.now + micros(after)
    return runs.reschedule(chosen.ids, Move(due, priority, attempts), chosen.filters)


def _set_attributes(runs: Runs, chosen: Chosen, given: dict[str, Any]) -> Changed:
    named = {**pairs(given["set_"], "--set"), **dict.fromkeys(given["unset"])}
    if not named:
        raise click.UsageError("which attributes? Give --set NAME=VALUE or --unset NAME")
    return runs.set_attributes(chosen.ids, named, chosen.filters)


cancel = _command(
    "cancel",
    """A run that a worker owns stops before its next step, and is `cancelling` until then. Prints each id with its new state.

\b
  mainspring runs cancel order-7 --reason "customer called"
  mainspring runs cancel --workflow import_all --state queued --reason "wrong file"
  mainspring runs cancel --functions --name remind --due-before 2026-02-01
""",
    lambda runs, chosen, _: runs.cancel(chosen.ids, chosen.reason, chosen.filters),
    states=True,
)
terminate = _command(
    "terminate",
    """The worker of a run is notified, and its further writes for the run are refused. Prints each id with its new state.

\b
  mainspring runs terminate order-7 --reason "it hangs"
""",
    lambda runs, chosen, _: runs.terminate(chosen.ids, chosen.reason, chosen.filters),
    states=True,
)
resume = _command(
    "resume",
    """Children that were cancelled with them continue too. Prints the ids of the runs that continue.

\b
  mainspring runs resume order-7
  mainspring runs resume --workflow import_all --state cancelled --reason "the disk is back"
  mainspring runs resume order-7 --to-queue slow
""",
    lambda runs, chosen, given: runs.resume(chosen.ids, chosen.filters, to_queue=given["to_queue"]),
    [click.option("--to-queue", metavar="QUEUE", help="The queue that the runs wait in from now on.")],
)
retry = _command(
    "retry",
    """The exception that ended a run is forgotten, with the operations recorded after it. Steps that succeeded before are not executed
    again. Prints the ids of the runs that continue.

\b
  mainspring runs retry order-7
  mainspring runs retry --workflow checkout --completed-after 2026-01-31 --reason "the bank is back"
""",
    lambda runs, chosen, _: runs.retry(chosen.ids, chosen.filters),
)
complete = _command(
    "complete",
    """Filters include failed runs only with --state failed. The result is stored as it is given: this command does not know the types
    that the functions return. Prints the ids of the runs that ended.

\b
  mainspring runs complete order-7 --result '{"parcel": 9}' --reason "sent by courier"
""",
    _complete,
    [click.option("--result", metavar="JSON", default="null", help="The result of the runs. Default: null.")],
)
fail = _command(
    "fail",
    """Runs that have failed get the reason, to mark them as handled. Filters include them only with --state failed. Prints the ids of the
    runs that ended or were marked.

\b
  mainspring runs fail --queue emails --created-before 2026-01-31 --reason "no longer wanted" --yes
""",
    lambda runs, chosen, _: runs.fail(chosen.ids, chosen.reason, chosen.filters),
)
reschedule = _command(
    "reschedule",
    """Filters include failed runs only with --state failed.

\b
  mainspring runs reschedule --state scheduled --queue emails --after 0s
  mainspring runs reschedule --state failed --queue emails --after 2h
""",
    _reschedule,
    [
        click.option(
            "--after",
            type=typed_duration,
            metavar="DURATION",
            help="Begin after this duration, such as 1h30m. 0: at once.",
        ),
        click.option("--priority", type=int, help="Smaller first."),
        click.option("--attempts", type=click.IntRange(min=0), help="The number of attempts that count as made."),
    ],
)
set_attributes = _command(
    "set_attributes",
    """Prints the ids of the changed runs.

\b
  mainspring runs set-attributes order-7 --set ticket=4711 --set urgent=true
  mainspring runs set-attributes --state failed --workflow checkout --set ticket=4711
""",
    _set_attributes,
    [
        click.option("--set", "set_", multiple=True, metavar="NAME=VALUE", help="An attribute. JSON is parsed. Repeatable."),
        click.option("--unset", multiple=True, metavar="NAME", help="An attribute to remove. Repeatable."),
    ],
)  # fmt: skip
delete = _command(
    "delete",
    """Nothing is deleted if one of them has not ended. Ids from stdin need --yes. Prints the ids of the deleted runs.

\b
  mainspring runs export order-7 > order-7.jsonl && mainspring runs delete order-7 --yes
""",
    lambda runs, chosen, _: runs.delete(chosen.ids, chosen.filters),
    asks=True,
)


def _also_functions(command: click.Command) -> click.Command:
    """Add `--functions` and `--terminate` to `runs cancel`: for functions of `run_after` and `run_at`, and to end runs at once."""
    plainly = command.callback
    assert plainly is not None  # noqa: S101

    def invoke(*, functions: bool, at_once: bool, **given: Any) -> None:
        if functions:
            _cancel_functions(given, at_once=at_once)
        elif at_once:
            terminate.callback(**given)  # type: ignore[misc]
        else:
            plainly(**given)

    command.callback = invoke
    command.params += [
        click.Option(
            ["--functions"],
            is_flag=True,
            help="Instead of ids: all pending functions of run_after and run_at.",
        ),
        click.Option(["--terminate", "at_once"], is_flag=True, help="End them at once, as `runs terminate` does."),
    ]
    return command


def _cancel_functions(given: dict[str, Any], *, at_once: bool) -> None:
    action, reason = FUNCTION_ACTIONS["cancel_all"], given["reason"]
    with connect(given["url"], Settings()) as operations:
        filters = filters_of(TRAITS, given, operations.clock)
        if given["run_ids"] or at_once or set(filters) - {"workflow", "due_after", "due_before"}:
            raise click.UsageError("--functions takes --name, --due-after and --due-before beside it, and nothing else")
        named = {
            "name": filters.get("workflow"),
            "after": filters.get("due_after"),
            "before": filters.get("due_before"),
        }
        count = carry_out(
            operations,
            action.label,
            [],
            lambda: operations.functions.cancel_all(**named, reason=reason),
            lambda found: found,
            reason=reason,
            **named,
        )
    data(str(count))
    note(action.answer(", ".join(named["name"] or ()), count).message)


@click.command(cls=Command, help=f"{RUN_ACTIONS['fork'].summary} An ID of - reads ids from stdin.\n\n" + """\
The originals stay as they are. Without --step and --failed the new runs begin at the beginning. Prints the ids of the new runs.

\b
  mainspring runs fork order-7 --step pack
  mainspring runs list --state failed -o ids | mainspring runs fork - --failed
""")  # fmt: skip
@click.argument("run_ids", metavar="ID…", nargs=-1, required=True)
@url_option
@click.option("--step", metavar="STEP", help="The first step to execute again: its position or its name.")
@click.option("--past-last", is_flag=True, help="Begin after the last step.")
@click.option("--child", "children", multiple=True, metavar="OLD=NEW", help="A run that replaces a child. Repeatable.")
@click.option("--failed", is_flag=True, help="Begin with the operation that failed, or else the last recorded one.")
@click.option("--id", "new_id", metavar="ID", help="The id of the new run, if there is only one.")
@click.option("--version", metavar="VERSION", help="The version of the app that executes it.")
@click.option("--queue", metavar="QUEUE", help="The queue it waits in.")
@click.option("--timeout", metavar="DURATION", help="The timeout of the new run, such as 1h30m.")
@reason_option
def fork(
    run_ids: tuple[str, ...],
    url: str,
    *,
    reason: str | None,
    step: str | None,
    past_last: bool,
    children: tuple[str, ...],
    failed: bool,
    new_id: str | None,
    version: str | None,
    queue: str | None,
    timeout: str | None,
) -> None:
    ids = ids_from(run_ids)
    if failed and (step is not None or new_id is not None or past_last or children):
        raise click.UsageError(
            "--failed finds the step by itself, and makes the ids; leave --step, --id and the like out"
        )
    if len(ids) > 1 and new_id is not None:
        raise click.UsageError("--id is for one run")
    length = None if timeout is None else micros(timeout)
    with connect(url, Settings()) as operations:
        details = {
            "step": step,
            "failed": failed or None,
            "past_last": past_last or None,
            "children": ", ".join(children) or None,
            "version": version,
            "queue": queue,
            "timeout": timeout,
        }

        def act() -> list[str]:
            how: Any = {"version": version, "queue": queue, "timeout": length}
            if failed:
                return [*operations.runs.fork_failed(ids, **how).values()]
            how |= {"past_last": past_last, "children": pairs_of_ids(children)}
            return [*operations.runs.fork(ids, step, id=new_id, **how).values()]

        for made in carry_out(
            operations, RUN_ACTIONS["fork"].label, ids, act, lambda forks: forks, reason=reason, **details
        ):
            data(made)


def pairs_of_ids(given: tuple[str, ...]) -> dict[str, str]:
    """Parse texts like OLD=NEW to a dict."""
    found: dict[str, str] = {}
    for each in given:
        old, equals, new = each.partition("=")
        if not (old and equals and new):
            raise click.BadParameter(f"{each!r} is not OLD=NEW", param_hint="--child")
        found[old] = new
    return found


cancel = _also_functions(cancel)
COMMANDS = (cancel, terminate, resume, retry, complete, fail, reschedule, set_attributes, fork, delete)
