"""The filters of runs and of schedules: each a record, from which keywords, command-line options and query parameters follow.

The values are checked here. An error names the filter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypedDict, get_type_hints

from msgspec.structs import replace

from mainspring.errors import InvalidInput, NotSerializable
from mainspring.model.given import attributes_json, check_flag, check_name, check_time, check_whole
from mainspring.model.runs import USER, RunFilter
from mainspring.model.states import NOT_BEGUN, State
from mainspring.store.schedules import ScheduleFilter

_CURSOR = re.compile(r"[0-9a-z]{23}")
_TIME_CURSOR = re.compile(r"(-?[0-9]{1,18}):(.*)", re.DOTALL)
MOST_VALUES = 10_000
"""The maximum number of values of a filter. Databases limit the values of one statement."""
Texts: TypeAlias = str | Collection[str] | None
"""One text or several."""
Time: TypeAlias = datetime | float | None
"""An aware datetime, or seconds since the epoch."""


class Filter(NamedTuple):
    """The description of a filter for the command line and the API. It annotates the fields of a record of filters."""

    help: str
    kind: Literal["texts", "attributes", "flag", "time"] = "texts"
    metavar: str = "NAME"
    choices: tuple[str, ...] = ()
    """The allowed values. Empty: any."""
    options: tuple[str, ...] = ()
    """The options on the command line, if they differ from the filter's name."""


def filters_of_record(record: type) -> dict[str, Filter]:
    """Return the filters that a record annotates, by name. Keywords, options and query parameters follow from them."""
    hints = get_type_hints(record, include_extras=True)
    return {name: next(each for each in hint.__metadata__ if isinstance(each, Filter)) for name, hint in hints.items()}


# -- the records -----------------------------------------------------------------------------------------------------------
KINDS = ("workflow", "step", "transaction")


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


class ScheduleFilters(TypedDict, total=False):
    """Filters of schedules, which must all match. Of several texts one must match."""

    id_prefix: Annotated[Texts, Filter("Only ids that begin so.", metavar="TEXT")]
    workflow: Annotated[Texts, Filter("Only those that start this function.")]
    paused: Annotated[
        bool | None, Filter("Only paused ones, or only those that are not.", "flag", options=("--paused/--active",))
    ]
    failing: Annotated[bool | None, Filter("Only those whose last run failed.", "flag")]
    attributes: Annotated[
        Mapping[str, Any] | None, Filter("Only with this attribute.", "attributes", options=("--attribute",))
    ]
    """Schedules whose attributes include all of these."""
    due_before: Annotated[Time, Filter("Only those that act before this time.", "time")]


SCHEDULE_FILTERS: dict[str, Filter] = filters_of_record(ScheduleFilters)
"""The filters by name, as the command line and the dashboard offer them."""


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
        states = NOT_BEGUN
    text_of_attributes = None if attributes is None else attributes_text(attributes)
    wanted = RunFilter(
        states=states,
        attributes=text_of_attributes if attributes else None,
        stranded=flag("stranded", given.get("stranded")),
        before=cursor(text("after", before)),
        limit=limit,
        created=_span(given, "created"),
        started=_span(given, "started"),
        completed=_span(given, "completed"),
        due=_span(given, "due"),
    )
    return replace(wanted, **chosen)


def _span(given: RunFilters, name: str) -> tuple[int | None, int | None]:
    first, last = f"{name}_after", f"{name}_before"
    return time(first, given.get(first)), time(last, given.get(last))


def schedule_filter(given: ScheduleFilters, *, after: str | None = None, limit: int = 50) -> ScheduleFilter:
    """Return the filter for the store. Raises `InvalidInput`, with the allowed values, for a wrong filter."""
    refuse_unknown("schedules", given, SCHEDULE_FILTERS)
    attributes = given.get("attributes")
    return ScheduleFilter(
        id_prefix=texts("id_prefix", given.get("id_prefix")),
        workflow=texts("workflow", given.get("workflow")),
        paused=flag("paused", given.get("paused")),
        failing=flag("failing", given.get("failing")),
        attributes=None if attributes is None else attributes_text(attributes),
        due_before=time("due_before", given.get("due_before")),
        after=text("after", after),
        limit=page_size(limit),
    )


# -- the values ------------------------------------------------------------------------------------------------------------
def refuse_unknown(what: str, given: Mapping[str, Any], known: Mapping[str, Filter]) -> None:
    """Raise `InvalidInput` for filters that do not exist."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidInput(f"{what} have no filter {', '.join(unknown)}; there are {', '.join(known)}")


def one_of(name: str, given: object, choices: Collection[str]) -> tuple[str, ...]:
    """Return one text or several. Raises `InvalidInput` if one is not among `choices`."""
    found = texts(name, given)
    unknown = [each for each in found if choices and each not in choices]
    if unknown:
        raise InvalidInput(f"there is no {name} {', '.join(unknown)}; there are {', '.join(choices)}")
    return found


def time(name: str, given: object) -> int | None:
    """Return a point in time as microseconds, or None."""
    return None if given is None else check_time(name, given)


def texts(name: str, given: object) -> tuple[str, ...]:
    """Return one text or several as a tuple. None and an empty list return an empty one."""
    if given is None:
        return ()
    values = (given,) if isinstance(given, str) else given
    if not isinstance(values, Collection) or isinstance(values, Mapping):
        raise InvalidInput(f"{name} is a text or a list of texts, not {given!r}")
    found: tuple[Any, ...] = tuple(values)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if len(found) > MOST_VALUES:
        raise InvalidInput(f"{name} has {len(found):,} values; ask for at most {MOST_VALUES:,} at a time")
    for each in found:
        if not isinstance(each, str):
            raise InvalidInput(f"{name} is a text or a list of texts, not {given!r}")
        check_name(name, each)
    return tuple(str(each) for each in found)


def text(name: str, given: object) -> str | None:
    """Return one text, or None."""
    return None if given is None else check_name(name, given)


def flag(name: str, given: object) -> bool | None:
    """Return True, False, or None for either."""
    return None if given is None else check_flag(name, given)


def attributes_text(given: object) -> str:
    """Return attributes as JSON text. Raises `InvalidInput` for those that are not JSON."""
    try:
        return attributes_json(given, "attributes")
    except NotSerializable as error:
        raise InvalidInput(str(error)) from None


def page_size(given: object) -> int:
    """Return the size of a page. Raises `InvalidInput` for one below 1."""
    return check_whole("limit", given, 1)


def cursor(given: str | None) -> str | None:
    """Return the `next` of a page, passed back. Anything else is an error, because it would silently return the first page."""
    if given is not None and not _CURSOR.fullmatch(check_name("after", given)):
        raise InvalidInput(f"after is the `next` of the page before, not {given!r}")
    return given


def time_cursor(given: str | None) -> tuple[int, str] | None:
    """Return the `next` of a page that is ordered by a time and an id."""
    if given is None:
        return None
    found = _TIME_CURSOR.fullmatch(check_name("after", given))
    if found is None:
        raise InvalidInput(f"after is the `next` of the page before, not {given!r}")
    return int(found[1]), found[2]
