"""Each dialect reads what it promises, refuses the rest, and says what is wrong and where."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args
from zoneinfo import ZoneInfo

import pytest

from mainspring.errors import InvalidCron
from mainspring.recurrence import Cron, Dialect, Spec
from mainspring.recurrence.cron.expression import other_readings

ALL = {
    "second": tuple(range(60)),
    "minute": tuple(range(60)),
    "hour": tuple(range(24)),
    "day_of_month": tuple(range(1, 32)),
    "month": tuple(range(1, 13)),
    "day_of_week": tuple(range(7)),
}


def field(text: str, name: str, dialect: Dialect) -> tuple[int | str, ...]:
    return Cron(text, dialect).calendar().fields()[name]


@pytest.mark.parametrize(
    ("text", "restricted"),
    [
        ("* * * * * *", {}),
        ("* * * * *", {"second": (0,)}),
        ("* * * * * Mon,Sun", {"day_of_week": (0, 1)}),
        ("0-3 0-3 8-10 1-3 1-2 0-3", {"second": (0, 1, 2, 3), "minute": (0, 1, 2, 3), "hour": (8, 9, 10)}
         | {"day_of_month": (1, 2, 3), "month": (1, 2), "day_of_week": (0, 1, 2, 3)}),
        ("* * * * 7", {"second": (0,), "day_of_week": (0,)}),
        ("* * * * 5-7", {"second": (0,), "day_of_week": (0, 5, 6)}),
        ("* * * * Monday-Sunday", {"second": (0,)}),
        ("0 12 * * Sun", {"second": (0,), "minute": (0,), "hour": (12,), "day_of_week": (0,)}),
        ("*/30 * * * * *", {"second": (0, 30)}),
        ("10-19/2 * * January,Feb *", {"second": (0,), "minute": (10, 12, 14, 16, 18), "month": (1, 2)}),
        ("1-3,10-20/5 * * * *", {"second": (0,), "minute": (10, 15, 20)}),
        ("1-10/7 * * * *", {"second": (0,), "minute": (7,)}),
        ("0 0 */2 * *", {"second": (0,), "minute": (0,), "hour": (0,), "day_of_month": tuple(range(2, 31, 2))}),
        ("0 0 * * 1-7/7", {"second": (0,), "minute": (0,), "hour": (0,), "day_of_week": (0,)}),
        ("  0   0  1 1   *  ", {"second": (0,), "minute": (0,), "hour": (0,), "day_of_month": (1,), "month": (1,)}),
    ],
)  # fmt: skip
def test_dbos_reads_fields(text: str, restricted: dict[str, tuple[int, ...]]) -> None:
    assert Cron(text, "dbos").calendar().fields() == ALL | restricted


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("* 25 * * *", "column 3: hour: 25 is not between 0 and 23"),
        ("63 * * * *", "column 1: minute: 63 is not between 0 and 59"),
        ("* * * foo *", "column 7: month: 'foo' is not a valid month"),
        ("* * * * 8", "column 9: day of week: 8 is not between 0 and 7"),
        ("* * * * L", "column 9: day of week: 'L' is not a valid day of week"),
        ("* * ? * *", "write * for any value"),
        ("7/2 * * * *", "'7/2' leaves no value"),
        ("*/0 * * * *", "divisor '0' is not a number from 2 to 59"),
        ("*/1 * * * *", "divisor '1' is not a number from 2 to 59"),
        ("* * */32 * *", "divisor '32' is not a number from 2 to 31"),
        ("1-3/2,5 * * * *", "at the end of the whole field"),
        ("*,5 * * * *", "a star stands alone"),
        ("5abc * * * *", "'5abc' is not a valid minute"),
        ("1.5 * * * *", "'1.5' is not a valid minute"),
        ("10-5 * * * *", "10-5 runs backwards"),
        ("* * * * sat-mon", "runs backwards"),
        ("* * * * septem", "is not a valid day of week"),
        ("1,,2 * * * *", "an item of the list is empty"),
        ("- * * * *", "lacks a value"),
        ("", "has nothing where 5 or 6 belong"),
        ("*", "has 1 field where 5 or 6 belong"),
        ("* * * * * * *", "has 7 fields where 5 or 6 belong"),
        ("@daily", "has 1 field"),
        ("* * * janua *", "'janua' is not a valid month"),
    ],
)
def test_dbos_refuses_with_words(text: str, fault: str) -> None:
    with pytest.raises(InvalidCron, match="cron ") as caught:
        Cron(text, "dbos")
    assert fault in str(caught.value)


def test_all_faults_of_an_expression_are_told_at_once() -> None:
    with pytest.raises(InvalidCron) as caught:
        Cron("63 24 0 13 8")
    assert [(fault.field, fault.column) for fault in caught.value.faults] == [
        ("minute", 1),
        ("hour", 4),
        ("day of month", 7),
        ("month", 9),
        ("day of week", 12),
    ]


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("0 0 * * 5-7", "day_of_week", (0, 5, 6)),
        ("0 0 * * 0-7", "day_of_week", ALL["day_of_week"]),
        ("*/10,7,56-59 * * * *", "minute", (0, 7, 10, 20, 30, 40, 50, 56, 57, 58, 59)),
        ("*/100 * * * *", "minute", (0,)),
        ("0 0 */2 * *", "day_of_month", tuple(range(2, 31, 2))),
        ("0 0 1 */5 *", "month", (5, 10)),
        ("05 * * * *", "minute", (5,)),
    ],
)
def test_graphile_reads_fields(text: str, name: str, values: tuple[int, ...]) -> None:
    assert field(text, name, "graphile") == values


@pytest.mark.parametrize(
    "text",
    [
        *("1-10/2 * * * *", "5/10 * * * *", "5-5 * * * *", "9-5 * * * *", "* * * JAN *", "* * * * MON", "@daily"),
        *("*/0 * * * *", "** * * * *", "1-2-3 * * * *", "* * * * 8", "* * * * * *", "* * */32 * *", "1,,2 * * * *"),
    ],
)
def test_graphile_refuses(text: str) -> None:
    with pytest.raises(InvalidCron):
        Cron(text, "graphile")


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("2/3 * * * *", "minute", tuple(range(2, 60, 3))),
        ("0 0 * * 1-7/2", "day_of_week", (0, 1, 3, 5)),
        ("0 0 * * 1/2", "day_of_week", (0, 1, 3, 5)),
        ("0 0 * * tu", "day_of_week", (2,)),
        ("0 0 * * wed-thurs", "day_of_week", (3, 4)),
        ("0 0 1 Sept *", "month", (9,)),
        ("0 0 1 February/5 *", "month", (2, 7, 12)),
        ("0 0 */2 * *", "day_of_month", tuple(range(1, 32, 2))),
        ("1 2 3 4 5 6 2030", "second", (1,)),
        ("0 0 1 1 * 2030-2032", "year", (2030, 2031, 2032)),
        ("0 0 1 1 * 2098/1", "year", (2098, 2099, 2100)),
        ("TZ=Europe/Paris 0 9 * * * # in Paris", "hour", (9,)),
        ("@monthly", "day_of_month", (1,)),
    ],
)
def test_temporal_reads_fields(text: str, name: str, values: tuple[int, ...]) -> None:
    assert field(text, name, "temporal") == values


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("0 0 * * fri-tue", "a range does not wrap around; write 5-6,0-2"),
        ("0 0 * * sat-sun", "runs backwards"),
        ("22-2 * * * *", "write 22-59,0-2"),
        ("0 1 2 3 4 1999", "1999 is not between 2000 and 2100"),
        ("30 0 12 * * 5", "the sixth of six fields is the year"),
        ("2/3/5 * * * *", "'3/5' is not a step"),
        ("*/0 * * * *", "a step of 0"),
        ("0 0 L * *", "'L' is not a valid day of month"),
        ("TZ=Europe/Pariss 0 0 * * *", "did you mean 'Europe/Paris'"),
        ("TZ= 0 0 * * *", "the zone is missing"),
        ("@every", "@every needs one interval"),
        ("@every 1h/2h", "not shorter than the interval"),
        ("@every 0s", "shorter than a second"),
        ("@reboot", "@reboot names no time"),
        ("@daily 5", "stands alone"),
        ("@fortnightly", "is not a shorthand"),
        ("* * * *", "has 4 fields where 5 to 7 belong"),
        ("13,18, * * * *", "an item of the list is empty"),
    ],
)
def test_temporal_refuses_with_words(text: str, fault: str) -> None:
    with pytest.raises(InvalidCron) as caught:
        Cron(text, "temporal")
    assert fault in str(caught.value)


def test_temporal_carries_zone_interval_and_comment() -> None:
    assert Cron("CRON_TZ=Asia/Tokyo 0 9 * * *", "temporal").timezone == "Asia/Tokyo"
    every = Cron("TZ=Asia/Tokyo @every 1h30m/5m", "temporal")
    assert every.timezone is None
    assert every.interval is not None
    assert every.interval.cycle == (5_400, 300)
    assert every.calendars() == ()
    assert Cron("0 0 * * * # nightly", "temporal").calendar().comment == "nightly"


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("*/15 * * * *", "minute", (0, 15, 30, 45)),
        ("0 0 * * fri-sun", "day_of_week", (0, 5, 6)),
        ("0 0 * * mon-sun", "day_of_week", ALL["day_of_week"]),
        ("0 0 * * SUN", "day_of_week", (0,)),
        ("0 0 * * 1/2", "day_of_week", (0, 1, 3, 5)),
        ("0 0 1,L-2,15w,lw * *", "day_of_month", (1, "15W", "L-2", "LW")),
        ("0 0 * * fri#2,7L", "day_of_week", ("0L", "5#2")),
        ("30 0 0 * * *", "second", (30,)),
        ("@weekly", "day_of_week", (0,)),
        ("@DAILY", "hour", (0,)),
    ],
)
def test_vixie_reads_fields(text: str, name: str, values: tuple[int | str, ...]) -> None:
    assert field(text, name, "vixie") == values


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("0 0 * * friday", "write fri"),
        ("0 0 * * fri-tue", "runs backwards"),
        ("0 0 * * L", "'L' is not a valid day of week"),
        ("0 0 * * 5#6", "write #1 to #5"),
        ("0 0 L-31 * *", "write L-1 to L-30"),
        ("0 0 32W * *", "32 is not between 1 and 31"),
        ("H * * * *", "give the schedule jitter"),
        ("0 0 ? * *", "write * for any value"),
        ("CRON_TZ=UTC 0 0 * * * *", "the zone goes into timezone="),
        ("@every 1h", "@every is not a part of crontab(5)"),
        ("@reboot", "@reboot names no time"),
    ],
)
def test_vixie_refuses_with_words(text: str, fault: str) -> None:
    with pytest.raises(InvalidCron) as caught:
        Cron(text)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("text", "dialect", "count"),
    [
        ("0 0 13 * 5", "vixie", 2),
        ("0 0 */2 * 5", "vixie", 1),  # a field that begins with a star is no restriction
        ("0 0 1-31 * 5", "vixie", 2),
        ("0 0 13 * 5", "graphile", 2),
        ("0 0 1-31 * 5", "graphile", 1),  # here what counts is whether values are missing
        ("0 0 13 * 5", "dbos", 1),
        ("0 0 13 * 5", "temporal", 1),
    ],
)
def test_who_lets_either_day_match(text: str, dialect: Dialect, count: int) -> None:
    assert len(Cron(text, dialect).calendars()) == count


@pytest.mark.parametrize(
    ("text", "when", "matches"),
    [
        ("0 0 13 * 5", "2024-10-13T00:00:00+00:00", {"graphile", "vixie"}),
        ("0 0 13 * 5", "2024-10-11T00:00:00+00:00", {"graphile", "vixie"}),
        ("0 0 */2 * *", "2024-10-02T00:00:00+00:00", {"dbos", "graphile"}),
        ("0 0 */2 * *", "2024-10-01T00:00:00+00:00", {"temporal", "vixie"}),
        ("0 0 1 */3 *", "2024-03-01T00:00:00+00:00", {"dbos", "graphile"}),
        ("*/7 * * * *", "2024-10-13T00:56:00+00:00", {"dbos", "graphile", "temporal", "vixie"}),
        ("0 0 30 2 *", "2024-02-29T00:00:00+00:00", set[str]()),
        ("* * * * *", "2024-02-29T00:00:30+00:00", set[str]()),
    ],
)
def test_one_pattern_in_four_dialects(text: str, when: str, matches: set[str]) -> None:
    moment = datetime.fromisoformat(when)
    assert {dialect for dialect in get_args(Dialect) if Cron(text, dialect).matches(moment)} == matches


def test_matches_looks_at_the_wall_clock_of_the_time_given() -> None:
    midnight = Cron("0 0 0 * * *", "dbos")
    assert midnight.matches(datetime(2018, 10, 11, 22, tzinfo=UTC).astimezone(ZoneInfo("Europe/Rome")))
    assert not midnight.matches(datetime(2018, 10, 11, 22, tzinfo=UTC))
    half_past_one = Cron("0 30 1 * * *", "dbos")
    repeated = datetime(2024, 11, 3, 6, 30, tzinfo=UTC).astimezone(ZoneInfo("America/New_York"))
    assert half_past_one.matches(repeated)


def test_next_is_strictly_after_and_drops_fractions() -> None:
    every = Cron("*/30 * * * * *", "dbos")
    assert every.next(datetime(2024, 1, 1, 0, 0, 29, tzinfo=UTC)) == datetime(2024, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert every.next(datetime(2024, 1, 1, 0, 0, 30, tzinfo=UTC)) == datetime(2024, 1, 1, 0, 1, tzinfo=UTC)
    assert every.next(datetime(2024, 1, 1, 0, 0, 29, 999_999, tzinfo=UTC)) == datetime(2024, 1, 1, 0, 0, 30, tzinfo=UTC)


def test_expressions_are_equal_by_meaning() -> None:
    assert Cron("*/15 * * * *") == Cron("0,15,30,45 * * * *", "dbos")
    assert Cron("@daily") == Cron("0 0 * * *", "graphile")
    assert Cron("0 0 1 1 *") != Cron("0 0 1 2 *")
    assert len({Cron("0 0 * * 7"), Cron("0 0 * * 0")}) == 1


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("*/5 * * * *", []),
        ("0 9 * * mon-fri", []),
        ("0 0 13 * 5", ["graphile", "vixie"]),
        ("0 0 */2 * *", ["dbos", "graphile"]),
        ("0 0 1 */3 *", ["dbos", "graphile"]),
        ("1-10/7 * * * *", ["dbos"]),
        ("0 */6 * * *", []),
    ],
)
def test_patterns_that_dialects_read_differently_are_known(text: str, others: list[str]) -> None:
    assert other_readings(text, "temporal") == others


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("*/30 * * * * *", []),
        ("0 30 9 * * mon-fri", []),
        ("0 0 0 1 1 *", []),
        ("0 0 0 13 * 5", ["vixie"]),
        ("0 0 0 */2 * *", ["vixie"]),
        ("0 0 0 1 */3 *", ["vixie"]),
        ("1-10/7 * * * * *", ["vixie"]),
        ("0 0 13 * 5", ["graphile", "vixie"]),
    ],
)
def test_six_fields_with_seconds_first_are_compared_with_dialects_that_have_seconds(
    text: str, others: list[str]
) -> None:
    assert other_readings(text, "dbos") == others


@pytest.mark.parametrize(
    ("written", "meant"),
    [("@every 1.5h", "@every 90m"), ("@every 0.5h/2.5m", "@every 30m/150s"), ("@every 1.5m10s", "@every 100s")],
)
def test_the_interval_of_every_may_have_decimal_fractions(written: str, meant: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert Spec(cron=[written]).upcoming(start, 5) == Spec(cron=[meant]).upcoming(start, 5)


def test_an_interval_that_is_no_whole_number_of_seconds_is_refused() -> None:
    with pytest.raises(InvalidCron, match="whole"):
        Cron("@every 1.0001s", "temporal")
