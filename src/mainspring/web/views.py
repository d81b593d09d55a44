"""Views and actions. Each is defined once, and served as a page, as JSON and in the API's description."""

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
    from mainspring.operations.filters import Filter
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
    """The context of a view or action."""

    operations: Operations
    redactor: Redactor

    @property
    def now(self) -> int:
        return self.operations.clock.now()


class NoQuery(Struct):
    """The query of a page that takes no parameters."""


class Body(Struct, forbid_unknown_fields=True):
    """The body of an action. An unknown name is an error, because it may be a misspelled one."""


class Done(Struct):
    """The answer of an action: a sentence and the result."""

    message: str
    result: dict[str, Any]
    run: str | None = None
    """The run that the action created, if any."""


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
    """An action of an operator. `subject` returns the ids that a request is about; the rest of the request is details.

    Its name, sentence and role are those of the operator verb.
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
        """Register `look(scene, query) -> answer` as a page. Its docstring is the summary, its annotations describe it."""

        def add(look: F) -> F:
            hints = get_type_hints(look, include_extras=True)
            asked = query or hints["query"]
            made = View(path, look.__name__, summary_of(look), template, asked, hints["return"], look, role)
            self.views.append(made)
            return look

        return add

    def action(self, verb: Verb, subject: Callable[[Any], list[str]], path: str | None = None) -> Callable[[F], F]:
        """Register `act(scene, body)` as the action of an operator verb.

        It returns the result of the verb, whose answer is about the first id of `subject`, or a `Done`.
        """

        def add(act: F) -> F:
            where = path or f"/{verb.noun}/{verb.name.replace('_', '-')}"
            hints = get_type_hints(act, include_extras=True)

            def answered(scene: Scene, body: Any) -> Done:
                result = act(scene, body)
                return result if isinstance(result, Done) else done(verb.answer("".join(subject(body)[:1]), result))

            self.actions.append(Action(where, verb.label, verb.summary, hints["body"], answered, subject, verb.role))
            return act

        return add


def done(answer: Answer) -> Done:
    """Return the answer of an operator verb as a `Done`."""
    return Done(answer.message, answer.result, answer.run)


def query_of(name: str, filters: Mapping[str, Filter], *more: tuple[str, Any, Any], doc: str) -> type[Struct]:
    """Return a type of query parameters for a record of filters, with further parameters."""
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
    """Return the type of a value of `kind` or null."""
    return kind | None
