"""Whatever is given to the parsers is a value or an error with words; never another exception."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainspring.errors import InvalidCron, InvalidInput, InvalidSpec
from mainspring.recurrence import Calendar, Cron, Dialect, Spec, parse_crontab
from mainspring.recurrence.zones.tzif import parse_posix_rule, parse_tzif

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
DIALECTS: list[Dialect] = ["dbos", "graphile", "temporal", "vixie"]
cron_letters = st.text("0123456789*/,-# @?LWHlwh~.:=\t", max_size=40)
WORDS = """
    * */5 1-5 mon MON-FRI 0 59 60 L 15W 5#2 5L jan Sunday @daily @every 1h TZ=UTC CRON_TZ=Nowhere 2030 1,2,3 1-2-3 // 0/0
    7 999999999999999999999999 - , # x ? H 1W LW L-3 */0 */100 5-1 sun-sat 0-7
"""
cron_words = st.lists(st.sampled_from(WORDS.split()), max_size=8).map(" ".join)
any_text = st.text(max_size=60) | cron_letters | cron_words


def attempt(make: Callable[[], T]) -> tuple[T | None, InvalidSpec]:
    """What is made, and what was wrong if nothing was."""
    try:
        return make(), InvalidSpec("", [])
    except InvalidSpec as error:
        return None, error


@settings(max_examples=300, deadline=None)
@given(any_text, st.sampled_from(DIALECTS))
def test_any_text_is_a_cron_or_invalid(text: str, dialect: Dialect) -> None:
    cron, error = attempt(lambda: Cron(text, dialect))
    assert (cron is None) == bool(error.faults)
    assert all(fault.message for fault in error.faults)
    assert all(fault.column is None or 1 <= fault.column <= len(text) + 1 for fault in error.faults)
    if cron is not None:
        assert cron == Cron(text, dialect)
        cron.next(0)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", ["*" * 100_000, "1," * 50_000, "0 " * 50_000, "1-" * 400, "*/" * 400, "9" * 999])
def test_long_text_is_refused_at_once(text: str, dialect: Dialect) -> None:
    with pytest.raises(InvalidCron):
        Cron(text, dialect)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | cron_letters,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
spec_keys = st.sampled_from(
    [
        "cron",
        "calendars",
        "intervals",
        "exclude",
        "start",
        "end",
        "jitter",
        "timezone",
        "timezoneData",
        "gap",
        "fold",
        "x",
    ]
)
calendar_keys = st.sampled_from(
    ["year", "month", "dayOfMonth", "day_of_week", "hour", "minute", "second", "comment", "every"]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(spec_keys, json_values | st.dictionaries(calendar_keys, json_values, max_size=3), max_size=4))
@example({"timezoneData": "VFppZg=="})
@example({"cron": [{"cron": 5}]})
@example({"intervals": [{"every": float("nan")}]})
def test_any_json_is_a_spec_or_invalid(given_json: dict[str, Any]) -> None:
    with warnings.catch_warnings(), contextlib.suppress(InvalidSpec):
        warnings.simplefilter("ignore")
        spec = Spec.from_dict(given_json)
        assert Spec.from_dict(spec.to_dict()) == spec


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(calendar_keys, json_values, max_size=4))
def test_any_json_is_a_calendar_or_invalid(given_json: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidSpec):
        Calendar.from_dict(given_json).fields()


lines = st.lists(
    st.sampled_from(
        ["* * * * *", "0 4 * * 1", "*/5 1-5 1,2 * 7", "task", "?id=a", "?fill=1d&max=3", "{a:1}", "{", "}", "#"]
    )
    | st.text(max_size=10),
    max_size=9,
).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(lines, max_size=4).map("\n".join) | st.text(max_size=60))
@example("* * * * * t {a: Infinity}")
@example("* * * * * t {a: NaN}")
@example("* * * * * t {" + "a:{" * 60 + "}" * 61)
@example("* * * * * t {" + "a:{" * 5_000 + "}" * 5_001)
@example("* * * * * t {a:" + "9" * 6_000 + "}")
@example("* * * * * t {a:'\\u00'}")
@example("* * * * * t ?id=%")
def test_any_text_is_a_crontab_or_invalid(text: str) -> None:
    items, error = attempt(lambda: parse_crontab(text))
    assert (items is None) == bool(error.faults)
    assert all(fault.line is not None for fault in error.faults)
    assert len({item.identifier for item in items or []}) == len(items or [])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.binary(max_size=120).map(lambda rest: b"TZif2" + rest))
def test_any_bytes_are_a_zone_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_tzif(data)
    with contextlib.suppress(InvalidInput):
        Spec(timezone_data=data)


@settings(max_examples=200, deadline=None)
@given(st.text("ABC<>+-0123456789:,./MJ", max_size=40))
def test_any_text_is_a_posix_rule_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_posix_rule(text).transitions(range(101))
