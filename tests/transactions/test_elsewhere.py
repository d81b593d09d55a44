"""A transaction in another database than the app's own commits exactly once there, and what it starts begins here."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.orm import Session  # noqa: TC002  (what a transaction is given is found by its annotation)

from mainspring import App, Tx, run
from mainspring.errors import InTransaction, InvalidInput, StoreUnavailable
from mainspring.store.external.colours import finished
from mainspring.store.external.other_database import OtherDatabase, Way
from mainspring.store.external.outcomes import Key, Outcome
from mainspring.store.external.tx import Again, Wants
from mainspring.testing import world
from tests.support.samples import covering
from tests.transactions import bank, elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres", "sqlite engine", "postgres engine"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """Another database with a table of the user's own: its URL, and what is given as `database=`."""
    with contextlib.ExitStack() as stack:
        if request.param.startswith("sqlite"):
            url, driver = f"sqlite:///{tmp_path / 'other.db'}", "sqlite"
        else:
            server: PostgresServer = request.getfixturevalue("shared_postgres")
            url, driver = stack.enter_context(server.database()), "postgresql+psycopg"
        bank.execute(url, "CREATE TABLE ledger (entry text NOT NULL)")
        if request.param.endswith("engine"):
            engine = sqlalchemy.create_engine(url.replace(url.split(":", maxsplit=1)[0], driver, 1))
            stack.callback(engine.dispose)
            yield url, engine
        else:
            yield url, url


class Shop(elsewhere.Shop):
    """One whose transactions block."""

    def __init__(self, database: Any) -> None:
        super().__init__()
        app, told = self.app, self.told

        @app.transaction(database=database)
        def enter(tx: Tx, entry: str) -> str:
            self.executed.append(entry)
            tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
            if entry.startswith("bad"):
                told.start.sync(entry)
                raise LookupError(entry)
            app.run_after.sync("1h", told.options(id=f"later {entry}").bind(entry))
            run.set_event.sync("entered", entry)
            if "listen" in entry:
                app.send.sync("listener", "news", entry)
                assert app.handle("sleeper").cancel.sync()
            return told.options(id=f"told {entry}").start.sync(entry).id

        @app.transaction(database=database)
        def outer(tx: Tx) -> None:
            tx.execute("INSERT INTO ledger VALUES ('outer')")
            enter("inner")
            with contextlib.suppress(LookupError):
                enter("bad inner")

        @app.transaction
        def own(tx: Tx) -> None:
            enter("never")

        @app.workflow
        async def entering(entry: str) -> str:
            try:
                return await enter.aio(entry)
            except LookupError as error:
                return f"failed {error}"

        @app.workflow
        async def nesting() -> None:
            await outer.aio()

        @app.workflow
        def blocking(entry: str) -> str:
            return enter(entry)

        self.enter, self.own, self.entering, self.blocking, self.nesting = enter, own, entering, blocking, nesting


async def test_it_is_recorded_and_what_it_wants_happens(store_url: str, other: tuple[str, Any]) -> None:
    url, database = other
    shop = Shop(database)

    async def alone() -> None:
        assert await (await shop.enter.start("alone")).result() == "told alone"

    await elsewhere.everything_happens(shop, store_url, url, alone)
    assert bank.entries(url) == ["alone", "inner", "listen", "outer"]


async def test_where_no_run_records_it_verbs_are_refused(sqlite_url: str, other: tuple[str, Any]) -> None:
    url, database = other
    shop = Shop(database)
    async with world(shop.app, url=sqlite_url):
        with pytest.raises(InTransaction, match="no run records it"):
            await shop.enter.aio("outside")
        with pytest.raises(InTransaction, match="another database"):
            await shop.own.aio()
        assert bank.entries(url) == []


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("store_url", "other"),
    [("sqlite", "postgres"), ("postgres", "sqlite")],
    indirect=True,
)
async def test_a_crash_at_any_call_to_the_store_repeats_no_effect_elsewhere(
    store_url: str, other: tuple[str, Any], when: Literal["before", "after"]
) -> None:
    url, database = other
    shop = Shop(database)
    await elsewhere.survives_crashes(shop, shop.blocking, store_url, url, when)


async def test_a_lost_answer_to_the_commit_is_recognised(
    sqlite_url: str, other: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, database = other
    shop = Shop(database)
    make, losses = OtherDatabase._blocking, [0]

    def lossy(self: OtherDatabase) -> Any:
        place = make(self)

        class Lossy:
            on_postgres = place.on_postgres

            async def atransact(self, *args: Any) -> Any:
                found = await place.atransact(*args)
                losses[0] += 1
                if losses[0] == 2:  # the first makes the table
                    raise StoreUnavailable("the line broke")
                return found

        return Lossy()

    monkeypatch.setattr(OtherDatabase, "_blocking", lossy)
    async with world(shop.app, url=sqlite_url):
        assert await shop.entering("lost") == "told lost"
    assert bank.entries(url) == ["lost"]
    assert shop.executed == ["lost"]


async def test_two_who_race_have_one_effect(other: tuple[str, Any]) -> None:
    """Of several who make the same transaction one gets through, and the others take over what it came to."""
    url, database = other
    place = OtherDatabase(database)
    key = Key("uid", "0.0", "0")

    async def effect(session: Any) -> Outcome:
        session.give(Wants.TX).execute("INSERT INTO ledger VALUES ('raced')")
        return Outcome('"mine"', "{}")

    async def unchecked() -> None:
        pass

    def once(look: bool) -> Any:
        return finished(place.once(Way(key, "mine", None, look=look, idle=7.5), effect, Wants.TX, unchecked))

    def make(look: bool) -> Any:
        try:
            return once(look)
        except Again:
            return once(True)

    found = await asyncio.gather(*[asyncio.to_thread(make, False) for _ in range(4)])
    assert {each.output for each in found} == {'"mine"'}
    place.close()
    assert bank.entries(url) == ["raced"]


def test_threads_that_begin_at_once_do_not_get_in_each_others_way() -> None:
    """Each transaction also forgets outcomes that were recorded; several threads take from the same list of these."""
    elsewhere = OtherDatabase("sqlite:///never-opened.db")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def begin(thread: int) -> None:
        for number in range(2_000):
            elsewhere.recorded(Key(f"{thread}.{number}", "0", "0"))
            with elsewhere._forgetting():
                pass

    try:
        with ThreadPoolExecutor(8) as threads:
            for done in [threads.submit(begin, thread) for thread in range(8)]:
                done.result()
    finally:
        sys.setswitchinterval(interval)


def test_a_bad_database_is_refused_at_registration() -> None:
    app = App("sqlite://")
    for bad in ("mysql://x/y", "sqlite://", object()):
        with pytest.raises(InvalidInput, match="database="):
            app.transaction(database=bad)


async def test_sqlalchemys_own_session_is_given_where_an_engine_is(sqlite_url: str, other: tuple[str, Any]) -> None:
    url, database = other
    app = App("sqlite://")

    @app.transaction(database=database)
    def enter(session: Session, entry: str) -> int:
        session.execute(sqlalchemy.text("INSERT INTO ledger VALUES (:entry)"), {"entry": entry})
        return 1

    @app.workflow
    async def entering() -> int:
        return await enter.aio("orm")

    async with world(app, url=sqlite_url):
        assert await entering() == 1
    assert bank.entries(url) == ["orm"]


def _begin(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN")


@covering
@pytest.mark.parametrize("events", [False, True], ids=["as the driver does", "as an event says"])
async def test_a_nested_transaction_is_undone_with_its_outer_one(
    sqlite_url: str, other: tuple[str, Any], *, events: bool
) -> None:
    url, database = other
    if events and not isinstance(database, str) and database.dialect.name == "sqlite":  # as SQLAlchemy's pages advise
        event.listen(database, "begin", _begin)
    app = App()

    @app.transaction(database=database)
    def inner(tx: Tx, entry: str) -> None:
        tx.execute("INSERT INTO ledger VALUES (?)", (entry,))

    @app.transaction(database=database)
    def outer(tx: Tx, entry: str, *, fails: bool) -> None:
        inner(f"{entry} 1")
        tx.execute("INSERT INTO ledger VALUES (?)", (f"{entry} 2",))
        with contextlib.suppress(ValueError):
            failing(f"{entry} 3")
        if fails:
            raise ValueError("no")

    @app.transaction(database=database)
    def failing(tx: Tx, entry: str) -> None:
        inner(entry)
        raise ValueError("no")

    @app.workflow
    async def both() -> None:
        with contextlib.suppress(ValueError):
            await outer.aio("undone", fails=True)
        await outer.aio("done", fails=False)

    async with world(app, url=sqlite_url):
        await both()
    assert bank.entries(url) == ["done 1", "done 2"]


async def test_an_engine_that_commits_by_itself_is_refused(sqlite_url: str, postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql", "postgresql+psycopg", 1))
    app = App()

    @app.transaction(database=engine.execution_options(isolation_level="AUTOCOMMIT"))
    def enter(tx: Tx) -> None:
        tx.execute("SELECT 1")

    async with world(app, url=sqlite_url):
        with pytest.raises(InvalidInput, match="AUTOCOMMIT"):
            await enter.aio()
    engine.dispose()
