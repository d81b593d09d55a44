"""Which runs are meant, in the words of whoever asks."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from mainspring.errors import InvalidInput
from mainspring.model.clock import to_micros
from mainspring.model.states import State
from mainspring.store.protocol import RunFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NOT_BEGUN = (State.SCHEDULED, State.QUEUED)


class RunTraits(TypedDict, total=False):
    """Runs that are all of this. Times are aware datetimes: `…_after` is inclusive, `…_before` is not."""

    id_prefix: str | None
    state: str | Sequence[str]
    workflow: str | None
    kind: str | None
    queue: str | None
    key: str | None
    """Of those that have not ended one at most has it."""
    parent: str | None
    schedule: str | None
    version: str | None
    forked_from: str | None
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

    ids: Sequence[str]


def run_filter(given: RunFilters, *, before: str | None = None, limit: int = 50) -> RunFilter:
    """The same for the store. What makes no sense is an error that says what would."""
    unknown = sorted(set(given) - set(RunFilters.__annotations__))
    if unknown:
        raise InvalidInput(f"runs are not found by {', '.join(unknown)}; by {', '.join(RunFilters.__annotations__)}")
    attributes = given.get("attributes")
    states = _states(given.get("state", ()))
    if not states and (given.get("due_after") or given.get("due_before")):
        states = _NOT_BEGUN
    return RunFilter(
        states=states,
        ids=tuple(given.get("ids", ())),
        id_prefix=given.get("id_prefix"),
        workflow=given.get("workflow"),
        kind=given.get("kind"),
        queue=given.get("queue"),
        key=given.get("key"),
        parent=given.get("parent"),
        schedule=given.get("schedule"),
        version=given.get("version"),
        forked_from=given.get("forked_from"),
        attributes=None if not attributes else _attributes(attributes),
        stranded=given.get("stranded"),
        before=before,
        limit=limit,
        created=_span(given, "created"),
        started=_span(given, "started"),
        completed=_span(given, "completed"),
        due=_span(given, "due"),
    )


def _states(given: str | Sequence[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    unknown = [name for name in names if name not in {*State}]
    if unknown:
        raise InvalidInput(f"there is no state {', '.join(unknown)}; there are {', '.join(State)}")
    return names


def _attributes(given: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(given), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"attributes are plain JSON values by name, not {given!r}: {error}") from None


def _span(given: RunFilters, name: str) -> tuple[int | None, int | None]:
    return _time(given, f"{name}_after"), _time(given, f"{name}_before")


def _time(given: RunFilters, name: str) -> int | None:
    value: Any = given.get(name)
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(f"{name} is an aware datetime, such as datetime.now(UTC), not {value!r}")
    return to_micros(value)
