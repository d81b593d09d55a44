"""What a page is and what an action is. Each is written once, and answered as a page, as JSON and in the API's description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, get_type_hints

from msgspec import Meta, Struct, defstruct, field

from mainspring.operations.actions import Answer, Role, summary_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.operations.actions import Action as Verb
    from mainspring.operations.connect import Operations
    from mainspring.operations.filter_values import Filter
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
    """A page. `look` blocks, and is called on a thread."""

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
    """Something an operator does. `subject` says which ids a request is about; the rest of it is details.

    Its name, its sentence and the role that it takes are those of the operator verb.
    """

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

    def view(
        self, path: str, template: str, role: Role = "viewer", query: type[Struct] | None = None
    ) -> Callable[[F], F]:
        """Make `look(scene, query) -> answer` a page. Its docstring is the summary, its annotations describe it."""

        def add(look: F) -> F:
            hints = get_type_hints(look, include_extras=True)
            asked = query or hints["query"]
            made = View(path, look.__name__, summary_of(look), template, asked, hints["return"], look, role)
            self.views.append(made)
            return look

        return add

    def action(self, verb: Verb, subject: Callable[[Any], list[str]], path: str | None = None) -> Callable[[F], F]:
        """Make `act(scene, body) -> Done` the action for an operator verb."""

        def add(act: F) -> F:
            where = path or f"/{verb.noun}/{verb.name.replace('_', '-')}"
            hints = get_type_hints(act, include_extras=True)
            made = Action(where, verb.label, verb.summary, hints["body"], act, subject, verb.role)
            self.actions.append(made)
            return act

        return add


def done(answer: Answer) -> Done:
    """The answer of an operator verb, for a browser or a program."""
    return Done(answer.message, answer.result, answer.run)


def query_of(name: str, filters: Mapping[str, Filter], *more: tuple[str, Any, Any], doc: str) -> type[Struct]:
    """The query parameters that a record of filters gives, and more of them."""
    fields: list[Any] = []
    for each, filter_ in filters.items():
        about = Meta(description=filter_.help)
        if filter_.kind == "flag":
            fields.append((each, _or_none(Annotated[bool, about]), None))
        elif filter_.kind == "time":
            fields.append((each, _or_none(Annotated[Moment, about]), None))
        elif filter_.kind == "attributes":
            says = "A JSON object: those that have all of it."
            fields.append((each, _or_none(Annotated[str, Meta(max_length=2_000, description=says)]), None))
        else:
            kind: Any = Literal[filter_.choices] if filter_.choices else Annotated[str, Meta(max_length=600)]
            fields.append((each, Annotated[list[kind], about], field(default_factory=list)))
    made = defstruct(name, [*fields, *more], module=__name__)
    made.__doc__ = doc
    return made


def _or_none(kind: Any) -> Any:
    """The same type, or null."""
    return kind | None
