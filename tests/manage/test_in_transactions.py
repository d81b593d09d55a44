"""What is done to runs and queues inside a transaction is done if, and only if, it commits."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring import App, Declaration, Spec, State, Tx
from mainspring.errors import Conflict, InTransaction, NotFound, RunCancelled
from mainspring.store.open import sqlite_path
from tests.transactions.bank import is_sqlite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

app = App("sqlite://")
app.queue("lane", concurrency=1)


@app.workflow
async def idle() -> int:
    return 7


@app.transaction
def manage(tx: Tx, waiting: str, ended: str, *, fail: bool) -> str:
    assert app.runs.complete.sync(waiting, result=1) == {waiting: True}
    fork = app.runs.fork.sync(ended, id=f"{ended}-fork")
    assert app.runs.delete.sync(ended) == {ended: True}
    app.queues.pause.sync("lane")
    tx.execute("SELECT 1")
    if fail:
        raise OSError("no")
    return fork.id


@app.transaction
def mistaken(tx: Tx, waiting: str, ended: str) -> str:
    """The error of one verb undoes that verb alone."""
    with pytest.raises(Conflict):
        app.runs.delete.sync(ended, waiting)
    with pytest.raises(NotFound):
        app.runs.retry.sync(ended, "nobody")
    tx.execute("SELECT 1")
    assert app.runs.fail.sync(waiting, reason="so") == {waiting: True}
    return "went on"


@app.transaction
def tidy(tx: Tx, first: str, second: str, *, fail: bool) -> list[dict[str, str]]:
    assert app.runs.terminate.sync(first, "nobody") == {first: True, "nobody": False}
    assert app.handle(second).terminate.sync(reason="over")
    yearly = [Declaration(name, idle.bind(), Spec(cron=["0 0 1 1 *"])) for name in ("one", "two", "three")]
    done = [app.schedules.apply.sync(yearly[:2]), app.schedules.apply.sync(yearly[1:], prune=True)]
    with pytest.raises(InTransaction, match="by filter"):
        app.runs.cancel.sync(workflow="idle")
    tx.execute("SELECT 1")
    if fail:
        raise OSError("no")
    return done


@app.transaction
def roll_back_to(tx: Tx, version: str, *, fail: bool) -> None:
    assert app.versions.set_newest.sync(version) == version
    with pytest.raises(NotFound, match="nowhere"):
        app.versions.set_newest.sync("nowhere")
    tx.execute("SELECT 1")
    if fail:
        raise OSError("no")


@app.transaction
def sends_nothing(tx: Tx) -> None:
    app.send_many.sync([])
    tx.execute("SELECT 1")


@pytest.fixture(autouse=True)
async def entered(store_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(app._runtime, "url", store_url)
    async with app:
        yield
        await app.queues.resume("lane")


async def _states(*ids: str) -> list[State]:
    return [(await app.runs.get(run_id)).state for run_id in ids]


async def test_managing_runs_and_queues_is_part_of_a_transaction() -> None:
    waiting = (await idle.options(version="none").start()).id
    await idle.options(id="e")()
    with pytest.raises(OSError, match="no"):
        await manage.aio(waiting, "e", fail=True)
    assert await _states(waiting, "e") == [State.QUEUED, State.SUCCEEDED]
    assert not (await app.queues.describe("lane")).paused
    assert await manage.aio(waiting, "e", fail=False) == "e-fork"
    assert await _states(waiting) == [State.SUCCEEDED]
    assert await app.handle(waiting).result(timeout=30) == 1
    assert await app.handle("e-fork").result(timeout=30) == 7
    assert (await app.queues.describe("lane")).paused
    with pytest.raises(NotFound):
        await app.runs.get("e")


async def test_an_error_of_one_verb_leaves_the_rest_of_the_transaction_alone() -> None:
    waiting = (await idle.options(version="none").start()).id
    await idle.options(id="e")()
    assert await mistaken.aio(waiting, "e") == "went on"
    assert await _states(waiting, "e") == [State.FAILED, State.SUCCEEDED]


async def test_ending_runs_and_applying_schedules_is_part_of_a_transaction() -> None:
    ids = [(await idle.options(version="none").start()).id for _ in range(2)]
    with pytest.raises(OSError, match="no"):
        await tidy.aio(*ids, fail=True)
    assert await _states(*ids) == [State.QUEUED] * 2
    assert (await app.schedules.list()).schedules == []
    applied = [{"one": "created", "two": "created"}, {"three": "created", "two": "unchanged", "one": "deleted"}]
    assert await tidy.aio(*ids, fail=False) == applied
    assert await _states(*ids) == [State.CANCELLED] * 2
    with pytest.raises(RunCancelled, match="over"):
        await app.handle(ids[1]).result(timeout=30)
    assert sorted(each.id for each in (await app.schedules.list()).schedules) == ["three", "two"]


async def test_the_newest_version_is_part_of_a_transaction(store_url: str) -> None:
    async with App(store_url, version="later"):
        pass
    with pytest.raises(OSError, match="no"):
        await roll_back_to.aio(app.version, fail=True)
    assert (await app.versions.list())[0].version == "later"
    await roll_back_to.aio(app.version, fail=False)
    assert (await app.versions.list())[0].version == app.version


async def test_the_newest_version_is_part_of_a_joined_transaction(store_url: str) -> None:
    async with App(store_url, version="later"):
        pass

    def with_my_connection() -> None:
        connection: Any = (
            sqlite3.connect(sqlite_path(store_url)) if is_sqlite(store_url) else psycopg.connect(store_url)
        )
        with contextlib.closing(connection):
            connection.execute("CREATE TABLE mine (a INT)")
            with app.joined(connection):
                app.versions.set_newest.sync(app.version)
            assert app.versions.list.sync()[0].version == "later"
            connection.commit()

    await asyncio.to_thread(with_my_connection)
    assert (await app.versions.list())[0].version == app.version


async def test_a_transaction_may_send_no_messages() -> None:
    await sends_nothing.aio()
