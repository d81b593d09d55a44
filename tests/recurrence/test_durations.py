"""A duration is a phrase, a timedelta or a number of seconds; everything else is refused with words."""

from __future__ import annotations

import contextlib
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.errors import InvalidInput
from mainspring.recurrence.durations import format_duration, parse_duration

PHRASES = [
    ("1s", 1),
    ("0s", 0),
    ("90s", 90),
    ("90m", 5_400),
    ("36h", 129_600),
    ("1d", 86_400),
    ("1w", 604_800),
    ("4w3d2h1m", 44_761 * 60),
    ("1m1w", 604_860),
    ("1d1d", 172_800),
    ("007s", 7),
    ("1h30m", 5_400),
]


@pytest.mark.parametrize(("phrase", "seconds"), PHRASES)
def test_a_phrase_is_the_sum_of_its_parts(phrase: str, seconds: int) -> None:
    assert parse_duration(phrase) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", [0, 1, 2.5, 0.001, 86_400, timedelta(0), timedelta(days=3, microseconds=7)])
def test_a_number_is_seconds_and_a_timedelta_is_itself(value: float | timedelta) -> None:
    expected = value if isinstance(value, timedelta) else timedelta(seconds=value)
    assert parse_duration(value) == expected


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("", "write one like"),
        ("   ", "write one like"),
        ("1", "no unit"),
        ("h", "whole numbers with the units"),
        ("1H", "lower case"),
        ("+1h", "'1h'"),
        ("1h 2m", "'1h2m'"),
        ("1µs", "units s, m, h, d or w"),
        ("1.5h", "whole"),
        ("1,5h", "whole"),
        ("-1h", "negative"),
        ("1h\n", "'1h'"),
        ("1y", "units s, m, h, d or w"),
        ("1hour", "units s, m, h, d or w"),
        ("\u0661h", "units s, m, h, d or w"),
        ("9" * 20 + "w", "longer than"),
        ("1s" * 1_000, "too long"),
        (-1, "negative"),
        (-0.5, "negative"),
        (timedelta(seconds=-1), "negative"),
        (math.nan, "not a number of seconds"),
        (math.inf, "not a number of seconds"),
        (-math.inf, "not a number of seconds"),
        (10**30, "longer than"),
        (1e300, "longer than"),
        (True, "bool"),
        (False, "bool"),
        (None, "NoneType"),
        (b"1h", "bytes"),
        ([1], "list"),
    ],
)
def test_what_is_no_duration_is_refused_with_words(value: Any, word: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_duration(value)
    assert str(caught.value).startswith("duration: ")
    assert word in str(caught.value)


@given(st.integers(0, 10**9))
def test_a_formatted_duration_reads_back(seconds: int) -> None:
    duration = timedelta(seconds=seconds)
    assert parse_duration(format_duration(duration)) == duration


@given(st.text() | st.text("0123456789smhdw. -+") | st.floats() | st.integers() | st.timedeltas())
def test_any_value_is_a_duration_or_invalid_input(value: Any) -> None:
    with contextlib.suppress(InvalidInput):
        assert parse_duration(value) >= timedelta(0)
