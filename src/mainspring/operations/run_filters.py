"""Which runs are meant, in the words of whoever asks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from msgspec.structs import replace

from mainspring.codec.attributes import attributes_json
from mainspring.errors import InvalidInput, NotSerializable
from mainspring.model.clock import to_micros
from mainspring.model.states import State
from mainspring.operations.filter_values import cursor, flag, text, texts
from mainspring.store.protocol import RunFilter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_NOT_BEGUN = (State.SCHEDULED, State.QUEUED)
Texts: TypeAlias = "str | Collection[str] | None"
TEXTS = (
    *("state", "ids", "id_prefix", "workflow", "kind", "queue", "key"),
    *("parent", "schedule", "version", "forked_from"),
)
"""The filters that are texts, of which several can be given."""


class RunTraits(TypedDict, total=False):
    """Runs that are all of this. Of several texts one has to fit. Times are aware datetimes: `…_after` is inclusive, `…_before` is not."""

    id_prefix: Texts
    state: Texts
    workflow: Texts
    kind: Texts
    queue: Texts
    key: Texts
    """Of those that have not ended one at most has it."""
    parent: Texts
    schedule: Texts
    version: Texts
    forked_from: Texts
    attributes: Mapping[str, Any] | None
    """Runs whose attributes have all of these."""
    stranded: bool | None
    created_after: datetime | None
    created_before: datetime | None
    started_after: datetime | None
    started_before: datetime | None
    completed_after: datetime | None
    completed_before: datetime | None
    due_after: datetime | None
    """By when they may start: of those that have not begun, unless `state` says otherwise."""
    due_before: datetime | None


class RunFilters(RunTraits, total=False):
    """The same, of some ids."""

    ids: Texts


def run_filter(given: RunFilters, *, before: str | None = None, limit: int = 50) -> RunFilter:
    """The same for the store. What makes no sense is an error that says what would."""
    unknown = sorted(set(given) - set(RunFilters.__annotations__))
    if unknown:
        raise InvalidInput(f"runs are not found by {', '.join(unknown)}; by {', '.join(RunFilters.__annotations__)}")
    attributes = given.get("attributes")
    chosen = {name: texts(name, given.get(name)) for name in TEXTS}
    states = _states(chosen.pop("state"))
    if not states and (given.get("due_after") or given.get("due_before")):
        states = _NOT_BEGUN
    wanted = RunFilter(
        states=states,
        attributes=None if attributes is None else _attributes(attributes),
        stranded=flag("stranded", given.get("stranded")),
        before=cursor(text("after", before)),
        limit=limit,
        created=_span(given, "created"),
        started=_span(given, "started"),
        completed=_span(given, "completed"),
        due=_span(given, "due"),
    )
    return replace(wanted, **chosen)


def _states(names: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in {*State}]
    if unknown:
        raise InvalidInput(f"there is no state {', '.join(unknown)}; there are {', '.join(State)}")
    return names


def _attributes(given: Mapping[str, Any]) -> str | None:
    try:
        text = attributes_json(given, "attributes")
    except NotSerializable as error:
        raise InvalidInput(str(error)) from None
    return text if given else None


def _span(given: RunFilters, name: str) -> tuple[int | None, int | None]:
    return _time(given, f"{name}_after"), _time(given, f"{name}_before")


def _time(given: RunFilters, name: str) -> int | None:
    value: Any = given.get(name)
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(f"{name} is an aware datetime, such as datetime.now(UTC), not {value!r}")
    return to_micros(value)
