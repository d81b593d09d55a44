"""What a spec is made of, what it refuses, and which times it has."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from mainspring.errors import InvalidCron, InvalidInput, InvalidSpec
from mainspring.recurrence import AmbiguousCron, Calendar, Cron, Interval, Spec
from mainspring.recurrence.spec import stored_spec

if TYPE_CHECKING:
    from collections.abc import Callable

LITERAL: dict[str, Any] = {"gap": "skip", "fold": "both"}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def utc(times: list[datetime]) -> list[datetime]:
    return [when.astimezone(UTC) for when in times]


@pytest.mark.parametrize(
    ("spec", "after", "expected"),
    [
        (Spec(intervals=["90m"]), "2022-03-23T12:53:02Z", ["2022-03-23T13:30:00Z", "2022-03-23T15:00:00Z"]),
        (Spec(intervals=["28d"]), "2022-02-01T00:00:00Z", ["2022-02-17T00:00:00Z"]),
        (Spec(intervals=[Interval("28d", offset="3d5h23m")]), "2022-02-01T00:00:00Z", ["2022-02-20T05:23:00Z"]),
        (Spec(intervals=["6h/5h"]), "2026-01-01T00:00:00Z", ["2026-01-01T05:00:00Z", "2026-01-01T11:00:00Z"]),
        (
            Spec(intervals=[Interval("14d", anchor=at("2026-01-05T09:00:00+01:00"))]),
            "2026-01-01T00:00:00Z",
            ["2026-01-05T08:00:00Z", "2026-01-19T08:00:00Z"],
        ),
        (
            Spec(calendars=[Calendar(hour="5,7", minute=23), Calendar(hour="11", minute="55")]),
            "2022-03-23T03:00:00Z",
            ["2022-03-23T05:23:00Z", "2022-03-23T07:23:00Z", "2022-03-23T11:55:00Z", "2022-03-24T05:23:00Z"],
        ),
        (
            Spec(intervals=["90m"], exclude=[Calendar(hour="12-14")]),
            "2022-03-23T08:00:00Z",
            ["2022-03-23T09:00:00Z", "2022-03-23T10:30:00Z", "2022-03-23T15:00:00Z"],
        ),
        (
            Spec(intervals=["90m"], start=at("2022-03-23T12:00:00Z"), end=at("2022-03-23T13:30:00Z")),
            "2022-03-23T08:00:00Z",
            ["2022-03-23T12:00:00Z", "2022-03-23T13:30:00Z"],
        ),
        (
            Spec(calendars=[Calendar(hour=13, minute=55, day_of_month=7, month=4, year=2022)]),
            "2022-03-23T11:00:00Z",
            ["2022-04-07T13:55:00Z"],
        ),
        (
            Spec(calendars=[Calendar(year="2022", month="Jan,Apr,Jul,Oct", day_of_month="1,15", hour="11-14")]),
            "2022-01-01T12:30:00Z",
            ["2022-01-01T13:00:00Z", "2022-01-01T14:00:00Z", "2022-01-15T11:00:00Z"],
        ),
        (Spec(cron=["0 0 29 2 *"]), "2022-01-01T00:00:00Z", ["2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"]),
        (Spec(cron=["@weekly"]), "2022-01-01T00:00:00Z", ["2022-01-02T00:00:00Z", "2022-01-09T00:00:00Z"]),
        (
            Spec(cron=["0 9 * * *"], exclude=[Calendar(month="12", day_of_month="25")]),
            "2022-12-24T10:00:00Z",
            ["2022-12-26T09:00:00Z"],
        ),
        (
            Spec(cron=["0 */12 * * *"], exclude=[Calendar(month="12", day_of_month="25", hour=0, minute=0, second=0)]),
            "2022-12-24T13:00:00Z",
            ["2022-12-25T12:00:00Z"],
        ),
        (
            Spec(cron=["0 9 * * *"], exclude=[date(2022, 12, 25), (date(2022, 12, 27), date(2022, 12, 30))]),
            "2022-12-24T10:00:00Z",
            ["2022-12-26T09:00:00Z", "2022-12-31T09:00:00Z"],
        ),
        (
            Spec(cron=[Cron("*/20 * * * * *")], exclude=["1 0 * * *"]),
            "2026-01-01T00:00:39Z",
            ["2026-01-01T00:00:40Z", "2026-01-01T00:02:00Z"],
        ),
        (
            Spec(intervals=["12h"], exclude=[Calendar(day_of_week="sat,sun")], timezone="America/New_York"),
            "2024-06-07T13:00:00Z",
            ["2024-06-08T00:00:00Z", "2024-06-10T12:00:00Z"],
        ),
        (Spec(cron=["TZ=America/New_York @every 6h"]), "2024-01-01T01:00:00Z", ["2024-01-01T06:00:00Z"]),
        (Spec(calendars=[Calendar(day_of_month="L")]), "2024-01-31T00:00:00Z", ["2024-02-29T00:00:00Z"]),
        (Spec(calendars=[Calendar(day_of_week="5#2")]), "2026-01-01T00:00:00Z", ["2026-01-09T00:00:00Z"]),
        (Spec(calendars=[Calendar(day_of_month="15W")]), "2026-02-01T00:00:00Z", ["2026-02-16T00:00:00Z"]),
    ],
)
def test_times_of_a_spec(spec: Spec, after: str, expected: list[str]) -> None:
    assert utc(spec.upcoming(at(after), len(expected))) == [at(text) for text in expected]


@pytest.mark.parametrize(
    ("text", "zone", "policy", "after", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", {}, "2024-03-30T12:00:00Z", ["2024-03-31T03:00:00+02:00"]),
        ("30 2 * * *", "Europe/Berlin", {"gap": "skip"}, "2024-03-30T12:00:00Z", ["2024-04-01T02:30:00+02:00"]),
        ("30 2 * * *", "Europe/Berlin", {"gap": "shift"}, "2024-03-30T12:00:00Z", ["2024-03-31T03:30:00+02:00"]),
        ("15,30 2 * * *", "Europe/Berlin", {}, "2024-03-30T12:00:00Z", ["2024-03-31T03:00:00+02:00", "2024-04-01T02:15:00+02:00"]),
        ("30 2 * * *", "Europe/Berlin", {}, "2024-10-26T12:00:00Z", ["2024-10-27T02:30:00+02:00", "2024-10-28T02:30:00+01:00"]),
        ("30 2 * * *", "Europe/Berlin", {"fold": "second"}, "2024-10-26T12:00:00Z", ["2024-10-27T02:30:00+01:00"]),
        ("30 2 * * *", "Europe/Berlin", LITERAL, "2024-10-26T12:00:00Z", ["2024-10-27T02:30:00+02:00", "2024-10-27T02:30:00+01:00"]),
        ("30 1 * * *", "Europe/Berlin", LITERAL, "2024-10-26T12:00:00Z", ["2024-10-27T01:30:00+02:00", "2024-10-28T01:30:00+01:00"]),
        # all 24 hours: real time, whatever the policy
        ("0 * * * *", "Europe/London", {}, "2024-10-27T00:30:00+01:00", ["2024-10-27T01:00:00+01:00", "2024-10-27T01:00:00+00:00"]),
        ("30 * * * *", "Europe/Berlin", {}, "2024-03-31T01:00:00+01:00", ["2024-03-31T01:30:00+01:00", "2024-03-31T03:30:00+02:00"]),
        ("30 0 * * *", "America/Havana", LITERAL, "2022-11-05T12:00:00Z", ["2022-11-06T00:30:00-04:00", "2022-11-06T00:30:00-05:00"]),
        ("0 0 * * *", "Asia/Beirut", {}, "2026-03-28T12:00:00Z", ["2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"]),
        ("30 23 * * *", "America/Asuncion", LITERAL, "2022-03-26T12:00:00Z", ["2022-03-26T23:30:00-03:00", "2022-03-26T23:30:00-04:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", {}, "2022-10-01T12:00:00Z", ["2022-10-02T02:30:00+11:00", "2022-10-03T02:15:00+11:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", {"gap": "shift"}, "2022-10-01T12:00:00Z", ["2022-10-02T02:45:00+11:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", LITERAL, "2022-04-02T12:00:00Z", ["2022-04-03T01:45:00+11:00", "2022-04-03T01:45:00+10:30"]),
        ("0 12 * * *", "Pacific/Apia", LITERAL, "2011-12-28T23:00:00Z", ["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"]),
        ("0 12 * * *", "Pacific/Apia", {}, "2011-12-29T23:00:00Z", ["2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"]),
    ],
)  # fmt: skip
def test_the_clocks_change(text: str, zone: str, policy: dict[str, Any], after: str, expected: list[str]) -> None:
    spec = Spec(cron=[text], timezone=zone, **policy)
    times = spec.upcoming(at(after), len(expected))
    assert [when.isoformat() for when in times] == expected
    assert all(spec.matches(when.astimezone(UTC)) for when in times)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"cron": ["61 * * * *"]}, "cron[0].minute: 61 is not between 0 and 59"),
        ({"cron": ["* * * * * *"]}, "seconds first, or year last?"),
        ({"cron": [5]}, "cron[0]: 5 is a int"),
        ({"cron": [{"cron": "* * * * *", "dialekt": "x"}]}, "dialekt: is not a key of a cron"),
        ({"cron": [{"cron": "* * * * *", "dialect": "quartz"}]}, "'quartz' is not a dialect"),
        ({"intervals": ["3h/4h"]}, "intervals[0].offset: '4h' is not shorter than every '3h'"),
        ({"intervals": [0]}, "shorter than a second"),
        ({"intervals": [1.5]}, "not a whole number of seconds"),
        ({"intervals": [{"offset": 5}]}, "every: is missing"),
        ({"intervals": [{"every": 5, "phase": 1}]}, "phase: is not a key of an interval"),
        ({"intervals": [{"every": 60, "anchor": "2026-01-01"}]}, "is a date"),
        ({"calendars": [{"second": [{"start": 100}]}]}, "100 is not between 0 and 59"),
        ({"calendars": [{"second": [{"start": 30, "end": 40, "step": -3}]}]}, "leads nowhere"),
        ({"calendars": [{"hour": [{"start": 16, "end": 12}]}]}, "ranges run upwards"),
        ({"calendars": [{"dayOfMonth": [0]}]}, "0 is not between 1 and 31"),
        ({"calendars": [{"dayOfWeek": [7]}]}, "in lists Sunday is 0"),
        ({"calendars": [{"year": 1999}]}, "1999 is not between 2000 and 2100"),
        ({"calendars": [{"hours": 5}]}, "hours: is not a field of a calendar"),
        ({"calendars": [{"dayOfWeek": 1, "day_of_week": 2}]}, "is given twice"),
        ({"calendars": [{"hour": 1.5}]}, "1.5 is not a field"),
        ({"calendars": [{"hour": [True]}]}, "True is not a whole number"),
        ({"calendars": [{"comment": 5}]}, "5 is not a text"),
        ({"exclude": ["@every 1h"]}, "an interval cannot be excluded"),
        ({"exclude": ["2026-02-30"]}, "is not a day of any calendar"),
        ({"exclude": [["2026-12-26", "2026-12-24"]]}, "is not a range of dates"),
        ({"exclude": [datetime(2026, 1, 1, tzinfo=UTC)]}, "is a time; exclude a date"),
        ({"timezone": "Europe/Belin"}, "did you mean 'Europe/Berlin'"),
        ({"timezone": 5}, "5 is not the name of a zone"),
        ({"timezoneData": "!"}, "is not base64"),
        ({"timezoneData": "VFppZg=="}, "it is cut off"),
        ({"gap": "before"}, "'before' is not a policy (there are after, skip, shift)"),
        ({"fold": "last"}, "there are first, second, both"),
        ({"jitter": "5 minutes"}, "is not a time phrase"),
        ({"jitter": -1}, "is negative"),
        ({"start": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"start": "tomorrow"}, "is not a time"),
        ({"start": "2027-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "is before start"),
        ({"when": "now"}, "when: is not a key of a spec"),
        ({"cron": ["TZ=Europe/London 0 0 * * *", "TZ=Asia/Tokyo 0 0 * * *"]}, "the expressions name different zones"),
        ({"cron": ["TZ=Europe/London 0 0 * * *", "0 0 * * *"]}, "and some none"),
        ({"cron": ["TZ=Europe/London 0 0 * * *"], "timezone": "Asia/Tokyo"}, "name the zone once"),
    ],
)  # fmt: skip
def test_a_bad_spec_is_refused_with_words(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        Spec.from_dict(given)
    assert fault in str(caught.value)


def test_all_faults_of_a_spec_are_told_at_once() -> None:
    with pytest.raises(InvalidSpec) as caught:
        Spec.from_dict(
            {"cron": ["63 * * * *"], "calendars": [{"hour": 25}], "intervals": ["x"], "timezone": "Nowhere", "gap": "x"}
        )
    assert [fault.field for fault in caught.value.faults] == [
        "cron[0].minute",
        "intervals[0].every",
        "calendars[0].hour",
        "timezone",
        "gap",
    ]
    assert not isinstance(caught.value, InvalidCron)
    with pytest.raises(InvalidCron):
        Spec(cron=["63 * * * *"])


def test_unknown_keys_are_told_together_with_the_faults_of_the_known_ones() -> None:
    with pytest.raises(InvalidSpec) as caught:
        Spec.from_dict(
            {
                "crn": ["* * * * *"],
                "cron": [{"cron": "61 * * * *", "dialct": "vixie", "zone": "UTC"}, {"dialect": "klingon"}],
                "calendars": [{"hour": "25", "minit": 3, "second": [{"first": 1, "end": 70}]}],
                "intervals": [{"evry": "1h", "offset": "x", "anchor": "y"}, {"each": 1, "every": "5x"}],
                "timezone": 5,
            }
        )
    assert [fault.field for fault in caught.value.faults] == [
        "crn",
        "cron[0].dialct",
        "cron[0].zone",
        "cron[0].minute",
        "cron[1].cron",
        "cron[1].dialect",
        "intervals[0].evry",
        "intervals[0].every",
        "intervals[0].anchor",
        "intervals[0].offset",
        "intervals[1].each",
        "intervals[1].every",
        "calendars[0].minit",
        "calendars[0].second",
        "calendars[0].second",
        "calendars[0].second",
        "calendars[0].hour",
        "timezone",
    ]


def test_naive_times_are_refused_everywhere() -> None:
    spec, naive = Spec(cron=["* * * * *"]), datetime(2026, 1, 1)  # noqa: DTZ001 - the point of it
    calls: list[Callable[[datetime], object]] = [
        spec.next,
        spec.previous,
        spec.matches,
        lambda when: spec.upcoming(when, 1),
        lambda when: spec.between(when, 0),
        lambda when: spec.jittered(when, "x"),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match="no time zone"):
            call(naive)
    with pytest.raises(InvalidInput, match="is a date"):
        spec.next(date(2026, 1, 1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_seconds_since_1970_are_times_too() -> None:
    spec = Spec(intervals=["1m"])
    assert spec.next(0) == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    assert spec.next(59.999) == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    assert spec.previous(60.5) == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)


def test_between_leaves_out_its_beginning_and_has_its_end() -> None:
    spec = Spec(intervals=["1h"])
    times = spec.between(at("2026-01-01T00:00:00Z"), at("2026-01-01T02:00:00Z"))
    assert times == [at("2026-01-01T01:00:00Z"), at("2026-01-01T02:00:00Z")]


def test_times_come_back_in_the_zone_of_the_spec() -> None:
    when = Spec(cron=["0 9 * * *"], timezone=ZoneInfo("Asia/Tokyo")).next(0)
    assert when is not None
    assert isinstance(when.tzinfo, ZoneInfo)
    assert when.isoformat() == "2000-01-01T09:00:00+09:00"


def test_an_empty_spec_is_legal_and_has_no_times() -> None:
    assert Spec().next(0) is None
    assert Spec().previous(2_000_000_000) is None
    assert Spec().is_empty


@pytest.mark.parametrize(
    "spec",
    [
        Spec(cron=["0 0 30 2 *"]),
        Spec(calendars=[Calendar(hour=[])]),
        Spec(calendars=[Calendar(hour="*", minute="*", second="*")], exclude=[Calendar()], timezone="Europe/Berlin"),
        Spec(intervals=["1s"], exclude=[Calendar()], timezone="Australia/Lord_Howe"),
        Spec(intervals=["60s"], exclude=[Calendar(second=0)]),
        Spec(
            calendars=[Calendar(hour="*", minute="*", second="*")],
            exclude=[Calendar(minute="0-29"), Calendar(minute="30-59")],
            timezone="Europe/Berlin",
        ),
        Spec(cron=["* * * * *"], exclude=[(date(2000, 1, 1), date(2100, 12, 31))]),
        Spec(cron=["0 0 1 1 * 2020"], start=at("2021-01-01T00:00:00Z")),
    ],
)
def test_a_hopeless_spec_is_answered_not_searched_for_ever(spec: Spec) -> None:
    assert spec.next(at("2000-01-01T00:00:00Z")) is None
    assert spec.previous(at("2100-12-31T00:00:00Z")) is None
    assert spec.upcoming(0, 5) == []


def test_times_end_with_the_year_2100() -> None:
    last = at("2100-12-31T23:00:00Z")
    for spec in (Spec(cron=["0 * * * *"]), Spec(intervals=["1h"])):
        assert spec.next(last - timedelta(seconds=1)) == last
        assert spec.next(last) is None
        assert spec.previous(at("2200-01-01T00:00:00Z")) == last


def test_equality_goes_by_meaning() -> None:
    one = Spec(cron=["*/30 9 * * mon-fri"], intervals=["90m"], timezone="UTC")
    two = Spec(calendars=[Calendar(minute=[0, 30], hour=9, day_of_week="1-5")], intervals=[Interval(5_400, anchor=0)])
    assert one == two
    assert hash(one) == hash(two)
    assert one != Spec(cron=["*/30 9 * * mon-fri"], intervals=["90m"], timezone="Asia/Tokyo")
    assert Spec(intervals=["1h"], timezone="Asia/Tokyo") == Spec(intervals=["1h"])
    assert Calendar(minute="*/20", comment="a") == Calendar(minute="0,20,40", comment="b")


def test_the_canonical_form_is_calendars_and_intervals() -> None:
    spec = Spec(cron=["CRON_TZ=Europe/London 23 5,7 * * *", "@every 43h"], exclude=["0 5 * * *", date(2026, 1, 1)])
    assert spec.canonical().to_dict() == {
        "calendars": [
            {
                "second": "0",
                "minute": "23",
                "hour": "5,7",
                "dayOfMonth": "*",
                "month": "*",
                "dayOfWeek": "*",
                "year": "*",
            }
        ],
        "intervals": [{"every": "1d19h"}],
        "exclude": [
            {"second": "*", "minute": "0", "hour": "5", "dayOfMonth": "*", "month": "*", "dayOfWeek": "*", "year": "*"},
            "2026-01-01",
        ],
        "timezone": "Europe/London",
        "gap": "after",
        "fold": "first",
    }


def test_json_keeps_what_was_entered() -> None:
    written = {
        "calendars": [{"month": "Jan,Apr", "hour": [9, {"start": 11, "end": 14}], "comment": "quarterly"}],
        "intervals": [{"every": "6h", "offset": "5h"}, {"every": "2w", "anchor": "2026-01-05T09:00:00+00:00"}],
        "cron": ["0 2 * * *", {"cron": "30 * * * * *", "dialect": "vixie"}],
        "exclude": [{"month": "12", "dayOfMonth": "25"}, "2027-01-01", ["2026-12-24", "2026-12-26"], "0 3 * * *"],
        "start": "2026-01-01T00:00:00+00:00",
        "end": "2028-01-01T00:00:00+00:00",
        "jitter": "5m",
        "timezone": "Europe/Paris",
        "gap": "shift",
        "fold": "both",
    }
    spec = Spec.from_dict(written)
    assert spec.to_dict() == written | {
        "calendars": [{"hour": [9, {"start": 11, "end": 14}], "month": "Jan,Apr", "comment": "quarterly"}]
    }
    assert Spec.from_dict({"timezone_data": None, "cron": []}) == Spec()


def test_a_pattern_that_dialects_read_differently_gives_a_warning() -> None:
    with pytest.warns(AmbiguousCron, match="graphile and vixie would read other times"):
        Spec(cron=["0 0 13 * 5"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Spec(cron=[Cron("0 0 13 * 5", dialect="temporal"), "*/5 * * * *"])


@pytest.mark.parametrize(
    "write",
    [
        lambda: Spec(cron="0 0 13 * 5"),
        lambda: Spec(cron=["0 0 13 * 5"]),
        lambda: Spec(cron=["0 9 * * *"], exclude=["0 0 13 * 5"]),
        lambda: Spec.from_dict({"cron": ["0 0 13 * 5"]}),
    ],
)
def test_the_warning_of_an_ambiguous_pattern_names_the_line_that_wrote_it(write: Callable[[], Spec]) -> None:
    with pytest.warns(AmbiguousCron) as caught:
        spec = write()
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec) == spec.canonical()
        assert stored_spec(json.loads(json.dumps(spec.to_dict()))) == spec


def test_jitter_differs_between_schedules_and_stays_before_the_next_time_and_the_end() -> None:
    spec = Spec(intervals=["1h"], jitter="3h", end=at("2026-01-01T10:00:00Z"))
    after = at("2026-01-01T00:00:00Z")
    delays = {spec.next(after, f"schedule-{number}") for number in range(20)}
    assert len(delays) == 20
    for nominal in spec.upcoming(after, 10):
        assert nominal <= spec.jittered(nominal, "x") < nominal + timedelta(hours=1)
    last = at("2026-01-01T10:00:00Z")
    assert last <= spec.jittered(last, "x") < last + timedelta(seconds=1)
    assert Spec(intervals=["1h"]).next(after, "x") == at("2026-01-01T01:00:00Z")


def test_jitter_is_the_same_on_every_machine_and_version() -> None:
    spec = Spec(intervals=["1d"], jitter="1h")
    assert spec.next(at("2022-03-23T11:00:00Z"), "nightly") == at("2022-03-24T00:19:43.899685+00:00")


def test_values_cannot_be_changed() -> None:
    for value, name in (
        (Spec(), "jitter"),
        (Cron("* * * * *"), "text"),
        (Calendar(), "comment"),
        (Interval(60), "every"),
    ):
        with pytest.raises(AttributeError, match="cannot be changed"):
            setattr(value, name, "x")


def test_a_calendar_field_that_is_an_empty_text_counts_as_not_given() -> None:
    given = {"calendars": [{"month": "", "dayOfWeek": "", "hour": "9"}]}
    assert Spec.from_dict(given) == Spec(calendars=[Calendar(hour=9)])


_spec: Any = Spec
_calendar: Any = Calendar
_interval: Any = Interval
_cron: Any = Cron


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: _spec("0 2 * * *"), "the parts of a Spec are given by name: Spec(cron='0 2 * * *')"),
        (lambda: _spec(chron="0 2 * * *"), "Spec has no 'chron'; did you mean cron?"),
        (lambda: _calendar(hours=3), "Calendar has no 'hours'; did you mean hour?"),
        (_interval, "Interval(every, offset, anchor): missing a required argument: 'every'"),
        (lambda: _cron("0 2 * * *", dialekt="vixie"), "Cron has no 'dialekt'; did you mean dialect?"),
    ],
)
def test_wrong_arguments_are_explained_with_the_names_that_there_are(make: Any, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        make()
    assert str(caught.value) == words


def test_bounds_within_one_second_have_no_times_and_a_canonical_form() -> None:
    bounds = [at(f"2026-01-01T00:00:00.{fraction}+00:00") for fraction in ("250000", "750000")]
    spec = Spec(intervals=["1s"], start=bounds[0], end=bounds[1])
    form = spec.canonical()
    assert spec.next(at("2025-01-01T00:00:00Z")) is None
    assert form == spec == Spec.from_dict(form.to_dict())
    assert (
        form.to_dict()
        == form.canonical().to_dict()
        == Spec(intervals=["1s"], start=bounds[1], end=bounds[1]).canonical().to_dict()
    )
    assert spec.describe()
