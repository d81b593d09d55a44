"""Time of the process, and other awaitables that are no operations: they begin anew, and never keep a run from going on."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Settings, run
from mainspring.engine.residency.phases import Phase
from mainspring.model.clock import SECOND
from tests.engine.lives import engine_of, execute, free_the_dead, store_of, until
from tests.support.samples import covering

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

HOW = ["stop", "kill", "park"]


async def suspended(app: App, run_id: str) -> None:
    """Until the store has a run as waiting, and nothing of it is at work."""
    executions = engine_of(app).executions
    await until(lambda: run_id in executions and executions[run_id].suspended)


@covering
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("shape", ["timeout", "sleep", "event", "thread", "call_later"])
async def test_a_body_that_waits_for_the_process_beside_an_operation_goes_on(
    store_url: str, how: str, shape: str
) -> None:
    app = App(store_url, settings=Settings(resident=0 if how == "park" else 10_000))
    seconds = [
        0.05 if how == "park" else 20.0
    ]  # long in the first life, which ends when the run was seen to be suspended
    released = threading.Event()

    @app.workflow
    async def timeout() -> str:
        try:
            async with asyncio.timeout(seconds[0]):
                await run.receive("news")
        except TimeoutError:
            return "went on"
        return "received"

    @app.workflow
    async def sleep() -> str:
        listening = asyncio.create_task(run.receive("news"))
        await asyncio.sleep(seconds[0])
        listening.cancel()
        return "went on"

    @app.workflow
    async def event() -> str:
        listening = asyncio.create_task(run.receive("news"))
        rings = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(seconds[0], rings.set)
        await rings.wait()
        timer.cancel()
        listening.cancel()
        return "went on"

    @app.workflow
    async def thread() -> str:
        listening = asyncio.create_task(run.receive("news"))
        await asyncio.to_thread(released.wait, seconds[0])
        listening.cancel()
        return "went on"

    @app.workflow
    async def call_later() -> str:
        rung = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(seconds[0], rung.set_result, None)
        listening = asyncio.create_task(run.receive("news"))
        await asyncio.wait({rung, listening}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        return "went on"

    shapes: dict[str, Any] = {each.name: each for each in (timeout, sleep, event, thread, call_later)}
    async with app:
        handle = await shapes[shape].options(id="a").start()
        if how == "park":
            assert await handle.result(timeout=30) == "went on"
            return
        await suspended(app, "a")
        row = store_of(app).run("a")
        assert row is not None
        assert row.due is not None
        known = 60 if shape == "thread" else seconds[0]  # when a thread is over is not known
        assert row.due <= app._runtime.clock.now() + known * SECOND
        seconds[0] = 0.05
        if how == "kill":
            await app._vanish()
    released.set()
    assert execute(store_url, f"UPDATE runs SET due = {row.created} WHERE id = 'a' AND due = {row.due}") == 1
    async with app:
        free_the_dead(app)
        assert await app.handle("a").result(timeout=30) == "went on"


async def test_branches_that_wait_for_each_other_can_be_parked(store_url: str) -> None:
    """One branch waits for a queue that another one fills when its message comes."""
    app = App(store_url, settings=Settings(resident=0))
    bodies: list[str] = []

    @app.workflow
    async def pipeline() -> str:
        bodies.append("pipeline")
        line: asyncio.Queue[str] = asyncio.Queue()

        async def produce() -> None:
            line.put_nowait(await run.receive("news"))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce())
            consumed = tasks.create_task(line.get())
        return consumed.result()

    async with app:
        handle = await pipeline.options(id="a").start()
        await until(lambda: bodies)
        await until(lambda: "a" not in engine_of(app).executions)
        await app.send("a", "news", "hello")
        assert await handle.result(timeout=30) == "hello"
        assert len(bodies) > 1


async def test_a_branch_inside_an_asynchronous_generator_can_be_parked(store_url: str) -> None:
    """A library that hands its events over by a generator, which waits for a queue that another branch fills."""
    app = App(store_url, settings=Settings(resident=0))
    bodies: list[str] = []

    @app.workflow
    async def pipeline() -> str:
        bodies.append("pipeline")
        line: asyncio.Queue[str] = asyncio.Queue()

        async def produce() -> None:
            line.put_nowait(await run.receive("news"))

        async def events() -> AsyncGenerator[str]:
            producing = asyncio.create_task(produce())
            yield await line.get()
            await producing

        return " ".join([event async for event in events()])

    async with app:
        handle = await pipeline.options(id="a").start()
        await until(lambda: bodies)
        await until(lambda: "a" not in engine_of(app).executions)
        await app.send("a", "news", "hello")
        assert await handle.result(timeout=30) == "hello"
        assert len(bodies) > 1


async def test_a_run_that_waits_for_the_first_of_its_children_can_be_parked(store_url: str) -> None:
    """`app.first` waits in `asyncio.wait`, below a coroutine that is none of Python's own kinds."""
    app = App(store_url, settings=Settings(resident=0))
    bodies: list[str] = []

    @app.workflow
    async def child() -> str:
        return str(await run.receive("news"))

    @app.workflow
    async def parent() -> str:
        bodies.append("parent")
        both = [await child.options(id=name).start() for name in ("one", "two")]
        return await (await app.first(*both)).result()

    async with app:
        handle = await parent.options(id="a").start()
        await until(lambda: bodies)
        await until(lambda: "a" not in engine_of(app).executions)
        await app.send("two", "news", "hello")
        assert await handle.result(timeout=30) == "hello"
        assert len(bodies) > 1
        await app.runs.cancel("one")


async def test_a_task_group_of_operations_is_parked_until_one_of_them_is_over(store_url: str) -> None:
    app = App(store_url, settings=Settings(resident=0))

    @app.workflow
    async def naps() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run.sleep("3d"))
            tasks.create_task(run.sleep("2d"))

    async with app:
        await naps.options(id="a").start()
        await until(lambda: "a" not in engine_of(app).executions)
        found = store_of(app).run("a")
        assert found is not None
        assert found.due is not None
        days = (found.due - found.created) / 86_400e6
        assert 1.99 < days < 2.01


async def test_a_run_with_a_timer_of_the_process_is_not_parked(store_url: str) -> None:
    app = App(store_url, settings=Settings(resident=0))

    @app.workflow
    async def limited() -> str:
        async with asyncio.timeout(60):
            return str(await run.receive("news"))

    async with app:
        handle = await limited.options(id="a").start()
        await suspended(app, "a")
        assert engine_of(app).executions["a"].phase is Phase.WAITING
        await app.send("a", "news", "hello")
        assert await handle.result(timeout=30) == "hello"
