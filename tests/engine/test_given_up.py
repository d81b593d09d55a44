"""What the code of a run has given up does not wake it any more, also if the worker died before it could record that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring import App, Retry, run
from mainspring.testing import world
from tests.engine import lives

app = App("sqlite://")


@app.step(retry=Retry(5, first="1h"))
async def fails() -> None:
    raise OSError("no")


@app.workflow
async def race() -> Any:
    """Three operations, of which the first wins."""
    tasks = [asyncio.ensure_future(work) for work in (run.sleep("1d"), fails(), run.sleep(1))]
    _, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    return await run.receive("word")


@app.workflow
async def unbegun() -> Any:
    """A task that is cancelled, in a replay, before it has had a moment to begin."""
    late = asyncio.ensure_future(_line())
    await run.sleep(1)
    late.cancel()
    return await run.receive("word")


@app.workflow
async def unbegun_operation() -> Any:
    """The same with a task that is one operation."""
    late = asyncio.ensure_future(run.sleep("1d"))
    await run.sleep(1)
    late.cancel()
    return await run.receive("word")


@app.workflow
async def unbegun_group() -> Any:
    """The same with a task that has not created its own tasks yet."""
    late = asyncio.ensure_future(_group())
    await run.sleep(1)
    late.cancel()
    return await run.receive("word")


async def _group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_line())
        group.create_task(_line())


async def _line() -> None:
    await run.sleep("1d")


trying: list[str] = []


@app.step(retry=Retry(3, first=0))
async def hangs() -> None:
    if run.attempt == 1:
        raise OSError("no")
    trying.append(run.id)
    await asyncio.Event().wait()


@app.workflow
async def cut_off() -> Any:
    """A step that is given up in the middle of its second attempt."""
    task = asyncio.ensure_future(hangs())
    await run.receive("stop")
    task.cancel()
    return await run.receive("word")


gates: list[asyncio.Event] = []


@app.workflow
async def held_up() -> Any:
    """A branch that is kept from its operation by something that is not recorded."""
    late = asyncio.ensure_future(_behind_a_gate())
    word = await run.receive("word")
    await late
    return word


@app.workflow
async def held_up_below() -> Any:
    """The same for a branch whose creator is over."""
    late = await asyncio.ensure_future(_creates())
    word = await run.receive("word")
    await late
    return word


async def _creates() -> asyncio.Task[None]:
    return asyncio.ensure_future(_behind_a_gate())


async def _behind_a_gate() -> None:
    await gates[-1].wait()
    await run.sleep("1h")


OPENED = {"race": 2, "unbegun": 1, "unbegun_operation": 1, "unbegun_group": 2}


@pytest.mark.parametrize("function", [race, unbegun, unbegun_operation, unbegun_group])
async def test_a_branch_that_was_given_up_is_closed_by_the_next_worker(store_url: str, function: Any) -> None:
    async with world(app, url=store_url) as w:
        handle = await function.options(id="r").start()
        await w.advance(10)
        await w.app._vanish()
        lost = lives.execute(store_url, "DELETE FROM steps WHERE kind = 'receive'")
        opened = lives.execute(
            store_url, "UPDATE steps SET completed = NULL WHERE seq IS NULL AND completed IS NOT NULL"
        )
        assert (lost, opened) == (1, OPENED[function.name]), "as if it had died right after the winner was recorded"
        lives.execute(store_url, "UPDATE runs SET state = 'running'")
        await lives.enter_again(w)
        await w.drain()
        row = lives.store_of(w.app).run("r")
        assert row is not None
        assert (row.state, row.due) == ("waiting", None)
        assert [step.kind for step in lives.store_of(w.app).steps("r") if step.completed is None] == ["receive"]
        await w.app.send("r", "word", "yes")
        assert await handle.result() == "yes"


async def test_a_step_that_is_given_up_in_a_later_attempt_is_closed(store_url: str) -> None:
    trying.clear()
    async with world(app, url=store_url) as w:
        handle = await cut_off.options(id="r").start()
        await lives.until(lambda: trying)
        await w.app.send("r", "stop", None)
        await w.drain()
        assert [step.name for step in lives.store_of(w.app).steps("r") if step.completed is None] == ["word"]
        await w.app.send("r", "word", "yes")
        assert await handle.result() == "yes"


@pytest.mark.parametrize("function", [held_up, held_up_below])
async def test_a_branch_that_has_yet_to_come_to_its_operation_is_not_given_up(store_url: str, function: Any) -> None:
    """In the replay the rest of the run waits long before this branch asks for what it has recorded as begun."""
    gates.append(asyncio.Event())
    gates[-1].set()
    async with world(app, url=store_url) as w:
        handle = await function.options(id="r").start()
        await w.drain()
        assert {step.kind for step in lives.store_of(w.app).steps("r")} == {"receive", "sleep"}
        gates.append(asyncio.Event())
        await w.app._vanish()
        lives.execute(store_url, "UPDATE runs SET state = 'running'")
        await lives.enter_again(w)
        await lives.until(lambda: "r" in lives.engine_of(w.app).executions)
        await lives.until(lambda: lives.engine_of(w.app).executions["r"].waits)
        for _ in range(50):  # the loop goes round often enough for the run to be suspended
            await asyncio.sleep(0)
        await w.drain()
        gates[-1].set()
        await w.drain()
        await w.app.send("r", "word", "yes")
        await w.advance("2h")
        assert await handle.result(timeout=30) == "yes"
        assert all(step.completed is not None and step.seq is not None for step in lives.store_of(w.app).steps("r"))
