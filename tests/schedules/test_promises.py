"""What keeps a place, what counts, what goes on: promises of schedules that people rely on without thinking of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Overlap, Policy, Retry, Settings, Spec, State, run
from mainspring.errors import NotFound, StoreUnavailable
from mainspring.testing import world
from tests.schedules.conftest import BEGIN, Bench, at, bench_at

if TYPE_CHECKING:
    from mainspring.store.schedules import Passed

FIVE = Spec(intervals=["5m"])
FIRST = "s-2022-06-01T00:05:00Z"


# -- what keeps a place --------------------------------------------------------------------------------------------------
async def test_a_run_between_two_attempts_keeps_its_place_and_fails_once(bench: Bench) -> None:
    tried: list[str] = []

    @bench.app.workflow(retry=Retry(3, first=240, factor=1, jitter=0))
    async def stubborn() -> None:
        tried.append(f"{run.now():%H:%M}")
        raise RuntimeError(f"attempt {len(tried)}")

    await bench.app.schedules.create("s", stubborn.bind(), FIVE, Policy(pause_on_failure=2))
    await bench.to("00:14")
    assert tried == ["00:05", "00:09", "00:13"]
    assert await bench.outcomes() == {"00:05": "fired", "00:10": "skipped_overlap"}
    found = await bench.describe()
    assert (found.failures, found.paused, found.running) == (1, False, [])
    assert "attempt 3" in str(found.last_failure)
    await bench.to("00:16")
    assert (await bench.outcomes())["00:15"] == "fired"


async def test_a_run_that_begins_anew_keeps_its_place_until_its_chain_ends(bench: Bench) -> None:
    @bench.app.workflow
    async def chain(number: int) -> str:
        await run.sleep("4m")
        if number < 3:
            await run.continue_as(number + 1)
        return f"after {number}"

    await bench.app.schedules.create("s", chain.bind(1), FIVE, Policy(Overlap.BUFFER_ONE))
    await bench.to("00:16:30")
    assert await bench.outcomes() == {"00:05": "fired", "00:10": "buffered", "00:15": "skipped_overlap"}
    assert (await bench.describe()).running == [FIRST]
    await bench.to("00:18")
    assert (await bench.outcomes())["00:10"] == "late"
    assert (await bench.describe()).last_result == "after 3"


@pytest.mark.parametrize(
    ("overlap", "fates"),
    [
        (Overlap.SKIP, ["fired", "skipped_overlap", "skipped_overlap"]),
        (Overlap.BUFFER_ALL, ["fired", "buffered", "buffered"]),
        (Overlap.TERMINATE_OTHER, ["fired", "fired", "fired"]),
        (Overlap.ALLOW_ALL, ["fired", "fired", "fired"]),
    ],
)
async def test_a_run_that_nobody_may_execute_for_now_keeps_its_place(
    store_url: str, overlap: Overlap, fates: list[str]
) -> None:
    bench = Bench(store_url)
    bench.app.queue("slow")
    async with world(bench.app, at=BEGIN, url=store_url) as bench.world:
        await bench.app.queues.pause("slow")
        await bench.app.schedules.create("s", bench.act.options(queue="slow").bind(), FIVE, Policy(overlap))
        await bench.to("00:16")
        assert list((await bench.outcomes()).values()) == fates
        assert bench.starts == []
        expected = {Overlap.ALLOW_ALL: 3}.get(overlap, 1)
        assert len((await bench.describe()).running) == expected


# -- what is remembered --------------------------------------------------------------------------------------------------
async def test_what_was_terminated_leaves_no_memory(bench: Bench) -> None:
    bench.durations = {"00:10": "1h"}
    await bench.create("5m", Policy(Overlap.TERMINATE_OTHER, pause_on_failure=True))
    await bench.to("00:16")
    found = await bench.describe()
    assert (found.last_result, found.last_failure, found.failures, found.paused) == ("00:15", None, 0, False)
    assert bench.seen["00:15"] == ("00:05", None)


async def test_a_good_end_clears_what_failures_left(bench: Bench) -> None:
    bench.results = {"00:05": RuntimeError("a"), "00:10": RuntimeError("b")}
    await bench.create("5m", Policy(pause_on_failure=3))
    await bench.to("00:11")
    assert (await bench.describe()).failures == 2
    await bench.to("00:16")
    found = await bench.describe()
    assert (found.failures, found.last_failure, found.last_result) == (0, None, "00:15")


async def test_runs_that_end_together_leave_the_result_of_the_last(bench: Bench) -> None:
    bench.durations = {"00:05": "12m", "00:10": "7m", "00:15": "2m"}
    await bench.create("5m", Policy(Overlap.ALLOW_ALL, limit=3))
    await bench.to("00:18")
    found = await bench.describe()
    ended = [(await bench.app.handle(f"s-2022-06-01T00:{minute}:00Z").describe()) for minute in ("05", "10", "15")]
    assert {each.completed for each in ended} == {at("00:17")}
    assert (found.running, found.failures) == ([], 0)
    assert found.last_result in {"00:05", "00:10", "00:15"}
    assert bench.app._runtime.connection().store.schedules.situation("s").runs == []  # type: ignore[union-attr]


# -- by hand -------------------------------------------------------------------------------------------------------------
async def test_a_run_that_fails_in_the_moment_in_which_a_later_one_ends_well_is_forgotten(bench: Bench) -> None:
    bench.durations = {"00:05": "10m", "00:10": "5m"}
    bench.results["00:05"] = RuntimeError("too bad")
    await bench.create(Spec(intervals=["5m"], end=at("00:10")), Policy(Overlap.ALLOW_ALL))
    await bench.to("00:16")
    found = await bench.describe()
    assert (found.failures, found.last_failure, found.last_result) == (0, None, "00:10")


async def test_two_schedules_whose_runs_would_have_one_id_stop_neither_each_other_nor_the_rest(bench: Bench) -> None:
    for name in ("a", "b"):
        await bench.app.schedules.create(name, bench.act.options(id="report").bind(), FIVE)
    await bench.create("5m")
    await bench.to("00:11")
    fates = [list((await bench.outcomes(name)).values()) for name in ("a", "b")]
    assert [sorted(both) for both in zip(*fates, strict=True)] == [["fired", "start_failed"]] * 2
    assert list((await bench.outcomes()).values()) == ["fired", "fired"]
    found = await bench.ticks("a") + await bench.ticks("b")
    assert {each.run for each in found if each.outcome == "fired"} == {
        "report-2022-06-01T00:05:00Z",
        "report-2022-06-01T00:10:00Z",
    }
    assert all("already" in str(each.reason) for each in found if each.outcome == "start_failed")


async def test_a_trigger_leaves_pause_and_limit_alone_and_is_seen(bench: Bench) -> None:
    await bench.create("5m", Policy(limit=1))
    await bench.to("00:06")
    await bench.app.schedules.pause("s", "enough")
    handle = await bench.app.schedules.trigger("s")
    assert handle is not None
    await handle.result()
    found = await bench.describe()
    assert (found.paused, found.note, found.remaining, found.starts) == (True, "enough", 0, 2)
    assert (found.recent[0].source, found.recent[0].run) == ("trigger", handle.id)


async def test_two_stretches_of_three_are_six(bench: Bench) -> None:
    await bench.create("5m", Overlap.ALLOW_ALL, paused=True)
    for hours in (2, 1):
        start = at("00:00") - timedelta(hours=hours)
        await bench.app.schedules.backfill("s", start, start + timedelta(minutes=10))
    await bench.world.drain()
    assert [made.started for made in await bench.app.schedules.backfills("s")] == [3, 3]
    ticks = await bench.ticks()
    assert len(ticks) == len({tick.run for tick in ticks}) == len(bench.starts) == 6
    assert (await bench.describe()).paused


async def test_the_note_of_a_pause_is_beside_that_of_the_schedule_and_seen_everywhere(bench: Bench) -> None:
    await bench.create("5m", note="made")
    for verb, note in (("pause", "stop"), ("pause", "still"), ("resume", "go"), ("pause", "more"), ("resume", None)):
        await getattr(bench.app.schedules, verb)("s", note)
        (listed,) = (await bench.app.schedules.list()).schedules
        for seen in (listed, await bench.describe()):
            assert (seen.note, seen.pause_note, seen.paused) == ("made", note, verb == "pause")


async def test_a_pause_that_ends_by_itself_takes_its_note_with_it(bench: Bench) -> None:
    await bench.create("5m")
    await bench.app.schedules.pause("s", "holidays", until=at("00:12"))
    assert (await bench.describe()).note == "holidays"
    await bench.to("00:16")
    found = await bench.describe()
    assert (found.paused, found.note, found.pause_note) == (False, None, None)
    assert [tick.reason for tick in await bench.ticks()] == ["the schedule was paused: holidays"] * 2 + [None]


# -- going on ------------------------------------------------------------------------------------------------------------
async def test_one_made_while_the_worker_runs_fires_until_it_is_paused_or_deleted(bench: Bench) -> None:
    await bench.to("00:02")
    await bench.create("5m", name="a")
    await bench.create("5m", name="b")
    await bench.to("00:06")
    await bench.app.schedules.pause("a")
    await bench.app.schedules.delete("b")
    await bench.to("00:30")
    assert len(bench.starts) == 2
    with pytest.raises(NotFound):
        await bench.ticks("b")


async def test_runs_are_found_by_schedule_and_carry_the_version_that_made_them(store_url: str) -> None:
    for version, begin in (("one", BEGIN), ("two", at("00:06"))):
        app = App(store_url, version=version, settings=Settings(poll=0.05))

        @app.workflow
        async def act() -> None: ...

        app.schedule("s", act.bind(), FIVE)
        async with world(app, at=begin, url=store_url) as w:
            await w.advance("5m")
            found = (await app.runs.list(schedule="s")).runs
    assert sorted((each.id[-10:], each.version) for each in found) == [("T00:05:00Z", "one"), ("T00:10:00Z", "two")]


async def test_arguments_that_no_longer_fit_fail_the_run_and_nothing_else(store_url: str) -> None:
    def app_with(annotation: Any) -> tuple[App, Any]:
        app = App(store_url, settings=Settings(poll=0.05))

        async def act(value: Any) -> None:
            del value

        act.__annotations__["value"] = annotation
        return app, app.workflow(name="act")(act)

    before, text = app_with(str)
    async with world(before, at=BEGIN, url=store_url):
        await before.schedules.create("s", text.bind("words"), FIVE)
    after, _ = app_with(int)
    async with world(after, at=at("00:01"), url=store_url) as w:
        await w.advance("10m")
        assert [each.id for each in (await after.schedules.list()).schedules] == ["s"]
        found = await after.schedules.describe("s")
        runs = (await after.runs.list(schedule="s")).runs
    assert (found.starts, found.failures) == (2, 2)
    assert {each.state for each in runs} == {State.FAILED}


async def test_a_database_that_is_away_for_a_while_stops_no_later_tick(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules: Any = bench.app._runtime.connection().store.schedules
    fire, refused = schedules.fire, iter(range(2))

    def away(*asked: Any) -> Passed:
        if bench.world.now >= at("00:10") and next(refused, None) is not None:
            raise StoreUnavailable("it is away")
        passed: Passed = fire(*asked)
        return passed

    monkeypatch.setattr(schedules, "fire", away)
    await bench.create("5m")
    await bench.to("00:16")
    assert list((await bench.outcomes()).values()) == ["fired", "fired", "fired"]
    assert next(refused, None) is None


async def test_a_worker_with_nothing_to_do_for_a_year_ends_when_told_to(store_url: str) -> None:
    async with bench_at(store_url) as bench:
        await bench.create(Spec(cron=["0 0 1 1 *"]))
    assert bench.starts == []


async def test_a_schedule_that_is_over_stays_until_it_is_deleted(bench: Bench) -> None:
    await bench.create(Spec(intervals=["5m"], end=at("00:10")))
    await bench.world.advance("60d")
    found = await bench.describe()
    assert (found.starts, found.next, found.paused) == (2, None, False)
