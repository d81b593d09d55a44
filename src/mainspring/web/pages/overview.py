"""The overview."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from mainspring.operations.overview import Coming, Pulse
from mainspring.operations.runs.errors import ErrorGroup
from mainspring.web.pages.errors import grouped
from mainspring.web.pages.waits import WaitGroup, awaited
from mainspring.web.views import Pages, Scene

pages = Pages()
_SHOWN = 6
_COMING = 8
_MOST_FAILED = 500


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
