"""Two colours, one truth: a call in the wrong colour is an error that spells the line to write instead."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest

from mainspring import App, run
from mainspring.errors import WrongColour
from mainspring.testing import world
from tests.engine.lives import names

app = App()


@app.step
async def async_step() -> str:
    return "async step"


@app.step
def def_step() -> str:
    return "def step"


@app.workflow
async def async_flow() -> str:
    return "async workflow"


@app.workflow
def def_flow() -> str:
    return "def workflow"


def plain() -> str:
    return "plain"


ON_A_LOOP: dict[str, tuple[Any, str]] = {
    "async step": (async_step.sync, "await async_step(…)"),
    "async workflow": (async_flow.sync, "await async_flow(…)"),
    "def workflow": (def_flow, "await def_flow.aio(…)"),
    "start": (async_flow.start.sync, "await async_flow.start(…)"),
    "bound start": (async_flow.bind().start.sync, "await async_flow.bind(…).start(…)"),
    "start_many": (lambda: app.start_many.sync([]), "await app.start_many(…)"),
    "result": (app.handle("x").result.sync, "await handle.result(…)"),
    "describe": (app.handle("x").describe.sync, "await handle.describe(…)"),
    "cancel": (app.handle("x").cancel.sync, "await handle.cancel(…)"),
    "terminate": (app.handle("x").terminate.sync, "await handle.terminate(…)"),
    "with app": (app.__enter__, "async with app:"),
}
IN_AN_ASYNC_RUN = ON_A_LOOP | {
    "def step": (def_step, "await def_step.aio(…)"),
    "sleep": (lambda: run.sleep.sync(1), "await run.sleep(…)"),
    "sleep_until": (lambda: run.sleep_until.sync(1), "await run.sleep_until(…)"),
    "ad hoc step": (lambda: run.step.sync("name", plain), "await run.step(…)"),
}
IN_A_DEF_RUN: dict[str, tuple[Any, str]] = {
    "async step": (async_step, "async_step.sync(…)"),
    "async workflow": (async_flow, "async_flow.sync(…)"),
    "def step": (def_step.aio, "def_step(…)"),
    "def workflow": (def_flow.aio, "def_flow(…)"),
    "start": (async_flow.start, "async_flow.start.sync(…)"),
    "bound start": (async_flow.bind().start, "async_flow.bind(…).start.sync(…)"),
    "start_many": (lambda: app.start_many([]), "app.start_many.sync(…)"),
    "result": (app.handle("x").result, "handle.result.sync(…)"),
    "describe": (app.handle("x").describe, "handle.describe.sync(…)"),
    "cancel": (app.handle("x").cancel, "handle.cancel.sync(…)"),
    "sleep": (lambda: run.sleep(1), "run.sleep.sync(…)"),
    "sleep_until": (lambda: run.sleep_until(1), "run.sleep_until.sync(…)"),
    "ad hoc step": (lambda: run.step("name", plain), "run.step.sync(…)"),
}


def complaint(call: Any) -> str:
    try:
        call()
    except WrongColour as error:
        return str(error)
    return "no complaint"


@app.workflow
async def tries_async(case: str) -> str:
    return complaint(IN_AN_ASYNC_RUN[case][0])


@app.workflow
def tries_def(case: str) -> str:
    return complaint(IN_A_DEF_RUN[case][0])


@pytest.mark.parametrize("case", ON_A_LOOP)
async def test_a_blocking_call_on_a_running_loop_names_the_line_to_write(case: str) -> None:
    call, line = ON_A_LOOP[case]
    assert f"`{line}`" in complaint(call)


async def test_a_blocking_call_in_an_async_run_names_the_line_to_write() -> None:
    async with world(app):
        for case, (_, line) in IN_AN_ASYNC_RUN.items():
            assert f"`{line}`" in await tries_async.options(id=case.replace(" ", "-"))(case)
            assert names(app, case.replace(" ", "-")) == []


async def test_a_coroutine_in_a_def_run_names_the_line_to_write() -> None:
    async with world(app):
        for case, (_, line) in IN_A_DEF_RUN.items():
            assert f"`{line}`" in await tries_def.options(id=case.replace(" ", "-")).aio(case)
            assert names(app, case.replace(" ", "-")) == []


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_without_a_loop_both_colours_work_with_their_twins(store_url: str) -> None:
    local = App(store_url)

    @local.step
    async def coroutine() -> str:
        return "step"

    @local.workflow
    async def flow() -> str:
        return await coroutine()

    @local.workflow
    def blocking() -> str:
        return coroutine.sync()

    with local:
        assert (flow.sync(), blocking(), coroutine.sync()) == ("step", "step", "step")
        assert asyncio.run(awaited(coroutine())) == "step"


async def awaited(work: Any) -> Any:
    return await work


async def test_a_step_called_in_run_in_executor_is_warned_of() -> None:
    local = App()

    @local.step
    def step() -> str:
        return "plain"

    @local.workflow
    async def loses_the_run() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = await asyncio.get_running_loop().run_in_executor(None, step)
        return [found, *(str(warning.message) for warning in caught)]

    async with world(local):
        found, warning = await loses_the_run.options(id="a")()
        assert found == "plain"
        assert "run_in_executor loses it" in warning
        assert "write `await step.aio(…)`" in warning
        assert names(local, "a") == []


async def test_a_step_that_is_never_awaited_is_not_done_and_python_says_so() -> None:
    local, done = App(), list[str]()

    @local.step
    async def step(what: str) -> str:
        done.append(what)
        return what

    @local.workflow
    async def forgets() -> str:
        step("forgotten")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
        await run.sleep(1)
        return await step("awaited")

    async with world(local):
        with pytest.warns(RuntimeWarning, match="was never awaited"):
            assert await forgets.options(id="a")() == "awaited"
        assert names(local, "a") == ["sleep", "step"]
    assert done == ["awaited"]


async def test_a_step_in_a_thread_of_the_workflows_own_is_refused_with_the_line_to_write() -> None:
    local = App()

    @local.step
    def step() -> str:
        return "done"

    @local.step
    async def other() -> str:
        return "done"

    @local.workflow
    async def threads() -> list[str]:
        found = list[str]()
        for call in (step, other.sync):
            with pytest.raises(WrongColour, match="called on a thread") as caught:
                await asyncio.to_thread(call)
            found.append(str(caught.value))
        return found

    async with world(local):
        first, second = await threads()
        assert "write `await step.aio(…)`" in first
        assert "write `await other(…)`" in second


async def test_the_line_to_write_is_spelled_as_users_write_it() -> None:
    app = App("sqlite://")

    @app.workflow
    def wrong(noun: str) -> str:
        with pytest.raises(WrongColour) as caught:
            getattr(app, noun).list()
        return str(caught.value)

    async with app:
        for noun in ("runs", "schedules", "scheduled_functions", "queues", "workers", "versions"):
            assert f"`app.{noun}.list.sync(…)`" in await wrong.aio(noun)
            with pytest.raises(WrongColour, match=rf"`await app\.{noun}\.list\(…\)`"):
                getattr(app, noun).list.sync()
