"""Runs that have ended are let go on, begun anew elsewhere, deleted, taken out and brought in; figures of them all."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, State, run
from mainspring.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

app = App("sqlite://")
done: Counter[str] = Counter()
broken: set[str] = set()


@app.step
async def work(name: str) -> str:
    done[name] += 1
    if name in broken:
        raise OSError(f"{name} is broken")
    return f"{name} {done[name]}"


@app.workflow
async def chain(*names: str) -> list[str]:
    made: list[str] = []
    for name in names:
        made.append(await work(name))
        await run.set_event("progress", name)
        await run.write_stream("log", name)
    return made


@app.workflow
async def parent(*names: str) -> list[str]:
    first = await work("before")
    return [first, *await chain(*names)]


@app.workflow
async def catching() -> str:
    try:
        await work("caught")
    except OSError:
        await work("after")
    raise RuntimeError("by itself")


@app.workflow
async def sleeper() -> str:
    await work("early")
    await run.sleep("1d")
    return "slept"


@app.workflow
async def listener() -> list[Any]:
    arrived = await run.receive("word")
    await work("arrived")
    return [arrived]


@app.workflow
async def starter() -> str:
    handle = await chain.start("child")
    await work("between")
    return f"{handle.id} {await handle.result()}"


@app.workflow
async def manager(run_id: str) -> list[Any]:
    retried = await app.runs.retry(run_id)
    fork = await app.runs.fork(run_id)
    return [retried, fork.id]


@pytest.fixture(autouse=True)
async def entered(store_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setattr(app._runtime, "url", store_url)
    done.clear()
    broken.clear()
    async with app:
        yield app


async def fail(fn: Any, run_id: str, *names: str, **options: Any) -> None:
    with pytest.raises((OSError, RuntimeError)):
        await fn.options(id=run_id, **options)(*names)


# -- retry -------------------------------------------------------------------------------------------------------------
async def test_a_retry_goes_on_from_what_succeeded() -> None:
    broken.add("b")
    await fail(chain, "a", "a", "b", "c")
    broken.clear()
    assert await app.runs.retry("a") == {"a": True}
    assert await app.handle("a").result(timeout=20) == ["a 1", "b 2", "c 1"]
    assert await app.get_events("a") == {"progress": "c"}
    assert [value async for value in app.read_stream("a", "log")] == ["a", "b", "c"]
    assert await app.runs.retry("a") == {"a": False}


async def test_a_retry_reaches_the_child_that_failed() -> None:
    broken.add("b")
    await fail(parent, "a", "a", "b")
    broken.clear()
    assert await app.runs.retry("a") == {"a": True}
    assert await app.handle("a").result(timeout=20) == ["before 1", "a 1", "b 2"]


async def test_an_exception_that_was_caught_stays_recorded() -> None:
    broken.add("caught")
    await fail(catching, "a")
    assert await app.runs.retry("a") == {"a": True}
    with pytest.raises(RuntimeError, match="by itself"):
        await app.handle("a").result(timeout=20)
    assert done == {"caught": 1, "after": 1}


async def test_a_retry_of_an_unknown_run_does_nothing_to_the_others() -> None:
    broken.add("a")
    await fail(chain, "a", "a")
    with pytest.raises(NotFound, match="'nobody'"):
        await app.runs.retry("a", "nobody")
    assert (await app.runs.get("a")).state is State.FAILED


# -- resume ------------------------------------------------------------------------------------------------------------
async def test_a_cancelled_run_goes_on_where_it_stopped() -> None:
    handle = await listener.options(id="a").start()
    await until(State.WAITING, "a")
    await handle.cancel()
    await until(State.CANCELLED, "a")
    assert await app.runs.resume("a") == {"a": True}
    await app.send("a", "word", "hello")
    assert await handle.result(timeout=20) == ["hello"]
    assert await app.runs.resume("a") == {"a": False}
    with pytest.raises(NotFound):
        await app.runs.resume("nobody")


async def test_children_that_were_cancelled_along_are_resumed() -> None:
    handle = await family.options(id="a").start()
    await until(State.WAITING, "a/0")
    await handle.cancel("enough")
    await until(State.CANCELLED, "a", "a/0")
    assert await app.runs.resume("a") == {"a": True}
    await app.send("a/0", "word", "hello")
    assert await handle.result(timeout=20) == ["hello"]


@app.workflow
async def family() -> list[Any]:
    return await listener()


async def test_a_run_that_never_began_is_resumed_for_its_time() -> None:
    await chain.options(id="a", after="1d").start("a")
    await app.runs.cancel("a")
    assert await app.runs.resume("a") == {"a": True}
    found = await app.runs.get("a")
    assert (found.state, found.completed) == (State.SCHEDULED, None)
    assert found.due is not None
    assert found.due > datetime.now(UTC) + timedelta(hours=23)


async def until(state: State, *ids: str) -> None:
    for run_id in ids:
        async with asyncio.timeout(20):
            while [each.state for each in (await app.runs.list(ids=[run_id])).runs] != [state]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


# -- fork --------------------------------------------------------------------------------------------------------------
async def test_a_fork_has_done_what_came_before_its_step() -> None:
    assert await chain.options(id="a", attributes={"tenant": "acme"})("a", "b", "c") == ["a 1", "b 1", "c 1"]
    position = [step.position for step in await app.runs.steps("a") if step.name == "work"][1]
    fork = await app.runs.fork("a", position, id="b", timeout="1h", version=app.version)
    assert await fork.result(timeout=20) == ["a 1", "b 2", "c 2"]
    found = await app.runs.get("b")
    assert (found.forked_from, found.forked_at, found.attributes) == ("a", position, {"tenant": "acme"})
    assert found.timeout == 3600
    assert [value async for value in app.read_stream("b", "log")] == ["a", "b", "c"]
    assert (await app.runs.get("a")).output == ["a 1", "b 1", "c 1"]
    assert [each.id for each in (await app.runs.list(forked_from="a")).runs] == ["b"]


async def test_a_fork_copies_what_was_said_until_then() -> None:
    await chain.options(id="a")("a", "b")
    fork = await app.runs.fork("a", "3")
    await fork.cancel()
    await fork.describe()
    assert (await app.get_events(fork.id))["progress"] in {"a", "b"}


async def test_a_fork_without_a_step_begins_at_the_beginning() -> None:
    await chain.options(id="a")("a")
    assert await (await app.runs.fork("a")).result(timeout=20) == ["a 2"]
    assert await (await app.runs.fork("a", "work")).result(timeout=20) == ["a 3"]


async def test_a_fork_keeps_the_children_of_the_original() -> None:
    await starter.options(id="a")()
    fork = await app.runs.fork("a", "work")
    assert await fork.result(timeout=20) == "a/0 ['child 1']"
    assert done == {"child": 1, "between": 2}


async def test_failed_runs_are_forked_from_what_ended_them() -> None:
    broken.add("b")
    for run_id in ("x", "y"):
        await fail(chain, run_id, f"a{run_id}", "b")
    broken.clear()
    forks = await app.runs.fork_failed("x", "y")
    made = [await app.handle(forks[run_id]).result(timeout=20) for run_id in ("x", "y")]
    assert [each[0] for each in made] == ["ax 1", "ay 1"]
    assert {each[1] for each in made} == {"b 3", "b 4"}
    assert (await app.runs.get("x")).state is State.FAILED


async def test_what_cannot_be_forked_is_an_error() -> None:
    await chain.options(id="a")("a")
    with pytest.raises(NotFound, match="nothing at 'elsewhere'; it has 0 \\(work\\)"):
        await app.runs.fork("a", "elsewhere")
    with pytest.raises(NotFound, match="nobody"):
        await app.runs.fork("nobody")
    with pytest.raises(Conflict, match="'a' is taken"):
        await app.runs.fork("a", id="a")
    with pytest.raises(InvalidInput, match="/"):
        await app.runs.fork("a", id="a/b")


# -- delete, export, load ----------------------------------------------------------------------------------------------
async def test_export_delete_and_load_give_the_run_and_its_children_back() -> None:
    broken.add("b")
    await fail(parent, "a", "a", "b", attributes={"n": 1.5, "text": "ß\n"})
    before = [await app.runs.get(run_id) for run_id in ("a", "a/1")]
    steps = [await app.runs.steps(run_id) for run_id in ("a", "a/1")]
    lines = await app.runs.export("a")
    assert await app.runs.delete("a", "nobody") == {"a": True, "nobody": False}
    assert (await app.runs.list(ids=["a", "a/1"])).runs == []
    loaded = await app.runs.load(lines)
    assert (loaded.new, loaded.there) == (2, 0)
    assert [await app.runs.get(run_id) for run_id in ("a", "a/1")] == before
    assert [await app.runs.steps(run_id) for run_id in ("a", "a/1")] == steps
    assert await app.get_events("a/1") == {"progress": "a"}
    again = await app.runs.load(lines)
    assert (again.new, again.there) == (0, 2)
    broken.clear()
    await app.runs.retry("a")
    assert await app.handle("a").result(timeout=20) == ["before 1", "a 1", "b 2"]


async def test_a_live_run_is_not_deleted() -> None:
    await chain.options(id="ended")("a")
    await chain.options(id="live", after="1d").start("a")
    with pytest.raises(Conflict, match=r"live \(scheduled\)"):
        await app.runs.delete("ended", "live")
    assert (await app.runs.get("ended")).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{"], "line 1 is not JSON"),
        (["[]"], "line 1 is not a JSON object"),
        (['{"table": "runs"}'], "an export begins with"),
        (['{"mainspring": "runs", "format": 1}', '{"table": "cats"}'], "not of 'cats'"),
        (['{"mainspring": "runs", "format": 1}', '{"table": "runs", "tail": 1}'], "has tail, which this version"),
        (['{"mainspring": "runs", "format": 1}', '{"table": "steps", "run": "x"}'], "comes before its run 'x'"),
    ],
)
async def test_what_is_no_export_is_not_loaded(lines: list[str], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        await app.runs.load(lines)


async def test_another_run_of_the_same_id_is_not_overwritten() -> None:
    await chain.options(id="a")("a")
    lines = await app.runs.export("a")
    await app.runs.delete("a")
    await chain.options(id="a")("b")
    with pytest.raises(Conflict, match="another run 'a'"):
        await app.runs.load(lines)
    assert (await app.runs.get("a")).output == ["b 1"]


# -- finding and counting ----------------------------------------------------------------------------------------------
async def test_runs_are_found_by_all_that_is_known_of_them() -> None:
    broken.add("b")
    await chain.options(id="good", attributes={"tenant": "acme", "size": 3, "vip": True})("a")
    await fail(parent, "bad", "b", attributes={"tenant": "acme", "size": 4})
    middle = (await app.runs.get("bad")).created
    assert (await app.runs.get("good")).completed is not None

    async def ids(**filters: Any) -> list[str]:
        return [found.id for found in (await app.runs.list(**filters)).runs]

    assert await ids() == ["bad/1", "bad", "good"]
    assert await ids(attributes={"tenant": "acme"}) == ["bad", "good"]
    assert await ids(attributes={"tenant": "acme", "size": 3}) == ["good"]
    assert await ids(attributes={"vip": True}) == ["good"]
    assert await ids(attributes={"vip": 1}) == []
    assert await ids(state="failed") == ["bad/1", "bad"]
    assert await ids(state=["failed", "succeeded"], workflow="chain") == ["bad/1", "good"]
    assert await ids(parent="bad") == ["bad/1"]
    assert await ids(version=app.version, kind="workflow") == ["bad/1", "bad", "good"]
    assert await ids(version="other") == []
    assert await ids(ids=["good", "nobody"]) == ["good"]
    assert await ids(id_prefix="bad") == ["bad/1", "bad"]
    assert await ids(created_after=middle) == ["bad/1", "bad"]
    assert await ids(created_before=middle) == ["good"]
    assert await ids(completed_before=middle) == ["good"]
    assert await ids(started_after=middle, started_before=middle) == []
    assert await ids(schedule="nightly") == []
    with pytest.raises(InvalidInput, match="aware datetime"):
        await ids(created_after=datetime(2026, 1, 1))  # noqa: DTZ001  (that is the point)
    with pytest.raises(InvalidInput, match="colour"):
        await ids(colour="red")


async def test_pages_are_stable_while_runs_come_and_go() -> None:
    for number in range(5):
        await chain.options(id=f"r{number}")("a")
    first = await app.runs.list(limit=2)
    await chain.options(id="new")("a")
    await app.runs.delete("r3")
    second = await app.runs.list(limit=2, after=first.next)
    third = await app.runs.list(limit=2, after=second.next)
    assert [each.id for page in (first, second, third) for each in page.runs] == ["r4", "r3", "r2", "r1", "r0"]
    assert third.next is None


async def test_figures_by_state_name_and_time() -> None:
    broken.add("b")
    await chain.options(id="good")("a")
    await fail(chain, "bad", "b")
    await chain.options(id="later", after="1d").start("a")
    figures = await app.runs.aggregate(["workflow", "state"])
    assert [(each.group, each.count) for each in figures] == [
        ({"workflow": "chain", "state": "failed"}, 1),
        ({"workflow": "chain", "state": "scheduled"}, 1),
        ({"workflow": "chain", "state": "succeeded"}, 1),
    ]
    assert all(
        each.average_time is not None and each.average_time > 0
        for each in figures
        if each.group["state"] != "scheduled"
    )
    assert (await app.runs.aggregate([], state="failed"))[0].count == 1
    spans = await app.runs.aggregate([], bucket="1d")
    assert sum(each.count for each in spans) == 3
    assert all(each.since is not None and each.since.hour == 0 for each in spans)
    with pytest.raises(InvalidInput, match="cannot be grouped by colour"):
        await app.runs.aggregate(["colour"])


# -- from anywhere -----------------------------------------------------------------------------------------------------
async def test_inside_a_run_they_are_recorded() -> None:
    broken.add("b")
    await fail(chain, "a", "b")
    broken.clear()
    retried, fork = await manager("a")
    assert retried == {"a": True}
    assert (await app.runs.get(fork)).forked_from == "a"


async def test_a_client_manages_without_the_code(store_url: str) -> None:
    broken.add("b")
    await fail(chain, "a", "a", "b")
    broken.clear()
    lines = await asyncio.to_thread(_manage, store_url)
    assert any('"table": "steps"' in line for line in lines)
    assert done == {"a": 1, "b": 3}


def _manage(url: str) -> list[str]:
    with Client(url) as client:
        fork = client.runs.fork.sync("a", "work")
        assert fork.result.sync(timeout=20) == ["a 1", "b 2"]
        assert client.runs.retry.sync("a") == {"a": True}
        assert client.handle("a").result.sync(timeout=20) == ["a 1", "b 3"]
        client.runs.delete.sync(fork.id)
        assert client.runs.aggregate.sync()[0].count == 1
        return client.runs.export.sync("a")
