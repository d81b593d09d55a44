"""What a page is and what an action is. Each is written once, and answered as a page, as JSON and in the API's description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_type_hints

from msgspec import Meta, Struct

from mainspring.web.auth import Role  # noqa: TC001  (a field of what is made at run time)

if TYPE_CHECKING:
    from mainspring.operations.connect import Operations
    from mainspring.web.redaction import Redactor

F = TypeVar("F", bound=Callable[..., Any])

Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=600, description="The id of a run or schedule.")]
Reason: TypeAlias = Annotated[str, Meta(max_length=1_000, description="Why. It is kept in the record of actions.")]
Moment: TypeAlias = Annotated[
    datetime,
    Meta(tz=True, description="RFC 3339; without an offset it is UTC, and a date is the midnight at which it begins."),
]
PageSize: TypeAlias = Annotated[int, Meta(ge=1, le=500, description="How many to show.")]
After: TypeAlias = Annotated[str, Meta(max_length=700, description="`next` of the page before.")]


@dataclass(frozen=True, slots=True)
class Scene:
    """What a page is made from."""

    operations: Operations
    redactor: Redactor

    @property
    def now(self) -> int:
        return self.operations.clock.now()


class NoQuery(Struct):
    """A page that takes no parameters."""


class Body(Struct, forbid_unknown_fields=True):
    """What an action takes. A name that it does not know is an error: something may be meant by it."""


class Done(Struct):
    """What an action answers: a sentence, and what came of it."""

    message: str
    result: dict[str, Any]
    run: str | None = None
    """The run that came of it, if it is one."""


@dataclass(frozen=True, slots=True)
class View:
    """A page. `look` blocks, and is called on a thread; `alone` pages are only asked for by JSON or from within other pages."""

    path: str
    name: str
    summary: str
    template: str
    query: type[Any]
    answer: type[Any]
    look: Callable[[Scene, Any], Any]
    role: Role = "viewer"


@dataclass(frozen=True, slots=True)
class Action:
    """Something an operator does. `subject` says which ids a request is about; the rest of it is details."""

    path: str
    name: str
    summary: str
    body: type[Any]
    act: Callable[[Scene, Any], Done]
    subject: Callable[[Any], list[str]]
    role: Role = "operator"


class Pages:
    """The views and actions of one noun."""

    def __init__(self) -> None:
        self.views: list[View] = []
        self.actions: list[Action] = []

    def view(self, path: str, template: str, role: Role = "viewer") -> Callable[[F], F]:
        """Make `look(scene, query) -> answer` a page. Its docstring is the summary, its annotations describe it."""

        def add(look: F) -> F:
            hints = get_type_hints(look, include_extras=True)
            made = View(path, look.__name__, _summary(look), template, hints["query"], hints["return"], look, role)
            self.views.append(made)
            return look

        return add

    def action(self, path: str, subject: Callable[[Any], list[str]], role: Role = "operator") -> Callable[[F], F]:
        """Make `act(scene, body) -> Done` an action of those who have a role."""

        def add(act: F) -> F:
            hints = get_type_hints(act, include_extras=True)
            name = path.strip("/").replace("/", ".")
            self.actions.append(Action(path, name, _summary(act), hints["body"], act, subject, role))
            return act

        return add


def _summary(function: Callable[..., Any]) -> str:
    return (function.__doc__ or function.__name__).strip().splitlines()[0]
