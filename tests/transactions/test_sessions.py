"""Nothing that a transaction leaves in its session on PostgreSQL reaches the next one that is given the same connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import Connection, text

from mainspring import App, Tx
from mainspring.testing import world
from tests.support.samples import covering
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

app = App()
SETTING = "SELECT current_setting('search_path')"
CUSTOM = "SELECT coalesce(current_setting('shop.tenant', true), '')"
WHO = "SELECT current_user || ' ' || session_user || ' ' || current_setting('role')"
TABLES = "SELECT coalesce(to_regclass('pg_temp.scratch')::text, '')"
CURSORS = "SELECT count(*) FROM pg_cursors WHERE is_holdable"
PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE from_sql"
CHANNELS = "SELECT count(*) FROM pg_listening_channels()"
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
LEAKS = {
    "SET": ("SET search_path = tenant", SETTING),
    "SET after a comment": ("/* first */ SET search_path = tenant", SETTING),
    "SET after another statement": ("SELECT 1; SET search_path = tenant", SETTING),
    "SET in DO": ("DO $$ BEGIN SET search_path = tenant; END $$", SETTING),
    "SET in a function": ("SELECT public.be_tenant()", SETTING),
    "SET in a trigger": ("INSERT INTO public.watched VALUES (1)", SETTING),
    "set_config": ("SELECT set_config('search_path', 'tenant', false)", SETTING),
    "a setting of the user's own": ("SET shop.tenant = 'seven'", CUSTOM),
    "SET ROLE": ("SET ROLE limited", WHO),
    "SET SESSION AUTHORIZATION": ("SET SESSION AUTHORIZATION limited", WHO),
    "a temporary table": ("CREATE TEMPORARY TABLE scratch (a int)", TABLES),
    "a lock of the session's": ("SELECT pg_advisory_lock(7)", LOCKS),
    "a lock taken in a function": ("SELECT public.take_lock()", LOCKS),
    "a cursor": ("DECLARE mine CURSOR WITH HOLD FOR SELECT 1", CURSORS),
    "a cursor declared in DO": ("DO $$ BEGIN EXECUTE 'DECLARE mine CURSOR WITH HOLD FOR SELECT 1'; END $$", CURSORS),
    "a prepared statement": ("PREPARE mine AS SELECT 1", PREPARED),
    "a channel": ("LISTEN mine", CHANNELS),
}
GRANTS = ("GRANT USAGE ON SCHEMA mainspring TO limited", "GRANT ALL ON ALL TABLES IN SCHEMA mainspring TO limited")
TENANTS = """
  CREATE SCHEMA tenant;
  CREATE FUNCTION public.be_tenant() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    PERFORM set_config('search_path', 'tenant', false); END $$;
  CREATE FUNCTION public.take_lock() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(7); END $$;
  CREATE FUNCTION public.notice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM set_config('search_path', 'tenant', false); RETURN NULL; END $$;
  CREATE TABLE public.watched (a int);
  CREATE TRIGGER watched AFTER INSERT ON public.watched FOR EACH ROW EXECUTE FUNCTION public.notice();
"""


@app.transaction
def with_tx(tx: Tx, statement: str, *, fail: bool) -> None:
    tx.execute(statement)
    if fail:
        raise LookupError("after all")


@app.transaction
def with_connection(connection: psycopg.Connection[Any], statement: str, *, fail: bool) -> None:
    connection.execute(statement.encode())
    if fail:
        raise LookupError("after all")


@app.transaction
def with_alchemy(connection: Connection, statement: str, *, fail: bool) -> None:
    connection.execute(text(statement))
    if fail:
        raise LookupError("after all")


@app.transaction
async def with_awaited(connection: psycopg.AsyncConnection[Any], statement: str, *, fail: bool) -> None:
    await connection.execute(statement.encode())
    if fail:
        raise LookupError("after all")


@app.transaction
def look(tx: Tx, what: str) -> str:
    return str(tx.execute(what).fetchone()[0])


@app.transaction
def look_with_connection(connection: psycopg.Connection[Any], what: str) -> str:
    row = connection.execute(what.encode()).fetchone()
    assert row is not None
    return str(row[0])


@app.transaction
async def look_awaited(connection: psycopg.AsyncConnection[Any], what: str) -> str:
    row = await (await connection.execute(what.encode())).fetchone()
    assert row is not None
    return str(row[0])


@app.workflow
async def leaves(given: str, statement: str, *, fail: bool) -> None:
    """As an operation of a run, whose record goes with the commit."""
    await MAKERS[given][0](statement, fail=fail)


MAKERS: dict[
    str, tuple[Callable[..., Coroutine[Any, Any, Any]], tuple[Callable[[str], Coroutine[Any, Any, str]], ...]]
] = {
    "Tx": (with_tx.aio, (look.aio, look_with_connection.aio)),
    "connection": (with_connection.aio, (look.aio, look_with_connection.aio)),
    "alchemy": (with_alchemy.aio, (look.aio, look_with_connection.aio)),
    "awaited": (with_awaited, (look_awaited,)),
}


@pytest.fixture
def tenants(postgres_url: str) -> str:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DO $$ BEGIN CREATE ROLE limited; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        db.execute(TENANTS.encode())
    return postgres_url


@covering
@pytest.mark.parametrize("given", MAKERS)
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "in a run"])
async def test_nothing_of_a_session_reaches_the_next_transaction(tenants: str, given: str, *, inside: bool) -> None:
    make, asks = MAKERS[given]
    async with world(app, url=tenants):
        bank.execute(tenants, *GRANTS)  # for the record, which is made in the role that the function took
        for name, (statement, what) in LEAKS.items():
            before = await asks[0](what)
            for fail in (False, True):
                for ask in asks * 2:  # a second one must not find what the first one made
                    try:
                        await (leaves(given, statement, fail=fail) if inside else make(statement, fail=fail))
                    except LookupError:
                        assert fail
                    assert (name, await ask(what)) == (name, before)
            assert bank.value(tenants, LOCKS) == 0  # nor is it held by a session that is idle


async def test_temporary_tables_may_change_from_one_transaction_to_the_next(tenants: str) -> None:
    """Statements that name them are prepared after a while."""

    @temporary.transaction
    def fill(tx: Tx, columns: int) -> int:
        names = ", ".join(f"c{number} int" for number in range(columns))
        tx.execute(f"CREATE TEMPORARY TABLE scratch ({names})")
        for _ in range(12):
            tx.execute(f"INSERT INTO scratch VALUES ({', '.join('1' * columns)})")
        return len(tx.execute("SELECT * FROM scratch").fetchone())

    async with world(temporary, url=tenants):
        assert [await fill.aio(columns) for columns in (1, 2, 3, 1)] == [1, 2, 3, 1]


temporary = App()
