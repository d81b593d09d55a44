"""Overview: how things stand."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from mainspring.operations.run_lists import RunGlance
from mainspring.operations.watch import Coming, Pulse
from mainspring.web.views import Pages, Scene

pages = Pages()
_SHOWN = 6


class Span(Struct):
    """How far back the charts go."""

    minutes: Annotated[int, Meta(ge=60, le=10_080, description="The span of the charts: an hour to a week.")] = 60


class Overview(Struct):
    """How things stand, what failed last, and what comes next."""

    pulse: Pulse
    failures: list[RunGlance]
    coming: list[Coming]


@pages.view("/", "overview.html")
def overview(scene: Scene, query: Span) -> Overview:
    """How things stand: what is due, running, late, missed and failed."""
    operations = scene.operations
    failed = operations.runs.glance(state=("failed",), limit=_SHOWN).runs
    return Overview(
        operations.watch.pulse(minutes=query.minutes),
        [scene.redactor.glance(run) for run in failed],
        operations.watch.coming(_SHOWN),
    )
