"""What holds for every spec there is."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.recurrence import Calendar, Spec
from mainspring.recurrence.search import days
from tests.recurrence.strategies import calendars, instants, specs, zones

SECOND = timedelta(seconds=1)
NO_EXCLUSIONS: dict[str, Any] = {"exclude": []}


def instant(when: datetime) -> datetime:
    return when.astimezone(UTC)


@settings(max_examples=150, deadline=None)
@given(specs(), instants)
def test_next_is_strictly_later_and_previous_is_its_inverse(given_spec: dict[str, Any], after: datetime) -> None:
    spec = Spec(**given_spec)
    following = spec.next(after)
    if following is None:
        return
    assert following > after
    assert spec.matches(following)
    before = spec.previous(following)
    assert before is None or instant(before) <= after
    assert before is None or spec.next(before) == following
    assert instant(spec.previous(instant(following) + SECOND) or after) == instant(following)


@settings(max_examples=150, deadline=None)
@given(calendars(dense=False), zones, instants)
def test_next_is_the_same_from_any_zone(calendar: Calendar, key: str, after: datetime) -> None:
    """A datetime of the spec's own zone takes a short cut; it must lead to the same place."""
    spec = Spec(calendars=[calendar], timezone=key)
    days.day_set.cache_clear()
    here = spec.next(after.astimezone(spec.zone.tzinfo))
    there = spec.next(after)
    assert (here is None) == (there is None)
    if here is not None and there is not None:
        assert here.isoformat() == there.isoformat()


@settings(max_examples=100, deadline=None)
@given(specs(), instants, st.floats(0, 1, exclude_max=True))
def test_every_instant_between_two_times_has_the_same_next(
    given_spec: dict[str, Any], after: datetime, part: float
) -> None:
    spec = Spec(**given_spec)
    times = [instant(when) for when in spec.upcoming(after, 5)]
    for one, two in pairwise(times):
        between = min(one + (two - one) * part, two - timedelta(microseconds=1))
        # A local time that is repeated never equals one of another zone, so it is instants that are compared.
        found = spec.next(between), spec.previous(between + timedelta(microseconds=1))
        assert [instant(when) for when in found if when is not None] == [two, one]
        assert not spec.matches(between) or between == one


@settings(max_examples=100, deadline=None)
@given(specs(), instants)
def test_the_canonical_form_means_the_same_and_is_its_own(given_spec: dict[str, Any], after: datetime) -> None:
    spec = Spec(**given_spec)
    canonical = spec.canonical()
    assert canonical == spec
    assert hash(canonical) == hash(spec)
    assert canonical.upcoming(after, 3) == spec.upcoming(after, 3)
    assert canonical.canonical().to_dict() == canonical.to_dict()


@settings(max_examples=100, deadline=None)
@given(specs())
def test_a_spec_survives_json_and_pickle(given_spec: dict[str, Any]) -> None:
    spec = Spec(**given_spec)
    written = spec.to_dict()
    again = Spec.from_dict(json.loads(json.dumps(written)))
    assert again == spec
    assert again.to_dict() == written
    assert pickle.loads(pickle.dumps(spec)) == spec


@settings(max_examples=100, deadline=None)
@given(specs(), instants, st.text(max_size=8))
def test_jitter_delays_within_its_bounds_and_always_alike(
    given_spec: dict[str, Any], after: datetime, seed: str
) -> None:
    spec = Spec(**given_spec)
    nominal, later = spec.next(after), spec.next(after, seed)
    if nominal is None or later is None:
        assert nominal is later
        return
    assert later == spec.next(after, seed) == spec.jittered(nominal, seed)
    delay = instant(later) - instant(nominal)
    assert timedelta(0) <= delay <= max(spec.jitter - timedelta(microseconds=1), timedelta(0))
    following = Spec(**(given_spec | NO_EXCLUSIONS)).next(nominal)
    assert following is None or instant(later) < instant(following)


@settings(max_examples=100, deadline=None)
@given(calendars(seconds=True, dense=False))
def test_a_calendar_means_what_its_canonical_spelling_means(calendar: Calendar) -> None:
    again = Calendar.from_dict(calendar.canonical().to_dict())
    assert again == calendar
    assert again.fields() == calendar.fields()
    assert Calendar.from_dict(calendar.to_dict()) == calendar


@settings(max_examples=100, deadline=None)
@given(specs())
def test_every_spec_can_be_put_into_words(given_spec: dict[str, Any]) -> None:
    spec = Spec(**given_spec)
    words = spec.describe()
    assert words
    assert words[0].isupper()
    assert "None" not in words
    assert "\n" not in words
