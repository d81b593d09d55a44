"""What a function keeps of a transaction that is over is of no use, and stands in nobody's way."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, text

from mainspring import App, Tx
from mainspring.errors import InTransaction
from mainspring.testing import world
from tests.transactions import bank
from tests.transactions.own import SQLITE, opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

app = App("sqlite://")
kept: list[Any] = []


@pytest.fixture
def url(store_url: str) -> str:
    bank.execute(store_url, "CREATE TABLE ledger (entry integer NOT NULL)")
    bank.execute(store_url, *(f"INSERT INTO ledger VALUES ({number})" for number in range(20)))
    kept.clear()
    return store_url


@app.workflow
async def echo(number: int) -> int:
    return number


@app.transaction
def keep_tx(tx: Tx) -> None:
    kept.append(tx)


@app.transaction
def read_a_little(tx: Tx, *, fail: bool) -> int:
    kept.append(tx.execute("SELECT entry FROM ledger ORDER BY entry"))
    if fail:
        raise LookupError("half-way")
    found: int = kept[-1].fetchone()[0]
    return found


@app.transaction
def write_and_read_a_little(tx: Tx) -> int:
    kept.append(tx.execute("INSERT INTO ledger VALUES (100), (101), (102) RETURNING entry"))
    found: int = kept[-1].fetchone()[0]
    return found


@app.transaction
def read_a_little_of_sqlite(connection: sqlite3.Connection) -> int:
    kept.append(connection.execute("SELECT entry FROM ledger ORDER BY entry"))
    kept.append(connection)
    found: int = kept[-2].fetchone()[0]
    return found


@app.transaction
def read_a_little_of_sqlalchemy(connection: Connection) -> int:
    kept.append(connection.execute(text("SELECT entry FROM ledger ORDER BY entry")))
    row = kept[-1].fetchone()
    assert row is not None
    found: int = row[0]
    return found


@app.transaction
def read_for_each_row(tx: Tx) -> list[int]:
    return [read_one(entry) for (entry,) in tx.execute("SELECT entry FROM ledger ORDER BY entry")]


@app.transaction
def read_one(tx: Tx, entry: int) -> int:
    kept.append(tx.execute("SELECT entry FROM ledger WHERE entry >= ? ORDER BY entry", (entry,)))
    found: int = kept[-1].fetchone()[0]
    return found


def as_dict(_: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[int, Any]:
    return dict(enumerate(row))


@app.transaction
def start_with_odd_rows(connection: sqlite3.Connection) -> str:
    connection.text_factory, connection.row_factory = bytes, as_dict
    return echo.start.sync(7).id


@app.workflow
def recorded(name: str) -> int | str:
    made: dict[str, Callable[[], int]] = {
        "read": lambda: read_a_little(fail=False),
        "fail": lambda: read_a_little(fail=True),
        "write": write_and_read_a_little,
        "sqlite3": read_a_little_of_sqlite,
        "sqlalchemy": read_a_little_of_sqlalchemy,
    }
    try:
        return made[name]()
    except LookupError as error:
        return str(error)


async def still_writes(url: str) -> None:
    """Somebody else writes, and then the app: it must not be stuck at what it saw before."""
    bank.execute(url, "INSERT INTO ledger VALUES (200)")
    assert await echo(1) == 1
    assert await write_and_read_a_little.aio() == 100


async def test_a_tx_is_of_no_use_when_its_transaction_is_over(url: str) -> None:
    async with world(app, url=url):
        await keep_tx.aio()
        with pytest.raises(InTransaction, match="is over"):
            kept[0].execute("INSERT INTO ledger VALUES (300)")
    assert bank.value(url, "SELECT count(*) FROM ledger WHERE entry = 300") == 0


@pytest.mark.parametrize("name", ["read", "fail", "write", "sqlalchemy"])
async def test_a_cursor_that_is_kept_half_read_stops_nobody_from_writing(url: str, name: str) -> None:
    async with world(app, url=url):
        assert await recorded.aio(name) in {0, 100, "half-way"}
        await still_writes(url)
        assert len(kept) > 1


async def test_nor_does_one_of_a_connection_that_was_lent(sqlite_url: str) -> None:
    bank.execute(sqlite_url, "CREATE TABLE ledger (entry integer)", "INSERT INTO ledger VALUES (0), (1), (2)")
    async with world(app, url=sqlite_url):
        for _ in range(2):
            assert await recorded.aio("sqlite3") == 0
            await still_writes(sqlite_url)
        with pytest.raises(InTransaction, match="is over"):
            next(each for each in kept if isinstance(each, sqlite3.Connection)).execute("DELETE FROM ledger")


async def test_nor_does_one_in_another_database(sqlite_url: str, tmp_path: Path) -> None:
    there = f"sqlite:///{tmp_path / 'there.db'}"
    bank.execute(there, "CREATE TABLE ledger (entry integer)", "INSERT INTO ledger VALUES (0), (1), (2)")
    other = App(sqlite_url)

    @other.transaction(database=there)
    def read(connection: sqlite3.Connection) -> int:
        kept.append(connection.execute("SELECT entry FROM ledger ORDER BY entry"))
        found: int = kept[-1].fetchone()[0]
        return found

    async with world(other, url=sqlite_url):
        assert await (await read.start()).result() == 0
        bank.execute(
            there, "INSERT INTO ledger VALUES (3)"
        )  # its file is one without a log, where a reader stops writers


async def test_a_transaction_inside_another_one_leaves_what_that_reads_alone(url: str) -> None:
    async with world(app, url=url):
        assert await read_for_each_row.aio() == list(range(20))


@pytest.mark.parametrize("kind", [*SQLITE, "connection", "async connection"])
async def test_texts_and_rows_may_be_of_any_kind(sqlite_url: str, kind: str) -> None:
    async with world(app, url=sqlite_url) as w:
        if kind == "sqlite3":
            assert await app.handle(await start_with_odd_rows.aio()).result() == 7
        async with opened(sqlite_url, kind) as own:
            raw = await _raw(own.given)
            raw.text_factory, raw.row_factory = bytes, as_dict
            async with app.joined(own.given):
                handle = await echo.options(id="a").start(8)
                again = await echo.options(id="a").start(9)
            await own.commit()
        await w.drain()
        assert await handle.result() == await again.result() == 8


async def _raw(given: Any) -> Any:
    """The driver's own connection behind one of SQLAlchemy's."""
    if hasattr(given, "get_raw_connection"):
        return (await given.get_raw_connection()).driver_connection
    return given if isinstance(given, sqlite3.Connection) else given.connection.dbapi_connection
