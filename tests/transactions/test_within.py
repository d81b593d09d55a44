"""Transactions on connections that users open themselves: `@app.transaction(within=…)`."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

from mainspring import App, Tx
from mainspring.errors import InTransaction, InvalidInput
from mainspring.store.external.tx import Again
from mainspring.store.open import sqlite_path

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.store.changes import Signal


class Bank:
    """An app, and a connection of the test's own that its functions find by themselves, as an ORM does."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.url = url
        self.open: Any = None
        self.opened = 0
        self.conflicts = 0
        self.sql("CREATE TABLE payments (amount INTEGER)")

    @contextlib.contextmanager
    def within(self) -> Generator[Any]:
        self.opened += 1
        with self.connected() as db:
            if isinstance(db, sqlite3.Connection):
                db.execute("BEGIN IMMEDIATE")
            self.open = db
            try:
                yield db
                self.commit(db)
            except BaseException:
                db.rollback()
                raise
            finally:
                self.open = None

    def commit(self, db: Any) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise Again("rolled back for others")
        db.commit()

    @contextlib.contextmanager
    def connected(self) -> Generator[Any]:
        if self.url.startswith("sqlite"):
            db: Any = sqlite3.connect(sqlite_path(self.url), timeout=30, isolation_level=None)
        else:
            db = psycopg.connect(self.url)
        with contextlib.closing(db):
            yield db

    def sql(self, text: str) -> list[Any]:
        with self.connected() as db:
            cursor = db.execute(text)
            found: list[Any] = cursor.fetchall() if cursor.description else []
            db.commit()
            return found


@pytest.fixture
def bank(store_url: str) -> Bank:
    return Bank(store_url)


async def test_a_functions_rows_and_its_record_are_one_commit(bank: Bank) -> None:
    app = bank.app

    @app.workflow
    async def thank(amount: int) -> str:
        return f"thanks for {amount}"

    @app.transaction(within=bank.within)
    def pay(amount: int, *, twice: bool = False) -> str:
        bank.open.execute(f"INSERT INTO payments VALUES ({amount * (2 if twice else 1)})")
        return thank.start.sync(amount).id

    @app.workflow
    async def order(amount: int) -> str:
        return str(await app.handle(await pay.aio(amount, twice=True)).result())

    @app.workflow
    def blocking_order(amount: int) -> str:
        return pay(amount)

    async with app:
        assert await order(7) == "thanks for 7"
        assert await app.handle(await blocking_order.aio(8)).result() == "thanks for 8"
        assert await app.handle(await (await pay.start(9)).result()).result() == "thanks for 9"
        assert await app.handle(await pay.aio(10)).result() == "thanks for 10"
    assert sorted(bank.sql("SELECT amount FROM payments")) == [(8,), (9,), (10,), (14,)]


async def test_an_exception_rolls_back_the_rows_and_what_was_started(bank: Bank) -> None:
    app = bank.app

    @app.workflow
    async def thank() -> None: ...

    @app.transaction(within=bank.within)
    def pay() -> None:
        bank.open.execute("INSERT INTO payments VALUES (1)")
        thank.start.sync()
        raise ValueError("no money")

    @app.workflow
    async def order() -> str:
        try:
            await pay.aio()
        except ValueError as error:
            return str(error)
        return "paid"

    async with app:
        assert await order() == "no money"
        assert [run.workflow for run in (await app.runs.list()).runs] == ["order"]
    assert bank.sql("SELECT * FROM payments") == []
    assert bank.opened == 1


async def test_a_transaction_that_the_database_rolled_back_is_made_again(bank: Bank) -> None:
    app = bank.app
    bank.conflicts = 2

    @app.transaction(within=bank.within)
    def pay() -> int:
        bank.open.execute("INSERT INTO payments VALUES (1)")
        return bank.opened

    @app.workflow
    async def order() -> int:
        return await pay.aio()

    async with app:
        assert await order() == 3
    assert bank.sql("SELECT * FROM payments") == [(1,)]


async def test_one_inside_another_is_part_of_it(bank: Bank) -> None:
    app = bank.app

    @app.transaction(within=bank.within)
    def inner(amount: int) -> None:
        bank.open.execute(f"INSERT INTO payments VALUES ({amount})")
        if amount < 0:
            raise ValueError(amount)

    @app.transaction(within=bank.within)
    def outer() -> None:
        inner(1)
        with pytest.raises(ValueError, match="-1"):
            inner(-1)
        with pytest.raises(InTransaction, match="one after the other"):
            plain()

    @app.transaction
    def plain(tx: Tx) -> None:
        inner(2)

    @app.workflow
    async def order() -> None:
        await outer.aio()
        with pytest.raises(InTransaction, match="within="):
            await plain.aio()

    async with app:
        await order()
    assert bank.sql("SELECT * FROM payments") == [(1,)]
    assert bank.opened == 1


def test_its_process_is_notified_as_soon_as_it_has_committed(bank: Bank) -> None:
    app = bank.app
    arrived: list[Signal] = []

    @app.workflow
    async def thank() -> None: ...

    @app.transaction(within=bank.within)
    def pay(amount: int) -> None:
        bank.open.execute(f"INSERT INTO payments VALUES ({amount})")
        thank.start.sync()
        assert arrived == []
        if amount < 0:
            raise ValueError(amount)

    def notify(signal: Signal) -> None:
        if signal.ended is not None:  # not that anything may have changed, as when it begins to listen
            arrived.append(signal)

    app._runtime.connection().on_signal(notify)
    with pytest.raises(ValueError, match="-1"):
        pay(-1)
    assert arrived == []
    pay(1)
    assert [signal.ready for signal in arrived] == [True]
    app.close()


def test_what_within_cannot_be_used_with_is_said_at_once(bank: Bank) -> None:
    app, untyped = bank.app, cast("Any", bank.app)
    with pytest.raises(InvalidInput, match=r"write it as `def`"):

        @app.transaction(within=bank.within)
        async def awaited() -> None: ...

    with pytest.raises(InvalidInput, match="leave out isolation"):
        untyped.transaction(within=bank.within, isolation="serializable")(lambda: None)


async def test_a_url_may_be_found_when_the_app_connects(store_url: str) -> None:
    asked: list[str] = []

    def url() -> str:
        asked.append(store_url)
        return store_url

    app = App(url)

    @app.workflow
    async def hello() -> str:
        return "hello"

    assert asked == []
    async with app:
        assert await hello() == "hello"
    assert app.url == store_url
