"""Functions by their names, in an app that has their code and in a client that does not."""

from __future__ import annotations

import pytest

from mainspring import App, Client, run
from mainspring.errors import InvalidInput, UnknownFunction
from mainspring.testing import world

app = App("sqlite://")


@app.workflow
async def child(number: int) -> int:
    return number + 1


@app.step
async def lone(number: int) -> int:
    return number * 2


@app.workflow
async def parent() -> list[int | str]:
    by_name = await app.start("child", 1)
    as_step = await app.options(id="lone-1").start("lone", 21)
    return [await by_name.result(), by_name.id, await as_step.result()]


@app.workflow
def blocking_parent() -> str:
    return app.start.sync("child", 1).id


async def test_a_run_starts_a_child_by_name(store_url: str) -> None:
    async with world(app, url=store_url):
        assert await parent.options(id="p").start() is not None
        assert await app.handle("p").result() == [2, "p/0", 42]
        described = await app.runs.get("p/0")
        assert described.parent == "p"
        blocked = await blocking_parent.options(id="b").start()
        assert await blocked.result() == "b/0"


async def test_a_client_inside_a_run_starts_a_child_by_name(store_url: str) -> None:
    mine = App(store_url)
    client = Client(store_url)

    @mine.workflow
    async def other(number: int) -> int:
        return number + 1

    @mine.workflow
    async def caller() -> object:
        handle = await client.start("other", 1)
        return [handle.id == f"{run.id}/0", await handle.result()]

    try:
        async with mine:
            assert await (await caller.start()).result(timeout=20) == [True, 2]
    finally:
        client.close()


async def test_an_app_checks_name_and_arguments_at_the_call(store_url: str) -> None:
    async with world(app, url=store_url):
        with pytest.raises(UnknownFunction, match="Client"):
            await app.start("chid", 1)
        with pytest.raises(InvalidInput, match="cannot be called like this"):
            await app.start("child", 1, 2)
