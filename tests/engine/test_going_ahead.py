"""The code of a run may have an outcome while it is being committed; nothing that could be seen happens before it is."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from mainspring import App, State, run
from mainspring.engine.engine import Engine
from mainspring.engine.residency.phases import Phase
from mainspring.errors import NotSerializable, RunCancelled
from mainspring.store.writes import RecordStep, is_checkpoint
from mainspring.testing import world
from tests.engine.lives import before_commits, execute, info, store_of
from tests.support.samples import of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.writes import Op

ROUNDS = of(100, 30)


class Two:
    """An app with a workflow of two steps, and what it has done."""

    def __init__(self, url: str) -> None:
        self.app = app = App(url)
        self.done: list[str] = []
        self.between = asyncio.Event()

        @app.step
        async def step(name: str) -> str:
            self.done.append(name)
            return name

        @app.workflow
        async def two() -> list[str]:
            first = await step("first")
            self.done.append("between")
            self.between.set()
            try:
                return [first, await step("second")]
            except NotSerializable:
                return ["as if nothing had happened"]

        @app.workflow
        async def one() -> str:
            return await step("only")

        self.two, self.one = two, one


@pytest.mark.sampled
async def test_no_operation_begins_before_the_last_outcome_is_committed(store_url: str) -> None:
    bench, go_on = Two(store_url), threading.Event()
    async with bench.app:

        def hold(ops: Sequence[Op]) -> None:
            assert not any(map(is_checkpoint, ops)) or go_on.wait(60)

        before_commits(bench.app, hold)
        handle = await bench.two.options(id="a").start()
        await bench.between.wait()
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        assert bench.done == ["first", "between"]
        assert store_of(bench.app).steps("a") == []
        go_on.set()
        assert await handle.result() == ["first", "second"]
    assert bench.done == ["first", "between", "second"]
    bench.app.close()


async def test_a_run_does_not_get_past_an_outcome_that_the_database_refuses(store_url: str) -> None:
    bench = Two(store_url)

    def spoil(ops: Sequence[Op]) -> None:
        for op in ops:
            if isinstance(op, RecordStep):
                op.step.name = None  # type: ignore[assignment]

    async with bench.app:
        before_commits(bench.app, spoil)
        for workflow in (bench.two, bench.one):
            with pytest.raises(NotSerializable, match="the database refused the outcome of a step"):
                await workflow.options(id=workflow.name)()
            assert info(bench.app, workflow.name).state is State.FAILED
    assert bench.done == ["first", "between", "only"]
    bench.app.close()


async def test_branches_wait_for_it_each_on_their_own(store_url: str) -> None:
    app, done, go_on = App(store_url), list[str](), threading.Event()
    given_up = asyncio.Event()

    @app.step
    async def step(name: str) -> str:
        done.append(name)
        return name

    @app.workflow
    async def branches() -> str:
        await step("first")
        impatient, patient = asyncio.create_task(step("impatient")), asyncio.create_task(step("patient"))
        await asyncio.sleep(0)  # both wait for the outcome of the first
        impatient.cancel()
        await asyncio.wait([impatient])
        given_up.set()
        return await patient

    def hold(ops: Sequence[Op]) -> None:
        assert not any(map(is_checkpoint, ops)) or go_on.wait(60)

    async with app:
        before_commits(app, hold)
        handle = await branches.options(id="a").start()
        try:
            await given_up.wait()
            assert done == ["first"]
        finally:
            go_on.set()
        assert await handle.result() == "patient"
    assert done == ["first", "patient"]
    app.close()


async def test_a_run_that_is_stopped_meanwhile_undoes_what_it_did_last(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "patience", 0.02)
    app, done = App(store_url), list[str]()
    booked, go_on = asyncio.Event(), threading.Event()

    @app.step
    async def book() -> str:
        done.append("book")
        return "seat 7"

    @app.step
    async def give_back(seat: str) -> None:
        done.append(f"give back {seat}")

    @app.workflow
    async def trip() -> None:
        async with run.undo() as undo:
            undo.push(give_back.bind(await book()))
            booked.set()
            await asyncio.Event().wait()

    def hold(ops: Sequence[Op]) -> None:
        if any(isinstance(op, RecordStep) and op.step.name == "book" for op in ops):
            assert go_on.wait(60)

    async with app:
        before_commits(app, hold)
        handle = await trip.options(id="a").start()
        await booked.wait()
        await handle.cancel()
        engine = app._runtime.engine
        assert engine is not None
        try:
            while engine.executions["a"].phase is not Phase.UNDOING:  # noqa: ASYNC110  (until its code has let go of it)
                await asyncio.sleep(0.01)
            for _ in range(20):  # without the outcome it is not executed once more
                await asyncio.sleep(0.01)
                assert engine.executions["a"].phase is Phase.UNDOING
        finally:
            go_on.set()
        with pytest.raises(RunCancelled):
            await handle.result()
    assert done == ["book", "give back seat 7"]
    app.close()


async def test_the_last_outcome_and_the_end_are_one_commit() -> None:
    bench, batches = Two("sqlite://"), list[list[str]]()
    async with world(bench.app):
        before_commits(bench.app, lambda ops: batches.append([type(op).__name__ for op in ops]))
        assert await bench.one() == "only"
        assert await bench.two() == ["first", "second"]
    assert batches[1:] == [["RecordStep", "Finish"], ["Start"], ["RecordStep"], ["RecordStep", "Finish"]]


def _commits(app: App, url: str) -> list[str]:
    """What the library says to SQLite, as it says it. PostgreSQL knows by itself which rows are of one transaction."""
    said: list[str] = []
    if url.startswith("sqlite"):
        store_of(app)._db._writer.set_trace_callback(said.append)  # type: ignore[attr-defined]
    return said


def _in_one_commit(url: str, said: list[str]) -> int:
    """How many runs have ended in the commit that recorded their step."""
    if not url.startswith("sqlite"):
        return execute(url, "SELECT 1 FROM runs JOIN steps ON steps.run = runs.id AND steps.xmin = runs.xmin")
    commits = "\n".join(said).split("COMMIT")
    return sum("INSERT INTO mainspring_steps" in each and "unsettled AND NOT" in each for each in commits)


async def test_a_run_that_is_one_step_ends_in_the_commit_that_records_it(store_url: str) -> None:
    app, told = App(store_url), list[str]()

    @app.step
    async def awaited(fails: bool) -> str:
        return str(1 // (not fails))

    @app.step
    def blocking(fails: bool) -> str:
        return str(1 // (not fails))

    @app.step(at_most_once=True)
    def once(fails: bool) -> str:
        return str(1 // (not fails))

    async with app:
        said = _commits(app, store_url)
        app._runtime.listeners.operations.append(lambda _run, step: told.append(step.name))
        for function in (awaited, blocking, once):
            assert await (await function.start(False)).result() == "1"
            with pytest.raises(ZeroDivisionError):
                await (await function.start(True)).result()
    assert _in_one_commit(store_url, said) == 6
    assert told == ["awaited", "awaited", "blocking", "blocking", "once", "once"]
