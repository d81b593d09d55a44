"""Print one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mainspring.cli import display
from mainspring.cli.display import COLOURS, ago, at, compact, span
from mainspring.cli.terminal import echo, safe
from mainspring.model.states import State
from mainspring.operations.versions import STRANDED_HINT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from mainspring.operations.runs.info import LogLine, RunInfo, RunPage, StepInfo
    from mainspring.operations.unserved import Unserved

MOST_CHILDREN = 100
_LONGEST_VALUE = 60
_LONGEST_REMARK = 100


def show(
    run: RunInfo, steps: list[StepInfo], children: RunPage, now: datetime, unserved: Unserved | None = None
) -> None:
    """Print a run with its times, steps, children and error."""
    state = click.style(run.state, fg=COLOURS[run.state], bold=True)
    why = f": {safe(run.reason)}" if run.reason else ""
    echo(f"{click.style(safe(run.id), bold=True)}  {safe(run.workflow)}  {state}{why}\n")
    for name, text in _facts(run, now):
        echo(f"{click.style(f'{name:<12}', dim=True)}{safe(text)}")
    if run.stranded is not None:
        echo(f"\n{click.style('stranded', fg='red')}    {safe(run.stranded)}\n            {STRANDED_HINT}")
    elif unserved is not None:
        echo(f"\n{click.style('unserved', fg='red')}    {safe(unserved.found)}\n            {safe(unserved.hint)}")
    if run.error is not None:
        echo(f"\n{click.style('error', fg='red')}")
        for line in error_lines(run.error):
            echo(f"  {safe(line)}")
    if steps:
        echo("")
        display.table(
            ("STEP", "KIND", "NAME", "TOOK", "ATTEMPTS", "OUTCOME"), [_step_row(step, now, run) for step in steps]
        )
    if children.runs:
        echo("")
        rows = [(child.id, child.workflow, child.state, remark(child, now)) for child in children.runs]
        display.table(("CHILD", "WORKFLOW", "STATE", "NOTE"), rows)
        if children.next:
            echo(f"… and more: mainspring runs list --id-prefix {safe(run.id)}/")


def show_logs(logs: list[LogLine]) -> None:
    """Print the lines that were logged inside a run, if they are kept."""
    if logs:
        echo("")
        rows = [(f"{line.at:%H:%M:%S.%f}"[:-3], line.level, line.step or "", line.message) for line in logs]
        display.table(("LOGGED", "LEVEL", "STEP", "MESSAGE"), rows)


def _facts(run: RunInfo, now: datetime) -> Iterator[tuple[str, str]]:
    yield "input", compact(run.input)
    if run.state is State.SUCCEEDED:
        yield "output", compact(run.output)
    yield from _times(run, now)
    if run.worker is not None:
        yield "worker", run.worker
    if run.queue is not None:
        priority = f", priority {run.priority}" if run.priority else ""
        yield "queue", f"{run.queue}{priority}{f', partition {run.partition}' if run.partition else ''}"
    if run.version is not None:
        yield "version", run.version if run.started is not None else f"{run.version}, to which it is pinned"
    if run.epoch > 1 or run.recoveries:
        yield "claims", f"{run.epoch}, of which {run.recoveries} after its worker was lost"
    if run.parent is not None:
        yield "parent", run.parent
    if run.scheduled_by is not None:
        yield "started by", run.scheduled_by
    if run.attributes:
        yield "attributes", compact(run.attributes)


def _times(run: RunInfo, now: datetime) -> Iterator[tuple[str, str]]:
    yield "created", at(run.created, now)
    if run.started is not None:
        yield "started", at(run.started, now)
    if run.completed is not None:
        took = f", took {span(run.completed - run.started)}" if run.started is not None else ""
        yield "completed", at(run.completed, now) + took
    elif run.due is not None and run.state in {State.SCHEDULED, State.WAITING}:
        yield ("starts" if run.state is State.SCHEDULED else "wakes"), at(run.due, now)
    if run.deadline is not None:
        yield "deadline", at(run.deadline, now)


def remark(run: RunInfo, now: datetime) -> str:
    """Return a short remark on a run, for lists."""
    if run.stranded is not None:
        return _cut(f"stranded: {run.stranded}", _LONGEST_REMARK)
    if run.error is not None:
        return _cut(headline(run.error), _LONGEST_REMARK)
    if run.reason is not None:
        return _cut(run.reason, _LONGEST_REMARK)
    if run.state is State.QUEUED and run.version is not None and run.started is None:
        return _cut(f"waits for a worker of version {run.version}", _LONGEST_REMARK)
    begins = "starts" if run.state is State.SCHEDULED else "wakes" if run.state is State.WAITING else None
    return "" if begins is None or run.due is None else f"{begins} {ago(run.due, now)}"


def headline(error: dict[str, Any]) -> str:
    """Return the type and message of an exception."""
    name = str(error.get("type", "?")).rpartition(":")[2]
    message = error.get("message")
    return f"{name}: {message}" if message else name


def error_lines(error: dict[str, Any]) -> list[str]:
    """Return the stored traceback of an exception, or its type and message."""
    text = str(error.get("traceback") or "").rstrip()
    lines = text.splitlines() if text else [headline(error)]
    notes = [line for one in error.get("notes", []) for line in str(one).splitlines()]
    return [*lines, *(line for line in notes if line not in lines)]


def _step_row(step: StepInfo, now: datetime, run: RunInfo) -> tuple[str, ...]:
    took = ""
    if step.started is not None:
        took = span(max((step.completed or run.completed or now) - step.started, now - now))
    attempts = str(step.attempts) if step.attempts else ""
    name = step.name if step.name != step.kind else ""
    return step.position, step.kind, name, took, attempts, _outcome(step, now, ended=run.completed is not None)


def _outcome(step: StepInfo, now: datetime, *, ended: bool) -> str:
    if step.interrupted:
        return "cancelled by the workflow"
    if step.error is not None:
        return _cut(headline(step.error), _LONGEST_REMARK)
    tried = f"  (before: {'; '.join(step.tried)})" if step.tried else ""
    if step.completed is not None:
        child = f"{step.child}: " if step.child else ""
        return _cut(child + _cut(compact(step.output), _LONGEST_VALUE) + tried, 2 * _LONGEST_REMARK)
    return ("the run ended before it" if ended else unfinished(step, now)) + tried


def unfinished(step: StepInfo, now: datetime) -> str:
    """Return what an unfinished operation waits for."""
    if step.child is not None:
        return f"waits for {step.child}"
    if step.kind in {"receive", "question"}:
        return "waits for a message" + ("" if step.due is None else f", gives up {ago(step.due, now)}")
    if step.due is not None:
        return f"{'next attempt' if step.tried else 'wakes'} {ago(step.due, now)}"
    return "not over"


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
