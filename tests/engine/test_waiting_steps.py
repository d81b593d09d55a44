"""A step that waits for another run yields its slot and its threads, so that the other run can begin."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Settings, run
from mainspring.engine.residency import local_starts
from tests.engine.lives import engine_of, until

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60
"""Real seconds, until a run that cannot begin counts as stuck."""


def shop(url: str) -> tuple[App, dict[str, Callable[..., Any]]]:
    """An app of one slot and one thread of each kind, and workflows whose step waits for another run."""
    app = App(url, settings=Settings(concurrency=1, threads=1))

    @app.step
    def pack(item: str) -> str:
        return f"packed {item}"

    @app.workflow
    def ship(item: str) -> str:
        return pack(item)

    @app.workflow
    async def sell(item: str) -> str:
        return await pack.aio(item)

    @app.step
    def shipped_blocking(item: str) -> str:
        return ship.start.sync(item).result.sync()

    @app.step(timeout=PATIENCE)
    def shipped_in_time(item: str) -> str:
        return ship(item)

    @app.step
    async def sold(item: str) -> str:
        return (await app.gather(await sell.start(item), await sell.start(item)))[0]

    @app.step
    def sold_blocking(item: str) -> str:
        first = app.first.sync(sell.start.sync(item))
        return first.result.sync()

    @app.workflow
    async def on_the_loop(item: str) -> list[str]:
        return [await shipped_blocking.aio(item), await sold(item), await sold_blocking.aio(item)]

    @app.workflow
    def on_a_thread(item: str) -> list[str]:
        return [sold.sync(item), shipped_blocking(item), shipped_in_time(item), sold_blocking(item)]

    return app, {"on_the_loop": on_the_loop.start, "on_a_thread": on_a_thread.start, "step": shipped_blocking.start}


@pytest.mark.parametrize("name", ["on_the_loop", "on_a_thread", "step"])
async def test_the_run_that_a_step_waits_for_begins_in_its_slot(store_url: str, name: str) -> None:
    app, starts = shop(store_url)
    async with app:
        handles = [await starts[name](f"box {number}") for number in range(3)]
        results = await asyncio.wait_for(app.gather(*handles), PATIENCE)
        for number, result in enumerate(results):
            assert {*([result] if isinstance(result, str) else result)} == {f"packed box {number}"}
        engine = engine_of(app)
        await until(lambda: not engine.executions and engine.slots.idle, 0.01)
        assert (engine.slots.free(), engine.slots.threads()) == (1, 1)
    app.close()


async def test_a_step_that_waits_for_an_event_of_another_run_yields_its_slot(store_url: str) -> None:
    app = App(store_url, settings=Settings(concurrency=1))

    @app.workflow
    async def announces() -> None:
        await run.set_event("said", "here")

    @app.step
    async def listen() -> str:
        other = await announces.start()
        return str(await app.get_event(other.id, "said"))

    @app.workflow
    async def listens() -> str:
        return await listen()

    async with app:
        assert await asyncio.wait_for(listens(), PATIENCE) == "here"
    app.close()


async def test_a_run_that_is_terminated_while_its_step_waits_yields_no_slot_any_more(store_url: str) -> None:
    app = App(store_url, settings=Settings(concurrency=2, threads=2))
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.workflow
    async def slow() -> None:
        begun.set()
        await go_on.wait()

    @app.step
    def waits_for_it() -> None:
        app.handle("slow").result.sync()

    @app.workflow
    async def work() -> None:
        await waits_for_it.aio()

    async with app:
        await slow.options(id="slow").start()
        await begun.wait()
        handle = await work.options(id="w").start()
        engine = engine_of(app)
        await until(lambda: "w" in engine.executions and engine.slots.free() == 1, 0.01)  # of two slots, with two runs
        await handle.terminate()
        await until(lambda: "w" not in engine.executions, 0.01)
        await until(
            lambda: engine.slots.free() == 1, 0.01
        )  # the thread of the step still waits; a claim may hold a slot for a moment
        go_on.set()
        await until(lambda: not engine.executions and engine.slots.idle, 0.01)
        assert (engine.slots.free(), engine.slots.threads()) == (2, 2)
    app.close()


async def test_a_step_that_may_not_yield_its_slot_is_named_in_a_warning(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_starts, "_MOST_YIELDING", 0)
    app = App(store_url)

    @app.workflow
    async def other() -> str:
        return "done"

    @app.step
    async def waits_for_it() -> str:
        return await other()

    @app.workflow
    async def work() -> str:
        return await waits_for_it()

    async with app:
        assert await work.options(id="w").start() is not None
        assert await app.handle("w").result() == "done"
    assert "step waits_for_it of run w waits for another run and keeps its slot" in caplog.text
    app.close()
