"""While the store is asked to suspend a run, whatever happens to the run is held, and none of it is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from mainspring import App, run
from mainspring.engine.residency.phases import Phase
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
