"""Starting a run here: whatever becomes of the caller, the run is executed or not stored, and its slot is free in the end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Settings
from mainspring.errors import Conflict, RunCancelled, StoreUnavailable
from mainspring.store.writes import RecordStep, Start
from tests.engine.lives import before_commits, engine_of, store_of, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.writes import Op

TURNS = 12


async def until_idle(app: App) -> None:
    """Until every slot of the worker is free."""
    engine = engine_of(app)
    await until(lambda: not engine.executions and not engine.local_starts.ids and engine.slots.idle, 0.01)
    assert engine.slots.free() == engine.settings.concurrency


@pytest.mark.parametrize("turns", range(TURNS))
async def test_a_start_whose_caller_is_cancelled_is_executed_or_not_stored(store_url: str, turns: int) -> None:
    app = App(store_url, settings=Settings(concurrency=3))
    began: list[str] = []

    @app.workflow
    async def job(name: str) -> str:
        began.append(name)
        return name

    def stored() -> list[str]:
        return [name for name in "abcd" if store_of(app).run(name) is not None]

    async with app:
        for name in "abc":
            caller = asyncio.create_task(job.options(id=name).start(name))
            for _ in range(turns):
                await asyncio.sleep(0)
            caller.cancel()
            await asyncio.wait({caller})
        # Writes commit in the order of hand-over: what the cancelled callers handed over is stored by then, or never will be.
        assert await job.options(id="d")("d") == "d"
        await until_idle(app)
        # A start that found no slot, because a claim or a pass of the scheduler had reserved them, is stored and claimed later.
        await until(lambda: sorted(began) == stored(), 0.01)
        assert [await app.handle(name).result(timeout=30) for name in stored()] == stored()
        assert await job("later") == "later"
        await until_idle(app)


async def test_a_start_that_is_being_committed_when_its_caller_is_cancelled_begins(store_url: str) -> None:
    app = App(store_url)
    committing, go_on = threading.Event(), threading.Event()

    @app.workflow
    async def job() -> str:
        return "done"

    def hold(ops: Sequence[Op]) -> None:
        if any(isinstance(op, Start) for op in ops):
            committing.set()
            assert go_on.wait(60)

    async with app:
        before_commits(app, hold)
        caller = asyncio.create_task(job.options(id="a").start())
        assert await asyncio.to_thread(committing.wait, 60)
        caller.cancel()
        await asyncio.wait({caller})
        go_on.set()
        await until(lambda: store_of(app).run("a") is not None, 0.01)
        assert await app.handle("a").result(timeout=30) == "done"
        await until_idle(app)


@pytest.mark.parametrize("once", [False, True])
async def test_a_child_whose_start_is_cancelled_while_it_commits_begins(store_url: str, once: bool) -> None:
    app = App(store_url)
    committing, go_on = threading.Event(), threading.Event()
    began: list[str] = []

    @app.workflow(at_most_once=once)
    async def child() -> str:
        began.append("child")
        return "done"

    @app.workflow
    async def parent() -> str:
        starting = asyncio.create_task(child.options(id="c").start())
        await asyncio.to_thread(committing.wait, 60)
        starting.cancel()
        go_on.set()
        await asyncio.wait({starting})
        return "went on"

    def hold(ops: Sequence[Op]) -> None:
        if any(isinstance(op, RecordStep) and op.starts for op in ops):
            committing.set()
            assert go_on.wait(60)

    async with app:
        before_commits(app, hold)
        assert await parent() == "went on"
        assert await app.handle("c").result(timeout=30) == "done"
        assert began == ["child"]
        await until_idle(app)


async def test_a_start_whose_answer_is_lost_frees_its_slot_and_is_executed(store_url: str) -> None:
    app = App(store_url, settings=Settings(concurrency=1))
    began: list[str] = []

    @app.workflow
    async def job() -> None:
        began.append("job")

    async with app:
        apply, lost = store_of(app).apply, [True]

        def deaf(ops: Sequence[Op], now: int) -> list[Any]:
            answers = apply(ops, now)
            if lost and any(isinstance(op, Start) for op in ops):
                lost.clear()
                raise StoreUnavailable("the answer was lost")
            return answers

        app._runtime.connection().committer._apply = deaf
        with pytest.raises(
            StoreUnavailable, match="run 'a' may have been stored: started again with this id, it runs once"
        ):
            await job.options(id="a").start()
        assert not (await job.options(id="a").start()).created
        await app.handle("a").result(timeout=30)
        assert began == ["job"]
        await until_idle(app)


async def test_a_run_that_cannot_be_stored_frees_its_slot(store_url: str) -> None:
    app = App(store_url, settings=Settings(concurrency=2))

    @app.workflow
    async def job() -> None: ...

    @app.workflow
    async def other() -> None: ...

    async with app:
        await other.options(id="taken")()
        for _ in range(4):
            await job.options(id="mine").start()
            with pytest.raises(Conflict, match="taken"):
                await job.options(id="taken").start()
        await until_idle(app)


async def test_nothing_begins_in_a_worker_that_stops(store_url: str) -> None:
    """What a step of a stopping worker starts, and what it had claimed, is for the next worker, at once and as if new."""
    app = App(store_url, settings=Settings(grace=10))
    stopping, began = asyncio.Event(), list[str]()

    @app.workflow(at_most_once=True)
    async def child(name: str) -> str:
        began.append(name)
        return name

    @app.step
    async def starts_late() -> str:
        await stopping.wait()
        return (await child.options(id="late").start("late")).id

    @app.workflow
    async def parent() -> str:
        return await starts_late()

    async with app:
        await parent.options(id="p").start()
        engine = engine_of(app)
        await until(lambda: engine.executions["p"].invoking)
        leaving = asyncio.create_task(app.__aexit__())
        await until(lambda: engine.draining)
        stopping.set()
        await leaving
        assert began == []
        async with app:
            assert await app.handle("late").result(timeout=30) == "late"
            assert await app.handle("p").result(timeout=30) == "late"
    assert began == ["late"]


async def test_a_run_that_was_claimed_by_a_worker_that_stops_is_not_interrupted(store_url: str) -> None:
    app = App(store_url)
    claimed, go_on = threading.Event(), threading.Event()

    @app.workflow(at_most_once=True)
    async def once() -> str:
        return "done"

    await once.options(id="a").start()
    store = app._runtime.connection().store
    claim = store.claim

    def slow(request: Any) -> Any:
        found = claim(request)
        if found.claims:
            claimed.set()
            assert go_on.wait(60)
        return found

    store.claim = slow  # type: ignore[method-assign]
    async with app:
        assert await asyncio.to_thread(claimed.wait, 60)
        engine = engine_of(app)
        leaving = asyncio.create_task(app.__aexit__())
        for _ in range(5):
            await asyncio.sleep(0.01)
        assert not engine.executions
        go_on.set()
        await leaving
    async with app:
        assert await app.handle("a").result(timeout=30) == "done"
        found = store_of(app).run("a")
        assert found is not None
        assert (found.epoch, found.recoveries) == (1, 0)


async def test_a_run_that_is_cancelled_before_it_begins_is_cancelled(store_url: str) -> None:
    app = App(store_url)

    @app.workflow
    async def job() -> None: ...

    async with app:
        handle = await job.options(id="a", after="1h").start()
        assert await handle.cancel("enough")
        with pytest.raises(RunCancelled, match="enough"):
            await handle.result(timeout=30)
        await until_idle(app)
