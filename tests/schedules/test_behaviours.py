"""Further promises of schedules, each by itself, on the virtual clock and on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from mainspring import Calendar, Interval, Overlap, Policy, Spec, State
from mainspring.errors import InvalidInput
from tests.schedules.conftest import BEGIN, at, bench_at

if TYPE_CHECKING:
    from mainspring import RunInfo, TickInfo
    from tests.schedules.conftest import Bench


# -- when --------------------------------------------------------------------------------------------------------------
async def test_several_kinds_of_times_are_one_schedule_without_duplicates(bench: Bench) -> None:
    spec = Spec(
        cron=["*/20 * * * *"], intervals=[Interval("30m", offset="10m")], calendars=[Calendar(hour="*", minute="40")]
    )
    await bench.create(spec, Overlap.ALLOW_ALL)
    await bench.to("01:01")
    assert [nominal for nominal, _ in bench.starts] == ["00:10", "00:20", "00:40", "01:00"]


async def test_start_and_end_belong_to_it_and_then_it_is_over(bench: Bench) -> None:
    await bench.create(Spec(intervals=["5m"], start=at("00:10"), end=at("00:20")))
    assert (await bench.describe()).upcoming == [at("00:10"), at("00:15"), at("00:20")]
    await bench.to("01:00")
    assert [nominal for nominal, _ in bench.starts] == ["00:10", "00:15", "00:20"]
    found = await bench.describe()
    assert (found.next, found.upcoming) == (None, [])


async def test_a_single_date_fires_once_also_with_jitter(bench: Bench) -> None:
    once = Calendar(year="2022", month="June", day_of_month="1", hour="1")
    await bench.create(Spec(calendars=[once]), name="plain")
    await bench.create(Spec(calendars=[once], jitter="20m"), name="jittered")
    await bench.to("02:00")
    for name in ("plain", "jittered"):
        (tick,) = await bench.ticks(name)
        assert (tick.nominal, tick.outcome) == (at("01:00"), "fired")
        assert at("01:00") <= tick.due < at("01:20")
        assert (await bench.describe(name)).next is None


async def test_exclusions_remove_times_of_every_kind(bench: Bench) -> None:
    spec = Spec(intervals=["1h"], cron=["30 * * * *"], exclude=[Calendar(hour="2"), "0 4 * * *"])
    await bench.create(spec, Overlap.ALLOW_ALL)
    await bench.to("05:01")
    assert [nominal for nominal, _ in bench.starts] == [
        *("00:30", "01:00", "01:30", "03:00", "03:30", "04:30", "05:00"),
    ]


async def test_jitter_is_the_same_after_a_restart_and_differs_between_schedules(store_url: str) -> None:
    spec = Spec(intervals=["1h"], jitter="50m")
    async with bench_at(store_url) as before:
        for name in ("a", "b"):
            await before.create(spec, Policy(Overlap.ALLOW_ALL, catchup=None), name=name)
        await before.world.advance_to(at("01:00") + timedelta(seconds=1))
    async with bench_at(store_url, at("01:00") + timedelta(seconds=2)) as after:
        await after.to("02:00")
        (a,), (b,) = await after.ticks("a"), await after.ticks("b")
    assert a.due == spec.jittered(at("01:00"), "a")
    assert b.due == spec.jittered(at("01:00"), "b")
    assert a.due != b.due
    assert (a.acted, b.acted) == (a.due, b.due)


# -- what --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("often", [2, 5])
async def test_stopping_and_starting_at_any_point_neither_repeats_nor_loses_a_tick(store_url: str, often: int) -> None:
    """The worker is replaced every few minutes, at times that are no ticks."""
    started: list[tuple[str, str]] = []
    ticks: list[TickInfo] = []
    runs: list[RunInfo] = []
    now = BEGIN
    while now < at("00:31"):
        async with bench_at(store_url, now) as bench:
            bench.durations = {"*": "7m20s"}  # no end coincides with a tick: either may come first
            if now == BEGIN:
                await bench.create("3m", Policy(Overlap.BUFFER_ONE, catchup=None))
            now = min(now + timedelta(minutes=often, seconds=10), at("00:31"))
            await bench.world.advance_to(now)
            started += bench.starts
            ticks = await bench.ticks()
            runs = (await bench.app.runs.list(limit=100)).runs
    begun = list(dict.fromkeys(nominal for nominal, _ in started))  # a run that was handed on begins again, by replay
    with_run = [tick for tick in ticks if tick.run is not None]
    assert (
        begun
        == [f"{tick.nominal:%H:%M}" for tick in with_run]
        == ["00:03", "00:06", "00:12", "00:18", "00:27"][: len(begun)]
    )
    assert sorted(run.id for run in runs) == sorted(str(tick.run) for tick in with_run)
    assert [f"{tick.nominal:%H:%M}" for tick in ticks] == [f"00:{minute:02}" for minute in range(3, 31, 3)]
    assert len(begun) >= 4


async def test_what_a_run_knows_of_its_tick(store_url: str) -> None:
    async with bench_at(store_url) as before:
        await before.create("5m", Policy(Overlap.ALLOW_ALL, catchup=None))
        await before.to("00:06")
    async with bench_at(store_url, at("00:12")) as bench:
        await bench.app.schedules.trigger("s")
        await bench.app.schedules.backfill("s", at("00:00"), at("00:00"))
        await bench.to("00:16")
    known = sorted((str(tick.source), tick.nominal, tick.actual) for tick in bench.run_ticks)
    assert known == [
        ("backfill", at("00:00"), at("00:12")),
        ("catchup", at("00:10"), at("00:12")),
        ("clock", at("00:15"), at("00:15")),
        ("trigger", at("00:12"), at("00:12")),
    ]
    by_clock = next(tick for tick in bench.run_ticks if str(tick.source) == "clock")
    assert (by_clock.schedule, by_clock.previous, by_clock.upcoming) == ("s", at("00:10"), at("00:20"))


async def test_an_id_that_is_taken_is_a_start_that_failed_and_the_schedule_goes_on(bench: Bench) -> None:
    await bench.act.options(id="s-2022-06-01T00:05:00Z", after="1d").start()
    await bench.create("5m", Policy(limit=2))
    await bench.to("00:16")
    failed, *rest = await bench.ticks()
    assert (failed.outcome, failed.run) == ("start_failed", None)
    assert "there is a run s-2022-06-01T00:05:00Z already" in str(failed.reason)
    assert [str(tick.outcome) for tick in rest] == ["fired", "fired"]
    assert (await bench.describe()).starts == 2


async def test_runs_are_found_by_their_schedule(bench: Bench) -> None:
    await bench.create("5m", Overlap.ALLOW_ALL)
    await bench.create("5m", name="other")
    await bench.to("00:11")
    page = await bench.app.runs.list(id_prefix="s-")
    assert {each.attributes["schedule_id"] for each in page.runs} == {"s"}
    assert len(page.runs) == 2


# -- overlap -----------------------------------------------------------------------------------------------------------
async def test_a_trigger_with_a_policy_of_its_own_counts_as_that_policy_says(bench: Bench) -> None:
    bench.durations = {"*": "1h"}
    await bench.create("5m", Overlap.BUFFER_ALL)
    await bench.to("00:11")
    assert await bench.app.schedules.trigger("s", Overlap.SKIP) is None
    found = await bench.describe()
    assert (found.skipped, found.buffered) == (1, 1)
    handle = await bench.app.schedules.trigger("s", Overlap.TERMINATE_OTHER)
    assert handle is not None
    assert (await bench.app.handle("s-2022-06-01T00:05:00Z").describe()).state is State.CANCELLED


# -- state -------------------------------------------------------------------------------------------------------------
async def test_next_times_never_precede_now_nor_the_update(bench: Bench) -> None:
    await bench.create("5m", Policy(catchup=None))
    await bench.to("00:12")
    assert (await bench.describe()).upcoming[0] == at("00:15")
    await bench.app.schedules.update("s", spec=Spec(intervals=["7m"]))
    assert (await bench.describe()).upcoming[0] > at("00:12")
    await bench.app.schedules.pause("s")
    await bench.to("01:00")
    await bench.app.schedules.resume("s")
    assert (await bench.describe()).upcoming[0] > at("01:00")


async def test_recent_ticks_are_ten_at_most_with_their_runs(bench: Bench) -> None:
    await bench.create("1m", Overlap.ALLOW_ALL)
    await bench.to("00:30")
    recent = (await bench.describe()).recent
    assert len(recent) == 10
    assert recent[0].run == "s-2022-06-01T00:30:00Z"


async def test_ticks_come_in_pages_and_by_outcome(bench: Bench) -> None:
    bench.durations = {"00:05": "7m"}
    await bench.create("5m")
    await bench.to("00:31")
    schedules = bench.app.schedules
    seen: list[datetime] = []
    after = None
    while True:
        page = await schedules.ticks("s", limit=4, after=after)
        seen += [tick.nominal for tick in page.ticks]
        after = page.next
        if after is None:
            break
    assert seen == [at(f"00:{minute:02}") for minute in range(30, 0, -5)]
    (skipped,) = (await schedules.ticks("s", outcome=["skipped_overlap"])).ticks
    assert skipped.nominal == at("00:10")
    between = (await schedules.ticks("s", since=at("00:12"), until=at("00:20"))).ticks
    assert [tick.nominal for tick in between] == [at("00:20"), at("00:15")]
    with pytest.raises(InvalidInput, match="no outcome sometimes"):
        await schedules.ticks("s", outcome=["sometimes"])
    with pytest.raises(InvalidInput, match="the `next` of the page before"):
        await schedules.ticks("s", after="nonsense")


async def test_a_large_backfill_beside_live_ticks_and_a_full_buffer(bench: Bench) -> None:
    await bench.create("1m", Policy(Overlap.BUFFER_ALL, buffer_limit=5))
    await bench.app.schedules.backfill("s", at("00:00") - timedelta(minutes=200), at("00:00"))
    await bench.to("00:05")
    (done,) = await bench.app.schedules.backfills("s")
    assert (done.state, done.started, done.skipped) == ("done", 201, 0)
    live = [tick for tick in await bench.ticks() if str(tick.source) == "clock"]
    assert [str(tick.outcome) for tick in live] == ["fired"] * 5


async def test_the_time_of_a_schedule_that_was_never_fired_is_made_up_for_by_backfill_only(bench: Bench) -> None:
    await bench.create(Spec(cron=["0 0 * * *"]), paused=True)
    await bench.to("12:00")
    start = datetime(2022, 5, 1, tzinfo=UTC)
    made = await bench.app.schedules.backfill("s", start, start + timedelta(days=9), Overlap.ALLOW_ALL)
    await bench.world.drain()
    assert made.overlap is Overlap.ALLOW_ALL
    assert len(bench.starts) == 10
    assert (await bench.describe()).paused


# -- trouble -----------------------------------------------------------------------------------------------------------
async def test_a_failing_run_does_not_stop_later_ones(bench: Bench) -> None:
    bench.results = {f"00:{minute:02}": RuntimeError("no") for minute in range(0, 60, 5)}
    await bench.create("5m")
    await bench.to("00:31")
    found = await bench.describe()
    assert (found.starts, found.failures) == (6, 6)


async def test_one_schedule_that_cannot_be_planned_does_not_hold_up_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mainspring.schedules import plan as planning  # noqa: PLC0415

    real = planning.plan

    def broken(situation: object, *rest: object) -> object:
        if getattr(situation, "schedule").id == "broken":  # noqa: B009
            raise ZeroDivisionError("a defect")
        return real(situation, *rest)  # type: ignore[arg-type]

    await bench.create("5m", name="broken")
    await bench.create("5m", name="sound")
    monkeypatch.setattr(planning, "plan", broken)
    await bench.to("00:11")
    assert [nominal for nominal, _ in bench.starts] == ["00:05", "00:10"]
    assert (await bench.describe("broken")).fault == "ZeroDivisionError: a defect"
    monkeypatch.setattr(planning, "plan", real)
    await bench.to("00:16")
    assert (await bench.describe("broken")).fault is None
