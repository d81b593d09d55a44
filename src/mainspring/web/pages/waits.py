"""Runs that wait for a message from an operator."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from mainspring.operations.overview import AwaitedMessage
from mainspring.web.views import Id, Pages, Scene

pages = Pages()
_MOST = 500


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
