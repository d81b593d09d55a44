"""A transaction that the database rolls back underneath its function is over at once, whatever the function makes of it."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from mainspring import App, Tx
from mainspring.errors import InTransaction, InvalidInput, NotFound
from mainspring.testing import world
from tests.support.samples import covering
from tests.transactions import bank, own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAILURES = (sqlite3.IntegrityError, psycopg.errors.UniqueViolation, DBAPIError)
REFUSALS = (InTransaction, psycopg.errors.InFailedSqlTransaction, DBAPIError)
GIVEN = {"Tx": Tx, "connection": Connection, "session": Session}
EARLY, AGAIN, LATE = (
    f"INSERT INTO {values}" for values in ("ledger VALUES ('early')", "stock VALUES (1)", "ledger VALUES ('late')")
)


@pytest.fixture(params=["own", "url", "engine"])
def place(request: pytest.FixtureRequest, store_url: str, tmp_path: Any) -> Iterator[tuple[str, Any]]:
    """Where the user's tables are: their URL, and what is given as `database=`. Nobody but SQLite rolls back all by itself."""
    with contextlib.ExitStack() as stack:
        url = store_url
        database: Any = None
        if request.param != "own":
            if bank.is_sqlite(store_url):
                url = f"sqlite:///{tmp_path / 'other.db'}"
            else:
                url = stack.enter_context(request.getfixturevalue("shared_postgres").database())
            database = url
            if request.param == "engine":
                driver = "sqlite" if bank.is_sqlite(url) else "postgresql+psycopg"
                database = sqlalchemy.create_engine(url.replace(url.split(":", maxsplit=1)[0], driver, 1))
                stack.callback(database.dispose)
        conflict = "ON CONFLICT ROLLBACK" if bank.is_sqlite(url) else ""
        bank.execute(url, bank.LEDGER, f"CREATE TABLE stock (item int PRIMARY KEY {conflict})", AGAIN)
        yield url, database


def _on(given: Any) -> Callable[[str], Any]:
    """How a statement is executed with what a function was given."""
    if isinstance(given, (Connection, Session)):
        return lambda statement: given.execute(text(statement))
    execute: Callable[[str], Any] = given.execute
    return execute


def shop(database: Any, kind: Any) -> tuple[App, Any]:
    app = App()

    @app.workflow
    async def told() -> str:
        return "told"

    def book(given: Any, goes_on: str) -> str:
        execute = _on(given)
        execute(EARLY)
        with contextlib.suppress(*FAILURES):
            execute(AGAIN)
        if goes_on == "statement":
            with contextlib.suppress(*REFUSALS):
                execute(LATE)
            execute(LATE)
        elif goes_on == "start":
            with contextlib.suppress(*REFUSALS):
                told.options(id="told").start.sync()
        elif goes_on == "nested":
            nested()
        return "booked"

    def fail(given: Any) -> None:
        _on(given)(LATE)

    book.__annotations__["given"] = fail.__annotations__["given"] = kind
    book.__annotations__["return"] = str
    nested = app.transaction(database=database)(fail)
    booking = app.transaction(database=database)(book)

    @app.workflow
    async def orders(goes_on: str) -> str:
        return await booking.aio(goes_on)

    return app, orders


@covering
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("goes_on", ["statement", "start", "nested", "returns"])
async def test_nothing_of_it_is_committed_and_its_run_is_told(
    store_url: str, place: tuple[str, Any], given: str, goes_on: str
) -> None:
    url, database = place
    app, orders = shop(database, GIVEN[given])
    async with world(app, url=store_url):
        handle = await orders.options(id="order").start(goes_on)
        with pytest.raises((InTransaction, psycopg.Error, DBAPIError)) as caught:
            await handle.result()
        if bank.is_sqlite(url):
            assert isinstance(caught.value, InTransaction)
            assert "rolled this transaction back" in str(caught.value)
        with pytest.raises(NotFound):
            await app.handle("told").describe()
    assert bank.entries(url) == []


def lends(connection: sqlite3.Connection, statement: str) -> None:
    connection.execute(EARLY)
    cursor = connection.cursor()
    with contextlib.suppress(sqlite3.IntegrityError):
        cursor.execute(AGAIN)
    with pytest.raises(InTransaction):
        cursor.execute(LATE)
    with pytest.raises(InTransaction):
        cursor.executemany("INSERT INTO ledger VALUES (?)", [("many",)])
    for how in ("commit", "rollback"):
        with pytest.raises(InTransaction):
            getattr(connection, how)()
    getattr(connection, "executescript" if ";" in statement else "execute")(statement)


@pytest.mark.parametrize("statement", ["COMMIT", "BEGIN", "ROLLBACK", LATE, f"{LATE}; {LATE};"])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_the_drivers_own_connection_executes_nothing_outside_the_transaction(
    sqlite_url: str, tmp_path: Any, statement: str, *, elsewhere: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}" if elsewhere else sqlite_url
    bank.execute(url, bank.LEDGER, "CREATE TABLE stock (item int PRIMARY KEY ON CONFLICT ROLLBACK)", AGAIN)
    app = App()
    fn = app.transaction(database=url if elsewhere else None)(lends)
    async with world(app, url=sqlite_url):
        for _ in range(2):
            with pytest.raises(InTransaction):
                await fn.aio(statement)
    assert bank.entries(url) == []


@pytest.mark.parametrize("kind", ["sqlite3 by hand", "psycopg"])
async def test_nothing_is_joined_to_a_transaction_that_is_over(request: pytest.FixtureRequest, kind: str) -> None:
    """On a connection whose statements would commit one by one."""
    url = request.getfixturevalue("sqlite_url" if kind.startswith("sqlite3") else "postgres_url")
    app = App()

    @app.workflow
    async def told() -> None:
        pass

    async with world(app, url=url), own.opened(url, kind) as mine:
        if kind == "psycopg":
            mine.given.autocommit = True
            mine.given.execute("BEGIN")
        async with app.joined(mine.given):
            await told.options(id="early").start()
            mine.given.execute("ROLLBACK")
            with pytest.raises(InvalidInput, match="no transaction is open"):
                await told.options(id="late").start()
        assert not (await app.runs.list()).runs
