"""The overview, and the pages behind two of its parts: failed runs by their error, and runs that wait for a message."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from mainspring.model.clock import SECOND, to_datetime
from mainspring.operations.overview import AwaitedMessage, Coming, Pulse
from mainspring.operations.runs.lists import ErrorGroup, RunSummary, error_groups
from mainspring.web.views import Id, Pages, Scene

pages = Pages()
MOST_RUNS = 2_000
_PAGE = 500
_MOST = 500
_SHOWN = 6
_COMING = 8
_MOST_FAILED = 500


class ErrorQuery(Struct):
    """The hours to look back, and the function."""

    hours: Annotated[int, Meta(ge=1, le=720, description="Runs that were created within so many hours.")] = 24
    workflow: Annotated[str, Meta(max_length=600)] | None = None


class Errors(Struct):
    """Failed runs in groups, the largest first."""

    groups: list[ErrorGroup]
    runs: int
    """The number of failed runs that were looked at."""
    more: bool
    """Whether there are more failed runs: only the latest were looked at."""


@pages.view("/errors", "errors.html")
def errors(scene: Scene, query: ErrorQuery) -> Errors:
    """Failed runs by their error."""
    return grouped(scene, query.hours, query.workflow)


def grouped(scene: Scene, hours: int, workflow: str | None = None, most: int = MOST_RUNS) -> Errors:
    """Return the failed runs of the last hours in groups."""
    since = to_datetime(scene.now - hours * 3_600 * SECOND)
    found: list[RunSummary] = []
    after: str | None = None
    while len(found) < most:
        page = scene.operations.runs.summaries(
            state="failed", workflow=workflow, created_after=since, after=after, limit=min(_PAGE, most)
        )
        found += [scene.redactor.summary(run) for run in page.runs]
        after = page.next
        if after is None:
            break
    return Errors(error_groups(found), len(found), after is not None)


class WaitGroup(Struct):
    """Runs of one function that wait for a message of one topic."""

    workflow: str
    topic: str
    count: int
    since: datetime
    """The time since which the longest of them has waited."""
    run: str
    """The id of that run."""


class WaitQuery(Struct):
    """Filters: a function, a topic."""

    workflow: Id | None = None
    topic: Id | None = None


class WaitList(Struct):
    """Runs that wait for a message, longest wait first. Send a message with /runs/send."""

    waits: list[AwaitedMessage]
    groups: list[WaitGroup]
    """All such runs by function and topic, regardless of the filters."""
    more: bool
    """Whether the search stopped at its limit: there may be more."""


@pages.view("/waits", "waits.html")
def waits(scene: Scene, query: WaitQuery) -> WaitList:
    """Runs that wait for a message, such as an approval."""
    found = awaited(scene)
    found.waits = [
        each for each in found.waits if query.workflow in {None, each.workflow} and query.topic in {None, each.topic}
    ]
    return found


def awaited(scene: Scene) -> WaitList:
    found = [scene.redactor.awaited(each) for each in scene.operations.watch.awaited(_MOST)]
    groups: dict[tuple[str, str], WaitGroup] = {}
    for each in found:
        group = groups.setdefault(
            (each.workflow, each.topic), WaitGroup(each.workflow, each.topic, 0, each.since, each.run)
        )
        group.count += 1
    return WaitList(found, [*groups.values()], len(found) == _MOST)


class Span(Struct):
    """The span of time that the charts cover."""

    minutes: Annotated[int, Meta(ge=60, le=10_080, description="The span of the charts: an hour to a week.")] = 60


class Overview(Struct):
    """Counts of runs and schedules, failures, and what is due next."""

    pulse: Pulse
    errors: list[ErrorGroup]
    """Failed runs of the last day by their error, the largest groups first."""
    waits: list[WaitGroup]
    """Runs that wait for a message, by function and topic, longest wait first."""
    coming: list[Coming]


@pages.view("/", "overview.html")
def overview(scene: Scene, query: Span) -> Overview:
    """The overview: due, running, late, missed and failed runs."""
    operations = scene.operations
    return Overview(
        operations.watch.pulse(minutes=query.minutes),
        grouped(scene, 24, most=_MOST_FAILED).groups[:_SHOWN],
        awaited(scene).groups[:_SHOWN],
        operations.watch.coming(_COMING),
    )
