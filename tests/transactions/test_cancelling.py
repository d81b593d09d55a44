"""Cancelling functions that run: what they schedule from then on, and what becomes of one that cancels itself."""

from __future__ import annotations

import asyncio

import pytest

from mainspring import App, State, Tx, run
from mainspring.errors import InTransaction
from mainspring.testing import world
from tests.transactions import bank

app = App("sqlite://")
events: dict[str, asyncio.Event] = {}
seen: list[str] = []


@app.step
async def leaf(name: str) -> None:
    seen.append(name)


@app.workflow
async def branch(name: str) -> None:
    await app.run_after(0, leaf.bind(f"{name} of a branch"))


@app.transaction
def in_transaction(tx: Tx) -> None:
    del tx
    app.run_after.sync(0, leaf.bind("from a transaction"))


@app.step
async def busy() -> str:
    await app.run_after("1s", leaf.bind("before"))
    events["begun"].set()
    await events["go on"].wait()
    await app.run_after(0, leaf.bind("after"))
    await branch.start("after")
    await in_transaction.aio()
    seen.append("ran on")
    return "discarded"


async def test_a_running_function_that_is_cancelled_runs_on_and_what_it_schedules_does_not(url: str) -> None:
    events.update(begun=asyncio.Event(), **{"go on": asyncio.Event()})
    async with world(app, url=url) as w:
        handle = await app.run_after(0, busy.bind())
        await asyncio.wait_for(events["begun"].wait(), 60)
        assert await handle.cancel()
        assert (await app.scheduled_functions.get(handle.id)).state == "canceled"
        events["go on"].set()
        await w.advance("1m")
        assert sorted(seen) == ["before", "ran on"]
        assert (await handle.describe()).state is State.CANCELLED
        states = {each.name: each.state for each in await app.scheduled_functions.list(state="canceled")}
        assert states == {"busy": "canceled", "leaf": "canceled"}
        assert (await app.handle(f"{handle.id}/0.s2").describe()).state is State.CANCELLED


# -- oneself -----------------------------------------------------------------------------------------------------------
@app.step
async def cancels_itself() -> bool:
    return await app.handle(run.id).cancel()


@app.step
async def cancels_itself_by_its_id() -> bool:
    return any((await app.runs.cancel(run.id, "nobody")).values())


@app.transaction
def cancels_itself_in_a_transaction(tx: Tx) -> bool:
    tx.execute("INSERT INTO ledger VALUES ('it')")
    return app.handle(run.id).cancel.sync()


@app.transaction
def cancels_itself_by_its_id_in_a_transaction(tx: Tx) -> bool:
    tx.execute("INSERT INTO ledger VALUES ('id')")
    return any(app.runs.cancel.sync(run.id, "nobody").values())


async def test_a_function_that_cancels_itself_does_no_harm(url: str) -> None:
    functions = (
        cancels_itself,
        cancels_itself_by_its_id,
        cancels_itself_in_a_transaction,
        cancels_itself_by_its_id_in_a_transaction,
    )
    async with world(app, url=url):
        for fn in functions:
            handle = await app.run_after(0, fn.bind())
            assert await handle.result() is False
            assert (await app.scheduled_functions.get(handle.id)).state == "success"
    assert bank.rows(url, "SELECT entry FROM ledger ORDER BY entry") == [("id",), ("it",)]


async def test_it_cancels_others_with_itself(url: str) -> None:
    @app.transaction(name="cancels both")
    def cancels_both(tx: Tx, other: str) -> list[bool]:
        del tx
        return list(app.runs.cancel.sync(run.id, other).values())

    async with world(app, url=url):
        other = await app.run_after("1h", leaf.bind("never"))
        assert await (await cancels_both.start(other.id)).result() == [False, True]
        assert (await other.describe()).state is State.CANCELLED


@app.transaction
def cancels_its_parent(tx: Tx, parent: str) -> bool:
    tx.execute("INSERT INTO ledger VALUES ('undone')")
    return app.handle(parent).cancel.sync()


@app.workflow
async def parent() -> str:
    child = await cancels_its_parent.start(run.id)
    with pytest.raises(InTransaction, match="part of"):
        await child.result()
    return child.id


async def test_a_transaction_that_takes_its_own_run_away_is_told_so_and_rolled_back(url: str) -> None:
    """Its parent's children are cancelled with that, itself among them: then there is no run to record it in."""
    async with world(app, url=url):
        child = await parent()
        assert (await app.handle(child).describe()).state is State.FAILED
    assert bank.rows(url, "SELECT entry FROM ledger") == []
