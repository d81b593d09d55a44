"""Any spec, in any zone, around any transition, has exactly the times that walking through them finds."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.recurrence import Calendar, DateRange, Spec
from tests.recurrence.brute import Brute, transitions
from tests.recurrence.strategies import (
    ZONES,
    calendars,
    dates,
    exclusion_calendars,
    fold_policies,
    gap_policies,
    intervals,
    zones,
)
from tests.support.samples import of

HOUR, DAY = 3_600, 86_400


def brute(spec: Spec) -> Brute:
    excluded = [item.excluding().fields() for item in spec.exclude if isinstance(item, Calendar)]
    ranges = [(item.first, item.last) for item in spec.exclude if isinstance(item, DateRange)]
    return Brute(
        [calendar.fields() for calendar in spec.calendars],
        ZoneInfo(spec.timezone),
        spec.gap,
        spec.fold,
        [(interval.cycle.every, interval.cycle.phase) for interval in spec.intervals],
        excluded,
        ranges,
    )


def near_a_transition(data: st.DataObject, key: str) -> int:
    """A transition of the zone if it has any, else some hour of some year."""
    changes = transitions(key)
    if changes:
        return data.draw(st.sampled_from(changes))
    return data.draw(st.integers(946_857_600 // HOUR, 2_208_988_800 // HOUR)) * HOUR


def assert_same_times(spec: Spec, begin: int, end: int, step: int) -> None:
    expected = brute(spec).times(begin, end, step)
    found = [round(when.timestamp()) for when in spec.between(begin - 1, end)]
    assert found == expected
    walked: list[int] = []
    when = spec.next(datetime.fromtimestamp(begin - 1, spec.zone.tzinfo))
    while when is not None and when.timestamp() <= end:
        walked.append(round(when.timestamp()))
        when = spec.next(when)
    assert walked == expected
    backwards: list[int] = []
    at = spec.previous(end + 1)
    while at is not None and at.timestamp() >= begin:
        backwards.append(round(at.timestamp()))
        at = spec.previous(at)
    assert backwards[::-1] == expected[-len(backwards) :] if backwards else not expected


def policy(data: st.DataObject) -> dict[str, Any]:
    return {"gap": data.draw(gap_policies), "fold": data.draw(fold_policies)}


@pytest.mark.sampled
@settings(max_examples=of(150, 40), deadline=None)
@given(st.data())
def test_any_calendars_in_any_zone_around_its_transitions(data: st.DataObject) -> None:
    key = data.draw(zones)
    around = near_a_transition(data, key)
    spec = Spec(calendars=data.draw(st.lists(calendars(), min_size=1, max_size=3)), timezone=key, **policy(data))
    begin = (around - data.draw(st.integers(0, 40)) * HOUR) // 60 * 60
    assert_same_times(spec, begin, begin + 50 * HOUR, 60)


@pytest.mark.sampled
@settings(max_examples=of(30, 10), deadline=None)
@given(st.data())
def test_calendars_to_the_second_around_transitions(data: st.DataObject) -> None:
    key = data.draw(zones)
    around = near_a_transition(data, key)
    spec = Spec(calendars=[data.draw(calendars(seconds=True))], timezone=key, **policy(data))
    begin = around - data.draw(st.integers(0, 2 * HOUR))
    assert_same_times(spec, begin, begin + 3 * HOUR, 1)


@pytest.mark.sampled
@settings(max_examples=of(100, 40), deadline=None)
@given(st.data())
def test_exclusions_and_intervals_around_transitions(data: st.DataObject) -> None:
    key = data.draw(zones)
    around = near_a_transition(data, key)
    spec = Spec(
        calendars=data.draw(st.lists(calendars(), max_size=2)),
        intervals=data.draw(st.lists(intervals, max_size=2)),
        exclude=data.draw(st.lists(exclusion_calendars | dates, max_size=3)),
        timezone=key,
        **policy(data),
    )
    begin = (around - data.draw(st.integers(0, 40)) * HOUR) // 60 * 60
    assert_same_times(spec, begin, begin + 50 * HOUR, 60)


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(of(8, 2)))
def test_every_zone_of_the_database(part: int) -> None:
    """One transition of each zone, or of each fourth one, with calendars that such transitions hit, under each policy in turn."""
    policies: list[dict[str, Any]] = [
        {"gap": gap, "fold": fold} for gap in ("after", "skip", "shift") for fold in ("first", "second", "both")
    ]
    nightly = [
        Calendar(hour="0-3,23", minute="*/15"),
        Calendar(hour="2", minute="30"),
        Calendar(minute="*/20", hour="*"),
    ]
    for index, key in enumerate(ZONES):
        changes = transitions(key)
        if index % 8 != part or not changes:
            continue
        around = changes[index % len(changes)] // 60 * 60
        spec = Spec(calendars=nightly[:2] if index % 2 else nightly, timezone=key, **policies[index % 9])
        expected = brute(spec).times(around - 5 * HOUR, around + 5 * HOUR)
        found = [round(when.timestamp()) for when in spec.between(around - 5 * HOUR - 1, around + 5 * HOUR)]
        assert found == expected, key
