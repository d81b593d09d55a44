"""Whoever asked for it with `app.on` is told once of every end of a run, whoever ended it and wherever it was."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, Interval, Policy, Settings, Spec, run
from mainspring.errors import RunCancelled
from mainspring.testing import world

if TYPE_CHECKING:
    from mainspring import RunEvent

DAY = 86_400


class Shop:
    """An app that writes down what it is told: the names of events by run."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.app = App(url, settings=Settings(poll=30, **settings))
        self.arrived: dict[str, list[str]] = {}
        self.reasons: dict[str, str | None] = {}
        self.app.on("run.*", self.notify)
        self.app.queue("jobs", concurrency=1)
        self.gate = asyncio.Event()
        self.news = asyncio.Condition()

        @self.app.workflow
        async def nap(length: float) -> None:
            await run.sleep(length)

        @self.app.step
        async def hold() -> None:
            await self.gate.wait()

        @self.app.workflow
        async def parent() -> None:
            child = await nap.options(queue="jobs").start(1)
            await run.sleep(2 * DAY)
            await child.result()

        self.nap, self.hold, self.parent = nap, hold, parent

    async def notify(self, event: RunEvent) -> None:
        self.arrived.setdefault(event.run, []).append(event.name.removeprefix("run."))
        self.reasons[event.run] = event.reason
        async with self.news:
            self.news.notify_all()

    async def told(self, count: int) -> None:
        """Wait until so many runs have been told of."""
        async with self.news:
            await self.news.wait_for(lambda: len(self.arrived) >= count)


async def test_runs_that_are_ended_while_they_wait_are_told_of_once(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url) as w:
        for name in ("cancelled", "terminated", "failed", "completed", "later"):
            await shop.nap.options(id=name, after=DAY).start(0)
        await shop.app.runs.cancel("cancelled", reason="enough")
        await shop.app.runs.terminate("terminated")
        await shop.app.runs.fail("failed", reason="no use")
        await shop.app.runs.complete("completed")
        await w.drain()
        ends = {
            "cancelled": ["cancelled"],
            "terminated": ["cancelled"],
            "failed": ["failed"],
            "completed": ["succeeded"],
        }
        assert shop.arrived == ends
        assert (shop.reasons["cancelled"], shop.reasons["failed"]) == ("enough", "no use")
        await w.advance(2 * DAY)
        assert shop.arrived == {**ends, "later": ["started", "succeeded"]}


async def test_ends_that_another_process_brings_about_are_told(store_url: str) -> None:
    shop = Shop(store_url)
    async with shop.app:
        await shop.nap.options(id="a", after=DAY).start(0)
        with Client(store_url) as client:
            assert await client.runs.cancel("a") == {"a": True}
        await shop.told(1)
    assert shop.arrived == {"a": ["cancelled"]}


async def test_ends_that_came_while_no_worker_was_there_are_told_by_the_next(store_url: str) -> None:
    shop = Shop(store_url)
    await shop.nap.options(id="a", after=DAY).start(0)
    await shop.app.runs.cancel("a")
    shop.app.close()
    async with world(shop.app, url=store_url) as w:
        await w.drain()
        assert shop.arrived == {"a": ["cancelled"]}


async def test_what_ended_days_ago_is_no_news(store_url: str) -> None:
    quiet = Shop(store_url)
    quiet.app._runtime.listeners.__init__()  # type: ignore[misc]
    async with world(quiet.app, url=store_url, at="2026-01-01T00:00Z") as w:
        await quiet.nap.options(id="old", after=9 * DAY).start(0)
        await quiet.app.runs.cancel("old")
        await w.advance(3 * DAY)
        await quiet.nap.options(id="new", after=DAY).start(0)
        await quiet.app.runs.cancel("new")
        await w.drain()
        shop = Shop(store_url)
        quiet.app.on("run.*", shop.notify)
        await quiet.nap.options(id="newer", after=DAY).start(0)
        await quiet.app.runs.cancel("newer")
        await w.drain()
        assert shop.arrived == {"new": ["cancelled"], "newer": ["cancelled"]}


async def test_runs_that_are_out_of_time_while_nobody_has_them_are_told_of(store_url: str) -> None:
    shop = Shop(store_url, resident=0)
    async with world(shop.app, url=store_url) as w:
        handle = await shop.nap.options(id="a", timeout=60).start(DAY)
        await w.advance(120)
        with pytest.raises(RunCancelled):
            await handle.result()
        await w.drain()
        assert shop.arrived["a"].count("cancelled") == 1
        assert shop.reasons["a"] == "timeout"


async def test_a_run_that_is_taken_from_its_worker_is_told_of_once(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url) as w:
        asleep = await shop.nap.options(id="asleep").start(DAY)
        busy = await shop.parent.options(id="parent").start()
        await w.advance(1)
        await asleep.terminate(reason="now")
        await busy.cancel()
        step = await shop.hold.options(id="step").start()
        await step.cancel(reason="no more")
        shop.gate.set()
        await w.drain()
        assert shop.arrived["asleep"] == ["started", "waiting", "cancelled"]
        assert shop.arrived["step"] == ["started", "cancelled"]
        assert shop.arrived["parent"] == ["started", "waiting", "cancelling", "cancelled"]
        assert shop.arrived["parent/0"][-1] in {"succeeded", "cancelled"}
        assert [
            sum(name in {"succeeded", "failed", "cancelled"} for name in told) for told in shop.arrived.values()
        ] == [1] * 4


async def test_runs_that_a_schedule_ends_are_told_of(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url, at="2026-01-01T00:00Z") as w:
        await shop.app.schedules.create(
            "s", shop.nap.bind(DAY), Spec(intervals=[Interval("1h")]), Policy(overlap="terminate_other")
        )
        await w.advance(2 * 3600 + 60)
        ended = [told for told in shop.arrived.values() if "cancelled" in told]
        assert ended == [["started", "waiting", "cancelled"]]


async def test_a_run_that_goes_on_again_is_not_told_of_as_ended(store_url: str) -> None:
    shop = Shop(store_url)
    await shop.nap.options(id="a").start(0)
    await shop.app.runs.cancel("a")
    await shop.app.runs.resume("a")
    shop.app.close()
    async with world(shop.app, url=store_url, at=datetime.now(UTC) + timedelta(days=1)) as w:
        await w.drain()
        assert shop.arrived == {"a": ["started", "succeeded"]}


async def test_of_two_workers_one_tells(store_url: str) -> None:
    first, second = Shop(store_url), Shop(store_url)
    second.arrived, second.news = first.arrived, first.news
    ids = [f"r{number}" for number in range(40)]
    async with first.app, second.app:
        for each in ids:
            await first.nap.options(id=each, after=DAY).start(0)
        for each in ids:
            await first.app.runs.cancel(each)
        await first.told(len(ids))
    assert first.arrived == {each: ["cancelled"] for each in ids}


async def test_what_a_listener_does_is_no_part_of_the_run_that_it_is_told_of(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(store_url, settings=Settings(poll=0.05))
    asked, other = asyncio.Event(), asyncio.Event()

    @app.workflow
    async def note() -> None: ...

    @app.workflow
    async def short() -> None: ...

    async def started(event: RunEvent) -> None:
        if event.workflow == "short":
            asked.set()
            await note.options(id="note")()
            other.set()

    app.on("run.started", started)
    async with app:
        await short.options(id="short")()
        await asyncio.wait_for(asked.wait(), 60)
        await asyncio.wait_for(other.wait(), 60)
        assert await app.runs.steps("short") == []
        assert (await app.runs.get("note")).parent is None
    assert "unfinished" not in caplog.text


async def test_ends_that_no_worker_saw_are_counted_once_told_or_not(store_url: str) -> None:
    quiet = App(store_url, settings=Settings(poll=30))

    @quiet.workflow
    async def later() -> None: ...

    shop = Shop(store_url)
    async with world(quiet, url=store_url) as w:
        store = quiet._runtime.connection().store
        handles = [await later.options(after="1h").start() for _ in range(3)]
        await quiet.runs.cancel(handles[0].id)
        await quiet.runs.cancel(handles[1].id)
        await quiet.runs.fail(handles[2].id, reason="by hand")

        def counted() -> tuple[dict[str, int], dict[str, int]]:
            minutes = {each.state: each.count for each in store.dashboard.minutes(0) if each.measure == "duration"}
            totals: dict[str, int] = {}
            for amount in store.dashboard.totals():
                totals[amount.state] = totals.get(amount.state, 0) + amount.count
            return minutes, totals

        both = {"cancelled": 2, "failed": 1}
        assert counted() == (both, both)
        shop.app._runtime.clock = w.clock
        async with shop.app:
            await shop.told(3)
        assert counted() == (both, both)
