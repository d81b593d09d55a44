"""An attempt of a step takes no longer than its timeout: a coroutine is cancelled, a thread's late result is ignored."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mainspring import App, Blueprint, Retry
from mainspring.errors import InvalidInput, StepTimedOut
from mainspring.testing import world
from tests.engine.lives import put, record, store_of


async def test_a_coroutine_is_cancelled_and_the_timeout_is_its_recorded_outcome(store_url: str) -> None:
    app, seen = App(), list[str]()

    @app.step(timeout=0.02)
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "?"

    @app.workflow
    async def one() -> str:
        try:
            return await slow()
        except TimeoutError as error:
            return f"{type(error).__name__}: {error}"

    async with world(app, url=store_url):
        found = await one.options(id="a")()
        assert found == "StepTimedOut: step 'slow' took longer than its timeout of 0.02 s (attempt 1)"
        put(app, one, "b", store_of(app).steps("a"))
        assert await app.handle("b").result() == found
    assert seen == ["cancelled"]


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_the_late_result_of_a_thread_is_ignored(store_url: str, colour: str) -> None:
    app, go, late = App(), threading.Event(), threading.Event()

    @app.step(timeout=0.02)
    def slow() -> str:
        go.wait(10)
        late.set()
        return "late"

    @app.workflow
    def blocking() -> str:
        try:
            return slow()
        except StepTimedOut:
            return "in time"

    @app.workflow
    async def coroutine() -> str:
        try:
            return await slow.aio()
        except StepTimedOut:
            return "in time"

    async with world(app, url=store_url):
        handle = await (coroutine if colour == "async" else blocking).options(id="a").start()
        assert await handle.result() == "in time"
        go.set()
        await asyncio.to_thread(late.wait, 10)
        (step,) = record(app, "a")
        assert step.output is None
        assert step.error is not None
        assert step.error["type"].endswith("StepTimedOut")


async def test_each_attempt_has_the_timeout_for_itself(store_url: str) -> None:
    app, tried = App(), list[int]()

    @app.step(timeout=0.02, retry=Retry(3, first="1h"))
    async def slow() -> str:
        tried.append(1)
        if len(tried) < 3:
            await asyncio.Event().wait()
        return "at last"

    @app.workflow
    async def one() -> str:
        return await slow()

    async with world(app, url=store_url):
        assert await one.options(id="a")() == "at last"
        assert [step.attempts for step in record(app, "a")] == [3]


async def test_the_timeout_of_one_call_can_be_set_and_unset() -> None:
    app = App()

    @app.step(timeout=0.02)
    async def nap(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "rested"

    @app.workflow
    async def one() -> list[str]:
        rested = [await nap.options(timeout=None)(0.04), await nap.options(timeout=30)(0.04)]
        try:
            await nap.options(timeout=30).options(timeout=0.01)(30)
        except StepTimedOut:
            rested.append("cut off")
        return rested

    async with world(app):
        assert await one() == ["rested", "rested", "cut off"]


async def test_outside_runs_the_timeout_does_nothing() -> None:
    app = App()

    @app.step(timeout=0.001)
    async def nap() -> str:
        await asyncio.sleep(0.01)
        return "rested"

    assert await nap() == "rested"


async def test_a_timeout_error_of_the_steps_own_stays_what_it_is() -> None:
    app = App()

    @app.step(timeout=30)
    async def own() -> None:
        raise TimeoutError("mine")

    @app.workflow
    async def one() -> str:
        try:
            await own()
        except TimeoutError as error:
            return f"{type(error).__name__}: {error}"
        return "?"

    async with world(app):
        assert await one() == "TimeoutError: mine"


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "soon"])
def test_a_timeout_that_makes_no_sense_is_refused(wrong: float) -> None:
    app = App()
    with pytest.raises(InvalidInput):

        @app.step(timeout=wrong)
        def step() -> None: ...

    @app.step
    def fine() -> None: ...

    with pytest.raises(InvalidInput):
        fine.options(timeout=wrong)


@pytest.mark.parametrize("how", ["returns", "raises", "interruptible"])
async def test_a_step_that_swallows_its_cancellation_has_timed_out_all_the_same(store_url: str, how: str) -> None:
    app = App()

    @app.step(timeout=0.02, retry=Retry(2, first=0.01, on=(StepTimedOut,)), interruptible=how == "interruptible")
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "raises":
                raise ValueError("in the way out") from None
        return "suppressed"

    @app.workflow
    async def one() -> str:
        return await stubborn()

    @app.workflow
    def other() -> str:
        return stubborn.sync()

    async with world(app, url=store_url):
        for workflow in (one, other):
            with pytest.raises(StepTimedOut, match="attempt 2"):
                await (await workflow.options(id=workflow.name).start()).result()
            (step,) = store_of(app).steps(workflow.name)
            assert step.attempts == 2


@pytest.mark.parametrize("name", ["step", "blueprint"])
def test_a_def_step_cannot_be_interruptible(name: str) -> None:
    scope = App() if name == "step" else Blueprint("print")
    with pytest.raises(
        InvalidInput, match=r"'.*plain' is a `def` step, .* write it as `async def`, or leave out interruptible"
    ):

        @scope.step(interruptible=True)
        def plain() -> None: ...
