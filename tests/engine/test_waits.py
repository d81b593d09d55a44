"""Durable waits: the time to wake is stored, so restarts neither shorten nor lengthen it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from mainspring import App, Settings, State, run
from mainspring.errors import InvalidInput, NotFound, StillRunning
from mainspring.testing import world
from tests.engine.lives import another_process, enter_again, info, put, record, restart, store_of
from tests.support.samples import covering

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


@covering
@pytest.mark.parametrize("colour", ["async", "def"])
@pytest.mark.parametrize("end", [another_process, restart])
async def test_a_sleep_goes_on_for_the_remaining_time_after_a_restart(store_url: str, end: object, colour: str) -> None:
    app = App()

    @app.workflow
    async def coroutine() -> datetime:
        await run.sleep("1h")
        return run.now()

    @app.workflow
    def blocking() -> datetime:
        run.sleep.sync("1h")
        return run.now()

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await (coroutine if colour == "async" else blocking).start()
        for minutes in (20, 35):
            await w.advance_to(MIDNIGHT + timedelta(minutes=minutes))
            await (another_process if end is another_process else restart)(w)
        assert info(app, handle.id).due == MIDNIGHT + timedelta(hours=1)
        assert await handle.result() == MIDNIGHT + timedelta(hours=1)


async def test_a_sleep_that_is_over_when_the_process_comes_back_is_skipped(store_url: str) -> None:
    app = App()

    @app.workflow
    async def one() -> datetime:
        await run.sleep("1h")
        return run.now()

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await one.start()
        await w.advance("1m")
        await w.app._vanish()
        w.clock.set(MIDNIGHT + timedelta(days=3))
        await enter_again(w)
        assert await handle.result() == MIDNIGHT + timedelta(days=3)


@pytest.mark.parametrize("moment", [MIDNIGHT + timedelta(hours=2), (MIDNIGHT + timedelta(hours=2)).timestamp()])
async def test_sleep_until_wakes_at_the_time_it_was_given(store_url: str, moment: datetime | float) -> None:
    app = App()

    @app.workflow
    async def one() -> datetime:
        await run.sleep_until(moment)
        return run.now()

    async with world(app, at=MIDNIGHT, url=store_url):
        assert await one.options(id="a")() == MIDNIGHT + timedelta(hours=2)
        (sleep,) = record(app, "a")
        assert (sleep.started, sleep.completed) == (MIDNIGHT, MIDNIGHT + timedelta(hours=2))


async def test_a_sleep_into_the_past_or_of_no_time_is_over_at_once(store_url: str) -> None:
    app = App()

    @app.workflow
    async def one() -> datetime:
        await run.sleep(0)
        await run.sleep_until(MIDNIGHT - timedelta(days=1))
        return run.now()

    async with world(app, at=MIDNIGHT, url=store_url):
        assert await one() == MIDNIGHT


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [
        (run.sleep, -1),
        (run.sleep, float("nan")),
        (run.sleep, float("inf")),
        (run.sleep, "soon"),
        (run.sleep_until, datetime(2026, 1, 1)),  # noqa: DTZ001
        (run.sleep_until, float("nan")),
        (run.sleep_until, "tomorrow"),
    ],
)
async def test_a_wait_that_makes_no_sense_is_an_error_at_the_call(verb: object, wrong: object) -> None:
    app = App()

    @app.workflow
    async def one() -> str:
        try:
            await verb(wrong)  # type: ignore[operator]
        except InvalidInput as error:
            return str(error)
        return "?"

    async with world(app):
        assert await one.options(id="a")() != "?"
        assert record(app, "a") == []


async def test_waiting_for_a_result_can_be_given_up_and_the_run_goes_on(store_url: str) -> None:
    app = App()

    @app.workflow
    async def slow() -> str:
        await run.sleep("1h")
        return "done"

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await slow.start()
        with pytest.raises(StillRunning, match="nothing was done to the run") as caught:
            await handle.result(timeout="10m")
        assert isinstance(caught.value, TimeoutError)
        assert w.now == MIDNIGHT + timedelta(minutes=10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow.options(id=handle.id)(), 0)
        assert info(app, handle.id).state is State.WAITING
        assert await handle.result() == "done"


async def test_whoever_waits_while_there_is_no_worker_is_told_so_once(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(store_url, settings=Settings(poll=0.05))

    @app.workflow
    async def quick() -> str:
        return "done"

    handle = await quick.options(id="a").start()
    waiting = asyncio.create_task(handle.result())
    async with asyncio.timeout(60):
        while "this process waits for run a, and there is no worker" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with app:
        assert await waiting == "done"
    app.close()
    assert caplog.text.count("there is no worker") == 1


async def test_whoever_waits_while_there_is_a_worker_is_told_nothing(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.workflow
    async def slow() -> str:
        await run.sleep("1h")
        return "done"

    async with world(app, url=store_url):
        handle = await slow.start()
        endings = app._runtime.connection().endings
        endings.watch(handle.id, lambda _: None)
        await asyncio.to_thread(endings._warn_if_there_is_no_worker)
        assert await handle.result() == "done"
    assert "no worker" not in caplog.text


async def test_giving_up_inside_a_run_is_recorded(store_url: str) -> None:
    app = App()

    @app.workflow
    async def slow() -> str:
        await run.sleep("1h")
        return "done"

    @app.workflow
    async def one() -> list[str]:
        handle = await slow.options(id="slow").start()
        try:
            await handle.result(timeout="10m")
        except StillRunning:
            gave_up = f"{run.now():%H:%M}"
        else:
            gave_up = "?"
        return [gave_up, await handle.result(), f"{run.now():%H:%M}"]

    async with world(app, at=MIDNIGHT, url=store_url):
        assert await one.options(id="a")() == ["00:10", "done", "01:00"]
        put(app, one, "b", store_of(app).steps("a"))
        assert await app.handle("b").result() == ["00:10", "done", "01:00"]


async def test_there_is_no_result_of_an_unknown_run(store_url: str) -> None:
    app = App()

    @app.workflow
    async def one() -> str:
        try:
            await app.handle("nobody").result()
        except NotFound as error:
            return str(error)
        return "?"

    async with world(app, url=store_url):
        with pytest.raises(NotFound, match="nobody"):
            await app.handle("nobody").result()
        with pytest.raises(NotFound, match="nobody"):
            await app.handle("nobody").describe()
        assert "nobody" in await one()


async def test_a_run_due_later_starts_then_and_once(store_url: str) -> None:
    app, started = App(), list[datetime]()

    @app.workflow
    async def one() -> datetime:
        started.append(w.now)
        return run.now()

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        after = await one.options(after="10m").start()
        at = await one.options(at=MIDNIGHT + timedelta(minutes=20)).start()
        past = await one.options(at=MIDNIGHT - timedelta(minutes=20)).start()
        assert info(app, after.id).state is info(app, at.id).state is State.SCHEDULED
        await w.advance("9m")
        assert started == [MIDNIGHT]
        await another_process(w)
        assert await after.result() == MIDNIGHT + timedelta(minutes=10)
        assert await at.result() == MIDNIGHT + timedelta(minutes=20)
        assert await past.result() == MIDNIGHT
    assert len(started) == 3


async def test_a_scheduled_run_that_is_cancelled_never_runs(store_url: str) -> None:
    app, started = App(), list[str]()

    @app.workflow
    async def one() -> None:
        started.append(run.id)

    async with world(app, url=store_url) as w:
        handle = await one.options(after="10m").start()
        assert await handle.cancel("not needed")
        await w.advance("1h")
        found = await handle.describe()
        assert (found.state, found.reason, found.started) == (State.CANCELLED, "not needed", None)
    assert started == []


async def test_two_hundred_sleepers_wake_in_the_order_of_their_times(store_url: str) -> None:
    app, woken = App(), list[int]()

    @app.workflow
    async def one(minutes: int) -> None:
        await run.sleep(f"{minutes}m")
        woken.append(minutes)

    async with world(app, url=store_url) as w:
        order = [(number * 37) % 200 + 1 for number in range(200)]
        await app.start_many(one.bind(minutes) for minutes in order)
        await w.advance("1d")
    assert woken == sorted(order)
