"""A client can do all that an app can, except what needs the code: the two are compared name by name, blocking and awaiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, Message, Spec, State, run

if TYPE_CHECKING:
    from collections.abc import Iterator

app = App("sqlite://")
ABOUT_CODE = {
    *(
        "workflow",
        "step",
        "transaction",
        "resource",
        "instance",
        "include",
        "imports",
        "name",
        "settings",
        "url",
        "version",
    ),
    *("queue", "schedule", "scheduled", "crontab", "on", "on_late", "on_missed", "on_paused_by_failure"),
}
"""Registering functions, and declaring what goes with them."""
ABOUT_EXECUTING = {"pause", "resume", "drain"}
"""What this very process executes."""
NOUNS = ("runs", "schedules", "scheduled_functions", "queues", "workers", "versions")


@app.workflow
async def listen(count: int) -> list[Any]:
    await run.set_event("ready", count)
    return [await run.receive("t") for _ in range(count)]


@pytest.fixture
def client(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(app._runtime, "url", store_url)
    with Client(store_url) as made:
        yield made


def _names(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_a_client_has_every_verb_that_does_not_need_the_code(client: Client) -> None:
    assert _names(app) - _names(client) == ABOUT_CODE | ABOUT_EXECUTING
    assert not _names(client) - _names(app)


@pytest.mark.parametrize("noun", NOUNS)
def test_the_nouns_of_both_have_the_same_verbs_in_both_colours(client: Client, noun: str) -> None:
    ours, theirs = getattr(app, noun), getattr(client, noun)
    assert _names(ours) == _names(theirs)
    for name in _names(theirs) - {"preview"}:  # which needs no database
        assert callable(getattr(theirs, name).sync), f"{noun}.{name} cannot block"


def test_every_verb_of_a_client_comes_in_both_colours(client: Client) -> None:
    plain = {*NOUNS, "bind", "options", "handle", "close", "joined"}
    for name in _names(client) - plain:
        verb: Any = getattr(client, name)
        assert callable(verb.sync), f"client.{name} cannot block"


async def test_a_client_starts_sends_and_looks_in_bulk(client: Client) -> None:
    async with app:
        both = await client.start_many(client.options(id=name).bind("listen", 2) for name in ("a", "b"))
        await client.send_many([Message(handle.id, "t", n) for n in range(2) for handle in both])
        assert await client.gather(*both) == [[0, 1], [0, 1]]
        assert (await client.first(*both)).id in {"a", "b"}
        assert await client.get_events("a") == {"ready": 2}


def test_blocking_code_does_the_same(client: Client) -> None:
    with app:
        both = client.start_many.sync(client.options(id=name).bind("listen", 1) for name in ("a", "b"))
        client.send_many.sync([Message(handle.id, "t", 1) for handle in both])
        assert client.gather.sync(*both) == [[1], [1]]
        assert client.get_events.sync("a") == {"ready": 1}
        assert client.runs.get.sync("a").state is State.SUCCEEDED
        fork = client.runs.fork.sync("a", "t")
        client.send.sync(fork.id, "t", 2)
        assert fork.result.sync(timeout=30) == [2]
        assert client.runs.delete.sync("a") == {"a": True}


async def test_a_page_is_gone_through_like_a_list_also_in_a_run(store_url: str) -> None:
    app = App(store_url)

    @app.workflow
    async def idle() -> None: ...

    @app.workflow
    async def looking() -> list[str]:
        runs, schedules, ticks = (
            await app.runs.list(workflow="idle"),
            await app.schedules.list(),
            await app.schedules.ticks("hourly"),
        )
        return [runs[0].id, *(found.id for found in schedules), *(str(tick.outcome) for tick in ticks)]

    async with app:
        assert len(await app.runs.list()) == 0
        await idle.options(id="one")()
        await app.schedules.create("hourly", idle.bind(), Spec(intervals=["1h"]), trigger=False)
        await app.schedules.trigger("hourly")
        found = await looking()
        assert found[1:] == ["hourly", "fired"]
        assert found[0] in [run.id for run in await app.runs.list(workflow="idle")]
