"""Specs of all kinds, for the tests that try any."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import available_timezones

from hypothesis import strategies as st

from mainspring.recurrence import Calendar, Interval

ZONES = sorted(available_timezones() - {"localtime", "Factory"})
ODD_ZONES = [
    "Africa/Casablanca",
    "America/Asuncion",
    "America/Havana",
    "America/New_York",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Fakaofo",
    "UTC",
]

zones = st.sampled_from(ODD_ZONES) | st.sampled_from(ZONES)


def field_text(low: int, high: int, *, starred: bool = True) -> st.SearchStrategy[str]:
    """Lists as a person might write them."""
    value = st.integers(low, high)
    pair = st.tuples(value, value).map(sorted)
    items = [
        value.map(str),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(pair, st.integers(1, high)).map(lambda both: f"{both[0][0]}-{both[0][1]}/{both[1]}"),
        st.tuples(value, st.integers(1, high)).map(lambda both: f"{both[0]}/{both[1]}"),
        st.integers(1, max(2, high // 2)).map(lambda step: f"*/{step}"),
    ]
    lists = st.lists(st.one_of(*items), min_size=1, max_size=3).map(",".join)
    return st.just("*") | lists if starred else lists


_dates = field_text(1, 31) | st.sampled_from(["L", "L-1", "L-30", "LW", "1W", "15W", "31W", "1,L", "*"])
_weekdays = field_text(0, 7) | st.sampled_from(["1#1", "5#5", "0L", "mon-fri", "sat,sun", "*", "*", "fri#2,monL"])
_hours = field_text(0, 23) | st.sampled_from(["0", "1", "2", "3", "23", "0-3", "*", "*"])
_months = st.just("*") | st.just("*") | field_text(1, 12)


@st.composite
def calendars(draw: st.DrawFn, *, seconds: bool = False, dense: bool = True) -> Calendar:
    """A calendar; a dense one has some times in nearly every week."""
    given: dict[str, Any] = {"hour": draw(_hours), "minute": draw(field_text(0, 59))}
    if draw(st.booleans()):
        given["day_of_week"] = draw(_weekdays)
    if draw(st.integers(0, 3)) == 0:
        given["day_of_month"] = draw(_dates)
    if not dense:
        given["month"] = draw(_months)
        if draw(st.integers(0, 4)) == 0:
            given["year"] = draw(field_text(2000, 2100))
    if seconds:
        given["second"] = draw(field_text(0, 59))
    return Calendar(**given)


_exclusion_fields: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "hour": field_text(0, 23),
        "minute": field_text(0, 59),
        "day_of_week": field_text(0, 7),
        "day_of_month": field_text(1, 31),
    },
)
exclusion_calendars = _exclusion_fields.map(Calendar.from_dict)

intervals = st.integers(1, 3_000).flatmap(
    lambda minutes: st.integers(0, minutes - 1).map(lambda offset: Interval(minutes * 60, offset * 60))
)

dates = st.dates(date(2000, 1, 1), date(2040, 1, 1))
gap_policies = st.sampled_from(["after", "skip", "shift"])
fold_policies = st.sampled_from(["first", "second", "both"])
instants = st.datetimes(datetime(2000, 1, 3), datetime(2099, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds of naive ones


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """The arguments of any spec."""
    return {
        "calendars": draw(st.lists(calendars(dense=False), max_size=3)),
        "intervals": draw(st.lists(intervals, max_size=2)),
        "exclude": draw(
            st.lists(
                exclusion_calendars | dates | st.tuples(dates, dates).map(lambda two: tuple(sorted(two))), max_size=3
            )
        ),
        "timezone": draw(zones),
        "gap": draw(gap_policies),
        "fold": draw(fold_policies),
        "jitter": draw(st.sampled_from([0, "5m", "2h"])),
    }
