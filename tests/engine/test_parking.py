"""A waiting run can be let go of: its frame is dropped wherever it waits, and it comes back by replay as if nothing had been."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio
import pytest

from mainspring import App, Settings, State, run
from mainspring.engine.replay.execution import Execution
from mainspring.testing import world
from tests.engine.lives import info, names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
app = App(settings=Settings(resident=0, park_after=0.01))
bodies: list[str] = []
done: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    bodies.clear()
    done.clear()


@app.step
async def note(what: str) -> str:
    done.append(what)
    return what


@app.workflow
async def in_gather() -> list[str]:
    async def nap(hours: int) -> str:
        await run.sleep(f"{hours}h")
        return await note(f"{hours} h")

    bodies.append("in_gather")
    return list(await asyncio.gather(nap(1), nap(3), nap(2)))


@app.workflow
async def in_gather_that_keeps_exceptions() -> list[str]:
    async def nap(hours: int) -> str:
        await run.sleep(f"{hours}h")
        return await note(f"{hours} h")

    bodies.append("in_gather_that_keeps_exceptions")
    kept = await asyncio.gather(nap(1), nap(2), return_exceptions=True)
    return [str(one) for one in kept]


@app.workflow
async def in_task_group() -> list[str]:
    bodies.append("in_task_group")
    order = list[str]()

    async def nap(hours: int) -> None:
        await run.sleep(f"{hours}h")
        order.append(await note(f"{hours} h"))

    async with asyncio.TaskGroup() as group:
        for hours in (2, 1):
            group.create_task(nap(hours))
    return order


@app.workflow
async def in_anyio_group() -> list[str]:
    bodies.append("in_anyio_group")
    order = list[str]()

    async def nap(hours: int) -> None:
        await run.sleep(f"{hours}h")
        order.append(await note(f"{hours} h"))

    async with anyio.create_task_group() as group:
        for hours in (2, 1):
            group.start_soon(nap, hours)
    return order


@contextlib.asynccontextmanager
async def room() -> AsyncGenerator[None]:
    await note("enter")
    try:
        yield
    finally:
        await note("leave")


@app.workflow
async def in_async_with() -> list[str]:
    bodies.append("in_async_with")
    async with room():
        await run.sleep("1h")
        await note("inside")
    return list(done)


@app.workflow
async def in_try_finally() -> list[str]:
    bodies.append("in_try_finally")
    try:
        await run.sleep("1h")
    finally:
        await note("finally")
    return [await note("after")]


@app.workflow
async def in_except_base_exception() -> str:
    bodies.append("in_except_base_exception")
    try:
        await run.sleep("1h")
    except BaseException:  # noqa: BLE001  (as careless code does)
        return await note("swallowed")
    return await note("slept")


@app.workflow
async def in_suppress() -> str:
    bodies.append("in_suppress")
    with contextlib.suppress(BaseException):
        await run.sleep("1h")
        await note("slept")
    return "the end"


@app.workflow
async def in_wait() -> list[str]:
    bodies.append("in_wait")
    tasks = [asyncio.create_task(in_room(hours)) for hours in (1, 2)]
    await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def in_room(hours: int) -> str:
    await run.sleep(f"{hours}h")
    return await note(f"{hours} h")


@app.workflow
async def behind_an_event() -> str:
    bodies.append("behind_an_event")
    ready = asyncio.Event()

    async def nap() -> None:
        await run.sleep("1h")
        ready.set()

    task = asyncio.create_task(nap())
    await ready.wait()
    await task
    return await note("woken")


@app.workflow
async def child() -> str:
    await run.sleep("2h")
    return "child"


@app.workflow
async def for_a_child() -> list[str]:
    bodies.append("for_a_child")
    handle = await child.start()
    return [await note("before"), await child(), await handle.result(), await note("after")]


@pytest.mark.parametrize(
    ("workflow", "result", "steps"),
    [
        (in_gather, ["1 h", "3 h", "2 h"], ["1 h", "2 h", "3 h"]),
        (in_gather_that_keeps_exceptions, ["1 h", "2 h"], ["1 h", "2 h"]),
        (in_task_group, ["1 h", "2 h"], ["1 h", "2 h"]),
        (in_anyio_group, ["1 h", "2 h"], ["1 h", "2 h"]),
        (in_async_with, ["enter", "inside", "leave"], ["enter", "inside", "leave"]),
        (in_try_finally, ["after"], ["finally", "after"]),
        (in_except_base_exception, "slept", ["slept"]),
        (in_suppress, "the end", ["slept"]),
        (in_wait, ["1 h", "2 h"], ["1 h", "2 h"]),
        (behind_an_event, "woken", ["woken"]),
        (for_a_child, ["before", "child", "child", "after"], ["before", "after"]),
    ],
    ids=lambda case: getattr(case, "name", ""),
)
async def test_a_run_parked_anywhere_comes_back_as_if_nothing_had_been(
    store_url: str, workflow: object, result: object, steps: list[str]
) -> None:
    async with world(app, url=store_url):
        assert await workflow() == result  # type: ignore[operator]
    assert done == steps
    assert len(bodies) > 1, "it was not parked"


async def test_a_parked_run_is_waiting_and_nobodys(store_url: str) -> None:
    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await in_suppress.options(id="a").start()
        await w.advance("30m")
        found = await handle.describe()
        assert (found.state, found.worker, found.due) == (State.WAITING, None, datetime(2026, 1, 1, 1, tzinfo=UTC))
        engine = app._runtime.engine
        assert engine is not None
        assert not engine.executions
        assert names(app, "a") == ["sleep"]
        assert await handle.result() == "the end"
        assert info(app, "a").recoveries == 0


async def test_of_several_the_one_that_wakes_last_is_parked(store_url: str) -> None:
    app = App(settings=Settings(resident=1))

    @app.workflow
    async def nap(hours: int) -> int:
        await run.sleep(f"{hours}h")
        return hours

    async with world(app, url=store_url) as w:
        handles = [await nap.options(id=f"{hours}").start(hours) for hours in (3, 1, 2)]
        await w.advance("30m")
        engine = app._runtime.engine
        assert engine is not None
        assert set(engine.executions) == {"1"}
        assert [await handle.result() for handle in handles] == [3, 1, 2]


async def test_a_def_run_that_waits_for_long_gives_its_thread_back(store_url: str) -> None:
    app, bodies = App(settings=Settings(threads=2, park_after=0.01)), list[int]()

    @app.workflow
    def nap(number: int) -> int:
        bodies.append(number)
        run.sleep.sync("1h")
        return number

    @app.workflow
    def parent(depth: int) -> int:
        return 1 + parent(depth - 1) if depth else 0

    async with world(app, url=store_url) as w:
        handles = await app.start_many(nap.bind(number) for number in range(6))
        assert [await handle.result() for handle in handles] == list(range(6))
        assert 3600 <= (w.now - MIDNIGHT).total_seconds() < 3601  # the later ones began when the first had given way
        assert await parent.aio(6) == 6
    assert len(bodies) > 6


async def test_def_runs_that_wait_for_def_children_give_their_threads_up_at_once_when_threads_are_short(
    store_url: str,
) -> None:
    app = App(settings=Settings(threads=2, park_after=3600))

    @app.workflow
    def child(number: int) -> int:
        return number

    @app.workflow
    def parent(number: int) -> int:
        return child(number)

    async with world(app, url=store_url) as w:
        handles = await app.start_many(parent.bind(number) for number in range(20))
        assert [await handle.result() for handle in handles] == list(range(20))
        assert (w.now - MIDNIGHT).total_seconds() < 1, "no wait had to become a long one first"


async def test_a_def_run_parked_in_careless_code_comes_back(store_url: str) -> None:
    app, bodies, done = App(settings=Settings(park_after=0)), list[int](), list[str]()

    @app.step
    def note(what: str) -> str:
        done.append(what)
        return what

    @app.workflow
    def careless() -> str:
        bodies.append(1)
        try:
            run.sleep.sync("1h")
        except BaseException:  # noqa: BLE001
            return note("swallowed")
        finally:
            note("finally")
        return note("slept")

    async with world(app, url=store_url):
        assert await careless.aio() == "slept"
    assert len(bodies) == 2
    assert done == ["finally", "slept"]


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_at_most_once_runs_wait_without_being_parked(store_url: str, colour: str) -> None:
    app, bodies = App(settings=Settings(resident=0, park_after=0.0)), list[int]()

    @app.workflow(at_most_once=True)
    async def coroutine() -> str:
        bodies.append(1)
        await run.sleep("1h")
        return "once"

    @app.workflow(at_most_once=True)
    def blocking() -> str:
        bodies.append(1)
        run.sleep.sync("1h")
        return "once"

    async with world(app, url=store_url):
        assert await (coroutine() if colour == "async" else blocking.aio()) == "once"
    assert bodies == [1]


async def test_runs_that_slept_and_ended_are_not_kept_in_mind(store_url: str) -> None:
    app = App()

    @app.workflow
    async def nap() -> None:
        await run.sleep("1s")

    async with world(app, url=store_url) as w:
        for _ in range(5):
            await app.start_many(nap.bind() for _ in range(500))
            await w.advance("2s")
        gc.collect()
        kept = sum(isinstance(each, Execution) for each in gc.get_objects())
    assert kept < 1_200
