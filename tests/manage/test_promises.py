"""More of what is promised of managing runs: whole families, forks of other kinds of steps, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring import App, State, Tx, run
from mainspring.errors import NotFound, RunCancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

app = App("sqlite://", version="v1")
app.queue("lane", concurrency=1)
committed: list[str] = []


@app.transaction
def save(tx: Tx, what: str) -> str:
    tx.execute("SELECT 1")
    committed.append(what)
    return f"{what} {len(committed)}"


@app.workflow
async def family(depth: int) -> str:
    if depth:
        return await family.options(id=f"{run.id}.")(depth - 1)
    await run.receive("never")
    return "woken"


@app.workflow
async def saving(fail: bool = False) -> list[str]:
    saved = await save.aio("first")
    child = await echo.options(id=f"{run.id}-child")(saved)
    if fail:
        raise OSError("by itself")
    return [saved, child, await save.aio("last")]


@app.workflow
async def echo(what: str) -> str:
    return what


@pytest.fixture(autouse=True)
async def entered(store_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(app._runtime, "url", store_url)
    committed.clear()
    async with app:
        yield


async def test_cancel_and_delete_reach_every_generation_of_several_families() -> None:
    roots = [await family.options(id=name).start(2) for name in ("a", "b")]
    for name in ("a..", "b.."):  # the grandchildren have begun when they can be sent something
        while not [each for each in (await app.runs.list(id_prefix=name)).runs if each.state is State.WAITING]:
            await app.workers.list()
    assert await app.runs.cancel("a", "b", "nobody") == {"a": True, "b": True, "nobody": False}
    for root in roots:
        with pytest.raises(RunCancelled):
            await root.result(timeout=60)
    for name in ("a.", "a..", "b.", "b.."):
        with pytest.raises(RunCancelled):
            await app.handle(name).result(timeout=60)
    assert await app.runs.delete("a", "b") == {"a": True, "b": True}
    assert (await app.runs.list()).runs == []


async def test_there_is_nothing_to_resume_of_what_has_ended_well_and_nobody_resumes_what_is_not_there() -> None:
    await echo.options(id="a")("x")
    assert await app.runs.resume("a") == {"a": False}
    with pytest.raises(NotFound):
        await app.runs.resume("a", "nobody")


async def test_a_fork_keeps_transactions_and_children_and_changes_what_it_is_told_to() -> None:
    assert await saving.options(id="a")() == ["first 1", "first 1", "last 2"]
    last = (await app.runs.steps("a"))[-1]
    fork = await app.runs.fork("a", last.position, id="b", queue="lane", timeout="1h", version="v1")
    assert await fork.result(timeout=60) == ["first 1", "first 1", "last 3"]
    found = await app.runs.get("b")
    assert (found.queue, found.timeout, found.version) == ("lane", 3600, "v1")
    assert (found.forked_from, found.forked_at) == ("a", last.position)
    assert [step.child for step in await app.runs.steps("b") if step.kind == "call"] == ["a-child"]
    assert [each.id for each in (await app.runs.list(forked_from="a")).runs] == ["b"]
    assert await app.handle("a").result() == ["first 1", "first 1", "last 2"]


async def test_what_failed_by_itself_is_forked_from_the_last_thing_it_recorded() -> None:
    with pytest.raises(OSError, match="by itself"):
        await saving.options(id="a")(fail=True)
    forks = await app.runs.fork_failed("a")
    with pytest.raises(OSError, match="by itself"):
        await app.handle(forks["a"]).result(timeout=60)
    assert (await app.runs.get(forks["a"])).forked_at == "1"
    assert committed == ["first"]


async def test_the_version_is_a_hash_of_the_source_unless_it_is_given() -> None:
    async def plain(what: str) -> str:
        return what

    def made() -> App:
        other = App("sqlite://")
        other.workflow(plain)
        return other

    assert made().version == made().version
    assert app.version == "v1"
    assert made().version not in {"", "v1"}
    assert [each.version for each in await app.versions.list()] == ["v1"]
