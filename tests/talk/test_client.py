"""A client without the app's code: start by name, wait, talk, see and stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring import App, Client, Settings, State, run
from mainspring.app.waits import Subscriptions
from mainspring.errors import InvalidInput, NotFound, NotSerializable

app = App("sqlite://")


@app.workflow
async def shop(order: str, *, express: bool = False) -> list[Any]:
    await run.set_event("state", "waiting")
    card = await run.receive("card")
    await run.write_stream("log", f"paid by {card}")
    return [order, express, card]


@app.workflow
async def looking(run_id: str) -> list[Any]:
    found = await app.runs.get(run_id)
    page = await app.runs.list(workflow="shop")
    fleet = await app.workers.list()
    stopped = await app.runs.cancel(run_id, "nobody")
    return [found.id, [each.id for each in page.runs], len(fleet), stopped, await app.runs.counts() != {}]


@pytest.fixture
def url(store_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(app._runtime, "url", store_url)
    return store_url


async def test_a_client_starts_by_name_talks_and_waits(url: str) -> None:
    async with app, Client(url) as client:
        handle = await client.options(id="a").start("shop", "books", express=True)
        assert await client.get_event("a", "state") == "waiting"
        await client.send("a", "card", "4711")
        assert await handle.result(timeout=20) == ["books", True, "4711"]
        assert [value async for value in client.read_stream("a", "log")] == ["paid by 4711"]
        assert await client.handle("a").result(timeout=20) == ["books", True, "4711"]
        assert (await client.runs.get("a")).state is State.SUCCEEDED
        assert len(await client.workers.list()) == 1


def test_a_client_blocks_as_well(url: str) -> None:
    with app, Client(url) as client:
        handle = client.options(id="a").start.sync("shop", "books")
        client.send.sync("a", "card", 1)
        assert handle.result.sync(timeout=20) == ["books", False, 1]
        assert list(client.read_stream.sync("a", "log")) == ["paid by 1"]
        assert [step.name for step in client.runs.steps.sync("a")][:2] == ["state", "card"]


async def test_a_client_can_give_an_argument_that_is_called_name(url: str) -> None:
    async with Client(url) as client:
        for start in (client.start, client.options(attributes={}).start):
            handle = await start("greet", name="Ada")
            assert (await handle.describe()).input["name"] == "Ada"
        assert client.bind("greet", name="Ada").kwargs == {"name": "Ada"}


async def test_what_a_client_starts_waits_for_a_worker(url: str) -> None:
    async with Client(url) as client:
        handle = await client.start("shop", "books")
        assert (await handle.describe()).state is State.QUEUED
        await client.send(handle.id, "card", 1)
        async with app:
            assert await handle.result(timeout=20) == ["books", False, 1]


async def test_arguments_that_do_not_fit_fail_the_run_with_the_reason(url: str) -> None:
    async with app, Client(url) as client:
        handle = await client.start("shop", "books", colour="red")
        with pytest.raises(NotSerializable, match="do not fit"):
            await handle.result(timeout=20)
        with pytest.raises(InvalidInput):
            await client.start("")
        with pytest.raises(NotFound):
            await client.runs.get("nobody")


async def test_looking_and_cancelling_inside_a_run_are_recorded(url: str) -> None:
    async with app:
        await shop.options(id="a").start("books")
        expected = ["a", ["a"], 1, {"a": True, "nobody": False}, True]
        assert await looking.options(id="l").start("a") is not None
        assert await asyncio.wait_for(app.handle("l").result(), 20) == expected
        names = [step.name for step in await app.runs.steps("l")]
        assert names == ["runs.get", "runs.list", "workers.list", "runs.cancel", "runs.counts"]


def test_a_client_of_several_event_loops_finds_what_no_notification_announces(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hears_nothing(_: Subscriptions, signal: object) -> None: ...

    monkeypatch.setattr(Subscriptions, "notify", hears_nothing)
    app = App(store_url)

    @app.workflow
    async def teller() -> None:
        await run.receive("go")
        await run.set_event("told", "yes")

    client = App(store_url, settings=Settings(work=False, poll=0.05))
    with app:
        teller.options(id="t").start.sync()
        assert asyncio.run(client.get_event("t", "told", timeout=0.01)) is None

        async def second() -> str:
            told = asyncio.create_task(client.get_event("t", "told"))
            await asyncio.sleep(0)
            await client.send("t", "go", "now")
            async with asyncio.timeout(60):
                return str(await told)

        assert asyncio.run(second()) == "yes"
    client.close()
