"""A process that dies at any word to the database changes nothing of the outcome, and repeats nothing that was recorded."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mainspring import App, Retry, run
from mainspring.testing import crash
from tests.support.samples import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

app = App("sqlite://")
executed: Counter[str] = Counter()
failures: Counter[str] = Counter()


@app.step
async def note(what: str) -> str:
    executed[what] += 1
    return f"did {what}"


@app.step(retry=Retry(3, first="1m"))
async def stubborn(what: str) -> str:
    executed[what] += 1
    failures[what] += 1
    if failures[what] < 3:
        raise ConnectionError(what)
    return f"did {what} at last"


@app.step
def blocking(what: str) -> str:
    executed[what] += 1
    return f"did {what}"


@app.workflow
async def child(name: str) -> list[str]:
    first = await note(f"{name} one")
    await run.sleep("1h")
    return [first, await note(f"{name} two")]


@app.workflow
def plain_child(name: str) -> list[str]:
    first = blocking(f"{name} one")
    run.sleep.sync("1h")
    return [first, blocking(f"{name} two")]


@app.workflow
async def parent() -> list[object]:
    async def sequence(name: str) -> list[str]:
        one = await note(f"{name} one")
        await run.sleep("10m")
        return [one, await note(f"{name} two")]

    results: list[object] = [await note("first")]
    results += await asyncio.gather(sequence("left"), sequence("right"), note("lone"), blocking.aio("threaded"))
    results.append(await child("called"))
    handle = await child.start("started")
    results.append(await stubborn("stubborn"))
    results.append(await plain_child.aio("plain"))
    results.append(await handle.result())
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(note(f"task {number}")) for number in range(3)]
    results += [task.result() for task in tasks]
    return results


def work(run_id: str) -> Callable[[], Coroutine[Any, Any, list[object]]]:
    async def start_and_wait() -> list[object]:
        handle = await parent.options(id=run_id).start()
        return await handle.result()

    return start_and_wait


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_to_the_store_changes_nothing(
    store_url: str, when: Literal["before", "after"]
) -> None:
    executed.clear()
    failures.clear()
    expected = (await crash(app, work("undisturbed"), at=None, url=store_url)).result
    for at in calls(when, most=500):
        executed.clear()
        failures.clear()
        outcome = await crash(app, work(f"crash-{at}"), at=at, when=when, url=store_url)
        assert outcome.result == expected, at
        assert_at_most_one_repeated(at)
        if not outcome.crashed:
            assert at > 20
            return
    raise AssertionError("the workload never came to its end without a crash")


def assert_at_most_one_repeated(at: int) -> None:
    """Only what was in flight and not yet recorded at the moment of the crash may be executed a second time."""
    for what, times in executed.items():
        assert times <= (4 if what == "stubborn" else 2), (at, what, times)
