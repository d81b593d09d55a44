"""`run.timeout` limits a part of a workflow, and comes to the same end when the workflow is replayed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from mainspring import App, AsyncFn, Settings, run
from mainspring.errors import NotInRun, RunCancelled
from mainspring.testing import crash, world
from tests.engine.lives import enter_again
from tests.support.samples import calls, covering

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


def make(app: App, done: list[str]) -> AsyncFn[[int], str]:
    @app.step
    async def note(what: str) -> str:
        done.append(what)
        return what

    @app.workflow
    async def limited(minutes: int) -> str:
        limit = run.timeout("10m")
        try:
            async with limit:
                await note("begin")
                await run.sleep(f"{minutes}m")
                await note("slept")
        except TimeoutError:
            assert limit.expired
            return await note("gave up")
        assert not limit.expired
        return await note("in time")

    return limited


@covering
@pytest.mark.parametrize(("minutes", "end", "after"), [(5, "in time", 300), (20, "gave up", 600)])
@pytest.mark.parametrize("resident", [100, 0])
async def test_a_part_of_a_workflow_can_be_limited(
    store_url: str, minutes: int, end: str, after: int, resident: int
) -> None:
    done = list[str]()
    app = App(settings=Settings(resident=resident))
    limited = make(app, done)
    async with world(app, url=store_url) as w:
        assert await limited(minutes) == end
        assert (w.now - MIDNIGHT).total_seconds() == after
    assert done == ["begin", *(["slept"] if end == "in time" else []), end]


@covering
@pytest.mark.parametrize("minutes", [5, 20])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_to_the_store_comes_to_the_same_end(
    store_url: str, minutes: int, when: Literal["before", "after"]
) -> None:
    app, done = App("sqlite://"), list[str]()
    limited = make(app, done)
    for at in calls(when, most=100):
        done.clear()
        outcome = await crash(app, lambda at=at: limited.options(id=f"r{at}")(minutes), at=at, when=when, url=store_url)  # type: ignore[misc]
        assert outcome.result == ("in time" if minutes == 5 else "gave up"), at
        assert len(done) <= 4, at
        if not outcome.crashed:
            assert at > 5
            return
    raise AssertionError("it never came to its end without a crash")


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_limit_that_passed_while_no_worker_was_there_comes_before_a_later_wake_up(
    store_url: str, *, orderly: bool
) -> None:
    app = App(settings=Settings(poll=0.05))
    done: list[str] = []

    @app.step
    async def note(what: str) -> None:
        done.append(what)

    @app.workflow
    async def limited() -> None:
        try:
            async with run.timeout("10m"):
                await run.sleep("1h")
                await note("slept")
        except TimeoutError:
            await note("gave up")

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handles = [await limited.start() for _ in range(20)]
        await w.advance("5m")
        if orderly:
            await app.__aexit__()
        else:
            await app._vanish()
        w.clock.set(MIDNIGHT + timedelta(hours=5))
        await enter_again(w)
        await app.gather(*handles)
    assert done == ["gave up"] * 20


async def test_a_cancellation_of_somebody_elses_is_not_taken_for_the_timeout(store_url: str) -> None:
    app = App()

    @app.workflow
    async def inner() -> str:
        async def patient() -> None:
            async with run.timeout("1h"):
                await run.sleep("2h")

        task = asyncio.create_task(patient())
        await run.sleep("1m")
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "not"

    @app.workflow
    async def outer() -> None:
        async with run.timeout("1h"):
            await run.sleep("2h")

    async with world(app, url=store_url) as w:
        assert await inner() == "cancelled"
        handle = await outer.start()
        await w.advance("10m")
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()


async def test_a_def_workflow_learns_that_it_cannot_be_interrupted(store_url: str) -> None:
    app = App()

    @app.workflow
    def blocking() -> None:
        run.timeout("1h")

    async with world(app, url=store_url):
        with pytest.raises(NotInRun, match="cannot be interrupted"):
            await blocking.aio()


async def test_who_waits_for_the_time_of_the_process_is_told_once(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.step
    async def fine() -> None:
        await asyncio.sleep(0.001)

    @app.workflow
    async def careless() -> None:
        await fine()
        for _ in range(2):
            await asyncio.sleep(0.001)
        async with asyncio.timeout(5):
            await fine()

    async with world(app, url=store_url):
        await careless()
        await careless()
    told = [each.getMessage() for each in caplog.records if "time of this process" in each.getMessage()]
    assert len(told) == 2
    assert all("careless waits" in each and "test_durable_timeouts.py" in each for each in told)
