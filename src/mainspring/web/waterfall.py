"""A run as a waterfall: what it did when, to scale."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from mainspring.web.scales import time_step

if TYPE_CHECKING:
    from mainspring.operations.runs import RunInfo, StepInfo

MOST_LANES = 300
_MOST_MARKS = 6
_WAITS = {"sleep", "receive", "event", "stream", "answer", "question", "result", "gather", "first"}
_CHILDREN = {"call", "start", "child", "workflow"}


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the waterfall."""

    name: str
    kind: str
    position: str
    depth: int
    start: datetime
    end: datetime
    step: StepInfo | None
    parts: list[Part]
    """What it consists of: one stretch, or the attempts of a step and the pauses between them."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a line."""

    start: datetime
    end: datetime
    look: str
    """Its colour: step, wait, child, transaction, queue, failed, pause or live."""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Waterfall:
    """All lines, and the stretch of time that they share."""

    low: datetime
    high: datetime
    lanes: list[Lane]
    left_out: int
    marks: list[tuple[float, timedelta]]
    """For the axis: places in percent with the time since the beginning."""
    looks: set[str]
    """The colours that are in it."""


def waterfall(run: RunInfo, steps: list[StepInfo], now: datetime) -> Waterfall:
    """The waterfall of a run as it stands."""
    low = run.created
    high = max(run.completed or now, low + timedelta(milliseconds=1))
    lanes: list[Lane] = []
    begun = run.started or (run.completed or now)
    if begun > low:
        lanes.append(Lane("waits to begin", "queue", "", 0, low, begun, None, [Part(low, begun, "queue")]))
    timed = [step for step in steps if step.started is not None or step.completed is not None]
    timed.sort(key=lambda step: (step.started or step.completed or now, step.position))
    for step in timed[:MOST_LANES]:
        end = step.completed or now
        start = step.started or end
        if step.kind == "sleep" and step.completed is None and step.due is not None:
            high = max(high, min(step.due, now + (now - low) + timedelta(seconds=1)))
        depth = step.position.count(".")
        lanes.append(Lane(step.name, step.kind, step.position, depth, start, end, step, _parts(step, start, end)))
    high = max([high, *[lane.end for lane in lanes]])
    looks = {"wait" if part.look == "live-wait" else part.look for lane in lanes for part in lane.parts}
    return Waterfall(low, high, lanes, max(0, len(timed) - MOST_LANES), _marks(high - low), looks)


def _marks(whole: timedelta) -> list[tuple[float, timedelta]]:
    """Round times along the axis. One that would stand at its very end has no room."""
    step = timedelta(seconds=time_step(whole.total_seconds(), _MOST_MARKS))
    if not step:
        return []
    return [
        (100 * (number * step / whole), number * step) for number in range(_MOST_MARKS) if number * step < 0.95 * whole
    ]


def _parts(step: StepInfo, start: datetime, end: datetime) -> list[Part]:
    """The attempts of a step to scale, with the pauses between them; all else is one stretch."""
    if not step.tries:
        return [Part(start, end, _look(step))]
    parts: list[Part] = []
    for number, each in enumerate(step.tries, 1):
        over = each.ended or end
        if parts:
            parts.append(Part(parts[-1].end, each.started, "pause", "pause before the next attempt"))
        look, words = ("step", "done") if each.error is None else ("failed", each.error)
        parts.append(Part(each.started, over, look, f"attempt {number}: {words}"))
    if step.completed is None:
        parts.append(Part(parts[-1].end, end, "live-wait" if step.due else "live", "the next attempt"))
    return parts


def _look(step: StepInfo) -> str:
    if step.error is not None:
        return "failed"
    if step.completed is None:
        return "live-wait" if step.kind in _WAITS else "live"
    if step.child is not None or step.kind in _CHILDREN:
        return "child"
    if step.kind in _WAITS:
        return "wait"
    return "transaction" if step.kind == "transaction" else "step"
