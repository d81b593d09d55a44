"""Connections of PostgreSQL that functions are given, and sessions of SQLAlchemy: what stays of what is done to them."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy.orm import Session  # noqa: TC002  (what a transaction is given is found by its annotation)

from mainspring import App, Tx
from mainspring.errors import NotFound
from mainspring.testing import world
from tests.transactions import bank, own
from tests.transactions.own import done

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.postgres import PostgresServer

app = App("sqlite://")
SHOWN = "SELECT current_setting('search_path'), current_setting('statement_timeout')"
tries: list[str] = []
both_have_read = threading.Barrier(2)


@app.workflow
async def echo(what: str) -> str:
    return what


# -- settings ----------------------------------------------------------------------------------------------------------
@app.transaction
def changes_its_connection(connection: psycopg.Connection[Any], *, fail: bool) -> None:
    connection.row_factory = dict_row
    connection.execute("SET search_path TO pg_catalog")
    connection.execute("SELECT set_config('statement_timeout', '50s', false)")
    if fail:
        raise LookupError("after all")


@app.transaction
def changes_its_settings(tx: Tx, *, fail: bool) -> None:
    tx.execute("SET statement_timeout TO '50s'")
    tx.execute("SELECT set_config('search_path', 'pg_catalog', false)")
    if fail:
        raise LookupError("after all")


@app.transaction
async def changes_its_awaited_connection(connection: psycopg.AsyncConnection[Any], *, fail: bool) -> None:
    connection.row_factory = dict_row
    await connection.execute("SET search_path TO pg_catalog")
    await connection.execute("SET statement_timeout TO '50s'")
    if fail:
        raise LookupError("after all")


@app.transaction
def settings(connection: psycopg.Connection[Any]) -> list[str]:
    row = connection.execute(SHOWN).fetchone()
    assert row is not None
    return [row[0], row[1]]


@app.transaction
async def awaited_settings(connection: psycopg.AsyncConnection[Any]) -> list[str]:
    row = await (await connection.execute(SHOWN)).fetchone()
    assert row is not None
    return [row[0], row[1]]


@pytest.mark.parametrize("fail", [False, True])
async def test_what_a_function_makes_of_its_connection_does_not_stay(postgres_url: str, *, fail: bool) -> None:
    def made() -> list[Callable[[], Any]]:
        return [
            lambda: changes_its_connection.aio(fail=fail),
            lambda: changes_its_settings.aio(fail=fail),
            lambda: changes_its_awaited_connection(fail=fail),
        ]

    async with world(app, url=postgres_url):
        before = await settings.aio()
        for make in made():
            if fail:
                with pytest.raises(LookupError):
                    await make()
            else:
                await make()
            assert await settings.aio() == await awaited_settings() == before


# -- connections that the server has closed --------------------------------------------------------------------------------
@app.transaction
def counted(tx: Tx) -> None:
    tx.execute("SELECT 1")
    tries.append("counted")


@app.transaction
async def awaited_counted(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("SELECT 1")
    tries.append("awaited")


async def test_a_function_is_not_given_a_connection_that_was_closed_while_it_was_idle(
    postgres_url: str, shared_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    tries.clear()
    async with world(app, url=postgres_url):
        for _ in range(2):
            await counted.aio()
            await awaited_counted()
            shared_postgres.terminate_backends(postgres_url)
        await awaited_counted()
    assert tries == ["counted", "awaited"] * 2 + ["awaited"]
    assert "is retried" not in caplog.text


# -- failures that the function does not let through ---------------------------------------------------------------------
@app.transaction(isolation="serializable")
def adds_whatever_happens(tx: Tx, name: str) -> str:
    tries.append(name)
    tx.execute("SELECT count(*) FROM ledger")
    if tries.count(name) == 1:
        both_have_read.wait(60)
    try:
        tx.execute("UPDATE totals SET total = total + 1")
    except psycopg.Error:
        return "gave up"
    return name


@app.transaction
def goes_on_after_an_error(tx: Tx) -> None:
    try:
        tx.execute("SELECT 1/0")
    except psycopg.Error:
        tx.execute("INSERT INTO ledger VALUES ('too late')")


async def test_a_serialization_failure_that_the_function_hides_is_made_again(postgres_url: str) -> None:
    bank.execute(postgres_url, "CREATE TABLE ledger (entry text)", "CREATE TABLE totals (total int)")
    bank.execute(postgres_url, "INSERT INTO totals VALUES (0)")
    tries.clear()
    async with world(app, url=postgres_url):
        handles = [await adds_whatever_happens.start(name) for name in ("a", "b")]
        assert [await handle.result() for handle in handles] == ["a", "b"]
    assert bank.value(postgres_url, "SELECT total FROM totals") == 2
    assert len(tries) == 3


async def test_who_goes_on_after_an_error_is_told_what_to_do(postgres_url: str) -> None:
    bank.execute(postgres_url, "CREATE TABLE ledger (entry text)")
    async with world(app, url=postgres_url):
        with pytest.raises(psycopg.errors.InFailedSqlTransaction) as caught:
            await goes_on_after_an_error.aio()
        assert "SAVEPOINT" in "".join(caught.value.__notes__)


# -- ways of the driver's ------------------------------------------------------------------------------------------------
@app.transaction
async def awaits(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("SELECT pg_sleep(0.01)")


@app.workflow
async def awaiting() -> None:
    await awaits()


async def test_what_a_driver_waits_for_is_no_time_of_the_workflows(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(app, url=postgres_url):
        with caplog.at_level(logging.WARNING, "mainspring"):
            await awaiting()
    assert "time of this process" not in caplog.text


async def test_a_pipeline_is_joined(postgres_url: str) -> None:
    async with world(app, url=postgres_url):
        connecting = psycopg.AsyncConnection.connect(postgres_url)
        async with await connecting as awaited, awaited.pipeline(), app.joined(awaited):
            first = await echo.options(id="a").start("one")
            again = await echo.options(id="a").start("two")
        with psycopg.connect(postgres_url) as connection, connection.pipeline(), app.joined(connection):
            last = await echo.options(id="b").start("three")
        assert [await each.result() for each in (first, again, last)] == ["one", "one", "three"]


# -- savepoints of SQLAlchemy's ------------------------------------------------------------------------------------------
@app.transaction
def undoes_a_part(session: Session) -> list[str]:
    with session.begin_nested() as part:
        undone = echo.start.sync("undone")
        part.rollback()
    with session.begin_nested():
        kept = echo.start.sync("kept")
    return [undone.id, kept.id]


async def test_what_a_transaction_starts_is_undone_with_a_part_of_its_session(store_url: str) -> None:
    async with world(app, url=store_url):
        undone, kept = await undoes_a_part.aio()
        await _only_kept(undone, kept)


@pytest.mark.parametrize("kind", ["session", "async session"])
async def test_what_joins_a_session_is_undone_with_a_part_of_it(store_url: str, kind: str) -> None:
    async with world(app, url=store_url):
        async with own.opened(store_url, kind) as mine, app.joined(mine.given):
            part = await done(mine.given.begin_nested())
            undone = await echo.start("undone")
            await done(part.rollback())
            part = await done(mine.given.begin_nested())
            kept = await echo.start("kept")
            await done(part.commit())
            await mine.commit()
        await _only_kept(undone.id, kept.id)


async def _only_kept(undone: str, kept: str) -> None:
    assert await app.handle(kept).result() == "kept"
    with pytest.raises(NotFound):
        await app.handle(undone).describe()
