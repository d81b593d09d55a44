"""Whatever an outcome sets off has happened before the next one arrives: in a replay as in the life that recorded them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from mainspring import App, run
from mainspring.testing import world
from tests.engine import lives

app = App("sqlite://")
DEPTH = 5


@app.workflow
async def first_of_two() -> list[str]:
    """The loser of a race takes long to be cancelled, because its tasks have tasks. Then, in another branch, something happens."""
    order: list[str] = []
    late = asyncio.ensure_future(_note(order))
    tasks = [asyncio.ensure_future(run.receive("first")), asyncio.ensure_future(_nested(DEPTH))]
    _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    order.append("the race is over")
    await run.receive("after the race")
    await late
    await run.receive("end")
    return order


async def _nested(depth: int) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_nested(depth - 1) if depth else run.receive("never"))


async def _note(order: list[str]) -> None:
    await run.receive("late")
    order.append("late")


@app.workflow
async def polls() -> list[str]:
    """A branch that is never at rest holds up nothing."""
    order: list[str] = []
    late = asyncio.ensure_future(_note(order))
    polling = asyncio.ensure_future(_poll(order))
    order.append(await run.receive("first"))
    await asyncio.gather(late, polling)
    await run.receive("end")
    return order


async def _poll(order: list[str]) -> None:
    while len(order) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def _replayed(function: Any, url: str) -> list[str]:
    """What a run comes to that is replayed at its very end."""
    async with world(app, url=url) as w:
        handle = await function.options(id="r").start()
        for topic in ("first", "late", "after the race"):
            await w.drain()
            await w.app.send("r", topic, topic)
        await w.drain()
        await lives.another_process(w)
        await w.drain()
        await w.app.send("r", "end", "end")
        result: list[str] = await handle.result()
        return result


EXPECTED: dict[str, list[str]] = {
    "first_of_two": ["the race is over", "late"],
    "polls": ["first", "late"],
}


@pytest.mark.parametrize("function", [first_of_two, polls])
async def test_a_replay_hands_outcomes_over_as_slowly_as_the_code_takes_them(store_url: str, function: Any) -> None:
    assert await _replayed(function, store_url) == EXPECTED[function.name]


@pytest.mark.parametrize("function", [first_of_two, polls])
def test_the_same_on_a_loop_that_does_not_tell_what_it_has_still_to_call(sqlite_url: str, function: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_replayed(function, sqlite_url)) == EXPECTED[function.name]


async def test_the_same_on_a_loop_that_has_much_else_to_call(sqlite_url: str) -> None:
    going: list[bool] = [True]

    def again() -> None:
        if going:
            asyncio.get_running_loop().call_soon(again)

    again()
    try:
        assert await _replayed(first_of_two, sqlite_url) == EXPECTED["first_of_two"]
    finally:
        going.clear()
