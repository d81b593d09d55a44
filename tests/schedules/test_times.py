"""When schedules fire: specs of every kind, seen by the ticks that they leave on the virtual clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from mainspring import Calendar, Cron, Interval, Overlap, Policy, Spec
from mainspring.errors import InvalidInput
from tests.schedules.conftest import Bench, bench_at

NOON = datetime(2026, 10, 24, 12, tzinfo=UTC)
"""A Saturday; in Berlin the hour from two to three comes twice in the night that follows."""
MONDAY_NOON = NOON + timedelta(days=2)
BERLIN = "Europe/Berlin"


def times(text: str) -> list[datetime]:
    """Times of these days, such as 24T18 or 25T05:30."""
    found: list[datetime] = []
    for part in text.split():
        day, clock = part.split("T")
        hour, _, rest = clock.partition(":")
        minute, _, second = rest.partition(":")
        found.append(datetime(2026, 10, int(day), int(hour), int(minute or 0), int(second or 0), tzinfo=UTC))
    return found


FIRED = {
    "intervals count from 1970, and what several of them name is one tick": (
        Spec(intervals=["6h/5h", "12h/5h"], calendars=[Calendar(hour=17)]),
        "24T17 24T23 25T05 25T11 25T17 25T23 26T05 26T11",
    ),
    "the moment of its making is not after itself": (Spec(intervals=["12h"]), "25T00 25T12 26T00 26T12"),
    "a calendar that says nothing is midnight": (Spec(calendars=[Calendar()]), "25T00 26T00"),
    "day of month and day of week have both to match": (
        Spec(
            calendars=[
                Calendar(day_of_month=25, day_of_week="Sun", hour=6),
                Calendar(day_of_month=26, day_of_week="Sun"),
            ]
        ),
        "25T06",
    ),
    "0 and 7 are Sunday": (
        Spec(
            calendars=[
                Calendar(day_of_week="0", hour=7),
                Calendar(day_of_week="7", hour=8),
                Calendar(day_of_week="5-7", hour=9),
                Calendar(day_of_week="1-7/6", hour=10),
            ]
        ),
        "25T07 25T08 25T09 25T10 26T10",
    ),
    "names in any case, cut short or not": (
        Spec(calendars=[Calendar(month="oct", day_of_week="SUNDAY", hour=10), Calendar(month="Octo", hour=11)]),
        "25T10 25T11 26T11",
    ),
    "a step from one value goes on to the last one": (
        Spec(calendars=[Calendar(hour="20/2"), Calendar(hour=5, minute="*/30")]),
        "24T20 24T22 25T05 25T05:30 25T20 25T22 26T05 26T05:30",
    ),
    "cron with five, six and seven fields, with a comment": (
        Spec(cron=["0 3 * * *  # at night", "0 13 25 10 * 2026", "30 15 4 * * * 2026"]),
        "25T03 25T04:15:30 25T13 26T03 26T04:15:30",
    ),
    "short names for cron": (Spec(cron=["@daily", "@every 12h/1h"]), "24T13 25T00 25T01 25T13 26T00 26T01"),
    "a zone in front of a cron": (Spec(cron=["CRON_TZ=Asia/Tokyo 0 9 * * *"]), "25T00 26T00"),
    "an hour that comes twice, once": (
        Spec(calendars=[Calendar(hour=2, minute=30)], timezone=BERLIN),
        "25T00:30 26T01:30",
    ),
    "an hour that comes twice, literally": (
        Spec(calendars=[Calendar(hour=2, minute=30)], timezone=BERLIN, gap="skip", fold="both"),
        "25T00:30 25T01:30 26T01:30",
    ),
    "exclusions take times from intervals and calendars": (
        Spec(
            intervals=["6h"],
            calendars=[Calendar(hour=7)],
            exclude=[date(2026, 10, 25), Calendar(hour=18, minute=0, second=0)],
        ),
        "26T00 26T06 26T07 26T12",
    ),
    "start and end belong to it": (
        Spec(intervals=["6h"], start=times("24T18")[0], end=times("25T06")[0]),
        "24T18 25T00 25T06",
    ),
    "a date that comes once": (Spec(calendars=[Calendar(year=2026, month=10, day_of_month=25, hour=12)]), "25T12"),
    "many calendars and many exclusions": (
        Spec(
            calendars=[Calendar(hour=hour, minute=minute) for hour in range(13, 23) for minute in range(0, 50, 10)],
            exclude=[Calendar(hour=hour, minute=minute) for hour in range(13, 23) for minute in range(0, 50, 10)][1:],
        ),
        "24T13 25T13",
    ),
}


async def test_each_spec_fires_at_its_times_and_at_no_other(store_url: str) -> None:
    async with bench_at(store_url, NOON) as bench:
        for name, (spec, _) in FIRED.items():
            await bench.create(spec, Overlap.ALLOW_ALL, name=name)
        await bench.world.advance_to(MONDAY_NOON)
        for name, (_, expected) in FIRED.items():
            ticks = await bench.ticks(name)
            assert [tick.nominal for tick in ticks] == times(expected), name
            assert {(tick.outcome, tick.acted == tick.nominal) for tick in ticks} == {("fired", True)}, name
        over = [(await bench.describe(name)) for name in ("start and end belong to it", "a date that comes once")]
        assert [(each.next, each.upcoming) for each in over] == [(None, [])] * 2


async def test_whenever_it_is_made_between_two_times_the_next_one_is_the_same(store_url: str) -> None:
    async with bench_at(store_url, NOON) as bench:
        for name, after in (
            ("a", timedelta(0)),
            ("b", timedelta(hours=1, seconds=5)),
            ("c", timedelta(seconds=21_599)),
        ):
            await bench.world.advance_to(NOON + after)
            await bench.create("6h", name=name)
        await bench.world.advance_to(NOON + timedelta(hours=7))
        assert {name: [each.nominal for each in await bench.ticks(name)] for name in "abc"} == dict.fromkeys(
            "abc", times("24T18")
        )
        await bench.world.advance_to(times("25T01:10")[0])  # for the second time it is ten past two in Berlin
        twice = Spec(calendars=[Calendar(hour=2, minute=30)], timezone=BERLIN, fold="both")
        await bench.create(twice, name="repeated")
        await bench.world.advance("1h")
        assert [each.nominal for each in await bench.ticks("repeated")] == times("25T01:30")


async def test_an_hour_that_does_not_exist_is_moved_left_out_or_begun_with(store_url: str) -> None:
    begin = datetime(2026, 3, 28, 12, tzinfo=UTC)
    night = datetime(2026, 3, 29, 1, tzinfo=UTC)  # when three o'clock follows two in Berlin
    async with bench_at(store_url, begin) as bench:
        for gap in ("after", "skip", "shift"):
            spec = Spec(calendars=[Calendar(hour=2, minute=30)], timezone=BERLIN, gap=gap)
            await bench.create(spec, name=gap)
        await bench.world.advance("1d")
        found = {gap: [each.nominal for each in await bench.ticks(gap)] for gap in ("after", "skip", "shift")}
    assert found == {"after": [night], "skip": [], "shift": [night + timedelta(minutes=30)]}


async def test_jitter_is_the_schedules_own_within_its_bounds_and_survives_a_restart(store_url: str) -> None:
    spec = Spec(intervals=["6h"], jitter="1h")
    async with bench_at(store_url, NOON) as bench:
        for name in ("a", "b"):
            await bench.create(spec, name=name)
        await bench.world.advance("12h")
    async with bench_at(store_url, NOON + timedelta(hours=12, minutes=1)) as later:
        await later.world.advance("1d")
        acted = {name: [(tick.nominal, tick.acted) for tick in await later.ticks(name)] for name in ("a", "b")}
    for name, pairs in acted.items():
        assert [nominal for nominal, _ in pairs] == times("24T18 25T00 25T06 25T12 25T18 26T00"[: 6 * len(pairs) - 1])
        assert [when for _, when in pairs] == [spec.jittered(nominal, name) for nominal, _ in pairs]
        assert all(timedelta(0) <= when - nominal < timedelta(hours=1) for nominal, when in pairs if when)
    assert len(acted["a"]) >= 5
    assert not {when for _, when in acted["a"]} & {when for _, when in acted["b"]}


async def test_what_is_shown_is_calendars_and_intervals_in_one_form(bench: Bench) -> None:
    entered = Spec(cron=["0 2 * * mon", "@every 6h/1h"], calendars=[Calendar(hour="1-3")])
    await bench.create(entered)
    found = await bench.describe()
    assert found.spec["cron"] == ["0 2 * * mon", "@every 6h/1h"]
    assert "cron" not in found.canonical
    assert {"calendars", "intervals"} <= set(found.canonical)
    assert Spec.from_dict(found.canonical).canonical().to_dict() == found.canonical
    far = Spec(intervals=[Interval("1h")], start=datetime(2099, 1, 1, tzinfo=UTC))
    await bench.create(far, name="far")
    assert (await bench.describe("far")).upcoming == far.upcoming(datetime(2099, 1, 1, tzinfo=UTC) - timedelta(1), 10)
    shown = far.between(datetime(2099, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, 2, tzinfo=UTC))
    assert [f"{each:%H}" for each in shown] == ["01", "02"]  # after the first, up to and including the last


NO_SPECS: dict[str, dict[str, Any]] = {
    "a name that no month has": {"calendars": [{"month": "Foo"}]},
    "a range that goes back": {"calendars": [{"hour": "5-3"}]},
    "beyond the field": {"calendars": [{"minute": "60"}]},
    "a step below zero": {"calendars": [{"hour": "*/-2"}]},
    "an empty item": {"calendars": [{"hour": "1,,2"}]},
    "one slash too many": {"calendars": [{"hour": "1/2/3"}]},
    "Sunday as 7 among numbers": {"calendars": [{"dayOfWeek": [{"start": 7}]}]},
    "zones that differ": {"cron": ["TZ=Asia/Tokyo 0 9 * * *", "TZ=Europe/Paris 0 9 * * *"]},
    "a zone in front of some": {"cron": ["TZ=Asia/Tokyo 0 9 * * *", "0 9 * * *"]},
    "another zone than the spec's": {"cron": ["TZ=Asia/Tokyo 0 9 * * *"], "timezone": "Europe/Paris"},
    "four fields": {"cron": ["0 9 * *"]},
    "nothing left": {"intervals": ["6h"], "exclude": [{"hour": "*"}]},
    "an end in the past": {"intervals": ["6h"], "end": "2022-05-01T00:00:00Z"},
}


async def test_a_spec_that_is_none_is_refused_and_nothing_is_stored(bench: Bench) -> None:
    for name, written in NO_SPECS.items():
        with pytest.raises(InvalidInput) as refused:
            await bench.create(Spec.from_dict(written))
        assert len(str(refused.value)) > 20, name
    assert (await bench.app.schedules.list()).schedules == []
    await bench.create(Spec.from_dict(NO_SPECS["nothing left"]), Policy(), paused=True)
    assert (await bench.describe()).upcoming == []


async def test_a_zone_in_front_of_all_crons_is_the_zone_of_the_spec(bench: Bench) -> None:
    await bench.create(Spec(cron=["TZ=Asia/Tokyo 0 9 * * *", Cron("TZ=Asia/Tokyo 0 10 * * *", dialect="temporal")]))
    found = await bench.describe()
    assert found.spec["timezone"] == "Asia/Tokyo"
    assert [f"{each:%H:%M%z}" for each in found.upcoming[:2]] == ["01:00+0000", "00:00+0000"]
