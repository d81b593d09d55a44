"""Workflows that never end begin anew, with a bounded record; changed code keeps old runs on their old path."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from mainspring import App, run
from mainspring.errors import InvalidInput
from mainspring.testing import crash, world
from tests.support.crashing import calls

app = App("sqlite://")
done: list[int] = []


@app.step
async def count(number: int) -> int:
    done.append(number)
    return number


@app.workflow
async def child(number: int) -> int:
    return number


@app.workflow
async def counter(number: int, last: int) -> list[Any]:
    await count(number)
    heard = await run.receive("word", timeout=0)
    await run.set_event("number", number)
    got = await child(number)
    if number < last:
        await run.continue_as(number + 1, last)
    return [number, got, heard, run.id]


@app.workflow
def blocking_counter(number: int, last: int) -> int:
    if number < last:
        count.sync(number)
        run.continue_as.sync(number + 1, last=last)
    return number


@app.workflow
async def inside_undo() -> None:
    async with run.undo():
        await run.continue_as()


@app.workflow
async def wrong_arguments() -> None:
    await run.continue_as(1, 2, 3)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def test_a_run_begins_anew_under_its_id_with_a_bounded_record(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await counter.options(id="a").start(1, 5)
        assert await handle.result() == [5, 5, None, "a"]
        assert done == [1, 2, 3, 4, 5]
        found = await app.runs.get("a")
        assert (found.generation, found.input) == (4, {"number": 5, "last": 5})
        assert len(await app.runs.steps("a")) == 4
        assert await app.get_events("a") == {"number": 5}
        assert len((await app.runs.list(parent="a")).runs) <= 1
        assert await blocking_counter.aio(0, 3) == 3


async def test_messages_that_were_not_received_are_there_afterwards(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await counter.options(id="a", after="1m").start(1, 3)
        for word in ("x", "y", "z"):
            await app.send("a", "word", word)
        assert (await handle.result())[2] == "z"


async def test_what_cannot_begin_anew_is_an_error(store_url: str) -> None:
    async with world(app, url=store_url):
        with pytest.raises(InvalidInput, match=r"inside a run\.undo block"):
            await inside_undo()
        with pytest.raises(InvalidInput):
            await wrong_arguments()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_changes_nothing(store_url: str, when: Literal["before", "after"]) -> None:
    for at in calls(when):
        done.clear()

        async def work(at: int = at) -> Any:
            handle = await counter.options(id=f"a{at}").start(1, 3)
            return await handle.result()

        outcome = await crash(app, work, at=at, when=when, url=store_url)
        assert outcome.result == [3, 3, None, f"a{at}"]
        assert sorted(set(done)) == [1, 2, 3]
        assert len(done) <= 4, "only a step that was under way is executed again"
        if not outcome.crashed:
            assert at > 10
            return
    raise AssertionError("it never came to its end without a crash")
