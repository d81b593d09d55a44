"""What happens when it is time to start and a run is unfinished."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from mainspring import Overlap, Policy, State
from tests.schedules.conftest import at, bench_at

if TYPE_CHECKING:
    from tests.schedules.conftest import Bench


async def test_a_run_starts_at_its_time_under_an_id_with_that_time(bench: Bench) -> None:
    await bench.create("55m", attributes={"tenant": "acme"})
    await bench.to("00:16")
    (tick,) = await bench.ticks()
    assert (tick.nominal, tick.outcome, tick.source) == (at("00:15"), "fired", "clock")
    assert tick.run == "s-2022-06-01T00:15:00Z"
    found = await bench.app.handle(tick.run).describe()
    assert found.attributes == {"schedule_id": "s", "scheduled_at": "2022-06-01T00:15:00Z"}
    assert bench.seen == {"00:15": (None, None)}


async def test_skip_leaves_out_what_comes_up_during_a_run(bench: Bench) -> None:
    bench.durations = {"00:05": "7m", "*": "2m"}
    await bench.create("5m")
    await bench.to("00:11")
    described = await bench.describe()
    assert described.skipped == 1
    assert described.running == ["s-2022-06-01T00:05:00Z"]
    await bench.to("00:18")
    assert bench.starts == [("00:05", "00:05"), ("00:15", "00:15")]
    skipped = (await bench.ticks())[1]
    assert skipped.reason == "run s-2022-06-01T00:05:00Z was unfinished"


async def test_buffer_one_keeps_the_first_that_waits(bench: Bench) -> None:
    bench.durations = {"00:05": "22m", "00:10": "2m", "*": "9m"}
    await bench.create("5m", Overlap.BUFFER_ONE)
    await bench.to("00:11")
    assert (await bench.describe()).buffered == 1
    await bench.to("00:38")
    assert bench.starts == [("00:05", "00:05"), ("00:10", "00:27"), ("00:30", "00:30")]
    assert (await bench.outcomes()) == {
        "00:05": "fired",
        "00:10": "late",
        "00:15": "skipped_overlap",
        "00:20": "skipped_overlap",
        "00:25": "skipped_overlap",
        "00:30": "fired",
        "00:35": "buffered",
    }


async def test_buffer_all_starts_one_after_the_other_in_order(bench: Bench) -> None:
    bench.durations = {"00:05": "12m", "00:10": "2m", "00:15": "3m", "00:20": "1m", "*": "2m"}
    await bench.create("5m", Overlap.BUFFER_ALL)
    await bench.to("00:29")
    assert bench.starts == [
        ("00:05", "00:05"),
        ("00:10", "00:17"),
        ("00:15", "00:19"),
        ("00:20", "00:22"),
        ("00:25", "00:25"),
    ]


async def test_a_full_buffer_drops_and_goes_on(bench: Bench) -> None:
    bench.durations = {"00:05": "17m", "*": "1m"}
    await bench.create("5m", Policy(Overlap.BUFFER_ALL, buffer_limit=2))
    await bench.to("00:20:30")
    described = await bench.describe()
    assert (described.buffered, described.dropped) == (2, 1)
    await bench.to("00:29")
    assert bench.starts == [("00:05", "00:05"), ("00:10", "00:22"), ("00:15", "00:23"), ("00:25", "00:25")]
    assert (await bench.outcomes())["00:20"] == "dropped"


async def test_cancel_other_waits_until_the_old_run_has_let_go(bench: Bench) -> None:
    bench.durations = {"00:15": "2h"}
    await bench.create("55m", Overlap.CANCEL_OTHER)
    await bench.to("01:11")
    old = await bench.app.handle("s-2022-06-01T00:15:00Z").describe()
    assert (old.state, old.completed) == (State.CANCELLED, at("01:10"))
    assert old.reason == "by schedule s, to make room for its next run"
    assert bench.starts == [("00:15", "00:15"), ("01:10", "01:10")]


async def test_terminate_other_starts_at_once(bench: Bench) -> None:
    bench.durations = {"*": "2h"}
    await bench.create("30m", Overlap.TERMINATE_OTHER)
    await bench.to("01:31")
    assert bench.starts == [("00:30", "00:30"), ("01:00", "01:00"), ("01:30", "01:30")]
    described = await bench.describe()
    assert described.running == ["s-2022-06-01T01:30:00Z"]
    assert described.last_failure is None


async def test_allow_all_runs_side_by_side(bench: Bench) -> None:
    bench.durations = {"*": "12m"}
    await bench.create("5m", Overlap.ALLOW_ALL)
    await bench.to("00:16")
    assert bench.starts == [("00:05", "00:05"), ("00:10", "00:10"), ("00:15", "00:15")]
    assert len((await bench.describe()).running) == 3


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        (Overlap.SKIP, "skipped_overlap"),
        (Overlap.ALLOW_ALL, "skipped_overlap"),
        (Overlap.BUFFER_ALL, "buffered"),
        (Overlap.TERMINATE_OTHER, "fired"),
    ],
)
async def test_max_running_is_how_many_may_be_unfinished(bench: Bench, overlap: Overlap, expected: str) -> None:
    bench.durations = {"*": "1h"}
    await bench.create("5m", Policy(overlap, max_running=2))
    await bench.to("00:16")
    assert (await bench.outcomes())["00:10"] == "fired"
    assert (await bench.outcomes())["00:15"] == expected
    oldest = await bench.app.handle("s-2022-06-01T00:05:00Z").describe()
    assert oldest.state is (State.CANCELLED if overlap is Overlap.TERMINATE_OTHER else State.WAITING)


@pytest.mark.parametrize("overlap", [Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER])
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_ticks_of_one_moment_stop_nothing_while_there_are_free_slots(
    bench: Bench, overlap: Overlap, times: int
) -> None:
    bench.durations = {"*": "1d"}
    await bench.create("5m", Policy(overlap, max_running=3))
    await bench.to("00:06")
    last = at("00:00")
    await bench.app.schedules.backfill("s", last - timedelta(minutes=5 * (times - 1)), last, overlap=overlap)
    await bench.world.drain()
    outcomes = await bench.outcomes()
    assert [outcomes[each] for each in ("00:00", "23:55", "23:50") if each in outcomes] == [
        "fired",
        "fired",
        "replaced",
    ][:times]
    assert outcomes["00:05"] == "fired"
    assert len((await bench.describe()).running) == min(times + 1, 3)


@pytest.mark.parametrize("overlap", [Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER])
async def test_what_is_made_up_for_fills_the_free_slots(store_url: str, overlap: Overlap) -> None:
    async with bench_at(store_url) as before:
        await before.create("5m", Policy(overlap, max_running=3, catchup="1h"))
    async with bench_at(store_url, at("00:16")) as after:
        after.durations = {"*": "1d"}
        await after.world.drain()
        assert await after.outcomes() == dict.fromkeys(("00:05", "00:10", "00:15"), "late")


async def test_a_run_that_waits_or_is_parked_keeps_its_place(bench: Bench) -> None:
    bench.durations = {"*": "1d"}
    await bench.create("5m")
    await bench.to("00:31")
    assert bench.starts == [("00:05", "00:05")]
    assert (await bench.describe()).skipped == 5


async def test_the_schedule_goes_on_after_a_failure_and_remembers_it(bench: Bench) -> None:
    bench.results = {"00:05": "res1", "00:10": RuntimeError("oops"), "00:15": "works again"}
    bench.durations = {"*": "4m"}
    await bench.create("5m")
    await bench.to("00:21")
    assert bench.seen == {
        "00:05": (None, None),
        "00:10": ("res1", None),
        "00:15": ("res1", "oops"),
        "00:20": ("works again", None),
    }


async def test_under_allow_all_the_last_result_is_of_the_run_that_completed_last(bench: Bench) -> None:
    bench.durations = {"00:05": "22m", "00:15": "8m", "00:25": "20m", "00:30": "1m"}
    await bench.create("5m", Policy(Overlap.ALLOW_ALL, limit=6))
    await bench.to("00:30:30")
    assert bench.seen["00:30"] == ("00:05", None)


@pytest.mark.parametrize("verb", ["retry", "reschedule", "resume"])
async def test_an_earlier_run_that_is_made_unfinished_again_holds_up_the_next_tick(bench: Bench, verb: str) -> None:
    if verb == "resume":
        bench.durations = {"00:05": "30m"}
    else:
        bench.results = {"00:05": ValueError("no")}
    await bench.create("5m")
    await bench.to("00:06")
    first = bench.app.handle("s-2022-06-01T00:05:00Z")
    if verb == "resume":
        await first.cancel()
    await bench.to("00:21")
    bench.durations, bench.results = {"00:05": "30m"}, {}
    if verb == "reschedule":
        await bench.app.runs.reschedule(first.id, after="3m")
    else:
        await getattr(bench.app.runs, verb)(first.id)
    await bench.to("00:26")
    assert (await bench.describe()).running == [first.id]
    assert (await bench.outcomes())["00:25"] == "skipped_overlap"


async def test_cancel_other_takes_the_slot_it_freed_before_a_backfill_that_waits_for_one(bench: Bench) -> None:
    bench.durations = {"*": "22m"}
    await bench.create("15m", Policy(Overlap.CANCEL_OTHER, max_running=2))
    await bench.app.schedules.backfill("s", at("00:00") - timedelta(hours=1), at("00:00"))
    await bench.to("00:16")
    assert bench.starts == [("23:00", "00:00"), ("23:15", "00:00"), ("00:15", "00:15")]
    cancelled = await bench.app.runs.list(state=State.CANCELLED)
    assert [each.id.rsplit("-", 1)[0] for each in cancelled] == ["s-2022-05-31T23:00:00Z"]
    assert [each for each in (await bench.outcomes()).values() if each == "buffered"] == ["buffered"] * 3
