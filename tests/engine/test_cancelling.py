"""Cancelling stops a run before its next step and at once where it waits, with its children; terminating ends the record."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

from mainspring import App, AsyncFn, State, SyncFn, Tx, run
from mainspring.engine.engine import Engine
from mainspring.errors import InvalidInput, RunCancelled
from mainspring.testing import world
from tests.engine.lives import another_process, info, names, record, restart, until_halted
from tests.support.samples import covering

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def test_a_run_stops_before_its_next_step_and_the_step_in_flight_is_recorded(store_url: str) -> None:
    app, began, go, done = App(), asyncio.Event(), asyncio.Event(), list[str]()

    @app.step
    async def note(what: str) -> str:
        done.append(what)
        began.set()
        await go.wait()
        return what

    @app.workflow
    async def two() -> None:
        await note("one")
        await note("two")

    async with world(app, url=store_url) as w:
        handle = await two.options(id="a").start()
        await began.wait()
        assert await handle.cancel("enough")
        assert info(app, "a").state is State.CANCELLING
        await until_halted(app, "a")
        go.set()
        with pytest.raises(RunCancelled, match="'a' was cancelled: enough") as caught:
            await handle.result()
        assert (caught.value.run_id, caught.value.reason) == ("a", "enough")
        await w.drain()
        assert (info(app, "a").state, info(app, "a").reason) == (State.CANCELLED, "enough")
        assert [(step.name, step.output) for step in record(app, "a")] == [("note", "one")]
    assert done == ["one"]


async def test_no_step_begins_once_a_cancellation_is_acknowledged(store_url: str) -> None:
    """Not even before the worker has arrived of it: the record of the step before tells it."""
    app, done = App(), list[str]()

    def cancel(what: str) -> None:
        done.append(what)
        app._runtime.connection().store.cancel([what], "enough", 0)

    @app.step
    async def cancels(what: str) -> None:
        cancel(what)

    @app.step
    def cancels_blocking(what: str) -> None:
        cancel(what)

    @app.workflow
    async def awaiting() -> None:
        with contextlib.suppress(BaseException):
            await cancels("awaiting")
        await cancels("too late")

    @app.workflow
    def blocking() -> None:
        cancels_blocking("blocking")
        cancels_blocking("too late")

    async with world(app, url=store_url):
        for workflow in (awaiting, blocking):
            with pytest.raises(RunCancelled, match="enough"):
                await (await workflow.options(id=workflow.name).start()).result()
            assert len(record(app, workflow.name)) == 1
    assert done == ["awaiting", "blocking"]


async def test_a_def_run_stops_before_its_next_step(store_url: str) -> None:
    app, began, go, done = App(), asyncio.Event(), threading.Event(), list[str]()

    @app.step
    def note(what: str) -> str:
        done.append(what)
        loop.call_soon_threadsafe(began.set)
        go.wait(10)
        return what

    @app.workflow
    def two() -> None:
        with contextlib.suppress(BaseException):
            note("one")
        note("two")

    async with world(app, url=store_url):
        loop = asyncio.get_running_loop()
        handle = await two.options(id="a").start()
        await began.wait()
        assert await handle.cancel()
        await until_halted(app, "a")
        go.set()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert names(app, "a") == ["note"]
    assert done == ["one"]


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_a_sleeping_run_is_cancelled_at_once(store_url: str, colour: str) -> None:
    app = App()

    @app.workflow
    async def coroutine() -> None:
        with contextlib.suppress(Exception):
            await run.sleep("1h")

    @app.workflow
    def blocking() -> None:
        run.sleep.sync("1h")

    async with world(app, url=store_url) as w:
        before = w.now
        handle = await (coroutine if colour == "async" else blocking).start()
        await w.advance("1m")
        assert await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert (w.now - before).total_seconds() == 60
        assert info(app, handle.id).state is State.CANCELLED


async def test_a_run_that_waits_for_a_child_is_cancelled_at_once_and_its_children_with_it(store_url: str) -> None:
    app = App()

    @app.workflow
    async def leaf() -> None:
        await run.sleep("1h")

    @app.workflow
    async def middle() -> None:
        await leaf()

    @app.workflow
    async def top() -> None:
        await leaf.start()
        await leaf.options(detached=True, id="detached").start()
        await leaf.options(after="30m", id="later").start()
        await middle()

    async with world(app, url=store_url) as w:
        handle = await top.options(id="t").start()
        await w.advance("1m")
        assert await handle.cancel("stop")
        with pytest.raises(RunCancelled):
            await handle.result()
        await w.drain()
        states = {run_id: info(app, run_id).state for run_id in ("t", "t/0", "detached", "later", "t/3", "t/3/0")}
        assert states == {
            "t": State.CANCELLED,
            "t/0": State.CANCELLED,
            "detached": State.WAITING,
            "later": State.CANCELLED,
            "t/3": State.CANCELLED,
            "t/3/0": State.CANCELLED,
        }
        await app.handle("detached").result()


async def test_cancelling_after_the_last_step_leaves_it_cancelled(store_url: str) -> None:
    app, began, go = App(), asyncio.Event(), asyncio.Event()

    @app.step
    async def note() -> None: ...

    @app.workflow
    async def one() -> str:
        await note()
        began.set()
        await go.wait()
        return "done"

    async with world(app, url=store_url):
        handle = await one.start()
        await began.wait()
        assert await handle.cancel("late")
        await until_halted(app, handle.id)
        go.set()
        with pytest.raises(RunCancelled, match="late"):
            await handle.result()
        assert info(app, handle.id).output is None


@pytest.mark.parametrize("reason", ["because", None])
async def test_a_run_that_cancels_itself_in_its_last_step_ends_cancelled_for_that_reason(
    store_url: str, reason: str | None
) -> None:
    app = App()

    @app.step
    def cancel_myself() -> bool:
        return app.handle(run.id).cancel.sync(reason)

    @app.workflow
    def one() -> str:
        cancel_myself()
        return "done"

    async with world(app, url=store_url):
        handle = await one.start()
        with pytest.raises(RunCancelled) as caught:
            await handle.result()
        assert caught.value.reason == info(app, handle.id).reason == reason


async def test_finished_and_unknown_runs_are_not_affected(store_url: str) -> None:
    app = App()

    @app.workflow
    async def one() -> str:
        return "done"

    @app.workflow
    async def fails() -> str:
        raise ValueError

    async with world(app, url=store_url):
        for workflow, state in ((one, State.SUCCEEDED), (fails, State.FAILED)):
            handle = await workflow.start()
            with contextlib.suppress(ValueError):
                await handle.result()
            assert not await handle.cancel()
            assert not await handle.terminate()
            assert info(app, handle.id).state is state
        assert not await app.handle("nobody").cancel()
        assert not await app.handle("nobody").terminate()
        assert await one() == "done"


def _family() -> tuple[App, AsyncFn[[], str]]:
    app = App()

    @app.workflow
    async def child() -> None:
        await run.sleep("1h")

    @app.workflow
    async def parent() -> str:
        try:
            await child()
        except RunCancelled as error:
            return f"child: {error.reason}"
        return "?"

    return app, parent


async def test_a_cancelled_parent_that_handles_its_childs_cancellation_goes_on(store_url: str) -> None:
    app, parent = _family()
    async with world(app, url=store_url) as w:
        handle = await parent.options(id="p").start()
        await w.advance("1m")
        assert await app.handle("p/0").cancel("only you")
        assert await handle.result() == "child: only you"


async def test_an_impatient_worker_does_not_cut_off_the_end_of_a_run(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that holds on when it was stopped is cancelled after a while; while its end is being recorded it must not be."""
    monkeypatch.setattr(Engine, "patience", 0)
    app, parent = _family()
    async with world(app, url=store_url) as w:
        for number in range(5):
            handle = await parent.options(id=f"p{number}").start()
            await w.drain()
            assert await app.handle(f"p{number}/0").cancel("only you")
            async with asyncio.timeout(20):
                assert await handle.result() == "child: only you"


async def test_terminating_ends_the_record_at_once_and_fences_the_worker_out(store_url: str) -> None:
    app, began, go = App(), asyncio.Event(), asyncio.Event()

    @app.step
    async def hang() -> str:
        began.set()
        await go.wait()
        return "late"

    @app.workflow
    async def child() -> None:
        await run.sleep("1h")

    @app.workflow
    async def one() -> str:
        await child.start()
        return await hang()

    async with world(app, url=store_url) as w:
        handle = await one.options(id="a").start()
        await began.wait()
        assert await handle.terminate("now")
        assert (info(app, "a").state, info(app, "a/0").state) == (State.CANCELLED, State.CANCELLED)
        with pytest.raises(RunCancelled, match="now"):
            await handle.result()
        go.set()
        await w.drain()
        assert [step.name for step in record(app, "a") if step.kind == "step"] == []


async def test_a_cancel_that_its_worker_did_not_live_to_see_is_carried_out(store_url: str) -> None:
    app, began = App(), asyncio.Event()

    @app.step
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    @app.workflow
    async def one() -> None:
        await hang()

    async with world(app, url=store_url) as w:
        handle = await one.start()
        await began.wait()
        assert await handle.cancel("before the crash")
        await another_process(w)
        with pytest.raises(RunCancelled, match="before the crash"):
            await handle.result()


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_an_interruptible_step_is_cut_off_and_not_recorded(store_url: str, colour: str) -> None:
    app, began, seen = App(), asyncio.Event(), list[str]()

    @app.step(interruptible=True, retry=5)
    async def long() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cut off")
            raise ConnectionError("while cleaning up") from None

    @app.workflow
    async def coroutine() -> None:
        await asyncio.gather(long(), run.sleep("1h"))

    @app.workflow
    def blocking() -> None:
        long.sync()

    async with world(app, url=store_url):
        handle = await (coroutine if colour == "async" else blocking).options(id="a").start()
        await began.wait()
        assert await handle.cancel("enough")
        with pytest.raises(RunCancelled, match="enough"):
            await handle.result()
        assert "long" not in names(app, "a")
    assert seen == ["cut off"]


async def test_an_interruptible_step_does_not_hold_up_a_stop_and_is_done_again(store_url: str) -> None:
    app, began, tried = App(), asyncio.Event(), list[int]()

    @app.step(interruptible=True)
    async def long() -> str:
        tried.append(1)
        began.set()
        if len(tried) == 1:
            await asyncio.Event().wait()
        return "done"

    @app.workflow
    async def one() -> str:
        return await long()

    async with world(app, url=store_url) as w:
        handle = await one.start()
        await began.wait()
        await restart(w)
        assert await handle.result() == "done"
        assert info(app, handle.id).recoveries == 0
    assert tried == [1, 1]


async def test_a_step_at_top_level_runs_on_and_its_record_is_cancelled(store_url: str) -> None:
    app, began, go, done = App(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.step
    async def alone() -> str:
        began.set()
        await go.wait()
        done.set()
        return "done"

    async with world(app, url=store_url):
        handle = await alone.start()
        await began.wait()
        assert await handle.cancel("not needed")
        with pytest.raises(RunCancelled, match="not needed"):
            await handle.result()
        assert info(app, handle.id).state is State.CANCELLED
        go.set()
        await done.wait()
    assert done.is_set()


async def test_a_cancelled_run_is_not_taken_for_one_that_is_out_of_time(store_url: str) -> None:
    app = App()
    async with world(app, url=store_url):
        with pytest.raises(InvalidInput, match="use another text"):
            await app.handle("any").cancel("timeout")
        with pytest.raises(InvalidInput, match="use another text"):
            await app.runs.cancel("any", reason="timeout")


class _Gates(dict[str, threading.Event]):
    """An event for each run: a run that is cut off before it waits would leave a semaphore open for the next one."""

    def __missing__(self, run_id: str) -> threading.Event:
        return self.setdefault(run_id, threading.Event())


class _Between:
    """Runs whose code stands between two steps, where it asks nothing of the database, and ways to cancel them."""

    def __init__(self) -> None:
        self.app = app = App()
        self._arrived, self._go = _Gates(), _Gates()
        self.late: list[str] = []

        @app.step
        def note(what: str) -> None:
            if what == "two":
                self.late.append(run.id)

        @app.workflow
        async def awaiting() -> None:
            await note.aio("one")
            self._arrived[run.id].set()
            await asyncio.to_thread(self._go[run.id].wait)
            await note.aio("two")

        @app.workflow
        def blocking() -> None:
            note("one")
            self._arrived[run.id].set()
            self._go[run.id].wait()
            note("two")

        @app.workflow
        async def cancels(run_id: str) -> None:
            await app.handle(run_id).cancel()
            self._go[run_id].set()

        @app.workflow
        def cancels_blocking(run_id: str) -> None:
            self._on_a_thread(run_id)

        @app.transaction
        def cancels_inside(_tx: Tx, run_id: str) -> None:
            app.handle(run_id).cancel.sync()

        self.workflows: dict[str, AsyncFn[[], None] | SyncFn[[], None]] = {"async": awaiting, "def": blocking}
        self._ways: dict[str, Callable[[str], Awaitable[object]]] = {
            "handle": lambda run_id: app.handle(run_id).cancel(),
            "filter": lambda run_id: app.runs.cancel(id_prefix=run_id),
            "terminate": lambda run_id: app.handle(run_id).terminate(),
            "workflow": cancels,
            "def workflow": cancels_blocking.aio,
            "transaction": cancels_inside.aio,
            "thread": lambda run_id: asyncio.to_thread(self._on_a_thread, run_id),
        }

    def _on_a_thread(self, run_id: str) -> None:
        self.app.handle(run_id).cancel.sync()
        self._go[run_id].set()

    async def cancel(self, run_id: str, how: str) -> None:
        await asyncio.to_thread(self._arrived[run_id].wait)
        await self._ways[how](run_id)
        if how not in {"workflow", "def workflow", "thread"}:  # these do so themselves, at once
            self._go[run_id].set()


WAYS_TO_CANCEL = ["handle", "filter", "terminate", "workflow", "def workflow", "transaction", "thread"]


@covering
@pytest.mark.parametrize("how", WAYS_TO_CANCEL)
@pytest.mark.parametrize("colour", ["async", "def"])
async def test_in_the_process_that_owns_a_run_no_step_begins_once_cancel_has_returned(
    store_url: str, colour: str, how: str
) -> None:
    between = _Between()
    async with world(between.app, url=store_url) as w:
        for number in range(10):
            handle = await between.workflows[colour].options(id=f"run-{number}").start()
            await between.cancel(handle.id, how)
            with pytest.raises(RunCancelled):
                await handle.result()
        await w.drain()
    assert between.late == []


async def test_a_def_run_that_is_stopped_between_two_steps_undoes_what_it_did(store_url: str) -> None:
    app, arrived, go, done = App(), threading.Event(), threading.Event(), list[str]()

    @app.step
    def note(what: str) -> None:
        done.append(what)

    @app.workflow
    def journey() -> None:
        with run.undo() as undo:
            note("book")
            undo.push(note.bind("cancel the booking"))
            arrived.set()
            go.wait()
            note("pay")

    async with world(app, url=store_url):
        handle = await journey.options(id="a").start()
        await asyncio.to_thread(arrived.wait)
        assert await handle.cancel()
        go.set()
        with pytest.raises(RunCancelled):
            await handle.result()
    assert done == ["book", "cancel the booking"]
