"""What was not acted on at its time: made up for, missed, paused, and accounted for in any case."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from mainspring import Overlap, Policy, Spec
from mainspring.errors import InvalidInput
from tests.schedules.conftest import BEGIN, at, bench_at

if TYPE_CHECKING:
    from tests.schedules.conftest import Bench


async def _after_downtime(url: str, policy: Policy, spec: str = "5m", away: str = "01:02") -> Bench:
    async with bench_at(url) as before:
        await before.create(spec, policy)
        await before.to("00:01")
    async with bench_at(url, at(away)) as after:
        await after.world.drain()
        after.found = await after.ticks()
        after.described = await after.describe()
    return after


async def test_what_is_within_the_window_is_made_up_for_and_the_rest_is_missed(store_url: str) -> None:
    after = await _after_downtime(store_url, Policy(Overlap.ALLOW_ALL, catchup="12m"))
    assert [nominal for nominal, _ in after.starts] == ["00:50", "00:55", "01:00"]
    ticks = after.found
    assert [str(tick.outcome) for tick in ticks] == ["missed"] * 9 + ["late"] * 3
    assert {str(tick.source) for tick in ticks} == {"catchup"}
    assert after.described.missed == 9


async def test_without_a_window_everything_is_made_up_for(store_url: str) -> None:
    after = await _after_downtime(store_url, Policy(Overlap.ALLOW_ALL, catchup=None))
    assert len(after.starts) == 12


async def test_by_default_the_window_is_a_minute(store_url: str) -> None:
    after = await _after_downtime(store_url, Policy(Overlap.ALLOW_ALL), away="01:00:50")
    assert [nominal for nominal, _ in after.starts] == ["01:00"]


async def test_coalesce_makes_up_for_the_latest_only(store_url: str) -> None:
    after = await _after_downtime(store_url, Policy(Overlap.ALLOW_ALL, catchup=None, coalesce=True))
    assert [nominal for nominal, _ in after.starts] == ["01:00"]
    assert after.found[0].count == 11
    assert "2022-06-01T01:00:00Z" in str(after.found[0].reason)


async def test_what_was_made_up_for_and_what_was_skipped_are_not_counted_twice(store_url: str) -> None:
    async with bench_at(store_url) as before:
        await before.create("1m", Policy(Overlap.ALLOW_ALL, catchup=None, coalesce=True))
        await before.to("00:01")
        await before.app.schedules.skip("s", at("00:20"))
    async with bench_at(store_url, at("00:40")) as after:
        await after.world.drain()
        ticks = await after.ticks()
    found = [
        (str(tick.outcome), f"{tick.nominal:%H:%M}", tick.until and f"{tick.until:%H:%M}", tick.count) for tick in ticks
    ]
    assert found == [
        ("fired", "00:01", None, 1),
        ("replaced", "00:02", "00:19", 18),
        ("skipped_by_request", "00:20", None, 1),
        ("replaced", "00:21", "00:39", 19),
        ("fired", "00:40", None, 1),
    ]


async def test_a_long_stretch_is_one_row(store_url: str) -> None:
    after = await _after_downtime(store_url, Policy(catchup="30s"), spec="1m")
    fired, span, last = after.found
    assert (fired.nominal, fired.outcome) == (at("00:01"), "fired")
    assert (span.outcome, span.count, span.nominal, span.until) == ("missed", 60, at("00:02"), at("01:01"))
    assert (last.nominal, last.outcome) == (at("01:02"), "fired")


async def test_time_spent_paused_is_neither_made_up_for_nor_missed(bench: Bench) -> None:
    await bench.create("5m", Policy(catchup=None), paused=True)
    await bench.to("00:32")
    await bench.app.schedules.resume("s", "go ahead")
    await bench.to("00:41")
    described = await bench.describe()
    assert (described.missed, described.starts, described.note) == (0, 2, "go ahead")
    assert [(str(tick.outcome), tick.count) for tick in await bench.ticks()] == [("paused", 1)] * 6 + [("fired", 1)] * 2


async def test_a_pause_ends_at_its_time(bench: Bench) -> None:
    await bench.create("5m")
    await bench.app.schedules.pause("s", "lunch", until=at("00:12"))
    await bench.to("00:21")
    assert bench.starts == [("00:15", "00:15"), ("00:20", "00:20")]
    assert [str(tick.outcome) for tick in await bench.ticks()] == ["paused", "paused", "fired", "fired"]
    assert (await bench.ticks())[0].reason == "the schedule was paused: lunch"


async def test_a_pause_that_ended_while_nobody_was_there_ended_at_its_time(store_url: str) -> None:
    async with bench_at(store_url) as before:
        await before.create("5m", Policy(Overlap.ALLOW_ALL, catchup=None))
        await before.app.schedules.pause("s", until=at("00:12"))
    async with bench_at(store_url, at("00:22")) as after:
        await after.world.drain()
        assert [nominal for nominal, _ in after.starts] == ["00:15", "00:20"]


async def test_pausing_drops_what_the_clock_has_buffered_and_keeps_what_was_asked_for(bench: Bench) -> None:
    bench.durations = {"*": "12m"}
    await bench.create("5m", Overlap.BUFFER_ALL)
    await bench.to("00:11")
    await bench.app.schedules.trigger("s")
    await bench.app.schedules.pause("s", "stop")
    assert (await bench.outcomes())["00:10"] == "paused"
    await bench.to("00:40")
    assert bench.starts == [("00:05", "00:05"), ("00:11", "00:17")]


async def test_pause_and_resume_between_nominal_and_jittered_time_loses_nothing(bench: Bench) -> None:
    await bench.create(Spec(intervals=["1h"], jitter="50m"))
    times = Spec(intervals=["1h"], jitter="50m")
    acts = times.jittered(at("01:00"), "s")
    assert acts - at("01:00") > timedelta(seconds=10)
    middle = at("01:00") + (acts - at("01:00")) / 2
    await bench.world.advance_to(middle)
    await bench.app.schedules.pause("s", "wait")
    await bench.app.schedules.resume("s", "go on")
    await bench.to("02:00")
    ((nominal, started),) = bench.started
    assert (nominal, started) == ("01:00", acts)


async def test_an_update_between_nominal_and_jittered_time_loses_nothing(bench: Bench) -> None:
    spec = Spec(intervals=["1h"], jitter="50m")
    await bench.create(spec)
    acts = spec.jittered(at("01:00"), "s")
    await bench.world.advance_to(at("01:00") + (acts - at("01:00")) / 2)
    await bench.app.schedules.update("s", spec=Spec(cron=["0 12 * * *"]))
    assert (await bench.outcomes()) == {"01:00": "pending"}
    await bench.to("12:01")
    assert [nominal for nominal, _ in bench.starts] == ["01:00", "12:00"]
    assert bench.started[0][1] == acts


async def test_a_limit_counts_runs_of_the_clock_only_and_then_acts_as_a_pause(bench: Bench) -> None:
    await bench.create("3m", Policy(limit=2))
    await bench.to("00:01")
    described = await bench.describe()
    assert (described.remaining, described.upcoming) == (2, [at("00:03"), at("00:06")])
    await bench.app.schedules.trigger("s")
    await bench.to("00:12")
    described = await bench.describe()
    assert (described.remaining, described.upcoming, described.starts) == (0, [], 3)
    assert await bench.app.schedules.trigger("s") is not None
    await bench.app.schedules.update("s", remaining=1)
    await bench.to("00:20")
    assert (await bench.outcomes())["00:15"] == "fired"
    assert (await bench.outcomes())["00:09"] == "paused"


async def test_missing_a_tick_uses_up_no_action(store_url: str) -> None:
    after = await _after_downtime(store_url, Policy(limit=3, catchup="30s"))
    assert after.described.remaining == 3


@pytest.mark.parametrize("failing", [RuntimeError("oops"), "timeout"])
async def test_a_failure_pauses_and_says_which_run(bench: Bench, failing: object) -> None:
    if failing == "timeout":
        bench.durations = {"*": "4m"}
        call = bench.act.options(timeout="2m").bind()
        await bench.app.schedules.create("s", call, Spec(intervals=["5m"]), Policy(pause_on_failure=True))
    else:
        bench.results = {"00:05": failing}
        await bench.create("5m", Policy(pause_on_failure=True))
    await bench.to("00:20")
    described = await bench.describe()
    assert described.paused
    assert described.note is not None
    assert "failure" in described.note
    assert "s-2022-06-01T00:05:00Z" in described.note
    assert len(bench.starts) == 1


async def test_a_pause_on_failure_can_wait_for_several_in_a_row(bench: Bench) -> None:
    bench.results = {"00:05": ValueError("a"), "00:15": ValueError("b"), "00:20": ValueError("c")}
    await bench.create("5m", Policy(pause_on_failure=2))
    await bench.to("00:40")
    assert [nominal for nominal, _ in bench.starts] == ["00:05", "00:10", "00:15", "00:20"]
    assert "2 in a row" in str((await bench.describe()).note)


async def test_a_failure_during_a_pause_with_an_end_pauses_without_end(bench: Bench) -> None:
    bench.durations = {"00:05": "4m"}
    bench.results = {"00:05": ValueError("a")}
    await bench.create("5m", Policy(pause_on_failure=True))
    await bench.to("00:06")
    await bench.app.schedules.pause("s", "lunch", until=at("00:12"))
    await bench.to("00:31")
    described = await bench.describe()
    assert (described.paused, described.resume_at) == (True, None)
    assert "s-2022-06-01T00:05:00Z" in str(described.pause_note)
    assert bench.starts == [("00:05", "00:05")]


async def test_a_failure_during_a_pause_without_end_leaves_its_note(bench: Bench) -> None:
    bench.durations = {"00:05": "4m"}
    bench.results = {"00:05": ValueError("a")}
    await bench.create("5m", Policy(pause_on_failure=True))
    await bench.to("00:06")
    await bench.app.schedules.pause("s", "lunch")
    await bench.to("00:31")
    assert (await bench.describe()).pause_note == "lunch"


async def test_cancelling_a_run_is_no_failure(bench: Bench) -> None:
    bench.durations = {"*": "4m"}
    await bench.create("5m", Policy(pause_on_failure=True))
    await bench.to("00:06")
    await bench.app.handle("s-2022-06-01T00:05:00Z").cancel()
    await bench.to("00:11")
    assert not (await bench.describe()).paused
    assert len(bench.starts) == 2


async def test_a_clock_that_is_set_back_fires_nothing_twice(bench: Bench) -> None:
    await bench.create("5m", Policy(Overlap.ALLOW_ALL, catchup=None))
    await bench.to("00:21")
    bench.world.clock.set(at("00:02"))
    await bench.world.drain()
    await bench.to("00:26")
    assert [nominal for nominal, _ in bench.starts] == ["00:05", "00:10", "00:15", "00:20", "00:25"]


async def test_windows_below_ten_seconds_count_as_ten_and_negative_ones_are_refused() -> None:
    assert Policy(catchup=0).to_dict()["catchup"] == "10s"
    assert Policy().to_dict()["catchup"] == "1m"
    assert Policy(catchup=None).to_dict()["catchup"] is None
    with pytest.raises(InvalidInput, match=r"catchup.*negative"):
        Policy(catchup=-1)


async def test_a_tick_at_the_very_time_of_creation_does_not_fire(bench: Bench) -> None:
    assert bench.world.now == BEGIN
    await bench.create("5m")
    await bench.to("00:04")
    assert bench.starts == []
