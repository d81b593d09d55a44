# pyright: reportPrivateUsage=false
"""Compensations in one of several branches: in their place in the order of outcomes, and made to their end whatever the other branches do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, run
from mainspring.engine.engine import Engine
from mainspring.engine.replay import watchdog
from mainspring.errors import RunCancelled
from mainspring.testing import world
from tests.engine.lives import info, put, store_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

app = App("sqlite://")
done: list[str] = []
gates: dict[str, asyncio.Event] = {}
"""What a compensation waits for."""
turns: list[int] = []
"""How many turns of the loop a compensation takes: as many as there are entries."""
_LENGTH = 30


@app.step
async def book(what: str) -> str:
    done.append(f"book {what}")
    if what == "nothing":
        raise OSError("there is nothing")
    if what == f"{_LENGTH - 1}" and "refund" in gates:
        gates["refund"].set()
    return what


@app.step
async def refund(what: str) -> None:
    if "refund" in gates:
        await gates["refund"].wait()
    for _ in turns:
        await asyncio.sleep(0)
    done.append(f"refund {what}")


async def race(*racers: Coroutine[Any, Any, str]) -> str:
    tasks = [asyncio.create_task(racer) for racer in racers]
    finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return "+".join(task.result() for task in tasks if task in finished)


async def gather(*members: Coroutine[Any, Any, str]) -> str:
    return "+".join(await asyncio.gather(*members))


async def group(*members: Coroutine[Any, Any, str]) -> str:
    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(member)
    return "all"


WAYS = {"race": race, "gather": gather, "group": group}


@app.workflow
async def failing_racer() -> str:
    async def failing() -> str:
        try:
            async with run.undo() as undo:
                undo.push(refund.bind("flight"))
                await book("nothing")
        except OSError:
            return "undone"
        return "never"

    async def steady() -> str:
        for number in range(_LENGTH):
            await book(str(number))
        return "steady"

    return await race(failing(), steady())


@app.workflow
async def together(way: str) -> str:
    async def booking(what: str) -> str:
        async with run.undo() as undo:
            await book(what)
            undo.push(refund.bind(what))
            await run.sleep("1h")
        return what

    async def napping() -> str:
        await run.sleep("2h")
        return "napped"

    return await WAYS[way](napping(), booking("flight"), booking("hotel"), napping())


@app.workflow
async def cancelled_meanwhile() -> str:
    async def failing() -> None:
        async with run.undo() as undo:
            undo.push(refund.bind("flight"))
            undo.push(refund.bind("hotel"))
            await book("nothing")

    task = asyncio.create_task(failing())
    for number in range(5):
        await book(str(number))
    task.cancel()
    await book(f"{_LENGTH - 1}")
    (found,) = await asyncio.gather(task, return_exceptions=True)
    return type(found).__name__


@app.workflow
async def one_after_the_other() -> list[str]:
    """The second branch begins when the first one has caught its exception, and gone on."""
    lock = asyncio.Lock()

    async def first() -> str:
        async with lock:
            try:
                async with run.undo() as undo:
                    undo.push(refund.bind("flight"))
                    await book("nothing")
            except OSError:
                return await book("bus")
        return "never"

    async def second() -> str:
        async with lock:
            found = await book("hotel")
        await run.sleep("1h")
        return found

    return list(await asyncio.gather(first(), second()))


@pytest.fixture(autouse=True)
def nothing_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done.clear()
    gates.clear()
    turns[:] = range(5)
    monkeypatch.setattr(Engine, "patience", 0.02)


async def test_compensations_begin_after_the_recorded_outcomes_of_other_branches(store_url: str) -> None:
    """They were not made when the process died; now they take no time, and the race ends as it did."""
    async with world(app, url=store_url):
        gates["refund"] = asyncio.Event()
        assert await failing_racer.options(id="live")() == "steady"
        outcomes = [step for step in store_of(app).steps("live") if step.seq is not None and step.name == "book"]
        entered = [step for step in store_of(app).steps("live") if step.kind == "undo"]
        before = sorted([*outcomes, *entered], key=lambda step: step.seq or 0)
        gates.clear()
        turns.clear()
        put(app, failing_racer, "again", before)
        assert await app.handle("again").result() == "steady"


@pytest.mark.parametrize("way", WAYS)
async def test_a_branch_that_a_stop_has_unwound_does_not_cut_off_the_compensations_of_others(
    store_url: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(app, url=store_url) as w:
        handle = await together.options(id="a").start(way)
        await w.advance("1m")
        assert sorted(done) == ["book flight", "book hotel"]
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert sorted(done) == ["book flight", "book hotel", "refund flight", "refund hotel"]
        assert info(app, "a").reason is None
    assert "was unfinished" not in caplog.text  # the stop has ended the code, not a mistake of its author


async def test_code_that_cancels_a_branch_during_its_compensations_waits_for_them(store_url: str) -> None:
    async with world(app, url=store_url):
        gates["refund"] = asyncio.Event()
        assert await cancelled_meanwhile.options(id="a")() == "CancelledError"
        assert [what for what in done if "refund" in what] == ["refund hotel", "refund flight"]


async def test_a_resumed_run_does_not_do_again_what_was_undone_before_it_went_on(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operations of other branches depend on it: they were recorded after it."""
    monkeypatch.setattr(watchdog, "STUCK_SECONDS", 0.2)
    async with world(app, url=store_url) as w:
        handle = await one_after_the_other.options(id="a").start()
        await w.advance("1m")
        before = ["book nothing", "refund flight", "book bus", "book hotel"]
        assert done == before
        await handle.terminate()
        assert await app.runs.resume("a") == {"a": True}
        assert await handle.result() == ["bus", "hotel"]
        assert done == before
