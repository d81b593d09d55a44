"""Every kind of connection or session that a transaction can be given, on both databases, with and without the user's engine.

Every verb takes part: what is started, sent, scheduled and cancelled is there when, and only if, the user's row is.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import aiosqlite
import psycopg
import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from mainspring import App, Spec, State, Tx, run
from mainspring.errors import NotFound
from mainspring.recurrence import Interval
from tests.support.samples import covering
from tests.transactions import bank, own

pytest.importorskip("sqlmodel")

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

EVERY_DAY = Spec(intervals=[Interval("1d")])
BLOCKING: dict[str, Any] = {"connection": Connection, "session": Session, "sqlmodel": own.session_of("sqlmodel")}
AWAITED: dict[str, Any] = {
    "async connection": AsyncConnection,
    "async session": AsyncSession,
    "async sqlmodel": own.session_of("async sqlmodel"),
}
OWN = [
    ("sqlite", "tx"),
    ("sqlite", "sqlite3"),
    ("sqlite", "aiosqlite"),
    ("postgres", "tx"),
    ("postgres", "psycopg"),
    ("postgres", "psycopg async"),
]
DRIVERS = [("postgres", "session", "psycopg2"), ("postgres", "async session", "asyncpg")]
"""Drivers that the library itself does not use."""
CASES = (
    [(*each, "url") for each in OWN]
    + DRIVERS
    + [
        (database, kind, given)
        for database in ("sqlite", "postgres")
        for kind in (*BLOCKING, *AWAITED)
        for given in ("url", "engine")
    ]
)


class Shop:
    """An app with one transaction that uses every verb."""

    def __init__(self, app: App, kind: str) -> None:
        self.app = app
        self.kind = kind
        self.is_async = kind in AWAITED or kind in {"aiosqlite", "psycopg async"}

        @app.workflow
        async def echo(what: str) -> str:
            return what

        @app.workflow
        async def listen() -> Any:
            return await run.receive("news", timeout="1h")

        def everything(tx: Any, entry: str, *, fail: bool) -> None:
            tx.execute(statement(kind, f"INSERT INTO ledger VALUES ('{entry}')"))
            echo.options(id="one").start.sync("one")
            app.run_after.sync("1h", echo.options(id="later").bind("later"))
            app.send.sync("listener", "news", {"it": "happened"})
            assert app.handle("sleeper").cancel.sync(reason="joined")
            app.schedules.create.sync("daily", echo.bind("tick"), EVERY_DAY)
            app.schedules.pause.sync("daily", note="not yet")
            if fail:
                raise LookupError("after all")

        async def everything_async(tx: Any, entry: str, *, fail: bool) -> None:
            execute = tx.exec if kind == "async sqlmodel" else tx.execute
            await execute(statement(kind, f"INSERT INTO ledger VALUES ('{entry}')"))
            await echo.options(id="one").start("one")
            await app.run_after("1h", echo.options(id="later").bind("later"))
            await app.send("listener", "news", {"it": "happened"})
            assert await app.handle("sleeper").cancel(reason="joined")
            await app.schedules.create("daily", echo.bind("tick"), EVERY_DAY)
            await app.schedules.pause("daily", note="not yet")
            if fail:
                raise LookupError("after all")

        self.echo, self.listen = echo, listen
        self.made = self.registered(everything_async if self.is_async else everything)

        @app.workflow
        async def within(entry: str, *, fail: bool) -> None:
            await self.call(entry, fail=fail)

        self.within = within

    def registered(self, fn: Any) -> Any:
        kinds: dict[str, Any] = {
            "tx": Tx,
            "sqlite3": "sqlite3.Connection",
            "aiosqlite": aiosqlite.Connection,
            "psycopg": psycopg.Connection,
            "psycopg async": psycopg.AsyncConnection,
        }
        made: Any = self.app
        fn.__annotations__["tx"] = {**kinds, **BLOCKING, **AWAITED}[self.kind]
        return made.transaction(fn)

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        return await (self.made if self.is_async else self.made.aio)(*args, **kwargs)


def statement(kind: str, spelled: str) -> Any:
    return text(spelled) if kind in BLOCKING or kind in AWAITED else spelled


def with_driver(url: str, *, awaited: bool, name: str = "psycopg") -> str:
    driver = f"postgresql+{name}" if not bank.is_sqlite(url) else "sqlite+aiosqlite" if awaited else "sqlite"
    return url.replace(url.split(":", maxsplit=1)[0], driver, 1)


@contextlib.asynccontextmanager
async def an_app(url: str, kind: str, given: str) -> AsyncGenerator[App]:
    if given == "url":
        yield App(url)
        return
    name = "psycopg" if given == "engine" else pytest.importorskip(given).__name__
    if kind in AWAITED:
        awaited = create_async_engine(with_driver(url, awaited=True, name=name))
        yield App(engine=awaited)
        await awaited.dispose()
    else:
        engine = create_engine(with_driver(url, awaited=False, name=name))
        yield App(engine=engine)
        engine.dispose()


@covering
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "in a run"])
@pytest.mark.parametrize(("database", "kind", "given"), CASES, ids=["-".join(each).replace(" ", "_") for each in CASES])
async def test_every_verb_takes_part_in_a_transaction_of_every_kind(
    request: pytest.FixtureRequest, database: str, kind: str, given: str, *, inside: bool
) -> None:
    url: str = request.getfixturevalue(f"{database}_url")
    bank.execute(url, bank.LEDGER)
    async with an_app(url, kind, given) as app:
        shop = Shop(app, kind)
        make: Callable[..., Any] = shop.within if inside else shop.call
        async with app:
            listener = await shop.listen.options(id="listener").start()
            sleeper = await shop.echo.options(id="sleeper", after="1h").start("asleep")
            with pytest.raises(LookupError, match="after all"):
                await make("undone", fail=True)
            assert bank.entries(url) == []
            for run_id in ("one", "later"):
                with pytest.raises(NotFound):
                    await app.handle(run_id).describe()
            with pytest.raises(NotFound):
                await app.schedules.describe("daily")
            assert (await sleeper.describe()).state is State.SCHEDULED

            await make("done", fail=False)
            assert bank.entries(url) == ["done"]
            assert await app.handle("one").result() == "one"
            assert await listener.result() == {"it": "happened"}
            assert (await app.handle("later").describe()).state is State.SCHEDULED
            assert (await sleeper.describe()).state is State.CANCELLED
            found = await app.schedules.describe("daily")
            assert (found.paused, found.note) == (True, "not yet")
