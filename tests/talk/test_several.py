"""Waiting for several runs: all results, or whichever ends first; recorded inside runs."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from mainspring import App, run
from mainspring.errors import InvalidInput, NotFound
from mainspring.testing import crash, world
from tests.support.samples import calls

app = App("sqlite://")


@app.workflow
async def nap(seconds: float, *, fail: bool = False) -> float:
    await run.sleep(seconds)
    if fail:
        raise OSError(f"failed after {seconds:g}")
    return seconds


@app.workflow
async def all_of(*lengths: float) -> list[Any]:
    handles = [await nap.start(length) for length in lengths]
    got = await app.gather(*handles)
    return [got, run.now().isoformat()]


@app.workflow
def all_blocking(*lengths: float) -> list[Any]:
    handles = [nap.start.sync(length) for length in lengths]
    return app.gather.sync(*handles)


@app.workflow
async def first_of(*lengths: float) -> list[Any]:
    handles = [await nap.start(length) for length in lengths]
    winner = await app.first(*handles)
    return [await winner.result(), run.now().minute]


@app.workflow
def first_blocking(*lengths: float) -> float:
    handles = [nap.start.sync(length) for length in lengths]
    winner = app.first.sync(*handles)
    return winner.result.sync()


@app.workflow
async def one_fails() -> list[Any]:
    handles = [await nap.start(60), await nap.start(10, fail=True), await nap.start(5)]
    try:
        await app.gather(*handles)
    except OSError as error:
        return [str(error), run.now().minute, await app.gather(handles[0], handles[2])]
    return []


async def test_all_results_come_in_the_order_of_the_handles(store_url: str) -> None:
    async with world(app, at="2026-01-01T00:00Z", url=store_url):
        got, when = await all_of(300, 60, 120)
        assert got == [300, 60, 120]
        assert when.startswith("2026-01-01T00:05:00")
        assert await all_blocking.aio(300, 60) == [300, 60]
        assert await app.gather(*[await nap.start(length) for length in (2, 1)]) == [2, 1]
        assert await app.gather() == []


async def test_the_first_to_end_is_known(store_url: str) -> None:
    async with world(app, at="2026-01-01T00:00Z", url=store_url):
        assert await first_of(300, 60, 120) == [60, 1]
        assert await first_blocking.aio(300, 60) == 60
        slow, quick = await nap.start(60), await nap.start(1, fail=True)
        assert await app.first(slow, quick) is quick
        with pytest.raises(InvalidInput):
            await app.first()
        with pytest.raises(NotFound):
            await app.first(app.handle("nobody"))


async def test_a_failure_is_raised_at_once_and_the_others_go_on(store_url: str) -> None:
    async with world(app, at="2026-01-01T00:00Z", url=store_url):
        assert await one_fails() == ["failed after 10", 0, [60, 5]]


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_changes_nothing(store_url: str, when: Literal["before", "after"]) -> None:
    for at in calls(when):

        async def work(at: int = at) -> Any:
            return await asyncio.gather(
                all_blocking.options(id=f"a{at}").aio(2, 1),
                first_of.options(id=f"b{at}")(30, 20),
                one_fails.options(id=f"c{at}")(),
            )

        outcome = await crash(app, work, at=at, when=when, url=store_url)
        got, (fastest, _), (_, _, others) = outcome.result
        assert (got, fastest, others) == ([2, 1], 20, [60, 5])
        if not outcome.crashed:
            assert at > 10
            return
    raise AssertionError("it never came to its end without a crash")
