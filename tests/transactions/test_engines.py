"""`App(engine=…)`: the app connects where the engine does, and transactions are made on the engine's own connections."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session  # noqa: TC002  (what a transaction is given is found by its annotation)
from sqlalchemy.pool import NullPool

from mainspring import App, Tx
from mainspring.errors import InTransaction, InvalidInput, MissingExtra
from mainspring.store.external.colours import finished, ready
from mainspring.store.external.engines import UsersEngine
from tests.support.samples import covering
from tests.transactions import bank
from tests.transactions.test_kinds import with_driver

if TYPE_CHECKING:
    from pathlib import Path

PG = "postgresql+psycopg://ada:p%40ss@db.example:5433/shop"


def test_the_arguments_of_an_engine_are_those_of_the_store() -> None:
    engine = create_engine(
        f"{PG}?application_name=web", connect_args={"options": "-c search_path=tenant", "prepare_threshold": 3}
    )
    url = UsersEngine(engine)()
    assert url == (
        "postgresql://ada:p%40ss@db.example:5433/shop?application_name=web&options=-c%20search_path%3Dtenant"
    )
    assert "p%40ss" not in repr(App(engine=engine)) + repr(UsersEngine(engine))


def test_an_engine_that_finds_its_password_when_it_connects_is_asked_for_it() -> None:
    engine = create_engine("postgresql+psycopg://ada@db.example/shop")

    @event.listens_for(engine, "do_connect")
    def with_token(_dialect: Any, _record: Any, _args: Any, arguments: dict[str, Any]) -> None:
        arguments["password"] = "token"

    assert UsersEngine(engine)() == "postgresql://ada:token@db.example/shop"


def test_a_socket_is_a_place_too() -> None:
    engine = create_engine("postgresql+psycopg://ada@/shop?host=/run/postgresql&port=5433")
    assert UsersEngine(engine)() == "postgresql://ada@/shop?host=%2Frun%2Fpostgresql&port=5433"


def test_a_file_is_found_wherever_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///shop.db", "sqlite:///file:shop.db?uri=true"):
        assert UsersEngine(create_engine(url))() == f"sqlite:///{tmp_path}/shop.db"


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (create_engine("sqlite://"), "in memory"),
        (create_async_engine("sqlite+aiosqlite:///:memory:"), "in memory"),
        (create_engine("sqlite:///file:x?mode=memory&cache=shared&uri=true", poolclass=NullPool), "in memory"),
        (create_engine("sqlite:///file:x.db?mode=ro&uri=true"), "cannot be written"),
        (
            create_engine("sqlite://", creator=lambda: sqlite3.connect(":memory:"), poolclass=NullPool),
            "function of its own",
        ),
        (create_engine(PG, connect_args={"ssl": object()}), "psycopg cannot use"),
        ("sqlite:///shop.db", "Engine or AsyncEngine"),
    ],
)
def test_an_engine_that_cannot_work_is_an_error_at_once(engine: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        App(engine=engine)


def test_a_url_and_an_engine_are_one_too_many(sqlite_url: str) -> None:
    with pytest.raises(InvalidInput, match="not both"):
        App(sqlite_url, engine=create_engine(sqlite_url))


async def test_transactions_are_made_on_the_engines_own_connections(url: str) -> None:
    engine = create_engine(with_driver(url, awaited=False))
    app = App(engine=engine)
    seen: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    @app.transaction
    def of_engine(session: Session, entry: str) -> None:
        session.execute(text(f"INSERT INTO ledger VALUES ('{entry}')"))

    @app.transaction
    def of_library(tx: Tx, entry: str) -> None:
        tx.execute(f"INSERT INTO ledger VALUES ('{entry}')")

    async with app:
        await of_engine.aio("by the engine")
        await of_library.aio("by the library")
    assert bank.entries(url) == ["by the engine", "by the library"]
    assert [each for each in seen if "INSERT INTO ledger" in each] == ["INSERT INTO ledger VALUES ('by the engine')"]
    engine.dispose()


@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_a_function_cannot_end_the_transaction_of_an_engine(url: str, ending: str) -> None:
    engine = create_engine(with_driver(url, awaited=False))
    app = App(engine=engine)

    @app.transaction
    def impatient(connection: Connection) -> None:
        connection.execute(text("INSERT INTO ledger VALUES ('half')"))
        getattr(connection, ending)()

    async with app:
        with pytest.raises(InTransaction, match="leave that to"):
            await impatient.aio()
    assert bank.entries(url) == []
    engine.dispose()


@covering
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_an_ending_that_is_refused_leaves_no_transaction_open(url: str, ending: str, awaited: bool) -> None:
    """The connection returns to the engine's pool, and the locks of a transaction that stays open would be held for as long."""
    half = text("INSERT INTO ledger VALUES ('half')")
    engine = create_engine(with_driver(url, awaited=False))
    awaiting = create_async_engine(with_driver(url, awaited=True))

    async def impatient() -> None:
        async with UsersEngine(awaiting if awaited else engine).begun(None) as connection:
            await ready(connection.execute(half))
            await ready(getattr(connection, ending)())

    with pytest.raises(InTransaction, match="leave that to"):
        await (impatient() if awaited else asyncio.to_thread(lambda: finished(impatient())))
    assert bank.lock_refused(url) == ""
    assert bank.entries(url) == []
    await awaiting.dispose()
    engine.dispose()


async def test_a_part_of_an_awaited_transaction_is_undone_alone(url: str) -> None:
    app = App(url)

    @app.transaction
    async def inner(session: AsyncSession) -> None:
        await session.execute(text("INSERT INTO ledger VALUES ('inner')"))
        raise LookupError("undone")

    @app.transaction
    async def outer(session: AsyncSession) -> str:
        await session.execute(text("INSERT INTO ledger VALUES ('outer')"))
        try:
            await inner()
        except LookupError as error:
            return str(error)
        return ""

    async with app:
        assert await outer() == "undone"
    assert bank.entries(url) == ["outer"]


async def test_many_awaited_transactions_take_turns(url: str) -> None:
    """More than there are threads to wait on, and each of them needs one in the middle."""
    app = App(url)

    @app.workflow
    async def echo(what: str) -> str:
        return what

    @app.transaction
    async def entering(session: AsyncSession, number: int) -> None:
        await session.execute(text(f"INSERT INTO ledger VALUES ('{number:02}')"))
        await app.runs.get("known")
        await app.runs.set_attributes("known", {str(number): True})

    async with app:
        await echo.options(id="known")("x")
        await asyncio.gather(*(entering(number) for number in range(40)))
        assert len((await app.runs.get("known")).attributes) == 40
    assert bank.entries(url) == [f"{number:02}" for number in range(40)]


async def test_what_is_not_installed_is_named_with_its_extra(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(sqlite_url)

    @app.transaction
    async def entering(session: AsyncSession) -> None:
        del session

    async with app:
        for missing in ("greenlet", "aiosqlite"):
            with monkeypatch.context() as patched:
                patched.setitem(sys.modules, missing, None)
                with pytest.raises(MissingExtra, match=rf"{missing}.*mainspring\[sqlalchemy\]"):
                    await entering()
