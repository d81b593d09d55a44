"""The app's own functions are told what went wrong with a schedule, once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mainspring import Alert, App, Blueprint, Overlap, Policy, Settings, Spec
from mainspring.errors import InvalidInput
from mainspring.operations.connect import connect
from mainspring.testing import world
from tests.schedules.conftest import Bench, at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import datetime


class Alarmed(Bench):
    """A bench whose app is told of everything."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.told: list[Alert] = []

        @self.app.on_missed
        @self.app.on_paused_by_failure
        @self.app.workflow
        async def tell(alert: Alert) -> None:
            self.told.append(alert)

        @self.app.on_late("2m")
        @self.app.step
        def tell_late(alert: Alert) -> None:
            self.told.append(alert)

        self.tell = tell, tell_late


@asynccontextmanager
async def alarmed(url: str, begin: datetime | None = None) -> AsyncGenerator[Alarmed]:
    made = Alarmed(url)
    async with world(made.app, at=begin or at("00:00"), url=url) as made.world:
        yield made
        await made.world.drain()


async def test_a_missed_tick_is_told_of_once(store_url: str) -> None:
    async with alarmed(store_url) as before:
        await before.create("5m", Policy(catchup="12s"))
        await before.to("00:01")
    async with alarmed(store_url, at("00:12")) as after:
        await after.world.drain()
        await after.to("00:16")
    assert [(alert.event, alert.schedule, alert.nominal, alert.count) for alert in after.told] == [
        ("missed", "s", at("00:05"), 1),
        ("missed", "s", at("00:10"), 1),
    ]
    assert after.told[0].reason == "no worker was there before its catch-up window closed"
    async with alarmed(store_url, at("00:17")) as later:
        await later.to("00:21")
    assert later.told == []


async def test_a_long_stretch_of_missed_ticks_is_one_alert(store_url: str) -> None:
    async with alarmed(store_url) as before:
        await before.create("1m", Policy(catchup="12s"))
    async with alarmed(store_url, at("05:00:30")) as after:
        await after.world.drain()
    (alert,) = after.told
    assert (alert.nominal, alert.until, alert.count) == (at("00:01"), at("05:00"), 300)


async def test_a_run_that_began_too_late_is_told_of_with_the_reason(store_url: str) -> None:
    async with alarmed(store_url) as bench:
        bench.durations = {"00:05": "6m", "00:10": "9m"}
        await bench.create("5m", Overlap.BUFFER_ONE)
        await bench.to("00:27")
    (alert,) = bench.told
    assert (alert.event, alert.run, alert.late) == ("late", "s-2022-06-01T00:15:00Z", 5 * 60)
    assert alert.reason == "waited 300 s for its turn"


async def test_a_pause_by_failure_is_told_of_and_one_by_hand_is_not(store_url: str) -> None:
    async with alarmed(store_url) as bench:
        bench.results = {"00:05": RuntimeError("oops"), "00:10": RuntimeError("again")}
        await bench.create("5m", Policy(pause_on_failure=2), note="a note of its own")
        await bench.to("00:20")
        await bench.app.schedules.resume("s")
        await bench.app.schedules.pause("s", "by hand")
        await bench.to("00:30")
    (alert,) = bench.told
    assert (alert.event, alert.count, alert.run) == ("paused_by_failure", 2, "s-2022-06-01T00:10:00Z")
    assert alert.reason == ("paused after failure (2 in a row): run s-2022-06-01T00:10:00Z: RuntimeError: again")


async def test_what_another_process_finds_missed_is_told_of_too(store_url: str) -> None:
    """Somebody looks after a schedule from the command line while no worker is there, and so settles what was missed."""
    async with alarmed(store_url) as before:
        await before.create(Spec(cron=["*/5 * * * *"], start=at("00:00"), end=at("01:00")), Policy(catchup="12s"))
    with connect(store_url, Settings()) as operations:
        operations.schedules.pause("s")
    async with alarmed(store_url, at("01:00:01")) as after:
        await after.world.advance("300w")
        await after.world.drain()
    assert [alert.count for alert in after.told] == [12]


async def test_of_several_workers_one_is_told(store_url: str) -> None:
    async with alarmed(store_url) as before:
        await before.create("5m", Policy(catchup="12s"))
    benches = [Alarmed(store_url) for _ in range(3)]
    worlds = [world(bench.app, at=at("00:17"), url=store_url) for bench in benches]
    async with worlds[0] as one, worlds[1] as two, worlds[2] as three:
        await asyncio.gather(one.drain(), two.drain(), three.drain())
        for bench in benches:
            for event in ("missed",):
                for minute in ("05", "10", "15"):
                    await bench.app.handle(f"{bench.tell[0].name}-{event}-s-2022-06-01T00:{minute}:00Z").result()
    told = [alert.nominal for bench in benches for alert in bench.told]
    assert sorted(str(nominal) for nominal in told) == [str(at(f"00:{minute}")) for minute in ("05", "10", "15")]


async def test_a_hook_that_the_code_does_not_declare_any_more_is_forgotten(store_url: str) -> None:
    async with alarmed(store_url) as before:
        await before.create("5m", Policy(catchup="12s"))
    bench = Bench(store_url)
    async with world(bench.app, at=at("00:12"), url=store_url) as w:
        await w.drain()
        page = await bench.app.runs.list()
    assert page.runs == []


async def test_functions_of_a_blueprint_are_told_too(store_url: str) -> None:
    told: list[Alert] = []
    blueprint = Blueprint("ops")

    @blueprint.on_late("1s")
    @blueprint.workflow
    async def tell(alert: Alert) -> None:
        told.append(alert)

    bench = Bench(store_url)
    bench.app.include(blueprint)
    async with world(bench.app, at=at("00:00"), url=store_url) as bench.world:
        bench.durations = {"*": "6m"}
        await bench.create("5m", Overlap.BUFFER_ONE)
        await bench.to("00:12")
    assert [alert.late for alert in told] == [60]


def test_a_function_that_cannot_be_told_is_refused() -> None:
    app = App("sqlite://")

    @app.workflow
    async def nothing() -> None: ...

    with pytest.raises(InvalidInput, match="takes one argument, an Alert"):
        app.on_missed(nothing)
    with pytest.raises(InvalidInput, match="above @workflow or @step"):
        app.on_paused_by_failure(print)
