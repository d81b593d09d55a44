"""What is made part of a transaction that the user opened is there when it commits, and never was when it rolls back."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

from mainspring import App, Client, Overlap, Policy, Spec, State, run
from mainspring.app.declarations.schedules import Declaration
from mainspring.errors import Conflict, InTransaction, InvalidInput, NotFound, RunCancelled, SchemaError
from mainspring.recurrence import Interval
from mainspring.store.open import sqlite_path
from mainspring.store.sqlite import database
from mainspring.testing import world
from tests.transactions import bank, own

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import PostgresServer

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
        await w.drain()
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


@pytest.mark.parametrize("how", ["drain", "advance", "advance_to"])
async def test_a_test_finds_done_what_other_connections_committed(store_url: str, how: str) -> None:
    async with world(app, url=store_url) as w, Client(store_url) as client:
        for number in range(5):
            async with own.opened(store_url, "session") as mine:
                with app.joined(mine.given):
                    handle = await echo.options(id=f"joined {number}").start("one")
                await mine.commit()
            await client.options(id=f"of a client {number}").start("echo", "two")
            await w.drain() if how == "drain" else await getattr(w, how)(
                "1s" if how == "advance" else w.now + timedelta(seconds=1)
            )
            assert (await handle.describe()).state is State.SUCCEEDED
            assert (await app.handle(f"of a client {number}").describe()).state is State.SUCCEEDED


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


async def test_the_first_thing_an_app_does_can_be_to_join_a_transaction_that_has_written(store_url: str) -> None:
    """It looks whether its tables are there without waiting for anybody, which would be waiting for itself."""
    kind = "sqlite3" if bank.is_sqlite(store_url) else "psycopg"
    bank.execute(store_url, "CREATE TABLE ledger (entry text NOT NULL)")
    async with world(app, url=store_url), Client(store_url) as late:
        async with own.opened(store_url, kind) as mine:
            await mine.execute("INSERT INTO ledger VALUES ('first')")
            async with late.joined(mine.given):
                handle = await late.start("echo", "joined at once")
            await mine.commit()
        assert await handle.result() == "joined at once"


@pytest.mark.parametrize("kind", [*own.SQLITE, *own.ALCHEMY])
@pytest.mark.parametrize("journal", ["wal", "delete"])
async def test_tables_cannot_be_made_beside_a_transaction_which_is_told_at_once(
    kind: str, journal: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for the turn to make them would be waiting for the transaction, which waits for us."""

    def sleep(seconds: float) -> None:
        raise AssertionError(f"waits for {seconds} s, and then again")

    bank.execute(sqlite_url, f"PRAGMA journal_mode = {journal}", "CREATE TABLE ledger (entry text NOT NULL)")
    async with Client(sqlite_url) as fresh:
        async with own.opened(sqlite_url, kind) as mine:
            await mine.execute("INSERT INTO ledger VALUES ('first')")
            with monkeypatch.context() as patched:
                patched.setattr(database, "time", SimpleNamespace(sleep=sleep))
                with pytest.raises(SchemaError, match=r"while a transaction is open .* run `mainspring db migrate"):
                    await fresh.joined(mine.given).__aenter__()
            await mine.commit()
        assert await fresh.runs.counts() == {}
        async with own.opened(sqlite_url, kind) as mine:
            await mine.execute("INSERT INTO ledger VALUES ('second')")
            async with fresh.joined(mine.given):
                handle = await fresh.start("echo", "after all")
            await mine.commit()
        assert (await handle.describe()).state is State.QUEUED


async def test_a_transaction_that_has_only_read_is_told_so_too(sqlite_url: str) -> None:
    """It would not see the tables that are made beside it."""
    bank.execute(sqlite_url, "PRAGMA journal_mode = wal", "CREATE TABLE ledger (entry text NOT NULL)")
    mine = sqlite3.connect(sqlite_path(sqlite_url), isolation_level=None)
    mine.execute("BEGIN")
    mine.execute("SELECT * FROM ledger").fetchall()
    async with Client(sqlite_url) as fresh:
        with pytest.raises(SchemaError, match="cannot be made while a transaction is open"):
            fresh.joined(mine).__enter__()
    mine.close()


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


@pytest.mark.parametrize("kind", [*own.POSTGRES, *own.ALCHEMY])
async def test_a_connection_to_another_database_is_an_error_before_anything_is_said(
    postgres_url: str, shared_postgres: PostgresServer, kind: str
) -> None:
    """Also where that database has tables of the same names."""
    async with world(app, url=postgres_url):
        with shared_postgres.database() as other_url:
            for _ in range(2):
                async with own.opened(other_url, kind) as other:
                    with pytest.raises(InvalidInput, match="only what is in one database commits together"):
                        await app.joined(other.given).__aenter__()
                    if "async" in kind:
                        with app.joined(other.given), pytest.raises(InvalidInput, match="one database"):
                            await echo.start("lost")
                    await other.rollback()
                async with world(App("sqlite://"), url=other_url):
                    pass  # now there are
        async with own.opened(postgres_url, kind) as mine:
            async with app.joined(mine.given):
                handle = await echo.start("here")
            await mine.commit()
        assert await handle.result() == "here"


@pytest.mark.parametrize("kind", ["async connection", "async session"])
async def test_an_asynchronous_connection_to_another_file_is_an_error(
    sqlite_url: str, kind: str, tmp_path: Path
) -> None:
    async with world(app, url=sqlite_url), own.opened(f"sqlite:///{tmp_path / 'other.db'}", kind) as other:
        with pytest.raises(InvalidInput, match="one file"):
            await app.joined(other.given).__aenter__()
        with app.joined(other.given), pytest.raises(InvalidInput, match="one file"):
            await echo.start("lost")


async def test_every_verb_of_the_schedules_takes_part(place: tuple[str, str]) -> None:
    url, kind = place
    async with world(app, url=url) as w:
        for end in ("rollback", "commit"):
            async with own.opened(url, kind) as mine:
                async with app.joined(mine.given):
                    await steer_schedules(w.now)
                await getattr(mine, end)()
            if end == "rollback":
                assert (await app.schedules.list()).schedules == []
                assert (await app.runs.list(workflow="echo")).runs == []
        found = await app.schedules.describe("steered")
        assert (found.paused, found.note, found.action["input"]) == (False, "on", {"what": "other"})
        assert "trigger" in {tick.source for tick in found.recent}
        assert [each.start for each in await app.schedules.backfills("steered")] == [
            midnight(w.now) - timedelta(days=2)
        ]
        assert sorted(each.id for each in (await app.schedules.list()).schedules) == ["applied", "steered"]


def midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


async def steer_schedules(now: datetime) -> None:
    schedules = app.schedules
    await schedules.create("steered", echo.bind("tick"), EVERY_DAY, Policy(overlap=Overlap.ALLOW_ALL))
    await schedules.update("steered", call=echo.bind("other"))
    await schedules.apply([Declaration("applied", echo.bind("tick"), EVERY_DAY)])
    await schedules.create("gone", echo.bind("tick"), EVERY_DAY)
    await schedules.pause("steered", note="off")
    assert (await schedules.describe("steered")).paused
    await schedules.resume("steered", note="on")
    assert await schedules.trigger("steered") is not None
    skipped = await schedules.skip("steered")
    assert await schedules.unskip("steered") == skipped
    two_days_ago = midnight(now) - timedelta(days=2)
    await schedules.backfill("steered", two_days_ago, two_days_ago + timedelta(days=1))
    assert len(await schedules.backfills("steered")) == 1
    stopped = await schedules.backfill("gone", two_days_ago, two_days_ago)
    await schedules.stop_backfill(stopped.id)
    await schedules.delete("gone")
    assert [each.id for each in (await schedules.list()).schedules] == ["applied", "steered"]
    assert (await schedules.ticks("steered")).ticks
    with pytest.raises(NotFound):
        await schedules.pause("gone")
    with pytest.raises(Conflict):
        await schedules.create("steered", echo.bind("tick"), EVERY_DAY)


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
