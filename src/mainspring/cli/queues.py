"""`mainspring queues`: show and control queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.audit import perform, reason_option
from mainspring.cli.commands import Group, note, output_option, url_option
from mainspring.operations.connect import connect
from mainspring.operations.queues import QUEUE_ACTIONS, Rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.operations.queues import QueueInfo, QueueLimits, Queues

F = TypeVar("F", bound="Callable[..., Any]")
_NO_LIMIT = "none"
_HEAD = ("QUEUE", "STATE", "READY", "LATER", "UNDER WAY", "LIMITS")


@click.group(cls=Group)
def queues() -> None:
    """Show queues, change their limits, pause and resume them."""


@queues.command(name="list")
@url_option
@output_option("table", "json", "jsonl", "ids")
def list_(url: str, output: str) -> None:
    """List queues, with how many of their runs are ready, due later and under way.

    Includes queues that were not declared and in which runs wait.
    """
    with connect(url, Settings()) as operations:
        found = operations.queues.list()
    display.listing(output, found, name=lambda queue: queue.name, head=_HEAD, row=_row, none="no queues")


@queues.command
@click.argument("name")
@url_option
@output_option("table", "json")
def show(name: str, url: str, output: str) -> None:
    """Show one queue and its partitions. Exit code 4 if it does not exist and no run waits in it."""
    with connect(url, Settings()) as operations:
        queue = operations.queues.describe(name)
    if output == "json":
        display.as_json(queue)
        return
    rows = [_row(queue)]
    for key, part in queue.partitions.items():
        limits = "" if part.limits is None else _limits(part.limits)
        rows.append((f"  {key or '(none)'}", "", str(part.ready), str(part.scheduled), str(part.under_way), limits))
    display.table(_HEAD, rows)


class _Count(click.ParamType[Any]):
    """A number from 1, or `none`."""

    name = "N|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == _NO_LIMIT:
            return None
        return click.IntRange(min=1).convert(value, param, ctx)


class _RateText(click.ParamType[Any]):
    """A rate such as 100/1m, or `none`."""

    name = "N/TIME|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == _NO_LIMIT:
            return None
        try:
            return Rate.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_KEEP = object()


def _limit(flag: str, kind: click.ParamType[Any], text: str) -> Callable[[F], F]:
    return click.option(flag, type=kind, default=None, callback=_kept, help=text)


def _kept(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return a marker for a limit that was not given, which is not changed. `none` removes a limit."""
    given = ctx.get_parameter_source(param.name or "") is not click.core.ParameterSource.DEFAULT
    return value if given else _KEEP


@queues.command(name="set")
@click.argument("name")
@_limit("--concurrency", _Count(), "Runs under way in the whole fleet.")
@_limit("--worker-concurrency", _Count(), "Runs in the memory of one worker.")
@_limit("--rate", _RateText(), "Starts within a length of time: 100/1m.")
@_limit("--partition-concurrency", _Count(), "Runs of one partition under way.")
@_limit("--partition-worker-concurrency", _Count(), "Runs of one partition in one worker.")
@_limit("--partition-rate", _RateText(), "Starts of one partition within a length of time.")
@click.option("--partition", metavar="KEY", help="Change the limits of this partition alone.")
@url_option
@reason_option
def set_(name: str, partition: str | None, url: str, reason: str | None, **limits: Any) -> None:
    """Create a queue, or change the given limits. The others stay. `none` removes a limit.

    \b
      mainspring queues set emails --concurrency 50 --rate 100/1m
      mainspring queues set emails --partition acme --partition-concurrency 5
    """
    with connect(url, Settings()) as operations:
        named = {key: value for key, value in limits.items() if value is not _KEEP}
        shown = {key: "none" if value is None else value for key, value in named.items()}
        queue, _ = perform(
            operations,
            QUEUE_ACTIONS["set"],
            name,
            lambda: operations.queues.set(name, partition, named),
            reason=reason,
            partition=partition,
            **shown,
        )
    display.table(_HEAD, [_row(queue)])


def _command(verb: str, act: Callable[[Queues, str], object]) -> click.Command:
    """Return the command of a verb that takes only the name of a queue."""

    def invoke(name: str, url: str, reason: str | None) -> None:
        with connect(url, Settings()) as operations:
            _, answer = perform(
                operations, QUEUE_ACTIONS[verb], name, lambda: act(operations.queues, name), reason=reason
            )
        note(answer.message)

    made = click.argument("name")(url_option(reason_option(invoke)))
    return queues.command(verb, help=QUEUE_ACTIONS[verb].summary)(made)


_command("pause", lambda verbs, name: verbs.pause(name))
_command("resume", lambda verbs, name: verbs.resume(name))
_command("delete", lambda verbs, name: verbs.delete(name))


def _row(queue: QueueInfo) -> tuple[str, ...]:
    state = "paused" if queue.paused else "open" if queue.exists else "does not exist"
    return queue.name, state, str(queue.ready), str(queue.scheduled), str(queue.under_way), _limits(queue.limits)


def _limits(limits: QueueLimits) -> str:
    values = {
        "concurrency": limits.concurrency,
        "per worker": limits.worker_concurrency,
        "rate": limits.rate,
        "per partition": limits.partition_concurrency,
        "per partition and worker": limits.partition_worker_concurrency,
        "rate per partition": limits.partition_rate,
    }
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)
