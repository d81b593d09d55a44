"""Outcomes that a retry or a resume keeps although it forgets earlier ones: what woke the branch that asked for them is to happen again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring import App, Retry, run
from mainspring.engine.replay.history import Delivery
from mainspring.testing import world
from tests.engine.lives import another_process

TWICE = Retry(2, first=1)


class Plant:
    """An app whose first check fails, with all that it executed."""

    def __init__(self) -> None:
        self.app = app = App()
        self.executed: list[str] = []
        self.failures = 1

        @app.step
        async def check() -> str:
            self.executed.append("check")
            if self.failures:
                self.failures -= 1
                raise ConnectionError("no answer")
            return "checked"

        @app.step
        async def note(what: str) -> str:
            self.executed.append(what)
            return what

        self.check, self.note = check, note


async def test_a_branch_that_the_forgotten_one_had_woken_is_woken_again_and_keeps_its_outcome(store_url: str) -> None:
    plant = Plant()

    @plant.app.workflow(retry=TWICE)
    async def work() -> list[Any]:
        tried = asyncio.Event()

        async def checking() -> str:
            try:
                return await plant.check()
            finally:
                tried.set()

        async def following() -> list[str]:
            await tried.wait()
            return [await plant.note("a"), await plant.note("b")]

        both = await asyncio.gather(checking(), following(), return_exceptions=True)
        for found in both:
            if isinstance(found, Exception):
                raise found
        await run.receive("go")
        return list(both)

    async with world(plant.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        await another_process(w)  # the order in which the second attempt had them is that of its replay
        await plant.app.send("r", "go", None)
        assert await handle.result() == ["checked", ["a", "b"]]
    assert plant.executed == ["check", "a", "b", "check"]


@pytest.mark.parametrize("how", ["gather", "group", "tidy", "cause"])
async def test_what_an_exception_that_ended_the_attempt_had_cancelled_is_asked_for_again(
    store_url: str, how: str
) -> None:
    plant = Plant()

    @plant.app.workflow(retry=TWICE)
    async def work() -> str:
        waits = asyncio.Event()

        async def beside() -> None:
            waits.set()
            try:
                await run.sleep("1d" if plant.failures else 0)
            finally:
                await plant.note("cleared away")

        async def checking() -> str:
            await waits.wait()
            return await plant.check()

        if how == "gather":
            return (await asyncio.gather(beside(), checking()))[1]
        if how == "tidy":
            task = asyncio.create_task(beside())
            try:
                found = await checking()
            except BaseException:
                task.cancel()
                await asyncio.wait({task})
                raise
            await task
            return found
        if how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(beside())
                checked = group.create_task(checking())
            return checked.result()
        try:
            return await plant.check()
        except ConnectionError as error:
            await plant.note("cleared away")
            raise ValueError("no check") from error

    async with world(plant.app, url=store_url) as w:
        handle = await work.start()
        await w.advance("1m")
        assert await handle.result() == "checked"


async def test_an_outcome_that_no_branch_asks_for_any_more_is_passed_over(store_url: str) -> None:
    plant = Plant()

    @plant.app.workflow(retry=TWICE)
    async def work() -> list[str]:
        failed = asyncio.Event()

        async def reporting() -> None:
            await failed.wait()
            await plant.note("reported")

        report = asyncio.create_task(reporting())
        try:
            found = await plant.check()
        except ConnectionError:
            failed.set()
            await report
            raise
        report.cancel()
        return [found, await plant.note("a")]

    async with world(plant.app, url=store_url):
        assert await work() == ["checked", "a"]
    assert plant.executed == ["check", "reported", "check", "a"]


@pytest.mark.parametrize("late", [False, True])
async def test_a_kept_outcome_comes_before_later_ones_once_it_is_asked_for(late: bool) -> None:
    """`late`: as when it happened. Else as in a replay, where all that does not depend on the kept outcome is asked for at once."""
    delivery = Delivery(asyncio.get_running_loop(), 4 if late else 6, {0, 3}, range(1, 4))
    delivered: list[int] = []

    async def ask(seq: int, *then: int) -> None:
        turn = delivery.turn(seq, alone=False, is_busy=lambda: False)
        assert turn is not None
        await turn
        delivered.append(seq)
        for each in then:
            await ask(each)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask(2))
        if late:
            held = delivery.frontier()
            assert held is not None
            await held
        group.create_task(ask(4, 1))
        group.create_task(ask(5))
    assert delivered == [2, 4, 1, 5]
    assert not delivery.replaying


async def test_a_resumed_run_wakes_the_branch_again_that_an_undone_block_had_woken(store_url: str) -> None:
    plant = Plant()

    @plant.app.workflow
    async def work() -> list[Any]:
        inside = asyncio.Event()

        async def undoable() -> str:
            async with run.undo() as undo:
                found = await plant.note("a")
                undo.push(plant.note.bind("not a"))
                inside.set()
                await run.receive("go")
                return found

        async def following() -> str:
            await inside.wait()
            return await plant.note("b")

        return list(await asyncio.gather(undoable(), following()))

    async with world(plant.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.drain()
        await handle.cancel("for now")
        await w.drain()
        assert await plant.app.runs.resume("r") == {"r": True}
        await plant.app.send("r", "go", None)
        assert await handle.result() == ["a", "b"]
    assert plant.executed == ["a", "b", "not a", "a"]


async def test_a_block_that_was_undone_beside_a_failed_branch_is_executed_again_as_a_whole(store_url: str) -> None:
    """What a `finally:` has released stays released, as the step that took it stays recorded; a `run.undo` block is the way to take it again."""
    plant = Plant()

    @plant.app.workflow(retry=TWICE)
    async def work() -> list[Any]:
        waits = asyncio.Event()

        async def beside() -> str:
            async with run.undo() as undo:
                await plant.note("taken")
                undo.push(plant.note.bind("released"))
                waits.set()
                await run.receive("go")
                return await plant.note("used")

        async def checking() -> str:
            await waits.wait()
            return await plant.check()

        async with asyncio.TaskGroup() as group:
            both = group.create_task(beside()), group.create_task(checking())
        return [each.result() for each in both]

    async with world(plant.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        await plant.app.send("r", "go", None)
        assert await handle.result() == ["used", "checked"]
    assert plant.executed == ["taken", "check", "released", "taken", "check", "used"]
