"""While the store is asked to suspend a run, whatever happens to the run is held, and none of it is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Settings, run
from mainspring.engine.residency.phases import Phase
from mainspring.model.states import State
from mainspring.store.writes import Suspend
from mainspring.testing import world
from tests.engine import lives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.writes import Op

app = App("sqlite://")
gates: list[asyncio.Event] = []


@app.workflow
async def gives_one_up() -> str:
    """Two branches wait; the body gives one of them up at a time of its own."""
    word = asyncio.ensure_future(_wait_for_word())
    nap = asyncio.ensure_future(_sleep())
    await gates[-1].wait()
    word.cancel()
    await nap
    return "awake"


async def _wait_for_word() -> Any:
    return await run.receive("word")


async def _sleep() -> None:
    await run.sleep("1h")


async def test_a_run_is_not_suspended_twice_at_once(store_url: str) -> None:
    """A second request, while the first has no answer, would drop what is held for the first: here the end of the sleep."""
    gates.append(asyncio.Event())
    asked, answer = threading.Event(), threading.Event()

    def hold(ops: Sequence[Op]) -> None:
        if any(isinstance(op, Suspend) for op in ops):
            asked.set()
            answer.wait(30)

    async with world(app, url=store_url) as w:
        lives.before_commits(w.app, hold)
        handle = await gives_one_up.options(id="r").start()
        await lives.until(asked.is_set, pause=0.001)
        ex = lives.engine_of(w.app).executions["r"]
        assert ex.phase is Phase.SUSPENDING
        gates[-1].set()
        await lives.until(lambda: ex.phase is Phase.RUNNING)
        (sleep,) = ex.waits
        sleep.resolve()  # its time has come
        lives.engine_of(w.app).residency.reconsider(ex)  # something else has happened to the run
        for _ in range(20):
            await asyncio.sleep(0)
        assert ex.held_wakes
        answer.set()
        assert await handle.result(timeout=30) == "awake"


narrow = App("sqlite://", settings=Settings(concurrency=1))


@narrow.step
async def note() -> str:
    await asyncio.sleep(0)
    return "noted"


@narrow.workflow
async def notes_beside_a_sleep() -> None:
    await asyncio.gather(run.sleep("1h"), note())


@narrow.workflow
async def sleeps_twice() -> None:
    await asyncio.gather(run.sleep("1h"), run.sleep("1m"))


@narrow.workflow
async def one_of_many(number: int) -> int:
    return number


@narrow.workflow
async def fans_out(count: int) -> list[int]:
    return await asyncio.gather(*(one_of_many(number) for number in range(count)))


@narrow.workflow
async def starts_and_gathers(count: int) -> list[int]:
    return await narrow.gather(*await narrow.start_many(one_of_many.bind(number) for number in range(count)))


@pytest.mark.parametrize("workflow", [notes_beside_a_sleep, sleeps_twice])
async def test_a_run_gives_its_slot_back_when_its_last_acting_branch_ends(store_url: str, workflow: Any) -> None:
    """It waits for an hour, and a worker with as many slots as such runs would execute nothing else meanwhile."""
    async with world(narrow, url=store_url) as w:
        handle = await workflow.start()
        await w.advance("2m")
        assert (await handle.describe()).state is State.WAITING
        assert await one_of_many(7) == 7
        await w.advance("1h")
        assert await handle.result() is None


@pytest.mark.parametrize("workflow", [fans_out, starts_and_gathers])
async def test_a_run_gives_its_slot_to_its_children_as_often_as_one_of_them_ends(store_url: str, workflow: Any) -> None:
    async with world(narrow, url=store_url):
        handle = await workflow.start(5)
        assert await handle.result() == [0, 1, 2, 3, 4]
