"""A run's timeout counts from its first claim, survives restarts, reaches all children, and ends it as cancelled."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from mainspring import App, Settings, State, run
from mainspring.errors import InvalidInput, RunCancelled, RunTimedOut
from mainspring.testing import world
from tests.engine.lives import another_process, enter_again, info, restart, store_of, until_halted
from tests.support.samples import covering

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_a_run_out_of_time_ends_cancelled_with_that_reason(store_url: str, colour: str) -> None:
    app = App()

    @app.workflow(timeout="1h")
    async def coroutine() -> None:
        await run.sleep("2h")

    @app.workflow(timeout="1h")
    def blocking() -> None:
        run.sleep.sync("2h")

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await (coroutine if colour == "async" else blocking).start()
        with pytest.raises(RunTimedOut, match="its timeout passed") as caught:
            await handle.result()
        assert isinstance(caught.value, RunCancelled)
        assert w.now == MIDNIGHT + timedelta(hours=1)
        found = await handle.describe()
        assert (found.state, found.reason, found.deadline) == (State.CANCELLED, "timeout", w.now)


async def test_a_run_that_is_done_in_time_is_not_touched(store_url: str) -> None:
    app = App()

    @app.workflow(timeout="1h")
    async def one() -> str:
        await run.sleep("59m")
        return "done"

    async with world(app, url=store_url) as w:
        handle = await one.start()
        assert await handle.result() == "done"
        await w.advance("1d")
        assert info(app, handle.id).state is State.SUCCEEDED


async def test_the_timeout_counts_from_the_claim_not_from_the_start(store_url: str) -> None:
    app = App()

    @app.workflow(timeout="1h")
    async def one() -> str:
        await run.sleep("50m")
        return f"{run.deadline:%H:%M}"

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        later = await one.options(after="3h").start()
        app.pause()
        waits = await one.options(after="1m").start()
        assert info(app, later.id).deadline is None
        await w.advance("2h")
        assert info(app, waits.id).deadline is None
        app.resume()
        assert await waits.result() == "03:00"
        assert await later.result() == "04:00"


@pytest.mark.parametrize("orderly", [True, False])
async def test_the_deadline_survives_restarts(store_url: str, *, orderly: bool) -> None:
    app = App()

    @app.workflow(timeout="1h")
    async def one() -> None:
        await run.sleep("2h")

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await one.start()
        await w.advance("40m")
        await (restart if orderly else another_process)(w)
        with pytest.raises(RunTimedOut):
            await handle.result()
        assert w.now == MIDNIGHT + timedelta(hours=1)


@covering
@pytest.mark.parametrize("colour", ["async", "def"])
@pytest.mark.parametrize("orderly", [True, False])
async def test_no_step_follows_a_deadline_that_passed_while_no_worker_was_there(
    store_url: str, colour: str, *, orderly: bool
) -> None:
    app = App()
    noted: list[str] = []

    @app.step
    async def note(what: str) -> None:
        noted.append(what)

    @app.workflow(timeout="1h")
    async def one() -> None:
        async with run.undo() as undo:
            undo.push(note.bind("undone"))
            await run.sleep("2h")
            await note("slept")

    @app.workflow(timeout="1h")
    def blocking() -> None:
        with run.undo() as undo:
            undo.push(note.bind("undone"))
            run.sleep.sync("2h")
            note.sync("slept")

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await (one if colour == "async" else blocking).start()
        await w.advance("40m")
        if orderly:
            await w.app.__aexit__()
        else:
            await w.app._vanish()
        w.clock.set(MIDNIGHT + timedelta(days=1))
        await enter_again(w)
        with pytest.raises(RunTimedOut):
            await handle.result()
        assert noted == ["undone"]


async def test_the_deadline_reaches_children_and_children_of_children(store_url: str) -> None:
    app = App()

    @app.workflow
    async def leaf() -> None:
        await run.sleep("5h")

    @app.workflow(timeout="10h")
    async def middle() -> None:
        await leaf()

    @app.workflow(timeout="1h")
    async def top() -> None:
        await leaf.start()
        await middle.start()
        await leaf.options(timeout="10m", id="sooner").start()
        await leaf.options(detached=True, id="detached").start()
        await leaf.options(detached=True, timeout="2h", id="own").start()
        await run.sleep("5h")

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await top.options(id="t").start()
        await w.advance("1m")
        hour = MIDNIGHT + timedelta(hours=1)
        deadlines = {
            run_id: info(app, run_id).deadline for run_id in ("t", "t/0", "t/1", "t/1/0", "sooner", "detached", "own")
        }
        assert deadlines == {
            "t": hour,
            "t/0": hour,
            "t/1": hour,
            "t/1/0": hour,
            "sooner": MIDNIGHT + timedelta(minutes=10),
            "detached": None,
            "own": MIDNIGHT + timedelta(hours=2),
        }
        with pytest.raises(RunTimedOut):
            await handle.result()
        await w.drain()
        for run_id in ("t/0", "t/1", "t/1/0", "sooner"):
            assert (info(app, run_id).state, info(app, run_id).reason) == (State.CANCELLED, "timeout"), run_id
        assert info(app, "detached").state is State.WAITING


@pytest.mark.parametrize("resident", [1000, 0])
async def test_a_child_started_with_timeout_none_is_free_from_its_parents_deadline(
    store_url: str, resident: int
) -> None:
    app = App(settings=Settings(resident=resident, park_after=0))

    @app.workflow(timeout="1h")
    async def leaf() -> None:
        await run.sleep("5h")

    @app.workflow
    async def middle() -> None:
        await leaf.options(id="grandchild", timeout=None).start()
        await leaf.options(id="limited", timeout="2h").start()
        await run.sleep("5h")

    @app.workflow(timeout="1h")
    async def top() -> None:
        await middle.options(id="free", timeout=None).start()
        await leaf.options(id="bound").start()
        await run.sleep("5h")

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await top.options(id="t").start()
        await w.advance("1h")  # not further, however late the news of its end comes
        with pytest.raises(RunTimedOut):
            await handle.result()
        assert (info(app, "bound").state, info(app, "bound").reason) == (State.CANCELLED, "timeout")
        for free in ("free", "grandchild", "limited"):
            assert not info(app, free).state.ended, free
        assert (info(app, "free").parent, info(app, "free").deadline) == ("t", None)
        await w.advance("6h")
        ended = {free: info(app, free).state for free in ("free", "grandchild", "limited")}
        assert ended == {
            "free": State.SUCCEEDED,
            "grandchild": State.SUCCEEDED,
            "limited": State.CANCELLED,
        }


async def test_what_a_resumed_run_waits_for_is_out_of_time_with_it(store_url: str) -> None:
    app = App(settings=Settings(resident=0, park_after=0))

    @app.workflow
    async def leaf() -> None:
        await run.sleep("5h")

    @app.workflow(timeout="1h")
    async def top() -> None:
        await leaf.options(id="leaf").start()
        await run.sleep("5h")

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await top.options(id="t").start()
        await w.advance("30m")
        await handle.cancel()
        await w.drain()
        await app.runs.resume("t")
        assert info(app, "leaf").deadline == info(app, "t").deadline == MIDNIGHT + timedelta(minutes=90)
        await w.advance("2h")
        assert (info(app, "leaf").state, info(app, "leaf").reason) == (State.CANCELLED, "timeout")


async def test_a_parent_can_handle_that_its_child_ran_out_of_time(store_url: str) -> None:
    app = App()

    @app.workflow
    async def child() -> None:
        await run.sleep("2h")

    @app.workflow
    async def parent() -> str:
        try:
            await child.options(timeout="1h")()
        except RunTimedOut:
            return f"gave up at {run.now():%H:%M}"
        return "?"

    async with world(app, at=MIDNIGHT, url=store_url):
        assert await parent() == "gave up at 01:00"


async def test_a_timeout_can_be_set_and_unset_where_the_run_is_started(store_url: str) -> None:
    app = App()

    @app.workflow(timeout="1h")
    async def one() -> str:
        await run.sleep("2h")
        return "done"

    async with world(app, url=store_url):
        assert await one.options(timeout=None)() == "done"
        assert await one.options(timeout="3h")() == "done"
        assert await one.options(timeout=None).options(timeout=timedelta(hours=3))() == "done"
        with pytest.raises(RunTimedOut):
            await one.options(timeout=None).options(timeout="10m")()
        for wrong in (0, -1, "soon", float("nan")):
            with pytest.raises(InvalidInput):
                one.options(timeout=wrong)


async def test_a_step_in_flight_at_the_deadline_may_end_and_nothing_follows_it(store_url: str) -> None:
    app, began, go, done = App(), asyncio.Event(), asyncio.Event(), list[str]()

    @app.step
    async def note(what: str) -> None:
        began.set()
        await go.wait()
        done.append(what)

    @app.workflow(timeout="1h")
    async def one() -> None:
        await note("one")
        await note("two")

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await one.options(id="a").start()
        await began.wait()
        await asyncio.to_thread(store_of(app).cancel, ["a"], "timeout", w.clock.now())
        await until_halted(app, "a")
        go.set()
        with pytest.raises(RunTimedOut):
            await handle.result()
    assert done == ["one"]


async def test_a_parked_run_out_of_time_is_not_replayed_to_learn_it(store_url: str) -> None:
    app, bodies = App(settings=Settings(resident=0)), list[int]()

    @app.workflow(timeout="1h")
    async def one() -> None:
        bodies.append(1)
        await run.sleep("2h")

    async with world(app, url=store_url):
        with pytest.raises(RunTimedOut):
            await one()
    assert bodies == [1]
