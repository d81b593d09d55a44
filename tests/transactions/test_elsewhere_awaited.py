"""An `async def` transaction in another PostgreSQL: committed once there, recorded here, and what it wants happens here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import psycopg  # noqa: TC002  (what a transaction is given is found by its annotation)
import pytest

from mainspring import App, Tx, run
from mainspring.errors import InTransaction, InvalidInput, NotFound, StoreUnavailable
from mainspring.store.postgres.transactions import PostgresBackend
from mainspring.testing import world
from tests.transactions import bank, elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServer


@pytest.fixture
def other(shared_postgres: PostgresServer) -> Iterator[str]:
    with shared_postgres.database() as url:
        bank.execute(url, "CREATE TABLE ledger (entry text NOT NULL)")
        yield url


class Shop(elsewhere.Shop):
    """One whose tables are in another PostgreSQL, and are awaited."""

    def __init__(self, database: str) -> None:  # noqa: C901
        super().__init__()
        app, told = self.app, self.told

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
        self.from_a_def_workflow = from_a_def_workflow


async def test_it_is_recorded_and_what_it_wants_happens(store_url: str, other: str) -> None:
    shop = Shop(other)

    async def alone() -> None:
        assert await (await shop.enter.start("alone")).result() == "told alone"
        assert await shop.from_a_def_workflow.aio("def") == "told def"

    await elsewhere.everything_happens(shop, store_url, other, alone)
    assert bank.entries(other) == ["alone", "def", "inner", "listen", "outer"]


async def test_where_no_run_records_it_verbs_are_refused(sqlite_url: str, other: str) -> None:
    shop = Shop(other)
    async with world(shop.app, url=sqlite_url):
        with pytest.raises(InTransaction, match="no run records it"):
            await shop.enter("outside")
    assert bank.entries(other) == []


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
async def test_a_crash_at_any_call_to_the_store_repeats_no_effect_elsewhere(
    store_url: str, other: str, when: Literal["before", "after"]
) -> None:
    shop = Shop(other)
    await elsewhere.survives_crashes(shop, shop.entering, store_url, other, when)


async def test_a_lost_answer_to_the_commit_is_recognised(
    sqlite_url: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(other)
    make, lost = PostgresBackend.atransact, [False]

    async def lossy(self: PostgresBackend, work: Any, wants: Any, isolation: Any) -> Any:
        found = await make(self, work, wants, isolation)
        if not lost[0]:
            lost[0] = True
            raise StoreUnavailable("the line broke")
        return found

    monkeypatch.setattr(PostgresBackend, "atransact", lossy)
    async with world(shop.app, url=sqlite_url):
        assert await shop.entering("lost") == "told lost"
    assert bank.entries(other) == shop.executed == ["lost"]


def test_elsewhere_than_on_postgres_it_is_refused_at_registration() -> None:
    app = App("sqlite://")
    with pytest.raises(InvalidInput, match="write it as `def`"):

        @app.transaction(database="sqlite:///other.db")
        async def enter(connection: psycopg.AsyncConnection[Any]) -> None: ...
