"""A client without the app's code schedules functions by name, also as part of a transaction of its user's."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from mainspring import App, Client, State, Tx
from mainspring.errors import InvalidInput, NotFound
from mainspring.testing import world
from tests.transactions import bank, own

app = App("sqlite://")
seen: list[Any] = []
events: dict[str, asyncio.Event] = {}


@app.step
async def note(what: Any) -> str:
    seen.append(what)
    return f"noted {what}"


@app.transaction
def enter(tx: Tx, entry: str) -> None:
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))


@app.step
async def busy() -> None:
    events["begun"].set()
    await events["go on"].wait()
    seen.append("ran on")
    await app.run_after(0, note.bind("never"))


async def test_a_client_schedules_by_name(url: str) -> None:
    async with world(app, url=url) as w, Client(url, clock=app._runtime.clock) as client:
        soon = await client.run_after("1m", client.bind("note", "soon"))
        late = await client.run_at(w.now + timedelta(hours=1), client.options(id="late").bind("enter", "late"))
        record = await client.scheduled_functions.get(soon.id)
        assert (record.name, record.state, record.args) == ("note", "pending", [{"*": ["soon"]}])
        assert record.scheduled_time == w.now + timedelta(minutes=1)
        assert (await client.scheduled_functions.get(late.id)).scheduled_time == w.now + timedelta(hours=1)
        assert await soon.result() == "noted soon"
        assert await late.result() is None
        assert bank.rows(url, "SELECT entry FROM ledger") == [("late",)]
        for bad in (-1, "soon"):
            with pytest.raises(InvalidInput):
                await client.run_after(bad, client.bind("note", 1))
        with pytest.raises(InvalidInput, match="bind"):
            await client.run_after(1, cast("Any", "note"))


async def test_blocking_code_schedules_by_name(url: str) -> None:
    def work() -> list[str]:
        with Client(url, clock=app._runtime.clock) as client:
            return [
                client.run_after.sync(0, client.bind("note", "after")).id,
                client.run_at.sync(app._runtime.clock.now() / 1e6, client.bind("note", "at")).id,
            ]

    async with world(app, url=url):
        ids = await asyncio.to_thread(work)
        assert [await app.handle(each).result() for each in ids] == ["noted after", "noted at"]


async def test_a_client_schedules_as_part_of_a_transaction(url: str) -> None:
    kind = "sqlite3" if bank.is_sqlite(url) else "psycopg async"
    async with world(app, url=url) as w, Client(url, clock=app._runtime.clock) as client:
        for end in ("rollback", "commit"):
            async with own.opened(url, kind) as mine:
                async with client.joined(mine.given):
                    await mine.execute("INSERT INTO ledger VALUES ('own')")
                    await client.run_after("1m", client.options(id="joined").bind("note", end))
                    await client.run_at(w.now, client.options(id="at").bind("note", f"{end} at"))
                    assert (await client.scheduled_functions.get("joined")).state == "pending"
                await getattr(mine, end)()
            if end == "rollback":
                with pytest.raises(NotFound):
                    await client.handle("joined").describe()
        # A worker awaits of the commit a moment later, and the clock must not move on before that.
        assert await client.handle("at").result() == "noted commit at"
        assert await client.handle("joined").result() == "noted commit"
        assert bank.rows(url, "SELECT entry FROM ledger") == [("own",)]


async def test_what_a_client_calls_by_name_is_cancelled_as_what_it_is(url: str) -> None:
    """Whoever starts by name does not know a step from a workflow; whoever executes it does."""
    events.update(begun=asyncio.Event(), **{"go on": asyncio.Event()})
    async with world(app, url=url) as w, Client(url, clock=app._runtime.clock) as client:
        handle = await client.run_after(0, client.bind("busy"))
        await asyncio.wait_for(events["begun"].wait(), 60)
        assert await handle.cancel()
        info = await handle.describe()
        assert (info.kind, info.state) == ("step", State.CANCELLED)
        events["go on"].set()
        await w.advance("1m")
        assert seen == ["ran on"]
        assert [each.state for each in await client.scheduled_functions.list()] == ["canceled", "canceled"]
