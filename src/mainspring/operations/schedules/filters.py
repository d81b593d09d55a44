"""The filters of schedules: one record, from which keywords, command-line options and query parameters follow."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the record is read at run time)
from typing import Annotated, Any, TypedDict

from mainspring.codec.attributes import attributes_json
from mainspring.errors import InvalidInput, NotSerializable
from mainspring.operations.filter_values import (
    Filter,
    Texts,
    Time,
    filters_of_record,
    flag,
    page_size,
    refuse_unknown,
    text,
    texts,
    time,
)
from mainspring.store.schedules import ScheduleFilter


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


def schedule_filter(given: ScheduleFilters, *, after: str | None = None, limit: int = 50) -> ScheduleFilter:
    """Return the filter for the store. Raises `InvalidInput`, with the allowed values, for a wrong filter."""
    refuse_unknown("schedules", given, SCHEDULE_FILTERS)
    attributes = given.get("attributes")
    try:
        wanted = None if attributes is None else attributes_json(attributes, "attributes")
    except NotSerializable as error:
        raise InvalidInput(str(error)) from None
    return ScheduleFilter(
        id_prefix=texts("id_prefix", given.get("id_prefix")),
        workflow=texts("workflow", given.get("workflow")),
        paused=flag("paused", given.get("paused")),
        failing=flag("failing", given.get("failing")),
        attributes=wanted,
        due_before=time("due_before", given.get("due_before")),
        after=text("after", after),
        limit=page_size(limit),
    )
