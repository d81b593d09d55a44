"""The filters of runs: one record, from which keywords, command-line options and query parameters follow."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the record is read at run time)
from typing import Annotated, Any, TypedDict

from msgspec.structs import replace

from mainspring.codec.attributes import attributes_json
from mainspring.errors import InvalidInput, NotSerializable
from mainspring.model.runs import USER, RunFilter
from mainspring.model.states import State
from mainspring.operations.filter_values import (
    Filter,
    Texts,
    Time,
    cursor,
    filters_of_record,
    flag,
    one_of,
    refuse_unknown,
    text,
    time,
)

KINDS = ("workflow", "step", "transaction")
_NOT_BEGUN = (State.SCHEDULED, State.QUEUED)


class RunTraits(TypedDict, total=False):
    """Filters of runs, which must all match.

    Of several texts one must match. Times are aware datetimes: `…_after` is inclusive, `…_before` is not.
    """

    id_prefix: Annotated[Texts, Filter("Only ids that begin so.", metavar="TEXT")]
    state: Annotated[Texts, Filter("Only in this state.", choices=tuple(state.value for state in State))]
    workflow: Annotated[Texts, Filter("Only of this function.", options=("--workflow", "--name"))]
    kind: Annotated[Texts, Filter("Only of this kind of function.", choices=KINDS)]
    queue: Annotated[Texts, Filter("Only of this queue.")]
    key: Annotated[Texts, Filter("Only with this key.", metavar="KEY")]
    """At most one unfinished run has a key."""
    parent: Annotated[Texts, Filter("Only children of this run.", metavar="ID")]
    schedule: Annotated[Texts, Filter("Only those that this schedule started.", metavar="ID")]
    version: Annotated[Texts, Filter("Only those that this version of the app began.", metavar="VERSION")]
    forked_from: Annotated[Texts, Filter("Only forks of this run.", metavar="ID")]
    user: Annotated[str | None, Filter("Only those for this user.", metavar="USER")]
    """Runs whose attribute `user`, which `options(user=…)` sets, has this value."""
    attributes: Annotated[
        Mapping[str, Any] | None, Filter("Only with this attribute.", "attributes", options=("--attribute",))
    ]
    """Runs whose attributes include all of these."""
    stranded: Annotated[bool | None, Filter("Only those that no live worker can continue.", "flag")]
    created_after: Annotated[Time, Filter("Only created at this time or later.", "time")]
    created_before: Annotated[Time, Filter("Only created before this time.", "time")]
    started_after: Annotated[Time, Filter("Only started at this time or later.", "time")]
    started_before: Annotated[Time, Filter("Only started before this time.", "time")]
    completed_after: Annotated[Time, Filter("Only completed at this time or later.", "time")]
    completed_before: Annotated[Time, Filter("Only completed before this time.", "time")]
    due_after: Annotated[Time, Filter("Only due at this time or later.", "time")]
    """Runs by the time at which they may start. Only those that have not begun, unless `state` is given."""
    due_before: Annotated[Time, Filter("Only due before this time.", "time")]


class RunFilters(RunTraits, total=False):
    """The filters of `RunTraits`, and ids."""

    ids: Annotated[Texts, Filter("Only these.", metavar="ID")]


TRAITS: dict[str, Filter] = filters_of_record(RunTraits)
"""The filters by name, as the command line and the dashboard offer them."""
FILTERS: dict[str, Filter] = filters_of_record(RunFilters)
TEXTS = tuple(name for name, each in FILTERS.items() if each.kind == "texts")
"""The filters by text, which accept several values."""


def run_filter(given: RunFilters, *, before: str | None = None, limit: int = 50) -> RunFilter:
    """Return the filter for the store. Raises `InvalidInput`, with the allowed values, for a wrong filter."""
    refuse_unknown("runs", given, FILTERS)
    attributes = given.get("attributes")
    chosen = {name: one_of(name, given.get(name), FILTERS[name].choices) for name in TEXTS}
    states = chosen.pop("state")
    users = chosen.pop("user")
    if len(users) > 1:
        raise InvalidInput(f"user is one user, not {len(users)} of them")
    if users:
        attributes = {**(attributes or {}), USER: users[0]}
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


def _attributes(given: Mapping[str, Any]) -> str | None:
    try:
        text = attributes_json(given, "attributes")
    except NotSerializable as error:
        raise InvalidInput(str(error)) from None
    return text if given else None


def _span(given: RunFilters, name: str) -> tuple[int | None, int | None]:
    first, last = f"{name}_after", f"{name}_before"
    return time(first, given.get(first)), time(last, given.get(last))
