"""What transactions leave behind in another database is cleared away once nobody will ask for it, and no sooner."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Tx, run
from mainspring.app.settings import Settings
from mainspring.errors import StoreUnavailable
from mainspring.store.external.outcomes import TABLE
from mainspring.store.open import open_store
from mainspring.testing import world
from tests.transactions import bank

if TYPE_CHECKING:
    from mainspring.store.external.other_database import OtherDatabase
    from mainspring.testing import World


@pytest.fixture(params=["sqlite", "postgres"])
def other(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    """Another database than the app's own, with a table of the user's."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'other.db'}"
        bank.execute(url, "CREATE TABLE ledger (entry text NOT NULL)")
        yield url
    else:
        with request.getfixturevalue("shared_postgres").database() as url:
            bank.execute(url, "CREATE TABLE ledger (entry text NOT NULL)")
            yield url


def shop_of(database: str) -> tuple[App, Any]:
    app = App("sqlite://")

    @app.transaction(database=database)
    def enter(tx: Tx, entry: str) -> str:
        tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
        return entry

    @app.workflow
    async def entering(entry: str) -> str:
        found = await enter.aio(entry)
        await run.receive("go on")
        return await enter.aio(f"{found} again")

    return app, entering


def place_of(app: App) -> OtherDatabase:
    (found,) = app._runtime.other_databases
    return found


async def sweep(app: App) -> int:
    return await asyncio.to_thread(place_of(app).sweep, app._runtime.connection().store.transactions)


def left(url: str) -> int:
    found: int = bank.value(url, f"SELECT count(*) FROM {TABLE}")
    return found


async def forget_to_forget(app: App, w: World) -> None:
    """As a process does that dies between recording and clearing away."""
    await w.drain()
    place_of(app)._recorded.clear()


async def test_what_is_recorded_goes_and_what_a_run_may_ask_for_stays(store_url: str, other: str) -> None:
    app, entering = shop_of(other)
    async with world(app, url=store_url) as w:
        assert await sweep(app) == 0
        await entering.options(id="a").start("one")
        await forget_to_forget(app, w)
        assert left(other) == 1
        lost = f"DELETE FROM {'mainspring_steps' if bank.is_sqlite(store_url) else 'mainspring.steps'} WHERE kind = 'transaction'"
        bank.execute(store_url, lost)  # as if the process had died before it was recorded here
        assert await sweep(app) == 0
        assert left(other) == 1
        await app.runs.terminate("a")
        await app.runs.delete("a")
        assert await sweep(app) == 1
        assert left(other) == 0

        handle = await entering.options(id="b").start("two")
        await forget_to_forget(app, w)
        assert await sweep(app) == 1
        await app.send("b", "go on", None)
        assert await handle.result() == "two again"


async def test_what_another_app_left_in_the_same_table_stays(other: str, tmp_path: Any) -> None:
    apps = [shop_of(other) for _ in range(2)]
    urls = [f"sqlite:///{tmp_path / f'{number}.db'}" for number in range(2)]
    async with world(apps[0][0], url=urls[0]) as one, world(apps[1][0], url=urls[1]) as two:
        for (app, entering), w in zip(apps, (one, two), strict=True):
            await entering.options(id="a").start("x")
            await forget_to_forget(app, w)
        assert left(other) == 2
        assert await sweep(apps[0][0]) == 1
        assert left(other) == 1
        assert await sweep(apps[0][0]) == 0
        assert await sweep(apps[1][0]) == 1


async def test_an_older_attempt_of_a_run_asks_for_nothing_any_more(sqlite_url: str, other: str) -> None:
    app, entering = shop_of(other)
    async with world(app, url=sqlite_url) as w:
        await entering.options(id="a").start("one")
        await forget_to_forget(app, w)
        bank.execute(sqlite_url, "DELETE FROM mainspring_steps WHERE kind = 'transaction'")
        bank.execute(other, f"UPDATE {TABLE} SET generation = '0.7'")
        assert await sweep(app) == 1


def _unreachable(*_: object) -> int:
    raise StoreUnavailable("nobody there")


async def test_a_worker_clears_away_by_itself_and_survives_that_it_cannot(
    sqlite_url: str, other: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, entering = shop_of(other)
    async with world(app, url=sqlite_url) as w:
        await entering.start("one")
        await forget_to_forget(app, w)
        assert app._worker is not None
        sweeper = app._worker._sweeper
        with monkeypatch.context() as patched:
            patched.setattr(type(place_of(app)), "sweep", _unreachable)
            assert await sweeper.sweep() == 0
        assert "could not delete old outcomes" in caplog.text
        assert await sweeper.sweep() == 1


def test_a_database_keeps_its_name(store_url: str) -> None:
    names: set[str] = set()
    for _ in range(2):
        store = open_store(store_url, Settings())
        store.open()
        names.add(store.transactions.store_id())
        names.add(store.transactions.store_id())
        store.close()
    assert len(names) == 1
