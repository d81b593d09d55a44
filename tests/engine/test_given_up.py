"""What the code of a run has given up does not wake it any more, also if the worker died before it could record that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring import App, Retry, run
from mainspring.store.ops import FAR
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


@pytest.mark.parametrize("function", [race, unbegun])
async def test_a_branch_that_was_given_up_is_closed_by_the_next_worker(store_url: str, function: Any) -> None:
    async with world(app, url=store_url) as w:
        handle = await function.options(id="r").start()
        await w.advance(10)
        await w.app.vanish()
        lost = lives.execute(store_url, "DELETE FROM steps WHERE kind = 'receive'")
        opened = lives.execute(
            store_url, "UPDATE steps SET completed = NULL WHERE seq IS NULL AND completed IS NOT NULL"
        )
        assert (lost, opened) == (1, 2 if function is race else 1), (
            "as if it had died right after the winner was recorded"
        )
        lives.execute(store_url, "UPDATE runs SET state = 'running'")
        await lives.enter_again(w)
        await w.settle()
        row = lives.store_of(w.app).run("r")
        assert row is not None
        assert (row.state, row.due) == ("waiting", FAR)
        assert [step.kind for step in lives.store_of(w.app).steps("r") if step.completed is None] == ["receive"]
        await w.app.send("r", "word", "yes")
        assert await handle.result() == "yes"


async def test_a_step_that_is_given_up_in_a_later_attempt_is_closed(store_url: str) -> None:
    trying.clear()
    async with world(app, url=store_url) as w:
        handle = await cut_off.options(id="r").start()
        await lives.until(lambda: trying)
        await w.app.send("r", "stop", None)
        await w.settle()
        assert [step.name for step in lives.store_of(w.app).steps("r") if step.completed is None] == ["word"]
        await w.app.send("r", "word", "yes")
        assert await handle.result() == "yes"
