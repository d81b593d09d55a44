"""An orderly stop loses nothing, cuts nothing off within its grace, and lets end what needs no further step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Retry, Settings, State, Tx, run
from mainspring.engine.replay.signals import Lost
from mainspring.engine.residency.phases import Phase
from mainspring.errors import RunCancelled
from tests.engine.lives import engine_of, execute, info, store_of, until
from tests.support.samples import covering, of

if TYPE_CHECKING:
    from collections.abc import Generator


async def invoking(app: App, run_id: str, steps: int = 1) -> None:
    """Until so many steps of a run are being executed."""
    engine = engine_of(app)
    await until(lambda: run_id in engine.executions and engine.executions[run_id].invoking >= steps)


async def leave(app: App) -> asyncio.Task[None]:
    """Begin to leave the app; comes back when its worker begins nothing any more."""
    engine = engine_of(app)
    leaving = asyncio.create_task(app.__aexit__())
    await until(lambda: engine.draining)
    return leaving


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_a_step_whose_last_attempt_fails_in_the_grace_is_retried_by_the_next_worker(
    store_url: str, colour: str
) -> None:
    app, attempts, fail = App(store_url), list[int](), threading.Event()

    @app.step(retry=Retry(3, first=0.05))
    def flaky() -> str:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            assert fail.wait(30)
            raise ConnectionError("once")
        return "done"

    @app.workflow
    async def coroutine() -> str:
        return await flaky.aio()

    @app.workflow
    def blocking() -> str:
        return flaky()

    async with app:
        await (coroutine if colour == "async" else blocking).options(id="a").start()
        await until(lambda: attempts)
        leaving = await leave(app)
        fail.set()
        await leaving
    async with app:
        assert await app.handle("a").result(timeout=30) == "done"
    assert len(attempts) == 2


@pytest.mark.sampled
@pytest.mark.parametrize("turns", range(0, 60, of(3, 11)))
async def test_a_run_that_is_about_to_wait_is_not_lost(store_url: str, turns: int) -> None:
    app = App(store_url)

    @app.workflow
    async def listens() -> str:
        for _ in range(3):
            await run.receive("news", timeout=0.02)
        return "went on"

    async with app:
        await listens.options(id="a").start()
        for _ in range(turns):
            await asyncio.sleep(0)
    async with app:
        assert await app.handle("a").result(timeout=30) == "went on"


@pytest.mark.parametrize("together", [False, True])
async def test_a_run_that_is_cancelled_while_its_worker_stops_is_undone(store_url: str, together: bool) -> None:
    app, did, go_on = App(store_url), list[str](), asyncio.Event()

    @app.step
    async def pay() -> str:
        did.append("pay")
        return "receipt"

    @app.step
    async def slow() -> None:
        did.append("slow")
        await go_on.wait()

    @app.step
    async def refund(receipt: str) -> None:
        did.append(f"refund {receipt}")

    @app.workflow
    async def order() -> None:
        async with run.undo() as undo:
            undo.push(refund.bind(await pay()))
            await slow()
            await run.sleep("1d")

    async with app:
        handle = await order.options(id="a").start()
        await until(lambda: "slow" in did)
        if together:
            _, leaving = await asyncio.gather(handle.cancel("not wanted"), leave(app))
        else:
            leaving = await leave(app)
            store_of(app).cancel(["a"], "not wanted", app._runtime.clock.now())
        go_on.set()
        await leaving
    async with app:
        with pytest.raises(RunCancelled, match="not wanted"):
            await app.handle("a").result(timeout=30)
    assert did == ["pay", "slow", "refund receipt"]


@covering
@pytest.mark.parametrize("shape", ["async_step", "def_step", "flow", "def_flow", "pure_flow", "branches"])
@pytest.mark.parametrize("once", [False, True])
async def test_what_needs_no_further_step_ends_within_the_grace(store_url: str, shape: str, once: bool) -> None:
    app, began, go_on = App(store_url), list[str](), threading.Event()

    async def opened() -> None:
        began.append(shape)
        await asyncio.to_thread(go_on.wait, 30)

    @app.step(at_most_once=once)
    async def async_step() -> str:
        await opened()
        return "done"

    @app.step(at_most_once=once)
    def def_step() -> str:
        began.append(shape)
        assert go_on.wait(30)
        return "done"

    @app.workflow(at_most_once=once)
    async def flow() -> str:
        return await async_step()

    @app.workflow(at_most_once=once)
    def def_flow() -> str:
        return def_step()

    @app.workflow(at_most_once=once)
    async def pure_flow() -> str:
        await opened()
        return "done"

    @app.workflow(at_most_once=once)
    async def branches() -> str:
        return (await asyncio.gather(async_step(), def_step.aio()))[0]

    shapes: dict[str, Any] = {
        "async_step": async_step,
        "def_step": def_step,
        "flow": flow,
        "def_flow": def_flow,
        "pure_flow": pure_flow,
        "branches": branches,
    }
    async with app:
        await shapes[shape].options(id="a").start()
        await until(lambda: len(began) == (2 if shape == "branches" else 1))
        leaving = await leave(app)
        go_on.set()
        await leaving
        found = info(app, "a")
        assert (found.state, found.recoveries) == (State.SUCCEEDED, 0)


async def test_a_function_that_is_not_to_be_started_twice_has_the_whole_grace_for_all_its_steps(store_url: str) -> None:
    app, did, go_on = App(store_url), list[str](), asyncio.Event()

    @app.step
    async def note(what: str) -> None:
        did.append(what)
        await go_on.wait()

    @app.workflow(at_most_once=True)
    async def once() -> str:
        await note("one")
        await run.sleep(0.01)
        await note("two")
        return "done"

    async with app:
        await once.options(id="a").start()
        await invoking(app, "a")
        leaving = await leave(app)
        go_on.set()
        await leaving
        assert info(app, "a").state is State.SUCCEEDED
    assert did == ["one", "two"]


async def test_an_outcome_that_is_recorded_counts_whatever_became_of_the_worker(store_url: str) -> None:
    """As a worker leaves a run that was taken from it in the moment in which its step came to its end."""
    app, began = App(store_url), list[str]()

    @app.step(at_most_once=True)
    def pay() -> str:
        began.append("pay")
        return "paid"

    async with app:
        assert await (await pay.options(id="a").start()).result() == "paid"
    assert execute(store_url, "UPDATE runs SET state = 'queued', output = NULL, completed = NULL WHERE id = 'a'") == 1
    async with app:
        assert await app.handle("a").result(timeout=30) == "paid"
    assert began == ["pay"]


async def test_a_step_that_ends_after_the_grace_is_recorded(store_url: str) -> None:
    """The run was taken from its code by then. That its step was made counts, and whoever takes the run next ends it."""
    app, began, go_on = App(store_url, settings=Settings(grace=0)), list[str](), threading.Event()

    @app.step
    def pay() -> str:
        began.append("pay")
        assert go_on.wait(30)
        return "paid"

    async with app:
        engine = engine_of(app)
        await pay.options(id="a").start()
        await until(lambda: bool(began))
        execution = engine.executions["a"]
        leaving = await leave(app)
        await until(lambda: isinstance(execution.signal, Lost))
        go_on.set()
        await leaving
    async with app:
        assert await app.handle("a").result(timeout=30) == "paid"
    assert began == ["pay"]


@covering
@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("shape", ["gather", "group"])
async def test_a_step_under_way_is_not_cut_off_because_another_branch_waits(
    store_url: str, how: str, shape: str
) -> None:
    app, did, go_on = App(store_url), list[str](), asyncio.Event()

    @app.step
    async def slow() -> str:
        did.append("begins")
        await go_on.wait()
        did.append("ends")
        return "slow"

    @app.workflow
    async def both() -> None:
        if shape == "gather":
            await asyncio.gather(slow(), run.sleep(0.5))
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(slow())
            tasks.create_task(run.sleep(0.5))

    async with app:
        handle = await both.options(id="a").start()
        await invoking(app, "a")
        leaving: asyncio.Task[Any] = await leave(app) if how == "stop" else asyncio.create_task(handle.cancel())
        if how == "cancel":
            await until(lambda: engine_of(app).executions["a"].phase is Phase.HALTED)
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        await leaving
    async with app:
        if how == "stop":
            await app.handle("a").result(timeout=30)
        else:
            with pytest.raises(RunCancelled):
                await app.handle("a").result(timeout=30)
    assert did == ["begins", "ends"]


async def test_a_worker_that_is_declared_dead_in_its_grace_does_not_enter_the_fleet_again(store_url: str) -> None:
    app, began, go_on = App(store_url, settings=Settings(lease=0.6)), list[str](), asyncio.Event()

    @app.step
    async def slow() -> str:
        began.append("slow")
        await go_on.wait()
        return "done"

    @app.workflow
    async def work() -> str:
        return await slow()

    async with app:
        await work.options(id="a").start()
        await invoking(app, "a")
        engine, store = engine_of(app), store_of(app)
        leaving = await leave(app)
        await asyncio.to_thread(store.retire, engine.worker_id, engine.clock.now(), 100)
        ex = engine.executions["a"]
        await until(lambda: ex.signal is not None, 0.01)  # the heartbeat finds out
        await leaving
    assert began == ["slow"]
    go_on.set()
    async with app:
        assert [worker.id for worker in store_of(app).workers()] == [engine_of(app).worker_id]
        assert await app.handle("a").result(timeout=30) == "done"


async def test_draining_comes_back_though_the_worker_has_to_begin_anew(store_url: str) -> None:
    app = App(store_url, settings=Settings(lease=0.6))

    @app.workflow
    async def work() -> int:
        return 1

    async with app:
        engine, store = engine_of(app), store_of(app)
        await work.options(id="a").start()
        draining = asyncio.create_task(app.drain())
        await asyncio.to_thread(store.retire, engine.worker_id, engine.clock.now(), 100)
        await work.options(id="b", after=0.2).start()
        async with asyncio.timeout(60):
            await draining
            await until(lambda: app._runtime.engine not in {None, engine}, 0.01)
            await app.drain()


@covering
@pytest.mark.parametrize(
    "where",
    ["step", "body", "threaded step", "transaction", "def step", "def body", "def awaited step", "def transaction"],
)
@pytest.mark.parametrize(
    "error", [GeneratorExit, KeyboardInterrupt, SystemExit, asyncio.CancelledError, StopIteration, StopAsyncIteration]
)
async def test_whatever_is_raised_ends_the_run(store_url: str, where: str, error: type[BaseException]) -> None:
    if error is KeyboardInterrupt and where == "def awaited step":
        pytest.skip("a KeyboardInterrupt of a task of its own ends the process")
    app = App(store_url)

    @app.step
    async def raises() -> None:
        raise error

    @app.step
    def raises_too() -> None:
        raise error

    @app.transaction
    def rolls_back(tx: Tx) -> None:
        raise error

    @app.workflow
    async def coroutine() -> None:
        if where == "body":
            raise error
        calls: dict[str, Any] = {"step": raises, "threaded step": raises_too.aio, "transaction": rolls_back.aio}
        await calls[where]()

    @app.workflow
    def blocking() -> None:
        if where == "def body":
            raise error
        calls: dict[str, Any] = {"def step": raises_too, "def awaited step": raises.sync, "def transaction": rolls_back}
        calls[where]()

    async with app:
        handle = await (blocking if where.startswith("def") else coroutine).options(id="a").start()
        with pytest.raises(Exception):  # noqa: B017, PT011
            await handle.result(timeout=30)
        assert info(app, "a").state is State.FAILED
        assert await app.handle("a").describe()


@pytest.mark.parametrize("error", [GeneratorExit, SystemExit, StopIteration])
async def test_an_exit_inside_a_branch_ends_the_run_and_not_the_worker(
    store_url: str, error: type[BaseException]
) -> None:
    app = App(store_url)

    @app.step
    async def awaited() -> None:
        raise error

    @app.step(interruptible=True)
    async def interruptible() -> None:
        raise error

    @app.step
    def threaded() -> None:
        raise error

    @app.transaction
    def rolls_back(tx: Tx) -> None:
        raise error

    @app.workflow
    async def branches() -> list[str]:
        calls = (awaited(), interruptible(), threaded.aio(), rolls_back.aio())
        return [type(outcome).__name__ for outcome in await asyncio.gather(*calls, return_exceptions=True)]

    async with app:
        assert await branches() == ["RuntimeError"] * 4


class Leaving:
    """Something to await, of a library."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from asyncio.sleep(0).__await__()
        raise SystemExit(3)


class InOtherWords(Coroutine[Any, Any, None]):
    """A coroutine that is no `async def`."""

    def __init__(self) -> None:
        self._work = Leaving().__await__()

    def send(self, value: Any, /) -> Any:
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work


@pytest.mark.parametrize(
    "how", ["task", "gather", "group", "late", "wait_for", "wait_for awaitable", "awaitable", "coroutine"]
)
async def test_code_of_a_task_that_exits_ends_the_run_and_not_the_worker(store_url: str, how: str) -> None:
    app = App(store_url)

    @app.step
    async def step() -> int:
        return 1

    async def leaves() -> None:
        if how == "late":
            await step()
        raise SystemExit(3)

    @app.workflow
    async def branches() -> None:
        not_begun = asyncio.create_task(leaves())
        not_begun.cancel()
        if how == "gather":
            await asyncio.gather(step(), leaves())
        elif how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(leaves())
        elif how.startswith("wait_for"):
            await asyncio.wait_for(leaves() if how == "wait_for" else Leaving(), 60)
        elif how == "awaitable":
            await asyncio.gather(step(), Leaving())
        elif how == "coroutine":
            await asyncio.create_task(InOtherWords())
        else:
            task = asyncio.create_task(leaves())
            assert "leaves" in repr(task)
            await task

    async with app:
        with pytest.raises((RuntimeError, ExceptionGroup)):
            await branches.options(id="a")()
        assert info(app, "a").state is State.FAILED
        assert "raised SystemExit" in str(info(app, "a").error)
        assert await app.handle("a").describe()


@pytest.mark.parametrize("how", ["undo", "finally"])
async def test_what_the_last_tasks_of_a_run_have_to_clear_away_is_left_to_the_next_worker(
    store_url: str, how: str
) -> None:
    """The code has returned, and its unfinished tasks are cancelled: they must not begin a step in a worker that stops, nor wait for it."""
    app, did, go_on = App(store_url, settings=Settings(grace=60)), list[str](), asyncio.Event()

    @app.step
    async def note(what: str) -> str:
        did.append(what)
        return what

    @app.step
    async def slow() -> str:
        did.append("slow")
        await go_on.wait()
        return "done"

    @app.workflow
    async def work() -> str:
        async def beside() -> None:
            if how == "undo":
                async with run.undo() as undo:
                    undo.push(note.bind("cleared"))
                    await run.receive("never")
            try:
                await run.receive("never")
            finally:
                await note("cleared")

        task = asyncio.create_task(beside())
        await note("begin")
        found = await slow()
        assert not task.done()
        return found

    async with app:
        await work.options(id="a").start()
        await until(lambda: "slow" in did)
        leaving = await leave(app)
        go_on.set()
        async with asyncio.timeout(20):
            await leaving
    async with app:
        assert await app.handle("a").result(timeout=30) == "done"
    assert did == ["begin", "slow", "cleared"]
