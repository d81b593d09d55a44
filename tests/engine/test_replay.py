"""A run that is continued elsewhere does again only what is not recorded, and sees what it saw before."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from mainspring import App, Settings, State, run
from mainspring.errors import MainspringError, RunCancelled
from mainspring.testing import world
from tests.engine.lives import another_process, info, names, put, record, restart, store_of


async def test_a_run_interrupted_after_two_steps_of_three_does_only_the_third(store_url: str) -> None:
    app, done = App(), list[str]()
    third_began, third_may_end = asyncio.Event(), asyncio.Event()

    @app.step
    async def note(what: str) -> str:
        done.append(what)
        if what == "three":
            third_began.set()
            await third_may_end.wait()
        return what

    @app.workflow
    async def three() -> list[str]:
        return [await note("one"), await note("two"), await note("three")]

    async with world(app, url=store_url) as w:
        handle = await three.options(id="a").start()
        await third_began.wait()
        await another_process(w)
        third_may_end.set()
        assert await handle.result() == ["one", "two", "three"]
        assert done == ["one", "two", "three", "three"]
        assert info(app, "a").recoveries == 1


async def test_a_def_run_interrupted_after_two_steps_of_three_does_only_the_third(store_url: str) -> None:
    app, done = App(), list[str]()

    @app.step
    def note(what: str) -> str:
        done.append(what)
        return what

    @app.workflow
    def three() -> list[str]:
        return [note("one"), note("two"), note("three")]

    async with world(app, url=store_url):
        await three.options(id="whole").aio()
        done.clear()
        put(app, three, "cut", store_of(app).steps("whole")[:2])
        assert await app.handle("cut").result() == ["one", "two", "three"]
    assert done == ["three"]


async def test_a_finished_run_asked_for_again_answers_without_executing(store_url: str) -> None:
    app, bodies = App(), list[int]()

    @app.workflow
    async def count() -> int:
        bodies.append(1)
        return len(bodies)

    async with world(app, url=store_url) as w:
        assert await count.options(id="once")() == 1
        assert await count.options(id="once")() == 1
        again = await count.options(id="once").start()
        assert not again.created
        await restart(w)
        assert await again.result() == 1
        assert await count.options(id="once")() == 1
    assert bodies == [1]


async def test_concurrent_starts_of_one_id_run_the_body_once_and_all_get_its_result(store_url: str) -> None:
    app, bodies = App(), list[int]()

    @app.workflow
    async def count() -> int:
        bodies.append(1)
        return len(bodies)

    async with world(app, url=store_url):
        handles = await asyncio.gather(*(count.options(id="one").start() for _ in range(10)))
        assert [handle.created for handle in handles].count(True) == 1
        assert {await handle.result() for handle in handles} == {1}
        assert set(await asyncio.gather(*(count.options(id="one")() for _ in range(10)))) == {1}
    assert bodies == [1]


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_run_goes_on_after_a_restart_orderly_or_not(store_url: str, *, orderly: bool) -> None:
    app, done = App(), list[str]()

    @app.step
    async def note(what: str) -> str:
        done.append(what)
        return what

    @app.workflow
    async def patient() -> datetime:
        await note("before")
        await run.sleep("1h")
        await note("after")
        return run.now()

    async with world(app, at="2026-01-01T00:00Z", url=store_url) as w:
        handle = await patient.start()
        await w.advance("40m")
        await (restart if orderly else another_process)(w)
        assert info(app, handle.id).state is State.WAITING
        assert await handle.result() == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert done == ["before", "after"]


async def test_live_calls_return_what_replays_return(store_url: str) -> None:
    app = App()
    seen = list[object]()

    @app.step
    async def loose() -> object:
        return {"when": datetime(2026, 1, 1, tzinfo=UTC), "pair": (1, 2), "span": timedelta(hours=1)}

    @app.step
    async def mutable(items: list[int]) -> list[int]:
        return items

    @app.workflow
    async def look() -> bool:
        mine = [1, 2]
        theirs = await mutable(mine)
        seen.append([await loose(), theirs])
        theirs.append(3)
        return mine == [1, 2]

    async with world(app, url=store_url):
        assert await look.options(id="live")() is True
        put(app, look, "again", store_of(app).steps("live"))
        assert await app.handle("again").result() is True
    assert seen[0] == seen[1]


async def test_a_retaken_run_is_not_taken_a_second_time(store_url: str) -> None:
    app, began, go = App(), asyncio.Event(), asyncio.Event()

    @app.step
    async def hang() -> str:
        began.set()
        await go.wait()
        return "done"

    @app.workflow
    async def one() -> str:
        return await hang()

    async with world(app, url=store_url) as w:
        handle = await one.options(id="a").start()
        await began.wait()
        (dead,) = store_of(app).workers()
        await another_process(w)
        epoch = info(app, "a").epoch
        assert store_of(app).retire(dead.id, app._runtime.clock.now(), None) == 0
        assert info(app, "a").epoch == epoch
        go.set()
        assert await handle.result() == "done"
        assert info(app, "a").recoveries == 1


async def test_a_replayed_parent_finds_its_child_again(store_url: str) -> None:
    app, bodies = App(), list[str]()

    @app.workflow
    async def child() -> str:
        bodies.append(run.id)
        await run.sleep("1h")
        return "child"

    @app.workflow
    async def parent() -> list[str]:
        started = await child.start()
        return [await child(), await started.result()]

    async with world(app, url=store_url) as w:
        handle = await parent.options(id="p").start()
        await w.advance("10m")
        await another_process(w)
        assert await handle.result() == ["child", "child"]
        assert set(bodies) == {"p/0", "p/1"}
        assert [step.child for step in record(app, "p")] == ["p/0", "p/1", "p/0"]


async def test_a_record_that_ended_elsewhere_is_adopted_not_overwritten(store_url: str) -> None:
    app, began, go = App(), asyncio.Event(), asyncio.Event()

    @app.step
    async def slow() -> str:
        began.set()
        await go.wait()
        return "late"

    @app.workflow
    async def one() -> str:
        return await slow()

    async with world(app, url=store_url) as w:
        handle = await one.options(id="a").start()
        await began.wait()
        assert await handle.terminate("enough")
        go.set()
        with pytest.raises(RunCancelled, match="enough"):
            await handle.result()
        await w.drain()
        assert info(app, "a").state is State.CANCELLED
        assert names(app, "a") == []


async def test_a_run_that_loses_its_worker_too_often_ends_failed(store_url: str) -> None:
    app, began = App(settings=Settings(max_recoveries=2)), asyncio.Event()

    @app.step
    async def deadly() -> None:
        began.set()
        await asyncio.Event().wait()

    @app.workflow
    async def doomed() -> None:
        await deadly()

    async with world(app, url=store_url) as w:
        handle = await doomed.options(id="a").start()
        for _ in range(3):
            await began.wait()
            began.clear()
            await another_process(w)
        await w.drain()
        found = await handle.describe()
        assert (found.state, found.reason) == (State.FAILED, "recovery exhausted")
        with pytest.raises(MainspringError, match="worker was lost more than 2 times"):
            await handle.result()
