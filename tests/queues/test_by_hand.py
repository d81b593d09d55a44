"""Runs that nobody has in hand can be ended or moved by an operator; listeners hear what happens to runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mainspring import App, Retry, RunEvent, Settings, run
from mainspring.errors import InvalidInput, RunEnded
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
        moved = await app.runs.reschedule(*ids, after=5, priority=-1)
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
        assert (info.state, info.reason) == ("failed", "marked as failed by hand")
        with pytest.raises(InvalidInput, match="not both"):
            await app.runs.reschedule(handle.id, after=1, at=1)


async def test_listeners_hear_what_happens_to_runs_and_their_own_faults_stay_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, job = made("sqlite://")
    heard: list[tuple[str, str | None, int]] = []
    later: list[str] = []

    def hear(event: RunEvent) -> None:
        heard.append((event.name, event.reason, event.attempt))

    async def hear_later(event: RunEvent) -> None:
        await asyncio.sleep(0)
        later.append(event.run)

    def broken(event: RunEvent) -> None:
        raise RuntimeError(event.name)

    app.on("*", hear)
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
        await w.settle()
    assert heard == [
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
        app.on("run.exploded", hear)
