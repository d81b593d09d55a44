"""The operations of a run, a page at a time, with the runs that they started."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from mainspring.operations.runs.info import LogLine, RunInfo, StepInfo
from mainspring.operations.runs.lists import RunSummary
from mainspring.web.views import Id, Moment, Pages, Scene

pages = Pages()
MOST_CHILDREN = 50
MOST_STEPS = 300
MOST_LINES = 300


class StepQuery(Struct):
    """The id of a run, and the page of its operations."""

    id: Id
    offset: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = MOST_STEPS


class TimelineQuery(StepQuery):
    """The id of a run, the page of its operations, and the span of time to draw: that of the parent, if the run is nested."""

    since: Moment | None = None
    until: Moment | None = None


class SomeSteps(Struct):
    """A run and some of its operations, in the order of their positions."""

    run: RunInfo
    steps: list[StepInfo]
    """The operations from `offset` on."""
    offset: int
    operations: int
    """The number of operations."""
    next: int | None
    """The `offset` of the next page of operations; null on the last page."""
    children: list[RunSummary]
    """The latest children, and those that the operations on this page started."""
    waits: list[StepInfo]
    """The messages and questions that the run waits for: each can be sent, or asked."""
    logs: list[LogLine]
    """The last lines that the run logged, if they are stored (setting keep_logs)."""


class Timeline(SomeSteps):
    """A run and some of its operations, in the order of their positions."""

    since: Moment | None = None
    until: Moment | None = None


@pages.view("/runs/timeline", "timeline.html")
def timeline(scene: Scene, query: TimelineQuery) -> Timeline:
    """The operations of one run: the times, outcome and attempts of each."""
    return Timeline(**some_steps(scene, query), since=query.since, until=query.until)


def some_steps(scene: Scene, query: StepQuery) -> dict[str, Any]:
    """Return the fields of a `SomeSteps`."""
    run_id, offset, limit = query.id, query.offset, query.limit
    runs, redactor = scene.operations.runs, scene.redactor
    found = runs.get(run_id)
    page = runs.steps_page(run_id, offset, limit)
    recorded = page.steps
    children = runs.summaries(parent=run_id, limit=MOST_CHILDREN).runs
    ids = {child.id for child in children}
    missing = [child for child in dict.fromkeys(step.child for step in recorded if step.child) if child not in ids]
    if missing:
        children += runs.summaries(ids=missing, limit=len(missing)).runs
    waits = [
        shown
        for step in page.waiting
        if not found.state.ended and step.awaited
        if (shown := redactor.step(step, found)).name == step.name  # nothing can be sent to a hidden name
    ]
    return {
        "run": redactor.run(found),
        "steps": [redactor.step(step, found) for step in recorded],
        "offset": offset,
        "operations": page.count,
        "next": offset + limit if offset + limit < page.count else None,
        "children": [redactor.summary(child) for child in children],
        "waits": waits,
        "logs": [redactor.line(line, found) for line in runs.logs(run_id, MOST_LINES)],
    }
