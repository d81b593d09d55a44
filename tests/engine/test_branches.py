"""Tasks of a run: numbered in the order of their creation, ended with it, never writing after its end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, RunEvent, run
from mainspring.testing import world
from tests.engine.lives import put, record, store_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine


def numbered(app: App, run_id: str) -> dict[str, str]:
    """The positions of a run's steps, by what they returned."""
    return {str(step.output): step.position for step in record(app, run_id) if step.kind == "step"}


async def test_operations_are_numbered_when_called_and_tasks_when_created(store_url: str) -> None:
    app = App()

    @app.step
    async def note(what: str) -> str:
        await asyncio.sleep(0)
        return what

    async def pair(name: str) -> None:
        await note(f"{name} one")
        await asyncio.gather(note(f"{name} left"), note(f"{name} right"))

    @app.workflow
    async def one() -> None:
        last = note("called first, awaited last")
        await note("first")
        await asyncio.gather(note("left"), note("right"))
        await asyncio.gather(pair("a"), pair("b"))
        async with asyncio.TaskGroup() as group:
            group.create_task(pair("c"))
            await note("inside")
        await asyncio.wait_for(note("waited for"), 30)
        await asyncio.wait_for(pair("d"), 30)
        await last

    async with world(app, url=store_url):
        await one.options(id="a")()
        assert numbered(app, "a") == {
            "called first, awaited last": "0",
            "first": "1",
            "left": "2",
            "right": "3",
            "a one": "t0.0",
            "a left": "t0.1",
            "a right": "t0.2",
            "b one": "t1.0",
            "b left": "t1.1",
            "b right": "t1.2",
            "c one": "t2.0",
            "c left": "t2.1",
            "c right": "t2.2",
            "inside": "4",
            "waited for": "5",
            "d one": "6",
            "d left": "7",
            "d right": "8",
        }


async def test_a_branch_unfinished_at_the_end_is_cancelled_awaited_and_warned_of(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen, began = App(), list[str](), asyncio.Event()

    @app.step
    async def note(what: str) -> str:
        seen.append(what)
        return what

    async def straggler() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            seen.append("cleaning up")
            await asyncio.sleep(0)
            seen.append("cleaned up")

    @app.workflow
    async def leaves() -> str:
        task = asyncio.create_task(straggler())
        await began.wait()
        return f"done, {'' if task.done() else 'not '}waiting"

    async with world(app, url=store_url):
        with caplog.at_level(logging.WARNING, "mainspring"):
            assert await leaves.options(id="a")() == "done, not waiting"
        assert seen == ["cleaning up", "cleaned up"]
        (warning,) = [message for message in caplog.messages if "unfinished" in message]
        line = leaves.__wrapped__.__code__.co_firstlineno + 2  # type: ignore[attr-defined]
        assert f"run a of leaves ended while a task created at {__file__}:{line} was unfinished" in warning
        assert "Await what you start." in warning


@pytest.mark.parametrize("fails", [False, True])
async def test_a_step_in_a_task_of_its_own_is_cancelled_and_awaited_at_the_end_too(
    store_url: str, caplog: pytest.LogCaptureFixture, *, fails: bool
) -> None:
    app, seen, in_step = App(), list[str](), asyncio.Event()

    @app.step
    async def slow() -> None:
        try:
            in_step.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    @app.step
    async def refused() -> None:
        await in_step.wait()
        raise ValueError("early")

    @app.workflow
    async def leaves() -> str:
        if fails:
            await asyncio.gather(slow(), refused())
        task = asyncio.create_task(slow())
        await in_step.wait()
        return f"early, {'' if task.done() else 'not '}done"

    def ended(event: RunEvent) -> None:
        seen.append(event.name)

    app.on("run.succeeded", ended)
    app.on("run.failed", ended)
    async with world(app, url=store_url) as w:
        with caplog.at_level(logging.WARNING):
            outcome = await asyncio.gather(leaves(), return_exceptions=True)
        assert str(outcome[0]) == ("early" if fails else "early, not done")
        await w.drain()
    assert seen == ["cleaned up", "run.failed" if fails else "run.succeeded"]
    (warning,) = [message for message in caplog.messages if "unfinished" in message]
    assert f"ended while a task created at {__file__}" in warning
    assert not [message for message in caplog.messages if "never retrieved" in message]


@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_of_a_run_is_written_after_its_end(store_url: str, *, fails: bool) -> None:
    app, in_step, go = App(), asyncio.Event(), asyncio.Event()

    @app.step
    async def slow() -> str:
        in_step.set()
        await go.wait()
        return "late"

    async def stubborn() -> None:
        try:
            await slow()
        except asyncio.CancelledError:
            await slow()

    @app.workflow
    async def leaves() -> str:
        run_forever.append(asyncio.create_task(stubborn()))
        await in_step.wait()
        if fails:
            raise ValueError("early")
        return "early"

    run_forever = list[asyncio.Task[None]]()
    async with world(app, url=store_url) as w:
        handle = await leaves.options(id="a").start()
        outcome = await asyncio.gather(handle.result(), return_exceptions=True)
        assert str(outcome[0]) == "early"
        go.set()
        await w.drain()
        assert record(app, "a") == []
        assert all(task.done() for task in run_forever)


async def test_the_unfinished_branches_of_a_run_that_is_replayed_end_the_same_way(store_url: str) -> None:
    app, executed = App(), list[str]()

    @app.step
    async def note(what: str) -> str:
        executed.append(what)
        return what

    @app.step
    async def never() -> None:
        await asyncio.Event().wait()

    @app.workflow
    async def leaves() -> str:
        task = asyncio.create_task(never())
        found = await note("one")
        assert not task.done()
        return found

    async with world(app, url=store_url):
        assert await leaves.options(id="a")() == "one"
        put(app, leaves, "b", store_of(app).steps("a"))
        assert await app.handle("b").result() == "one"
    assert executed == ["one"]


async def test_a_task_outside_runs_is_left_alone() -> None:
    app = App()

    @app.workflow
    async def one() -> str:
        return "done"

    async def outside() -> str:
        return f"{await one()} {run!r}"

    async with world(app):
        assert await asyncio.create_task(outside()) == "done <the current run>"


async def test_a_step_in_the_clean_up_of_a_forgotten_generator_takes_no_number(store_url: str) -> None:
    app, cleaned = App(), list[str]()

    @app.step
    async def note(what: str) -> str:
        cleaned.append(what)
        return what

    async def numbers() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            await note("clean-up")

    @app.workflow
    async def forgets(*, collect: bool) -> str:
        async for number in numbers():
            assert number == 1
            break
        if collect:
            gc.collect()
            await asyncio.sleep(0)
        return await note("after")

    async with world(app, url=store_url):
        for collect in (False, True):
            handle = await forgets.options(id=f"collect-{collect}").start(collect=collect)
            assert await handle.result() == "after"
            assert numbered(app, handle.id) == {"after": "0"}


async def test_an_operation_abandoned_with_its_loop_goes_without_noise() -> None:
    app, began = App(), asyncio.Event()
    kept: list[Coroutine[Any, Any, None]] = []

    @app.step
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    @app.workflow
    async def one() -> None:
        kept.append(hang())
        contextvars.copy_context().run(kept[0].send, None)
        kept[0].close()  # as the collector does, in a context of its own

    async with world(app):
        await one()
    assert began.is_set()
