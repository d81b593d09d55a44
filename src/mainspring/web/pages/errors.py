"""Failed runs by their error, and actions on all runs of one error."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from mainspring.model.clock import SECOND, to_datetime
from mainspring.operations.runs.errors import ErrorGroup, error_groups
from mainspring.operations.runs.lists import RunSummary
from mainspring.web.views import Pages, Scene

pages = Pages()
MOST_RUNS = 2_000
_PAGE = 500


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
