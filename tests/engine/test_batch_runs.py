"""Jobs of batch functions have no task of their own, and lose nothing by that."""

from __future__ import annotations

import asyncio
import gc
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Retry, Settings, State
from mainspring.engine import batching
from mainspring.engine.engine import Engine
from mainspring.engine.replay import execution
from mainspring.engine.replay.execution import Execution
from mainspring.engine.replay.history import History
from mainspring.errors import RunCancelled, RunTimedOut
from mainspring.testing import world
from tests.engine.lives import store_of, until

if TYPE_CHECKING:
    from collections.abc import Callable

app = App("sqlite://")
jobs = app.queue("jobs")
calls: list[list[int]] = []
tasks: set[str] = set()
entered, gate = asyncio.Event(), asyncio.Event()


@pytest.fixture(autouse=True)
def no_calls() -> None:
    global entered, gate
    calls.clear()
    tasks.clear()
    entered, gate = asyncio.Event(), asyncio.Event()


@app.step(batch=100)
async def looked_at(numbers: list[int]) -> list[int]:
    calls.append(numbers)
    tasks.update(task.get_name() for task in asyncio.all_tasks())
    return numbers


@app.step(batch=2)
async def gated(numbers: list[int]) -> list[int]:
    calls.append(numbers)
    entered.set()
    if len(calls) == 1:
        await gate.wait()
    return numbers


@app.step(batch=100, retry=Retry(2, first=1))
async def unlucky_once(numbers: list[int]) -> list[int | Exception]:
    calls.append(numbers)
    tasks.update(task.get_name() for task in asyncio.all_tasks())
    return [OSError("busy") if number == 2 and len(calls) == 1 else number for number in numbers]


@app.step(batch=100)
async def failing_late(numbers: list[int]) -> list[int]:
    entered.set()
    await gate.wait()
    raise ValueError(numbers)


def started(function: Any, *numbers: int, **options: Any) -> Any:
    return app.start_many(
        function.options(queue="jobs", id=f"job-{number}", **options).bind(number) for number in numbers
    )


async def test_jobs_of_a_batch_function_have_no_task_each(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handles = await started(looked_at, *range(20))
        await w.drain()
        assert await app.gather(*handles) == list(range(20))
    assert not [name for name in tasks if "job-" in name]


async def test_only_an_input_that_is_tried_again_gets_a_task(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handles = await started(unlucky_once, 1, 2, 3)
        await w.advance("1h")
        assert await app.gather(*handles) == [1, 2, 3]
        (step,) = await app.runs.steps("job-2")
        assert (step.attempts, [await app.runs.steps(f"job-{number}") for number in (1, 3)]) == (2, [[], []])
    assert {name for name in tasks if "job-" in name} == {"mainspring job-2"}


async def test_a_job_that_fails_in_its_batch_began_when_it_joined_the_batch(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        await started(failing_late, 1)
        await entered.wait()
        w.clock.set(w.now + timedelta(seconds=5))
        gate.set()
        await w.drain()
        (step,) = await app.runs.steps("job-1")
        assert step.started is not None
        assert step.completed is not None
        assert (step.completed - step.started).total_seconds() == 5


async def test_a_job_whose_time_is_over_in_its_batch_is_cancelled(store_url: str) -> None:
    mine = App(store_url)
    mine.queue("jobs")
    executed: list[int] = []

    @mine.step(batch=2)
    async def slow(numbers: list[int]) -> list[int]:
        executed.extend(numbers)
        await gate.wait()
        return numbers

    async with mine:
        handle = await slow.options(queue="jobs", id="late", timeout=0.2).start(1)
        other = await slow.options(queue="jobs").start(2)
        while (await mine.runs.get("late")).state in {State.QUEUED, State.RUNNING}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        gate.set()
        with pytest.raises(RunTimedOut):
            await handle.result()
        assert await other.result() == 2
    assert sorted(executed) == [1, 2]


async def test_a_terminated_job_leaves_memory_before_its_batch_ends(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "patience", 0.01)
    async with world(app, url=store_url) as w:
        first, second = await started(gated, 1, 2)
        await entered.wait()
        engine = app._runtime.engine
        assert engine is not None
        assert await app.runs.terminate("job-1")
        while "job-1" in engine.executions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert "job-2" in engine.executions
        gate.set()
        await w.drain()
        with pytest.raises(RunCancelled):
            await first.result()
        assert await second.result() == 2
    assert len(calls) == 1


async def test_a_job_that_was_taken_from_its_worker_is_executed_once_more(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "patience", 0.01)
    async with world(app, url=store_url):
        handles = await started(gated, 1, 2)
        await entered.wait()
        engine = app._runtime.engine
        assert isinstance(engine, Engine)
        await asyncio.to_thread(store_of(app).retire, engine.worker_id, engine.clock.now(), 100)
        assert await app.gather(*handles) == [1, 2]
        assert not gate.is_set()
        gate.set()


async def test_a_stop_waits_for_the_batch_of_a_job_and_releases_what_did_not_begin(store_url: str) -> None:
    async with world(app, url=store_url):
        await started(gated, 1, 2, 3)
        await entered.wait()
        asyncio.get_running_loop().call_later(0.05, gate.set)
    async with world(app, url=store_url) as w:
        await w.drain()
        found = [await app.runs.get(f"job-{number}") for number in (1, 2, 3)]
    assert [(each.state, each.output) for each in found] == [(State.SUCCEEDED, number) for number in (1, 2, 3)]
    assert sorted(number for batch in calls for number in batch) == [1, 2, 3]


async def test_a_stop_executes_the_jobs_that_wait_for_more_inputs(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "LINGER", 60.0)
    async with world(app, url=store_url):
        await started(looked_at, 1, 2)
        engine = app._runtime.engine
        assert engine is not None
        await until(lambda: sum(ex.invoking for ex in engine.executions.values()) == 2)
        assert not calls
    async with world(app, url=store_url):
        assert [(await app.runs.get(f"job-{number}")).output for number in (1, 2)] == [1, 2]
    assert calls == [[1, 2]]


async def test_a_stop_without_grace_leaves_the_jobs_to_another_worker(store_url: str) -> None:
    hasty = App("sqlite://", settings=Settings(grace=0.05))
    hasty.queue("jobs")
    again: list[list[int]] = []

    @hasty.step(batch=2)
    async def stuck(numbers: list[int]) -> list[int]:
        again.append(numbers)
        if len(again) == 1:
            entered.set()
            await asyncio.Event().wait()
        return numbers

    calls_made = [stuck.options(queue="jobs", id=f"job-{number}").bind(number) for number in (1, 2)]
    async with world(hasty, url=store_url):
        await hasty.start_many(calls_made)
        await entered.wait()
    async with world(hasty, url=store_url) as w:
        await w.drain()
        assert [(await hasty.runs.get(f"job-{number}")).output for number in (1, 2)] == [1, 2]
    assert again == [[1, 2], [1, 2]]


async def test_a_job_that_has_ended_is_freed_without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Execution]] = []
    begin: Callable[..., None] = Engine.launch

    class Watched(Execution):
        __slots__ = ("__weakref__",)

    def launch(engine: Engine, ex: Execution) -> None:
        watched = Watched(engine, ex.run, ex.function, [])
        made.append(weakref.ref(watched))
        begin(engine, watched)

    monkeypatch.setattr(Engine, "launch", launch)
    async with world(app) as w:
        gc.disable()
        try:
            await started(looked_at, 1, 2, 3)
            await w.drain()
            assert [ref() for ref in made] == [None] * 3
        finally:
            gc.enable()


@app.workflow
async def without_operations(number: int) -> int:
    return number


async def test_a_job_without_operations_has_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def counted(*args: Any, **kwargs: Any) -> History:
        made.append(args)
        return History(*args, **kwargs)

    monkeypatch.setattr(execution, "History", counted)
    async with world(app) as w:
        await started(looked_at, 1, 2, 3)
        handles = await app.start_many(without_operations.options(queue="jobs").bind(number) for number in range(3))
        await w.drain()
        assert [await handle.result() for handle in handles] == [0, 1, 2]
        assert made == []
