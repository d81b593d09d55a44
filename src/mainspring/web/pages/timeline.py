"""The operations of a run, a page at a time, with the runs that they started."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from mainspring.operations.runs.info import LogLine, RunInfo, StepInfo
from mainspring.operations.runs.lists import RunSummary
from mainspring.web.views import Id, Moment, Pages, Scene

pages = Pages()
MOST_CHILDREN = 50
MOST_STEPS = 300
MOST_LINES = 300
Offset = Annotated[int, Meta(ge=0, le=10_000_000)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]


class TimelineQuery(Struct):
    """The id of a run, the page of its operations, and the span of time to draw: that of the parent, if the run is nested."""

    id: Id
    offset: Offset = 0
    limit: Limit = MOST_STEPS
    since: Moment | None = None
    until: Moment | None = None


class Timeline(Struct):
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
    since: Moment | None = None
    until: Moment | None = None


@pages.view("/runs/timeline", "timeline.html")
def timeline(scene: Scene, query: TimelineQuery) -> Timeline:
    """The operations of one run: the times, outcome and attempts of each."""
    return timeline_of(scene, query.id, query.offset, query.limit, (query.since, query.until))


def timeline_of(
    scene: Scene, run_id: str, offset: int, limit: int, span: tuple[Moment | None, Moment | None] = (None, None)
) -> Timeline:
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
    return Timeline(
        redactor.run(found),
        [redactor.step(step, found) for step in recorded],
        offset,
        page.count,
        offset + limit if offset + limit < page.count else None,
        [redactor.summary(child) for child in children],
        waits,
        [redactor.line(line, found) for line in runs.logs(run_id, MOST_LINES)],
        *span,
    )
