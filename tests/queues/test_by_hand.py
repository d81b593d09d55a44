"""Runs that nobody has in hand can be ended or moved by an operator; listeners notify what happens to runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Retry, RunEvent, Settings, run
from mainspring.errors import Conflict, InvalidInput, RunEnded
from mainspring.testing import world

if TYPE_CHECKING:
    from mainspring import AsyncFn


def made(url: str) -> tuple[App, AsyncFn[[float], float]]:
    app = App(url, settings=Settings(poll=0.05))

    @app.workflow(retry=Retry(2, first=5, on=(ValueError,)))
    async def job(length: float) -> float:
        if length < 0:
            raise ValueError("negative")
        await run.sleep(length)
        return length

    return app, job


async def test_only_runs_that_nobody_has_in_hand_are_ended_or_moved(store_url: str) -> None:
    app, job = made(store_url)
    async with world(app, url=store_url) as w:
        running = await job.start(1000)
        ended = await job.start(0)
        await w.advance(1)
        waiting = [await job.options(after=60).start(0) for _ in range(3)]
        ids = [running.id, ended.id, "unknown", *(each.id for each in waiting)]
        assert list((await app.runs.complete(*ids[:4], result=0.5)).values()) == [False, False, False, True]
        assert list((await app.runs.fail(*ids[:3], ids[4], reason="no use")).values()) == [False, False, False, True]
        moved = await app.runs.reschedule(*ids[:4], ids[5], after=5, priority=-1)
        assert [run_id for run_id, done in moved.items() if done] == [waiting[2].id]
        assert await waiting[0].result() == 0.5
        with pytest.raises(RunEnded, match="no use"):
            await waiting[1].result()
        info = await waiting[2].describe()
        assert (info.priority, info.state) == (-1, "scheduled")
        await w.advance(6)
        assert (await waiting[2].describe()).state == "succeeded"
        assert await app.runs.retry(waiting[1].id) == {waiting[1].id: True}
        await running.cancel()


async def test_a_run_between_attempts_can_be_moved_and_failed(store_url: str) -> None:
    app, job = made(store_url)
    async with world(app, url=store_url) as w:
        handle = await job.start(-1)
        await w.advance(1)
        assert (await app.runs.reschedule(handle.id, after=100, attempts=0))[handle.id]
        await w.advance(50)
        assert (await handle.describe()).attempts == 0
        assert (await app.runs.fail(handle.id))[handle.id]
        info = await handle.describe()
        assert (info.state, info.reason) == ("failed", "marked as failed on request")
        with pytest.raises(InvalidInput, match="not both"):
            await app.runs.reschedule(handle.id, after=1, at=1)


async def test_listeners_hear_what_happens_to_runs_and_their_own_faults_stay_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, job = made("sqlite://")
    arrived: list[tuple[str, str | None, int]] = []
    later: list[str] = []

    def notify(event: RunEvent) -> None:
        arrived.append((event.name, event.reason, event.attempt))

    async def hear_later(event: RunEvent) -> None:
        await asyncio.sleep(0)
        later.append(event.run)

    def broken(event: RunEvent) -> None:
        raise RuntimeError(event.name)

    app.on("run.*", notify)
    app.on("run.failed", hear_later)
    app.on("run.failed", broken)
    async with world(app) as w:
        await job(5)
        bad = await job.start(-1)
        with pytest.raises(ValueError, match="negative"):
            await bad.result()
        stopped = await job.start(50)
        await w.advance(1)
        await stopped.cancel(reason="enough")
        await w.drain()
    assert arrived == [
        ("run.started", None, 1),
        ("run.waiting", None, 1),
        ("run.succeeded", None, 1),
        ("run.started", None, 1),
        ("run.retrying", "ValueError: negative", 1),
        ("run.resumed", None, 2),
        ("run.failed", "ValueError: negative", 2),
        ("run.started", None, 1),
        ("run.waiting", None, 1),
        ("run.cancelling", "enough", 1),
        ("run.cancelled", "enough", 1),
    ]
    assert later == [bad.id]
    assert "a listener of run.failed failed" in caplog.text
    with pytest.raises(InvalidInput, match=r"no event 'run\.exploded'"):
        app.on("run.exploded", notify)


async def test_failed_runs_are_completed_marked_and_retried_later(store_url: str) -> None:
    app, job = made(store_url)
    arrived: list[tuple[str, str]] = []
    app.on("run.*", lambda event: arrived.append((event.run, event.name)))
    async with world(app, url=store_url) as w:
        first, second, third = [await job.options(id=name, timeout="1h").start(-1) for name in ("1st", "2nd", "3rd")]
        await w.advance(10)
        assert {(await each.describe()).state for each in (first, second, third)} == {"failed"}
        arrived.clear()
        assert await app.runs.complete("1st", result=7.5, reason="paid by hand")
        info = await first.describe()
        assert (await first.result(), info.state, info.reason, info.error) == (7.5, "succeeded", "paid by hand", None)
        assert await app.runs.fail("2nd", reason="refunded")
        info = await second.describe()
        assert (info.state, info.reason) == ("failed", "refunded")
        assert info.error is not None
        assert info.error["message"] == "negative"
        assert await app.runs.reschedule("3rd", after="2h", priority=-3)
        info = await third.describe()
        assert (info.state, info.attempts, info.priority, info.error) == ("scheduled", 0, -3, None)
        await w.advance("1h59m")
        assert (await third.describe()).state == "scheduled"
        await w.advance("2m")
        info = await third.describe()
        assert (info.state, info.attempts) == ("failed", 2), "its timeout counts from when it begins"
        assert await app.runs.reschedule("3rd", attempts=1)
        await w.drain()
        assert (await third.describe()).attempts == 2, "one attempt counted as made"
        assert not await app.runs.complete("1st")
        assert not await app.runs.fail("1st")
        assert not await app.runs.reschedule("1st")
        await w.drain()
    assert ("1st", "run.succeeded") in arrived
    assert ("2nd", "run.failed") not in arrived


async def test_filters_mean_failed_runs_only_where_they_say_so(store_url: str) -> None:
    app, job = made(store_url)
    async with world(app, url=store_url) as w:
        await job.options(id="failed").start(-1)
        await w.advance(10)
        await job.options(id="later", after="1d").start(0)
        assert await app.runs.reschedule(workflow="job", after="2d") == {"later": True}
        assert await app.runs.complete(workflow="job", result=1.0) == {"later": True}
        assert await app.runs.fail(workflow="job") == {}
        assert await app.runs.fail(workflow="job", state="failed", reason="seen") == {"failed": True}
        assert await app.runs.reschedule(workflow="job", state="failed", after="1h") == {"failed": True}
        assert await app.runs.complete(workflow="job", result=1.0) == {"failed": True}


async def test_a_failed_run_whose_key_is_taken_is_not_rescheduled(store_url: str) -> None:
    app, job = made(store_url)
    async with world(app, url=store_url) as w:
        await job.options(id="first", key="k").start(-1)
        await w.advance(10)
        await job.options(id="second", key="k", after="1d").start(0)
        with pytest.raises(Conflict, match="'first' has the key 'k', which run 'second' has now"):
            await app.runs.reschedule("first", after=5)
        assert (await app.runs.get("first")).state == "failed"
        assert await app.runs.complete("first", result=1.0)


@pytest.mark.parametrize("wrong", [{"priority": "high"}, {"priority": True}, {"attempts": -1}, {"attempts": 1.5}])
async def test_what_a_run_is_moved_to_has_to_make_sense(store_url: str, wrong: dict[str, Any]) -> None:
    app, job = made(store_url)
    async with world(app, url=store_url):
        await job.options(id="a", after="1d").start(0)
        with pytest.raises(InvalidInput, match=r"reschedule: .* is a whole number"):
            await app.runs.reschedule("a", **wrong)
