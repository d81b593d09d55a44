"""`run.patched`: new runs take the new path, old ones the old one, and the patch can be removed when no run needs it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring import App, State, run
from mainspring.errors import InvalidInput, NotInRun
from mainspring.model.runs import Step
from mainspring.testing import world
from tests.engine import lives

app = App("sqlite://")
form = "old"


@app.step
async def work(what: str) -> str:
    return what


@app.workflow
async def flow() -> list[Any]:
    """As the code was, is with a patch, and will be without it: `form` says which of them it is."""
    made: list[Any] = [await work("a")]
    if form == "old":
        made.append(await work("b"))
    elif form == "patched":
        made.append(await work("new") if run.patched("b is new") else await work("b"))
    else:
        made.append(await work("new"))
    await run.receive("go")
    again = form == "patched" and run.patched("b is new")
    return [*made, again]


@app.workflow
def blocking() -> str:
    if run.patched("x"):
        work.sync("new")
        run.sleep.sync("1h")
        return "new"
    return "old"


@app.workflow
async def branches() -> list[Any]:
    async def patched() -> list[Any]:
        return [await work("a"), run.patched("in a branch")]

    first, second = await asyncio.gather(patched(), work("b"))
    return [*first, second]


@app.workflow
async def nameless() -> None:
    run.patched("")


@pytest.fixture(autouse=True)
def _old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.engine.test_patches.form", "old")


async def test_old_runs_keep_the_old_path_and_new_ones_take_the_new(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app, url=store_url) as w:
        old = await flow.options(id="old").start()
        await w.drain()
        monkeypatch.setattr("tests.engine.test_patches.form", "patched")
        await lives.another_process(w)
        new = await flow.options(id="new").start()
        await w.drain()
        await lives.another_process(w)  # both are replayed
        for run_id in ("old", "new"):
            await app.send(run_id, "go", 1)
        assert await old.result() == ["a", "b", False]
        assert await new.result() == ["a", "new", True]
        assert [step.name for step in await app.runs.steps("new") if step.kind == "patch"] == ["b is new"]


async def test_a_patch_is_removed_when_only_new_runs_are_left(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.engine.test_patches.form", "patched")
    async with world(app, url=store_url) as w:
        new = await flow.options(id="new").start()
        await w.drain()
        monkeypatch.setattr("tests.engine.test_patches.form", "new")
        await lives.another_process(w)
        await app.send("new", "go", 1)
        assert await new.result() == ["a", "new", False]


async def test_def_workflows_are_patched_too(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handle = await blocking.start()
        await w.advance("1m")
        await lives.another_process(w)
        assert await handle.result() == "new"
        assert (await handle.describe()).state is State.SUCCEEDED


async def test_a_new_run_takes_the_patch_after_a_crash_that_kept_outcomes_from_two_branches(store_url: str) -> None:
    """Both were committed, and the code had got neither: it was not past the patch, although the record goes on beside it."""
    async with world(app, url=store_url):
        recorded = [
            Step("", position, "step", "work", seq=seq, output=f'"{what}"', started=1, completed=1)
            for seq, (position, what) in enumerate([("t0.0", "a"), ("0", "b")])
        ]
        lives.put(app, branches, "r", recorded)
        assert await app.handle("r").result() == ["a", True, "b"]


async def test_misuse_is_an_error(store_url: str) -> None:
    async with world(app, url=store_url):
        with pytest.raises(InvalidInput, match="name of a change"):
            await nameless()
        with pytest.raises(NotInRun):
            run.patched("x")
