"""Functions that were scheduled with run_after and run_at."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from mainspring.errors import InvalidInput
from mainspring.operations.scheduled_functions import FUNCTION_ACTIONS, ScheduledFunction
from mainspring.web.views import Body, Pages, PageSize, Reason, Scene

pages = Pages()
FunctionState = Literal["pending", "in_progress", "success", "failed", "canceled"]
Name = Annotated[str, Meta(min_length=1, max_length=600)]


class FunctionQuery(Struct):
    """Filters of functions."""

    state: list[FunctionState] = field(default_factory=list[FunctionState])
    name: list[Name] = field(default_factory=list[Name])
    limit: PageSize = 50


class FunctionList(Struct):
    """Scheduled functions, first due first."""

    functions: list[ScheduledFunction]
    more: bool
    """Whether there are more than were asked for."""


class OfName(Body):
    """Pending functions to act on: those of a name, or `all`."""

    name: Name | None = None
    all: bool = False
    reason: Reason | None = None


@pages.view("/functions", "functions.html")
def functions(scene: Scene, query: FunctionQuery) -> FunctionList:
    """Functions that were scheduled with run_after and run_at, first due first."""
    states = query.state or ["pending", "in_progress"]
    found = scene.operations.functions.list(name=query.name, state=states, limit=query.limit)
    return FunctionList([scene.redactor.function(each) for each in found], found.next is not None)


@pages.action(FUNCTION_ACTIONS["cancel_all"], lambda body: [body.name] if body.name else [], "/functions/cancel")
def cancel_all(scene: Scene, body: OfName) -> int:
    if body.all == (body.name is not None):
        raise InvalidInput("give the name of the functions to cancel, or all: true")
    return scene.operations.functions.cancel_all(name=body.name, reason=body.reason)
