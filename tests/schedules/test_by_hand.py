"""Trigger, backfill, skip: what people ask for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from mainspring import Calendar, Overlap, Policy, Spec
from mainspring.errors import InvalidInput, NotFound
from tests.schedules.conftest import at

if TYPE_CHECKING:
    from tests.schedules.conftest import Bench

YESTERDAY = at("00:00") - timedelta(days=1)
SEVENTEENS = Spec(calendars=[Calendar(minute="*/17", hour="19", day_of_month="31")])


async def test_a_trigger_obeys_the_overlap_policy_unless_told_otherwise(bench: Bench) -> None:
    bench.durations = {"*": "25m"}
    await bench.create("55m")
    await bench.to("00:20")
    assert await bench.app.schedules.trigger("s") is None
    left_out = (await bench.ticks())[-1]
    assert (left_out.source, left_out.outcome) == ("trigger", "skipped_overlap")
    assert (await bench.describe()).skipped == 1
    handle = await bench.app.schedules.trigger("s", overlap="AllowAll")
    assert handle is not None
    assert handle.id.startswith("s-2022-06-01T00:20:00Z-")
    assert await handle.result() == "00:20"


async def test_two_triggers_in_one_second_are_two_runs(bench: Bench) -> None:
    await bench.create(Spec(), Overlap.ALLOW_ALL, paused=True)
    one, two = await bench.app.schedules.trigger("s"), await bench.app.schedules.trigger("s")
    assert one is not None
    assert two is not None
    assert one.id != two.id
    assert len(await bench.ticks()) == 2


async def test_a_trigger_that_has_to_wait_has_a_handle_that_waits_with_it(bench: Bench) -> None:
    bench.durations = {"00:05": "10m"}
    await bench.create("1h", Overlap.BUFFER_ALL)
    await bench.to("00:05")
    first = await bench.app.schedules.trigger("s")
    await bench.to("00:06")
    second = await bench.app.schedules.trigger("s")
    assert first is not None
    assert second is not None
    assert await second.result() == "00:06"
    assert bench.world.now == at("00:15")


async def test_creating_with_a_trigger_acts_once_and_leaves_the_grid_alone(bench: Bench) -> None:
    await bench.create("55m", trigger=True)
    await bench.to("00:16")
    assert bench.starts == [("00:00", "00:00"), ("00:15", "00:15")]


async def test_a_backfill_takes_historic_actions_one_after_the_other(bench: Bench) -> None:
    bench.durations = {"19:00": "4m", "19:17": "4m", "19:34": "10m", "19:51": "2m"}
    await bench.create(SEVENTEENS)
    await bench.to("00:05")
    made = await bench.app.schedules.backfill("s", YESTERDAY, at("00:00"))
    assert (made.overlap, made.state) == ("buffer_all", "running")
    await bench.to("00:40")
    assert bench.starts == [("19:00", "00:05"), ("19:17", "00:09"), ("19:34", "00:13"), ("19:51", "00:23")]
    (done,) = await bench.app.schedules.backfills("s")
    assert (done.state, done.started, done.skipped) == ("done", 4, 0)


async def test_a_trigger_that_waits_keeps_its_place_when_a_backfill_is_requested_in_the_same_moment(
    bench: Bench,
) -> None:
    bench.durations = {"*": "9m"}
    await bench.create("10m", Overlap.BUFFER_ONE)
    await bench.to("00:11")
    handle = await bench.app.schedules.trigger("s")
    assert handle is not None
    await bench.app.schedules.backfill("s", at("00:00"), at("00:00"))
    await bench.to("00:29")
    assert bench.starts == [("00:10", "00:10"), ("00:11", "00:19"), ("00:00", "00:28")]
    assert await handle.result() == "00:11"


async def test_ticks_that_stop_others_leave_a_waiting_backfill_in_its_place(bench: Bench) -> None:
    bench.durations = {"00:10": "25m", "*": "9m"}
    await bench.create("10m", Overlap.CANCEL_OTHER)
    await bench.to("00:11")
    await bench.app.schedules.backfill("s", at("00:00"), at("00:00"))
    await bench.to("00:40")
    assert (await bench.outcomes())["00:00"] == "late"
    (done,) = await bench.app.schedules.backfills("s")
    assert done.started == 1


async def test_both_ends_of_a_backfill_belong_to_it(bench: Bench) -> None:
    await bench.create(SEVENTEENS)
    tick = YESTERDAY + timedelta(hours=19, minutes=17)
    half = timedelta(seconds=0.5)
    await bench.app.schedules.backfill("s", tick, tick)
    await bench.app.schedules.backfill("s", tick + half, tick + half)
    await bench.app.schedules.backfill("s", tick + half, tick + timedelta(minutes=3))
    await bench.world.drain()
    assert sorted((made.started, made.state) for made in await bench.app.schedules.backfills("s")) == [
        (0, "done"),
        (0, "done"),
        (1, "done"),
    ]


async def test_a_backfill_in_parallel_runs_all_at_once(bench: Bench) -> None:
    bench.durations = {"*": "10m"}
    await bench.create(SEVENTEENS, Overlap.ALLOW_ALL, paused=True)
    await bench.app.schedules.backfill("s", YESTERDAY, at("00:00"))
    await bench.to("00:01")
    assert len(bench.starts) == 4
    assert (await bench.describe()).paused


async def test_a_backfill_with_skip_collapses_to_one(bench: Bench) -> None:
    bench.durations = {"*": "10m"}
    await bench.create(SEVENTEENS)
    await bench.app.schedules.backfill("s", YESTERDAY, at("00:00"), Overlap.SKIP)
    await bench.to("00:20")
    assert bench.starts == [("19:00", "00:00")]


async def test_times_that_have_a_run_are_left_out_unless_asked_for_again(bench: Bench) -> None:
    await bench.create("5m")
    await bench.to("00:21")
    await bench.app.schedules.backfill("s", at("00:00"), at("00:20"))
    await bench.world.advance(1)
    await bench.app.schedules.backfill("s", at("00:00"), at("00:20"), again=True)
    await bench.to("00:24")
    again, once = await bench.app.schedules.backfills("s")
    assert (once.started, once.skipped) == (1, 4)
    assert (again.started, again.skipped) == (5, 0)
    assert len(bench.starts) == 4 + 1 + 5


async def test_a_large_backfill_is_done_completely_and_live_ticks_go_on(bench: Bench) -> None:
    await bench.create("1m", Overlap.ALLOW_ALL)
    made = await bench.app.schedules.backfill("s", at("00:00") - timedelta(minutes=500), at("00:00"))
    assert made.state == "running"
    await bench.to("00:03")
    (done,) = await bench.app.schedules.backfills("s")
    assert (done.state, done.started) == ("done", 501)
    assert len(bench.starts) == 501 + 3


async def test_a_backfill_can_be_stopped(bench: Bench) -> None:
    bench.durations = {"*": "10m"}
    await bench.create("1m", paused=True)
    made = await bench.app.schedules.backfill("s", at("00:00") - timedelta(minutes=500), at("00:00"))
    await bench.to("00:15")
    stopped = await bench.app.schedules.stop_backfill(made.id)
    assert stopped.state == "stopped"
    await bench.to("01:00")
    assert len(bench.starts) == 2
    assert (await bench.describe()).buffered == 0
    assert {str(tick.outcome) for tick in await bench.ticks()} == {"fired", "late", "dropped", "paused"}


async def test_a_backfill_uses_up_no_actions(bench: Bench) -> None:
    await bench.create("5m", Policy(limit=1))
    await bench.app.schedules.backfill("s", at("00:00") - timedelta(hours=1), at("00:00"))
    await bench.world.drain()
    assert (await bench.describe()).remaining == 1


async def test_the_next_tick_or_a_given_one_is_left_out_on_request(bench: Bench) -> None:
    await bench.create("5m")
    assert await bench.app.schedules.skip("s") == at("00:05")
    assert await bench.app.schedules.skip("s") == at("00:10")
    assert await bench.app.schedules.skip("s", at("00:20")) == at("00:20")
    assert await bench.app.schedules.unskip("s", at("00:10")) == at("00:10")
    described = await bench.describe()
    assert described.skips == [at("00:05"), at("00:20")]
    assert described.upcoming[:3] == [at("00:10"), at("00:15"), at("00:25")]
    await bench.to("00:26")
    assert [nominal for nominal, _ in bench.starts] == ["00:10", "00:15", "00:25"]
    assert (await bench.outcomes())["00:20"] == "skipped_by_request"
    with pytest.raises(InvalidInput, match="no tick at"):
        await bench.app.schedules.skip("s", at("00:32"))
    with pytest.raises(InvalidInput, match="over"):
        await bench.app.schedules.skip("s", at("00:10"))


async def test_bad_requests_are_refused_and_change_nothing(bench: Bench) -> None:
    await bench.create("5m")
    with pytest.raises(InvalidInput, match="before the start"):
        await bench.app.schedules.backfill("s", at("00:10"), at("00:05"))
    with pytest.raises(InvalidInput, match="no overlap policy"):
        await bench.app.schedules.trigger("s", "sometimes")
    for verb in ("describe", "delete", "pause", "resume", "trigger", "skip", "ticks"):
        with pytest.raises(NotFound, match="schedule 'nobody' not found"):
            await getattr(bench.app.schedules, verb)("nobody")
    assert await bench.ticks() == []
