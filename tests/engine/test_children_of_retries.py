"""What becomes of the children of a run that is retried: those that its code asks for again are continued, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import App, Retry, State, run
from mainspring.errors import RunCancelled
from mainspring.testing import world
from tests.engine.lives import another_process, info

TWICE = Retry(2, first=1)


class Shop:
    """An app with a child that fails as often as it is told to, and all that was executed."""

    def __init__(self) -> None:
        self.app = app = App()
        self.executed: list[Any] = []
        self.failures = 1

        @app.step
        async def note(what: Any) -> Any:
            self.executed.append(what)
            return what

        @app.workflow
        async def child(what: Any) -> Any:
            await note(what)
            if self.failures:
                self.failures -= 1
                raise ConnectionError("no answer")
            return what

        self.note, self.child = note, child

    async def children(self) -> list[str]:
        return sorted(each.id for each in await self.app.runs.list(workflow="child"))


async def test_a_run_that_is_cancelled_between_two_attempts_is_cancelled_for_the_run_that_awaits_it(
    store_url: str,
) -> None:
    app = App()

    @app.workflow(retry=Retry(2, first="1h"))
    async def child() -> None:
        raise ValueError("the first attempt")

    @app.workflow
    async def work() -> str:
        handle = await child.start()
        await run.sleep("1m")
        await handle.cancel("enough")
        try:
            await handle.result()
        except RunCancelled as error:
            return str(error)
        return "?"

    async with world(app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("2m")
        assert await handle.result() == "run 'r/0' was cancelled: enough"
        with pytest.raises(RunCancelled):
            await app.handle("r/0").result()


@pytest.mark.parametrize("how", ["call", "start"])
async def test_a_child_that_failed_is_continued_from_what_it_recorded(store_url: str, how: str) -> None:
    shop = Shop()

    @shop.app.workflow(retry=TWICE)
    async def work() -> Any:
        if how == "call":
            return await shop.child("a")
        return await (await shop.child.start("a")).result()

    async with world(shop.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        assert await handle.result() == "a"
        assert await shop.children() == ["r/0"]
    assert shop.executed == ["a"]


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_a_child_that_is_called_with_another_input_is_another_child(store_url: str, colour: str) -> None:
    shop = Shop()
    shop.failures = 2

    @shop.app.workflow(name="async", retry=Retry(4, first=1))
    async def work() -> Any:
        return await shop.child({"attempt": run.attempt})

    @shop.app.workflow(name="def", retry=Retry(4, first=1))
    def work_blocking() -> Any:
        return shop.child.sync({"attempt": run.attempt})

    async with world(shop.app, url=store_url) as w:
        handle = await (work if colour == "async" else work_blocking).options(id="r").start()
        await w.advance("1m")
        assert await handle.result() == {"attempt": 3}
        assert len(await shop.children()) == 3
        await another_process(w)
    assert shop.executed == [{"attempt": 1}, {"attempt": 2}, {"attempt": 3}]


async def test_the_child_that_failed_last_is_the_one_that_is_continued(store_url: str) -> None:
    shop = Shop()
    shop.failures = 3

    @shop.app.workflow(retry=Retry(4, first=1))
    async def work() -> Any:
        return await shop.child(min(run.attempt, 2))

    async with world(shop.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        assert await handle.result() == 2
        assert len(await shop.children()) == 2
    assert shop.executed == [1, 2]


async def test_a_child_that_the_code_does_not_call_again_stays_failed(store_url: str) -> None:
    shop = Shop()

    @shop.app.workflow(retry=TWICE)
    async def work() -> Any:
        return await (shop.child("a") if run.attempt == 1 else shop.note("instead"))

    async with world(shop.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        assert await handle.result() == "instead"
        assert info(shop.app, "r/0").state is State.FAILED
    assert shop.executed == ["a", "instead"]


async def test_a_child_of_a_block_that_was_undone_is_not_continued_beside_the_one_that_takes_its_place(
    store_url: str,
) -> None:
    shop = Shop()

    @shop.app.workflow(retry=TWICE)
    async def work() -> Any:
        async with run.undo() as undo:
            handle = await shop.child.start("a")
            undo.push(shop.note.bind("undone"))
            return await handle.result()

    async with world(shop.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        assert await handle.result() == "a"
        states = sorted(info(shop.app, each).state for each in await shop.children())
        assert states == [State.FAILED, State.SUCCEEDED]
    assert shop.executed == ["a", "undone", "a"]


async def test_a_failed_child_is_continued_once_also_if_the_worker_dies_then(store_url: str) -> None:
    shop = Shop()

    @shop.app.workflow
    async def patient(what: str) -> str:
        await shop.note(what)
        if run.attempt == 1 and shop.failures:
            shop.failures -= 1
            raise ConnectionError("no answer")
        await run.receive("go")
        return what

    @shop.app.workflow(retry=TWICE)
    async def work() -> Any:
        return await patient("a")

    async with world(shop.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        await another_process(w)
        await shop.app.send("r/0", "go", None)
        assert await handle.result() == "a"
    assert shop.executed == ["a"]


@pytest.mark.parametrize("how", ["start", "start_many", "in a step"])
async def test_a_resumed_run_does_not_continue_a_child_beside_the_one_that_takes_its_place(
    store_url: str, how: str
) -> None:
    shop = Shop()

    @shop.app.workflow
    async def patient() -> str:
        await run.receive("go")
        await shop.note("patient")
        return "done"

    @shop.app.step
    async def start_in_step() -> str:
        return (await patient.start()).id

    @shop.app.workflow
    async def work() -> Any:
        async with run.undo() as undo:
            undo.push(shop.note.bind("undone"))
            if how == "start":
                handle = await patient.start()
            elif how == "start_many":
                (handle,) = await shop.app.start_many([patient.bind()])
            else:
                handle = shop.app.handle(await start_in_step())
            return await handle.result()

    async with world(shop.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        await handle.cancel()
        await w.advance("1m")
        assert await shop.app.runs.resume("r") == {"r": True}
        await w.advance("1m")
        found = {each.id: each.state for each in await shop.app.runs.list(workflow="patient")}
        assert sorted(found.values()) == [State.CANCELLED, State.WAITING]
        (waiting,) = (each for each, state in found.items() if state is State.WAITING)
        await shop.app.send(waiting, "go", None)
        assert await handle.result() == "done"
    assert shop.executed == ["undone", "patient"]
