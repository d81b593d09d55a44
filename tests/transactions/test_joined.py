"""What is made part of a transaction that the user opened is there when it commits, and never was when it rolls back."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any, cast

import psycopg
import pytest

from mainspring import App, Client, Spec, State, run
from mainspring.errors import InTransaction, InvalidInput, NotFound, RunCancelled
from mainspring.recurrence import Interval
from mainspring.store.open import sqlite_path
from mainspring.testing import world
from tests.transactions import bank, own

pytest.importorskip("greenlet")
app = App("sqlite://")
EVERY_DAY = Spec(intervals=[Interval("1d")])


@app.workflow
async def echo(what: str) -> str:
    return what


@app.workflow
async def listen() -> Any:
    return await run.receive("news", timeout="1h")


@app.workflow
async def sleep() -> None:
    await run.sleep("1h")


@pytest.fixture(params=own.KINDS, ids=lambda pair: "-".join(pair).replace(" ", "-"))
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A database with a table of the user's own, and the kind of connection to it."""
    where, kind = request.param
    url: str = request.getfixturevalue(f"{where}_url")
    bank.execute(url, "CREATE TABLE ledger (entry text NOT NULL)")
    return url, kind


async def everything(mine: own.Own, entry: str) -> None:
    """All verbs, in one transaction."""
    async with app.joined(mine.given):
        await mine.execute(f"INSERT INTO ledger VALUES ('{entry}')")
        await echo.options(id="one").start("one")
        await app.start_many([echo.options(id="two").bind("two"), echo.options(id="three").bind("three")])
        await app.run_after(0, echo.options(id="later").bind("later"))
        await app.send("listener", "news", {"it": "happened"})
        assert await app.handle("sleeper").cancel(reason="joined")
        assert await app.runs.cancel("sleeper") == {"sleeper": False}
        await app.schedules.create("daily", echo.bind("tick"), EVERY_DAY)
        assert await app.schedules.trigger("daily") is not None
        await app.schedules.pause("daily", note="not yet")
        with pytest.raises(NotFound, match="nobody"):
            await app.send("nobody", "news", 1)


async def test_every_verb_takes_part_in_every_kind_of_transaction(place: tuple[str, str]) -> None:
    url, kind = place
    async with world(app, url=url) as w:
        listener = await listen.options(id="listener").start()
        sleeper = await sleep.options(id="sleeper").start()
        await w.settle()
        async with own.opened(url, kind) as mine:
            await everything(mine, "undone")
            await mine.rollback()
        assert bank.rows(url, "SELECT entry FROM ledger") == []
        for run_id in ("one", "two", "three", "later"):
            with pytest.raises(NotFound):
                await app.handle(run_id).describe()
        with pytest.raises(NotFound):
            await app.schedules.describe("daily")
        assert (await sleeper.describe()).state is State.WAITING

        async with own.opened(url, kind) as mine:
            await everything(mine, "done")
            assert await waiting_runs(url) == {"listener", "sleeper"}  # nobody else sees anything of it
            await mine.commit()
        assert bank.rows(url, "SELECT entry FROM ledger") == [("done",)]
        assert [await app.handle(each).result() for each in ("one", "two", "three")] == ["one", "two", "three"]
        assert await app.handle("later").result() == "later"
        assert await listener.result() == {"it": "happened"}
        with pytest.raises(RunCancelled, match="joined"):
            await sleeper.result()
        found = await app.schedules.describe("daily")
        assert (found.paused, found.note) == (True, "not yet")
        assert "fired" in [tick.outcome for tick in found.recent]


async def waiting_runs(url: str) -> set[str]:
    return {row[0] for row in await asyncio.to_thread(bank.rows, url, f"SELECT id FROM {bank.runs_table(url)}")}


async def test_a_client_joins_as_well(store_url: str) -> None:
    bank.execute(store_url, "CREATE TABLE ledger (entry text NOT NULL)")
    kind = "sqlite3" if bank.is_sqlite(store_url) else "psycopg"
    async with world(app, url=store_url), Client(store_url) as client:
        async with own.opened(store_url, kind) as mine:
            with client.joined(mine.given):
                await mine.execute("INSERT INTO ledger VALUES ('client')")
                await client.options(id="undone").start("echo", "never")
            await mine.rollback()
            if bank.is_sqlite(store_url):
                await mine.execute("BEGIN IMMEDIATE")
            with client.joined(mine.given):
                handle = await client.options(id="done").start("echo", "by name")
            await mine.commit()
        assert await handle.result() == "by name"
        with pytest.raises(NotFound):
            await client.handle("undone").describe()


async def test_blocking_code_joins_without_a_loop(store_url: str) -> None:
    kind = "sqlite3" if bank.is_sqlite(store_url) else "psycopg"

    def work() -> None:
        connection: Any = None
        if kind == "sqlite3":
            connection = sqlite3.connect(sqlite_path(store_url), timeout=30)
        else:
            connection = psycopg.connect(store_url)
        with app.joined(connection):
            echo.options(id="blocking").start.sync("it")
            app.run_after.sync("1h", echo.options(id="blocking later").bind("later"))
            app.schedules.create.sync("daily", echo.bind("tick"), EVERY_DAY)
            app.schedules.trigger.sync("daily")
        connection.commit()
        connection.close()

    async with world(app, url=store_url):
        await asyncio.to_thread(work)
        assert await app.handle("blocking").result() == "it"
        assert (await app.handle("blocking later").describe()).state is State.SCHEDULED
        assert len((await app.schedules.describe("daily")).recent) == 1


joins = App("sqlite://")


@joins.workflow
async def leaf() -> str:
    return "leaf"


@joins.step
async def join_in_a_step(url: str, kind: str) -> None:
    """It sends once, however often it is tried; and says something on behalf of its run."""
    async with own.opened(url, kind) as mine:
        with joins.joined(mine.given):
            await leaf.start()
            await run.set_event("progress", 50)
        await mine.commit()
    if run.attempt == 1:
        raise RuntimeError("after the commit")


@joins.workflow
async def stepping(url: str, kind: str) -> int:
    await join_in_a_step(url, kind)
    return 1


@joins.workflow
async def joining_in_its_body(url: str) -> None:
    async with own.opened(url, "sqlite3") as mine:
        joins.joined(mine.given).__enter__()


async def test_a_step_that_joins_starts_the_same_run_when_it_is_tried_again(store_url: str) -> None:
    kind = "sqlite3" if bank.is_sqlite(store_url) else "psycopg async"
    async with world(joins, url=store_url):
        handle = await stepping.start(store_url, kind)
        with pytest.raises(RuntimeError, match="after the commit"):
            await handle.result()
        assert await joins.get_event(handle.id, "progress") == 50
        assert await joins.handle(f"{handle.id}/0.s0").result() == "leaf"


async def test_a_workflows_own_body_does_not_join(sqlite_url: str) -> None:
    async with world(joins, url=sqlite_url):
        with pytest.raises(InTransaction, match="replay"):
            await joining_in_its_body(sqlite_url)


async def test_what_cannot_be_joined_is_an_error_that_says_so(store_url: str, tmp_path: Any) -> None:
    async with world(app, url=store_url):
        with pytest.raises(InvalidInput, match="cannot write to it"):
            app.joined(cast("Any", object())).__enter__()
        if bank.is_sqlite(store_url):
            other = sqlite3.connect(tmp_path / "other.db")
            with pytest.raises(InvalidInput, match="one file"):
                app.joined(other).__enter__()
            bare = sqlite3.connect(sqlite_path(store_url), isolation_level=None)
            with pytest.raises(InvalidInput, match="BEGIN"):
                app.joined(bare).__enter__()
            other.close()
            bare.close()
        else:
            with psycopg.connect(store_url, autocommit=True) as bare_postgres:
                with pytest.raises(InvalidInput, match="transaction"):
                    app.joined(bare_postgres).__enter__()
                with bare_postgres.transaction(), app.joined(bare_postgres):
                    handle = await echo.start("in a block")
                assert await handle.result() == "in a block"


async def test_waiting_inside_the_block_is_refused_and_after_it_verbs_are_plain_again(store_url: str) -> None:
    kind = "sqlite3" if bank.is_sqlite(store_url) else "psycopg"
    async with world(app, url=store_url):
        async with own.opened(store_url, kind) as mine:
            with app.joined(mine.given):
                handle = await echo.start("x")
                with pytest.raises(InTransaction, match="waits"):
                    await handle.result()
                with pytest.raises(InTransaction, match="waits"):
                    await echo("y")
                with pytest.raises(InTransaction, match="waits"):
                    await app.get_event(handle.id, "e")
                with pytest.raises(InTransaction, match="already"), app.joined(mine.given):
                    pass
            await mine.commit()
        assert await echo("plain") == "plain"
