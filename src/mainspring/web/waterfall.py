"""A run as a waterfall: its operations over time, to scale."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING

from mainspring.web.charts import Part, time_step
from mainspring.web.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.operations.runs.info import RunInfo, StepInfo
    from mainspring.operations.runs.lists import RunSummary

FOLDED = 6
"""Number of operations of one kind and name in a row that are folded into one line."""
_MOST_MARKS = 6
_WAITS = {"sleep", "receive", "event", "stream", "answer", "question", "result", "gather", "first"}
_CHILDREN = {"call", "start", "child", "workflow"}
_MIXED = ("live", "live-wait", "wait", "child", "step", "transaction")
"""The colour of a folded line with several colours: the first of these that occurs."""
_STARTS = {"start"}
"""Kinds of operations that start a run and do not wait for it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the waterfall."""

    name: str
    kind: str
    position: str
    depth: int
    start: datetime
    end: datetime
    step: StepInfo | None
    parts: list[Part]
    """The spans of the line: one, or the attempts of a step and the pauses between them."""
    run: RunSummary | None = None
    """The child that the operation started, if it is known."""
    folded: Sequence[Row] = ()
    """The lines that this one folds."""


@dataclass(frozen=True, slots=True)
class Waterfall:
    """All lines and their common span of time."""

    low: datetime
    high: datetime
    rows: list[Row]
    marks: list[tuple[float, timedelta]]
    """The marks of the axis: positions in percent with the time since the beginning."""
    looks: set[str]
    """The colours that occur."""


def waterfall(
    run: RunInfo,
    steps: list[StepInfo],
    now: datetime,
    children: Sequence[RunSummary] = (),
    *,
    first: bool = True,
    within: tuple[datetime | None, datetime | None] = (None, None),
) -> Waterfall:
    """Return the waterfall of some operations of a run. If they are not the first ones, it does not begin with the run.

    `within` is the span of the run that it is nested in, so that both have one scale.
    """
    timed = [step for step in steps if step.started is not None or step.completed is not None]
    timed.sort(key=lambda step: (step.started or step.completed or now, step.position))
    begin = timed[0].started or timed[0].completed or run.created if timed else run.created
    low = run.created if first else begin
    high = max((run.completed or now) if first else low, low + timedelta(milliseconds=1))
    rows: list[Row] = []
    begun = run.started or (run.completed or now)
    if begun > low and first:
        rows.append(Row("waits to begin", "queue", "", 0, low, begun, None, [Part(low, begun, "queue")]))
    there = {child.id: child for child in children}
    for step in timed:
        row = _row(step, there.get(step.child or ""), now, run.completed)
        if step.kind == "sleep" and step.completed is None and run.completed is None and step.due is not None:
            high = max(high, min(step.due, now + (now - low) + timedelta(seconds=1)))
        rows.append(row)
    high = max([high, *[row.end for row in rows]])
    looks = {"wait" if part.look == "live-wait" else part.look for row in rows for part in row.parts}
    since, until = within
    if since is not None and until is not None and since < until:
        low, high = since, until
    return Waterfall(low, high, _folded(rows), _marks(high - low), looks)


def _row(step: StepInfo, child: RunSummary | None, now: datetime, run_ended: datetime | None) -> Row:
    end = step.completed or run_ended or now
    start = min(step.started or end, end)
    parts = _parts(step, start, end, live=run_ended is None)
    begins = child is not None and (child.started is not None or child.state != "scheduled")
    if child is not None and begins and step.kind in _STARTS:  # the start is over at once, and the child is not
        begun = child.started or child.completed or now
        end = max(end, child.completed or now)
        parts = [Part(start, min(begun, end), "queue", "waits to begin")] if begun > start else []
        look = "failed" if child.state in {"failed", "cancelled"} else "child" if child.completed else "live"
        parts.append(Part(max(begun, start), end, look, f"{child.id}: {child.state}"))
    name = f"result of {child.workflow}" if child is not None and step.kind == "result" else step.name
    return Row(name, step.kind, step.position, step.position.count("."), start, end, step, parts, child)


def _folded(rows: list[Row]) -> list[Row]:
    """Fold many lines of one kind and name in a row into one."""
    found: list[Row] = []
    for _, group in groupby(rows, key=_alike):
        members = list(group)
        if len(members) < FOLDED:
            found += members
            continue
        head = members[0]
        start, end = min(row.start for row in members), max(row.end for row in members)
        failed = sum(_failed(row) for row in members)
        looks = {part.look for row in members for part in row.parts if part.look not in {"queue", "pause"}}
        look = next(iter(looks)) if len(looks) == 1 else next((each for each in _MIXED if each in looks), "child")
        words = f"{_name(head)}: {len(members)}" + (f", {failed} failed" if failed else "")
        title = f"{words}, slowest {duration(max(row.end - row.start for row in members))}"
        parts = [Part(start, end, look, title)]
        found.append(Row(words, head.kind, head.position, head.depth, start, end, None, parts, None, members))
    return found


def _failed(row: Row) -> bool:
    if row.run is not None:
        return row.run.state == "failed"
    return row.step is not None and row.step.error is not None


def _name(row: Row) -> str:
    """Return the name by which a line is folded: the function, where the line has a child of its own."""
    if row.run is None or row.kind == "result":
        return row.name
    return row.run.workflow


def _alike(row: Row) -> object:
    """Return the key by which lines are folded together."""
    return (row.kind, _name(row), row.depth)


def _marks(whole: timedelta) -> list[tuple[float, timedelta]]:
    """Return round times along the axis. One at the very end is left out, because it has no room."""
    step = timedelta(seconds=time_step(whole.total_seconds(), _MOST_MARKS))
    if not step:
        return []
    return [
        (100 * (number * step / whole), number * step) for number in range(_MOST_MARKS) if number * step < 0.95 * whole
    ]


def _parts(step: StepInfo, start: datetime, end: datetime, *, live: bool) -> list[Part]:
    """Return the attempts of a step to scale, with the pauses between them; for any other operation one span."""
    if not step.tries:
        return [Part(start, end, _look(step, live=live))]
    parts: list[Part] = []
    for number, each in enumerate(step.tries, 1):
        over = each.ended or end
        if parts:
            parts.append(Part(parts[-1].end, each.started, "pause", "pause before the next attempt"))
        look, words = ("step", "done") if each.error is None else ("failed", each.error)
        parts.append(Part(each.started, over, look, f"attempt {number}: {words}"))
    if step.completed is None and live:
        parts.append(Part(parts[-1].end, end, "live-wait" if step.due else "live", "the next attempt"))
    return parts


def _look(step: StepInfo, *, live: bool) -> str:
    if step.error is not None:
        return "failed"
    if step.completed is None and live:
        return "live-wait" if step.kind in _WAITS else "live"
    if step.kind in _WAITS:
        return "wait"
    if step.child is not None or step.kind in _CHILDREN:
        return "child"
    return "transaction" if step.kind == "transaction" else "step"
