"""An `async def` transaction in another PostgreSQL: committed once there, recorded here, and what it wants happens here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import psycopg  # noqa: TC002  (what a transaction is given is found by its annotation)
import pytest

from mainspring import App, State, Tx, run
from mainspring.errors import InTransaction, InvalidInput, NotFound, StoreUnavailable
from mainspring.store.outcomes import TABLE
from mainspring.store.postgres.elsewhere import PostgresPlace
from mainspring.testing import crash, world
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServer

STRIDE = int(os.environ.get("CRASH_STRIDE", "2"))
"""Every second call in CI; 1 is every one."""


@pytest.fixture
def other(shared_postgres: PostgresServer) -> Iterator[str]:
    with shared_postgres.database() as url:
        bank.execute(url, "CREATE TABLE ledger (entry text NOT NULL)")
        yield url


def entries(url: str) -> list[str]:
    return [entry for (entry,) in bank.rows(url, "SELECT entry FROM ledger ORDER BY entry")]


class Shop:
    """An app whose tables are in another PostgreSQL, and are awaited."""

    def __init__(self, database: str) -> None:  # noqa: C901
        self.app = app = App("sqlite://")
        self.executed: list[str] = []

        @app.workflow
        async def told(entry: str) -> str:
            return f"told {entry}"

        @app.workflow
        async def listener() -> Any:
            return await run.receive("news", timeout="1h")

        @app.workflow
        async def sleeper() -> None:
            await run.sleep("2h")

        @app.transaction(database=database, isolation="serializable")
        async def enter(connection: psycopg.AsyncConnection[Any], entry: str) -> str:
            self.executed.append(entry)
            await connection.execute("INSERT INTO ledger VALUES (%s)", (entry,))
            handle = await told.options(id=f"told {entry}").start(entry)
            if entry.startswith("bad"):
                raise LookupError(entry)
            await app.run_after("1h", told.options(id=f"later {entry}").bind(entry))
            await run.set_event("entered", entry)
            if "listen" in entry:
                await app.send("listener", "news", entry)
                assert await app.handle("sleeper").cancel()
                with pytest.raises(NotFound, match="nobody"):
                    await app.send("nobody", "news", entry)
            return handle.id

        @app.transaction(database=database)
        async def outer(connection: psycopg.AsyncConnection[Any]) -> None:
            await connection.execute("INSERT INTO ledger VALUES ('outer')")
            await enter("inner")
            with pytest.raises(LookupError):
                await enter("bad inner")
            with pytest.raises(InTransaction, match="another database"):
                await own.aio()
            with pytest.raises(InTransaction, match="Write both in one way"):
                await blocking.aio()

        @app.transaction(database=database)
        def blocking(tx: Tx) -> None:
            tx.execute("SELECT 1")

        @app.transaction
        def own(tx: Tx) -> None:
            tx.execute("SELECT 1")

        @app.workflow
        async def entering(entry: str) -> str:
            try:
                return await enter(entry)
            except LookupError as error:
                return f"failed {error}"

        @app.workflow
        def from_a_def_workflow(entry: str) -> str:
            return enter.sync(entry)

        @app.workflow
        async def nesting() -> None:
            await outer()

        self.enter, self.entering, self.nesting = enter, entering, nesting
        self.from_a_def_workflow, self.listener, self.sleeper = from_a_def_workflow, listener, sleeper


async def test_it_is_recorded_and_what_it_wants_happens(store_url: str, other: str) -> None:
    shop = Shop(other)
    app = shop.app
    async with world(app, url=store_url):
        heard = await shop.listener.options(id="listener").start()
        stopped = await shop.sleeper.options(id="sleeper").start()
        handle = await shop.entering.start("listen")
        assert await handle.result() == "told listen"
        assert await app.handle("told listen").result() == "told listen"
        assert await app.get_event(handle.id, "entered") == "listen"
        assert (await app.handle("later listen").describe()).state is State.SCHEDULED
        assert await heard.result() == "listen"
        await app.runtime.results.ended(stopped.id)
        assert (await stopped.describe()).state is State.CANCELLED
        assert await shop.entering("bad") == "failed bad"
        with pytest.raises(NotFound):
            await app.handle("told bad").describe()
        assert await (await shop.enter.start("alone")).result() == "told alone"
        assert await shop.from_a_def_workflow.aio("def") == "told def"
        await shop.nesting()
        assert entries(other) == ["alone", "def", "inner", "listen", "outer"]
        with pytest.raises(NotFound):
            await app.handle("told bad inner").describe()
        assert await app.handle("told inner").result() == "told inner"
    assert bank.value(other, f"SELECT count(*) FROM {TABLE}") <= 1  # those recorded go with the next transaction


async def test_where_no_run_records_it_verbs_are_refused(sqlite_url: str, other: str) -> None:
    shop = Shop(other)
    async with world(shop.app, url=sqlite_url):
        with pytest.raises(InTransaction, match="no run records it"):
            await shop.enter("outside")
    assert entries(other) == []


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_to_the_store_repeats_no_effect_elsewhere(
    store_url: str, other: str, when: Literal["before", "after"]
) -> None:
    shop = Shop(other)
    for at in range(1, 100, STRIDE):
        name = f"crash {at}"

        async def work(name: str = name) -> str:
            return await (await shop.entering.options(id=f"a-{name}").start(name)).result()

        outcome = await crash(shop.app, work, at=at, when=when, url=store_url)
        assert outcome.result == f"told {name}"
        assert entries(other).count(name) == 1
        if not outcome.crashed:
            assert at > 4
            return
    raise AssertionError("the workload never came to its end without a crash")


async def test_a_lost_answer_to_the_commit_is_recognised(
    sqlite_url: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(other)
    make, lost = PostgresPlace.atransact, [False]

    async def lossy(self: PostgresPlace, work: Any, isolation: Any) -> Any:
        found = await make(self, work, isolation)
        if not lost[0]:
            lost[0] = True
            raise StoreUnavailable("the line broke")
        return found

    monkeypatch.setattr(PostgresPlace, "atransact", lossy)
    async with world(shop.app, url=sqlite_url):
        assert await shop.entering("lost") == "told lost"
    assert entries(other) == shop.executed == ["lost"]


def test_elsewhere_than_on_postgres_it_is_refused_at_registration() -> None:
    app = App("sqlite://")
    with pytest.raises(InvalidInput, match="write it as `def`"):

        @app.transaction(database="sqlite:///other.db")
        async def enter(connection: psycopg.AsyncConnection[Any]) -> None: ...
