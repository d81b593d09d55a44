"""Transactions whose snapshot is older than what happens meanwhile: what they start, send and cancel reaches everybody all the same.

What the database rolls back is for the owner of the transaction to retry: nothing inside retries by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring import App, Spec, Tx, run
from mainspring.model.runs import NewRun
from mainspring.model.states import State
from mainspring.store.external.colours import run_script_async
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.postgres.executor import UsersExecutor
from mainspring.store.sql.runs import INSERT_RUNS
from mainspring.store.transaction import Transaction
from mainspring.store.verbs.start import start
from mainspring.store.writes import Start
from mainspring.testing import world
from tests.transactions import bank
from tests.transactions.bank import value

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

app = App()
speaker = App()
"""Another worker: what it says reaches the runs of `app` through the database alone."""
gates: dict[str, threading.Event] = {}
REPEATABLE_READ = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"


@app.step
def passes(gate: str) -> None:
    assert gates[gate].wait(60)


@app.workflow
async def listens(what: str) -> Any:
    """Waits for a message or an event, in a branch that begins to wait when its gate opens."""

    async def branch() -> Any:
        await passes.aio("begin")
        if what == "receive":
            return await run.receive("news")
        return await app.get_event("other", "news")

    found, _ = await asyncio.gather(branch(), passes.aio("end"))
    return found


@speaker.workflow
async def other() -> None:
    await announce.aio()
    await run.sleep("1h")


@speaker.transaction(isolation="repeatable read")
def announce(tx: Tx) -> None:
    tx.execute("SELECT 1")
    gates["looked"].set()
    assert gates["waits"].wait(60)
    run.set_event.sync("news", "said")


def _until_it_waits(url: str, kind: str) -> None:
    query = f"SELECT count(*) FROM mainspring.steps WHERE run = 'listener' AND kind = '{kind}' AND completed IS NULL"
    give_up = time.monotonic() + 20
    while not value(url, query):
        assert time.monotonic() < give_up, value(url, "SELECT json_agg(s) FROM mainspring.steps s")
        time.sleep(0.01)


@contextlib.asynccontextmanager
async def _repeatable(url: str) -> AsyncGenerator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(url) as db:
        await db.execute(REPEATABLE_READ)
        await db.execute("SELECT 1")
        yield db


@contextlib.asynccontextmanager
async def _worker(url: str) -> AsyncGenerator[None]:
    """The app in real time, for a test that fails soon where something is lost."""
    app._runtime.url = url
    speaker._runtime.url = url
    async with asyncio.timeout(40), app, speaker:
        yield


@pytest.fixture(autouse=True)
def _gates() -> None:
    gates.update({name: threading.Event() for name in ("begin", "end", "looked", "waits")})


async def test_a_run_that_waits_since_the_snapshot_hears_a_message(postgres_url: str) -> None:
    async with _worker(postgres_url):
        handle = await listens.options(id="listener").start("receive")
        async with _repeatable(postgres_url) as db:
            gates["begin"].set()
            await asyncio.to_thread(_until_it_waits, postgres_url, "receive")
            async with app.joined(db):
                await app.send("listener", "news", "said")
            await db.commit()
        gates["end"].set()
        assert await handle.result() == "said"


async def test_an_event_from_an_old_snapshot_is_heard_by_who_began_to_wait_since(postgres_url: str) -> None:
    async with _worker(postgres_url):
        await other.options(id="other").start()
        handle = await listens.options(id="listener").start("event")
        await asyncio.to_thread(gates["looked"].wait, 60)
        gates["begin"].set()
        await asyncio.to_thread(_until_it_waits, postgres_url, "event")
        gates["waits"].set()
        gates["end"].set()
        assert await handle.result() == "said"


async def test_a_message_that_an_old_snapshot_cannot_number_is_a_serialization_failure(postgres_url: str) -> None:
    async with _worker(postgres_url):
        handle = await listens.options(id="listener", after="1h").start("receive")
        async with _repeatable(postgres_url) as db:
            await app.send("listener", "news", "early")
            async with app.joined(db):
                with pytest.raises(psycopg.errors.SerializationFailure):
                    await app.send("listener", "news", "late")
            await db.rollback()
        assert (await handle.describe()).state == "scheduled"


class _DeletesAfterInsert(UsersExecutor):
    """A connection on which the run that an insert has met is deleted, by another session, before it can be looked at."""

    def __init__(self, connection: psycopg.Connection[Any], url: str) -> None:
        super().__init__(connection, Dialect("mainspring"))
        self._url = url
        self.inserts = 0

    async def execute(self, sql: Any, values: Any) -> Any:
        rows = await super().execute(sql, values)
        if sql is INSERT_RUNS:
            self.inserts += 1
            with psycopg.connect(self._url, autocommit=True) as other:
                other.execute("DELETE FROM mainspring.runs WHERE id = 'old'")
        return rows


async def test_a_run_whose_id_is_freed_while_it_is_asked_for_is_started(postgres_url: str) -> None:
    async with _worker(postgres_url):
        await listens.options(id="old", after="1h").start("receive")
        new = NewRun("old", "uid", "listens", "workflow", "[]", State.SCHEDULED, 2**60, 0)
        with psycopg.connect(postgres_url) as db:
            words = _DeletesAfterInsert(db, postgres_url)
            tx = Transaction(Dialect("mainspring"), 0, users=True)
            (started,) = await run_script_async(start(tx, [Start(new)]), words)
            db.rollback()
    assert (started.created, words.inserts) == (True, 2)


# -- rows that change more often than a transaction takes ----------------------------------------------------------------
CHANGE = """
  UPDATE mainspring.{table} SET id = id WHERE id IN (SELECT id FROM mainspring.{table} WHERE id = 'busy' FOR UPDATE SKIP LOCKED)
"""
"""As a scheduler or a worker does, which passes over what is locked."""


class Busy:
    """An app whose transaction has an older snapshot than the row that it changes, each time."""

    def __init__(self, url: str, table: str) -> None:
        self.app = app = App("sqlite://")
        self.executions = 0

        @app.workflow
        async def listener() -> Any:
            return await run.receive("news")

        @app.transaction(isolation="repeatable read")
        def change(tx: Tx) -> int:
            tx.execute("SELECT 1")
            self._executed(url, table)
            if table == "schedules":
                app.schedules.trigger.sync("busy")
            else:
                app.send.sync("busy", "news", 1)
            return self.executions

        @app.transaction(isolation="serializable")
        async def change_awaited(connection: psycopg.AsyncConnection[Any]) -> int:
            await connection.execute("SELECT 1")
            self._executed(url, table)
            if table == "schedules":
                await app.schedules.trigger("busy")
            else:
                await app.send("busy", "news", 1)
            return self.executions

        @app.workflow
        async def changing() -> int:
            return await change.aio()

        self.listener = listener
        self.ways: dict[str, Callable[[], Awaitable[int]]] = {
            "outside": change.aio,
            "in a run": changing,
            "awaited": change_awaited,
        }

    def _executed(self, url: str, table: str) -> None:
        self.executions += 1
        assert self.executions < 5, "it is executed again and again"
        bank.execute(url, CHANGE.format(table=table))


@pytest.mark.parametrize("table", ["schedules", "runs"])
@pytest.mark.parametrize("way", ["outside", "in a run", "awaited"])
async def test_a_row_that_changes_during_each_execution_is_locked_first_by_the_next(
    postgres_url: str, table: str, way: str
) -> None:
    """Its snapshot is of the moment at which it has the row, so the second execution commits."""
    busy = Busy(postgres_url, table)
    async with world(busy.app, url=postgres_url):
        await busy.listener.options(id="busy").start()
        await busy.app.schedules.create("busy", busy.listener.bind(), Spec())
        assert await busy.ways[way]() == 2
