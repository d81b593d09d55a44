"""A worker that is frozen before or in a transaction in another database, and has lost its run when it wakes, commits nothing there.

The next owner of the run has made the transaction meanwhile, recorded it, and had its row in the table of outcomes deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Literal

import psycopg  # noqa: TC002  (what a transaction is given is found by its annotation)
import pytest
import sqlalchemy

from mainspring import App, Settings, State, Tx
from mainspring.store.external.outcomes import TABLE
from mainspring.testing import world
from tests.support.samples import covering
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mainspring.store.external.other_database import OtherDatabase
    from tests.support.postgres import PostgresServer

Moment = Literal["before", "inside", "row written"]
KINDS = ["sqlite", "sqlite engine", "postgres", "postgres engine", "postgres awaited"]


class Other:
    """Another database, and how its transactions are written."""

    def __init__(self, kind: str, url: str, database: Any) -> None:
        self.kind, self.url, self.database = kind, url, database
        bank.execute(url, bank.LEDGER)


@pytest.fixture
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Other]:
    kind: str = request.param
    with contextlib.ExitStack() as stack:
        if kind.startswith("sqlite"):
            url, driver = f"sqlite:///{tmp_path / 'other.db'}", "sqlite"
        else:
            server: PostgresServer = request.getfixturevalue("shared_postgres")
            url, driver = stack.enter_context(server.database()), "postgresql+psycopg"
        database: Any = url
        if kind.endswith("engine"):
            database = sqlalchemy.create_engine(url.replace(url.split(":", maxsplit=1)[0], driver, 1))
            stack.callback(database.dispose)
        yield Other(kind, url, database)


class Gate:
    """Where the first worker is frozen, once, until it is let on."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self._frozen = False

    def pass_through(self) -> None:
        if not self._frozen:
            self._frozen = True
            self.reached.set()
            assert self.opened.wait(60)


def shop_of(other: Other, inside: Callable[[], None]) -> tuple[App, Any, Any]:
    """An app with a transaction in the other database, and a workflow that makes it; `inside` happens in the middle of it."""
    app = App("sqlite://", settings=Settings(lease=2))
    enter: Any

    if other.kind.endswith("awaited"):

        @app.transaction(database=other.database)
        async def awaited(connection: psycopg.AsyncConnection[Any], entry: str) -> str:
            await connection.execute("INSERT INTO ledger VALUES (%s)", (entry,))
            await asyncio.to_thread(inside)
            return entry

        enter = awaited
    else:

        @app.transaction(database=other.database)
        def blocking(tx: Tx, entry: str) -> str:
            tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
            inside()
            return entry

        enter = blocking

    @app.workflow
    async def entering(entry: str) -> str:
        made: str = await enter.aio(entry) if hasattr(enter, "aio") else await enter(entry)
        return made

    return app, enter, entering


def freeze(app: App, moment: Moment, gate: Gate) -> None:
    """Have what an app does in another database stand still before it, or between the row of its outcome and its commit."""
    (place,) = app._runtime.other_databases
    once = place.once

    async def frozen(way: Any, work: Any, wants: Any, check: Any) -> Any:
        async def stand_still() -> None:
            await asyncio.to_thread(gate.pass_through) if wants.is_awaited else gate.pass_through()

        async def then() -> None:
            await check()
            if moment == "row written":
                await stand_still()

        if moment == "before":
            await stand_still()
        return await once(way, work, wants, then)

    patched: Any = place
    patched.once = frozen


def forget_all(place: OtherDatabase, app: App) -> int:
    return place.sweep(app._runtime.connection().store.transactions)


async def taken_over(store_url: str, other: Other, moment: Moment, *, whole: bool) -> str:
    """Freeze the first worker, have the next one make its run, and wake the first; what the run came to."""
    gate = Gate()
    first, enter, entering = shop_of(other, gate.pass_through if moment == "inside" else lambda: None)
    second, *_ = shop_of(other, lambda: None)
    async with world(first, url=store_url) as w:
        freeze(first, moment, gate)
        handle = await (enter if whole else entering).options(id="a").start("x")
        await asyncio.to_thread(gate.reached.wait, 60)
        engine, store = first._runtime.engine, first._runtime.connection().store
        assert engine is not None
        first.pause()
        await asyncio.to_thread(store.retire, engine.worker_id, first._runtime.clock.now(), None)
        async with world(second, url=store_url, at=w.now):
            made: str = await second.handle("a").result()
            (place,) = second._runtime.other_databases
            await asyncio.to_thread(forget_all, place, second)
            assert bank.value(other.url, f"SELECT count(*) FROM {TABLE}") == 0
        gate.opened.set()
        await engine.wait_until_empty(60)
        assert (await handle.describe()).state is State.SUCCEEDED
    return made


@covering
@pytest.mark.parametrize("other", KINDS, indirect=True)
@pytest.mark.parametrize("whole", [False, True], ids=["in a workflow", "a run of its own"])
async def test_one_that_wakes_before_its_transaction_commits_nothing(
    store_url: str, other: Other, *, whole: bool
) -> None:
    assert await taken_over(store_url, other, "before", whole=whole) == "x"
    assert bank.entries(other.url) == ["x"]
    assert bank.value(other.url, f"SELECT count(*) FROM {TABLE}") == 0


@pytest.mark.parametrize("other", [kind for kind in KINDS if kind.startswith("postgres")], indirect=True)
async def test_one_that_wakes_inside_its_transaction_commits_nothing(store_url: str, other: Other) -> None:
    assert await taken_over(store_url, other, "inside", whole=False) == "x"
    assert bank.entries(other.url) == ["x"]


@pytest.mark.parametrize("other", [kind for kind in KINDS if kind.startswith("postgres")], indirect=True)
async def test_one_that_holds_the_row_of_its_outcome_is_rolled_back_by_the_server(store_url: str, other: Other) -> None:
    """It was still the owner of its run when it looked, so the next one waits for its row: until the server ends its session."""
    assert await taken_over(store_url, other, "row written", whole=False) == "x"
    assert bank.entries(other.url) == ["x"]


@pytest.mark.parametrize("other", KINDS, indirect=True)
async def test_a_run_of_its_own_that_is_cancelled_meanwhile_commits_nothing(store_url: str, other: Other) -> None:
    gate = Gate()
    app, enter, _ = shop_of(other, gate.pass_through)
    async with world(app, url=store_url):
        handle = await enter.options(id="a").start("x")
        await asyncio.to_thread(gate.reached.wait, 60)
        assert await handle.cancel()
        gate.opened.set()
        await app.first(handle)
        assert (await handle.describe()).state is State.CANCELLED
    assert bank.entries(other.url) == []
