"""Whoever asks for it with `app.on` is called for what happens to schedules, queues and workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import (
    App,
    Client,
    Interval,
    Overlap,
    Policy,
    QueueEvent,
    Rate,
    ScheduleEvent,
    Settings,
    Spec,
    WorkerEvent,
    run,
)
from mainspring.errors import InvalidInput
from mainspring.testing import world

if TYPE_CHECKING:
    from mainspring.app.events import AnyEvent

HOUR = Spec(intervals=[Interval("1h")])


class Shop:
    """An app that writes down what it is told."""

    def __init__(self, *names: str) -> None:
        self.app = App("sqlite://", settings=Settings(poll=30))
        self.arrived: list[Any] = []
        self.news = asyncio.Condition()
        for name in names:
            self.app.on(name, self.hear)

        @self.app.workflow
        async def nap(length: float) -> None:
            await run.sleep(length)

        self.nap = nap

    async def hear(self, event: AnyEvent) -> None:
        self.arrived.append(event)
        async with self.news:
            self.news.notify_all()

    @property
    def said(self) -> list[tuple[str, str]]:
        about = {ScheduleEvent: "schedule", QueueEvent: "queue", WorkerEvent: "worker"}
        return [(event.name, getattr(event, about[type(event)])) for event in self.arrived]

    async def heard(self, count: int) -> None:
        async with self.news:
            await self.news.wait_for(lambda: len(self.arrived) >= count)


async def test_changes_of_queues_are_reported_whoever_makes_them(store_url: str) -> None:
    shop = Shop("queue.*")
    shop.app.queue("declared", concurrency=3)
    async with world(shop.app, url=store_url) as w:
        await w.drain()
        await shop.app.queues.set("mail", concurrency=2)
        await w.drain()
        await shop.app.queues.set("mail", rate=Rate(3, per="1m"))
        await w.drain()
        await shop.app.queues.pause("mail")
        await w.drain()
        await shop.app.queues.pause("mail")
        await w.drain()
        await shop.app.queues.resume("mail")
        await w.drain()
        await shop.app.queues.set("mail", partition="a", partition_concurrency=1)
        await w.drain()
        await shop.app.queues.delete("mail")
        await w.drain()
    words = ("created", "changed", "paused", "resumed", "changed", "deleted")
    assert shop.said == [(f"queue.{word}", "mail") for word in words]


async def test_changes_by_another_process_are_reported(store_url: str) -> None:
    shop = Shop("queue.paused", "schedule.paused", "schedule.deleted")
    shop.app.queue("mail", concurrency=3)
    shop.app._runtime.url = store_url
    async with shop.app:
        await shop.app.schedules.create("hourly", shop.nap.bind(0), HOUR)
        await shop.app._worker._watched.next_round()  # type: ignore[union-attr]
        with Client(store_url) as client:
            await client.queues.pause("mail")
            await shop.heard(1)
            await client.schedules.pause("hourly", note="enough")
            await shop.heard(2)
            await client.schedules.delete("hourly")
            await shop.heard(3)
    assert shop.said == [("queue.paused", "mail"), ("schedule.paused", "hourly"), ("schedule.deleted", "hourly")]


async def test_changes_of_schedules_are_reported(store_url: str) -> None:
    shop = Shop(*(f"schedule.{what}" for what in ("created", "changed", "paused", "resumed", "deleted")))
    async with world(shop.app, url=store_url) as w:
        await w.drain()
        await shop.app.schedules.create("hourly", shop.nap.bind(0), HOUR)
        await w.advance("3h")
        await shop.app.schedules.update("hourly", note="for a while")
        await w.drain()
        await shop.app.schedules.pause("hourly")
        await w.drain()
        await shop.app.schedules.resume("hourly")
        await w.drain()
        await shop.app.schedules.delete("hourly")
        await w.drain()
    words = ("created", "changed", "paused", "resumed", "deleted")
    assert shop.said == [(f"schedule.{word}", "hourly") for word in words]
    assert {event.workflow for event in shop.arrived} == {shop.nap.name}


async def test_a_schedule_that_pauses_itself_is_reported(store_url: str) -> None:
    shop = Shop("schedule.paused")

    @shop.app.workflow
    async def fail() -> None:
        raise ValueError("no")

    async with world(shop.app, url=store_url) as w:
        await shop.app.schedules.create("hourly", fail.bind(), HOUR, Policy(pause_on_failure=True))
        await w.advance("3h")
    assert shop.said == [("schedule.paused", "hourly")]


async def test_what_came_of_the_times_of_a_schedule_is_reported(store_url: str) -> None:
    shop = Shop("schedule.fired", "schedule.skipped", "schedule.missed", "schedule.dropped")
    async with world(shop.app, url=store_url, at="2026-01-01T00:30Z") as w:
        policy = Policy(overlap=Overlap.SKIP)
        await shop.app.schedules.create("hourly", shop.nap.bind(5_400), HOUR, policy)
        await w.advance("2h")
        assert shop.said == [("schedule.fired", "hourly"), ("schedule.skipped", "hourly")]
        fired, skipped = shop.arrived
        assert (fired.outcome, fired.scheduled_at.isoformat()) == ("fired", "2026-01-01T01:00:00+00:00")
        assert (await shop.app.handle(fired.run).describe()).workflow == shop.nap.name
        assert (skipped.outcome, skipped.run) == ("skipped_overlap", None)
        assert skipped.reason


async def test_a_worker_reports_its_own_life(store_url: str) -> None:
    shop = Shop("worker.*")
    shop.app._runtime.url = store_url
    async with shop.app:
        await shop.heard(1)
        shop.app.pause()
        shop.app.resume()
        await shop.heard(3)
        worker = shop.arrived[0].worker
    words = ("started", "paused", "resumed", "stopping", "stopped")
    assert shop.said == [(f"worker.{word}", worker) for word in words]


async def test_a_worker_that_dies_is_reported_by_another(store_url: str) -> None:
    shop = Shop("worker.died")
    shop.app._runtime.url = store_url
    other = App(store_url, name="other", settings=Settings(lease=0.3))
    await other.__aenter__()
    dead = other._worker.engine.worker_id  # type: ignore[union-attr]
    shop.app._runtime.settings = Settings(lease=0.3)
    async with shop.app:
        await other._worker.vanish()  # type: ignore[union-attr]
        await shop.heard(1)
    assert shop.said == [("worker.died", dead)]
    assert "free to be taken" in shop.arrived[0].reason


async def test_a_worker_that_was_declared_dead_says_so_and_begins_again(store_url: str) -> None:
    shop = Shop("worker.lost", "worker.started")
    shop.app._runtime.url = store_url
    shop.app._runtime.settings = Settings(lease=0.3)
    async with shop.app:
        await shop.heard(1)
        first = shop.arrived[0].worker
        with Client(store_url) as client:
            store = (await client._runtime.connected()).store
            await asyncio.to_thread(store.retire, first, 0, None, {})
        await shop.heard(3)
    assert [event.name for event in shop.arrived] == ["worker.started", "worker.lost", "worker.started"]
    assert shop.arrived[1].worker == first != shop.arrived[2].worker


async def test_all_events_together(store_url: str) -> None:
    shop = Shop("*")
    async with world(shop.app, url=store_url) as w:
        await w.drain()
        await shop.app.queues.set("mail", concurrency=2)
        await shop.nap(1)
        await shop.app.schedules.create("hourly", shop.nap.bind(0), HOUR)
        await w.advance("1h")
    names = [event.name for event in shop.arrived]
    for name in ("worker.started", "queue.created", "run.succeeded", "schedule.created", "schedule.fired"):
        assert name in names
    assert names[-2:] == ["worker.stopping", "worker.stopped"]


def test_an_event_that_does_not_exist_is_an_error_at_once() -> None:
    app = App("sqlite://")
    for name in ("queue.pausd", "run.fail", "worker", "schedule.", "nonsense"):
        with pytest.raises(InvalidInput, match="there is no event"):
            app.on(name, print)
    with pytest.raises(InvalidInput, match=r"did you mean 'queue.paused'"):
        app.on("queue.pausd", print)
