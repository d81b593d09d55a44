"""Forks past the last step and with other children, resuming into another queue, users of runs, limits of recoveries, rolling back."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from mainspring import App, Retry, Settings, Spec, State, run
from mainspring.errors import Conflict, InvalidInput, NotFound, RunCancelled
from mainspring.testing import world
from tests.store import raw

app = App("sqlite://")
slow = app.queue("slow")
executed: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_executed() -> None:
    executed.clear()


@app.step
async def note(what: str) -> str:
    executed[what] += 1
    return what


@app.workflow
async def ends_badly() -> str:
    first, second = await note("first"), await note("second")
    executed["tail"] += 1
    if executed["tail"] == 1:
        raise ValueError("the tail is wrong")
    return first + second


@app.workflow
async def child(name: str) -> str:
    return await note(name)


@app.workflow
async def parent() -> list[str]:
    before = await note("before")
    started = await child.start("started")
    called = await child("called")
    return [before, await started.result(), called, await note("after")]


async def test_a_fork_past_the_last_step_executes_only_the_tail(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await ends_badly.options(id="bad").start()
        with pytest.raises(ValueError, match="tail"):
            await handle.result()
        fork = await app.runs.fork("bad", past_last=True)
        assert await fork.result() == "firstsecond"
        assert executed == {"first": 1, "second": 1, "tail": 2}
        assert (await app.runs.get(fork.id)).forked_at == "end"
        with pytest.raises(InvalidInput, match="leave step out"):
            await app.runs.fork("bad", "first", past_last=True)


@pytest.mark.parametrize("step", [None, "4"])
async def test_a_fork_waits_for_other_children_and_makes_anew_what_used_the_old_ones(
    store_url: str, step: str | None
) -> None:
    async with world(app, url=store_url):
        await (await parent.options(id="p").start()).result()
        old = (await app.runs.list(parent="p")).runs
        by_input = {each.input["name"]: each.id for each in old}
        for name in ("other", "another"):
            await (await child.options(id=name).start(name)).result()
        fork = await app.runs.fork("p", step, children={by_input["started"]: "other", by_input["called"]: "another"})
        assert await fork.result() == ["before", "other", "another", "after"]
        assert executed["before"] == 1
        assert executed["started"] == executed["called"] == 1
        assert executed["after"] == 2


async def test_children_of_a_fork_have_to_exist_and_to_be_of_the_same_function(store_url: str) -> None:
    async with world(app, url=store_url):
        await (await parent.options(id="p").start()).result()
        (called, started) = sorted(each.id for each in (await app.runs.list(parent="p")).runs)
        with pytest.raises(NotFound, match="run 'nobody' not found"):
            await app.runs.fork("p", children={started: "nobody"})
        with pytest.raises(Conflict, match="cannot replace"):
            await app.runs.fork("p", children={called: "p"})


async def test_a_cancelled_run_is_resumed_into_another_queue(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await child.options(id="c", queue="gone", after="1h").start("x")
        await app.runs.cancel("c")
        with pytest.raises(InvalidInput, match="comma"):
            await app.runs.resume("c", to_queue="a,b")
        assert await app.runs.resume("c", to_queue="slow")
        assert (await app.runs.get("c")).queue == "slow"
        assert await handle.result() == "x"
        assert not await app.runs.resume("c", to_queue="other")
        assert (await app.runs.get("c")).queue == "slow"


async def test_a_resumed_run_is_in_the_attempt_in_which_it_was_cancelled(store_url: str) -> None:
    """What it recorded after a look at `run.attempt` is replayed by the same attempt."""
    app = App(store_url)
    noted = asyncio.Event()

    @app.step
    async def note(what: str) -> str:
        return what

    @app.workflow(retry=Retry(3, first=0))
    async def work() -> tuple[str, int]:
        await note("first")
        if run.attempt < 2:
            raise ConnectionError("after the step")
        await note("second")
        noted.set()
        return await run.receive("word"), run.attempt

    async with app:
        handle = await work.start()
        await noted.wait()
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result(timeout=30)
        assert await app.runs.resume(handle.id)
        await app.send(handle.id, "word", "go")
        assert await handle.result(timeout=30) == ("go", 2)


async def test_a_run_is_resumed_when_the_children_that_are_cancelled_with_it_have_stopped(store_url: str) -> None:
    app = App(store_url)
    begun, go_on = threading.Event(), threading.Event()

    @app.step
    def slow_step() -> str:
        begun.set()
        assert go_on.wait(60)
        return "done"

    @app.workflow
    async def grandchild() -> str:
        return await slow_step.aio() + await note(" well")

    @app.workflow
    async def child() -> str:
        return await grandchild.options(id="g")()

    @app.workflow
    async def parent() -> str:
        return await child.options(id="c")()

    async def states() -> list[State]:
        return [(await app.runs.get(run_id)).state for run_id in "pcg"]

    async with app:
        handle = await parent.options(id="p").start()
        await asyncio.to_thread(begun.wait, 60)
        await handle.cancel()
        while await states() != [State.CANCELLED, State.CANCELLED, State.CANCELLING]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not await app.runs.resume("p")
        assert await states() == [State.CANCELLED, State.CANCELLED, State.CANCELLING]
        go_on.set()
        while await states() != [State.CANCELLED] * 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await app.runs.resume("p")
        assert await handle.result() == "done well"
    app.close()


@app.workflow
async def whose(depth: int) -> list[str | None]:
    return [run.user, *(await whose(depth - 1) if depth else [])]


@app.workflow
async def later() -> None:
    await app.run_after(0, whose.options(id="scheduled").bind(0))
    await whose.options(id="detached", detached=True).start(0)
    await whose.options(id="theirs", user="grace").start(1)


async def test_a_run_has_a_user_whom_its_children_have_too(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handle = await whose.options(user="ada", attributes={"tenant": "acme"}).start(2)
        assert await handle.result() == ["ada", "ada", "ada"]
        assert (await app.runs.get(handle.id)).attributes == {"tenant": "acme", "user": "ada"}
        assert len((await app.runs.list(user="ada")).runs) == 3
        assert [each.id for each in (await app.runs.list(user="ada", attributes={"tenant": "acme"})).runs] == [
            handle.id
        ]
        assert (await app.runs.list(user="nobody")).runs == []
        await (await later.options(user="ada").start()).result()
        await w.drain()
        assert await app.handle("theirs").result() == ["grace", "grace"]
        assert await app.handle("detached").result() == [None]
        assert await app.handle("scheduled").result() == [None]
        await app.schedules.create("report", whose.options(user="lin").bind(1), Spec(intervals=["1h"]))
        triggered = await app.schedules.trigger("report")
        assert triggered is not None
        assert await triggered.result() == ["lin", "lin"]


async def test_a_user_is_one_text(store_url: str) -> None:
    async with world(app, url=store_url):
        for wrong in ("", 7):
            with pytest.raises(InvalidInput, match="user is a text"):
                whose.options(user=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidInput, match="one user"):
            await app.runs.list(user=["a", "b"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_the_newest_version_is_the_one_that_is_named(store_url: str) -> None:
    for version in ("v1", "v2"):
        async with App(store_url, version=version):
            pass
    async with App(store_url, version="v2") as last:
        assert [each.version for each in await last.versions.list()] == ["v2", "v1"]
        assert await last.versions.set_newest("v1") == "v1"
        assert [each.version for each in await last.versions.list()] == ["v1", "v2"]
        with pytest.raises(NotFound, match="v3"):
            await last.versions.set_newest("v3")


async def test_a_function_says_how_often_its_runs_may_lose_their_worker(store_url: str) -> None:
    mine = App(store_url, settings=Settings(max_recoveries=100))

    @mine.workflow(max_recoveries=0)
    async def fragile() -> None: ...

    @mine.workflow
    async def sturdy() -> None: ...

    await fragile.options(id="fragile").start()
    await sturdy.options(id="sturdy").start()
    store = mine._runtime.connection().store
    now = mine._runtime.clock.now()
    limits = mine._runtime.registry.recovery_limits()
    assert limits == {"fragile": 0}
    take(store_url)
    assert store.retire("dead", now, 100, limits) == 2
    states = {each.id: (each.state, each.reason) for each in (await mine.runs.list()).runs}
    assert states == {"fragile": (State.FAILED, "recovery exhausted"), "sturdy": (State.QUEUED, None)}
    mine.close()
    with pytest.raises(InvalidInput, match="max_recoveries is a whole number"):
        App("sqlite://").workflow(max_recoveries=-1)(take)


def take(url: str) -> None:
    """Have a worker that is gone own all runs."""
    raw.execute(url, "UPDATE {schema}runs SET owner = 'dead', state = 'running', epoch = 1")
