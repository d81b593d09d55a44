"""Servers, databases and roles with settings that nobody made for Mainspring: it works, or says at once why it cannot."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.model.states import State
from mainspring.store.postgres import database
from mainspring.store.postgres.store import PostgresStore
from mainspring.store.writes import Recorded
from tests.store.build import claim, done, finish, get, owned, run, start, step, wait_for, write
from tests.store.proxies import TransactionPooler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.postgres import PostgresServer

TEXT = "Łódź, 東京, \N{GRINNING FACE}, \\u0041"


def set_for_all(url: str, settings: Mapping[str, str]) -> None:
    """Change settings of the database: they are in force for every session that begins after this."""
    with psycopg.connect(url, autocommit=True) as admin:
        for name, value in settings.items():
            admin.execute(f"ALTER DATABASE \"{admin.info.dbname}\" SET {name} = '{value}'".encode())


@pytest.mark.parametrize(
    "settings",
    [
        {"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on"},
        {"default_transaction_isolation": "repeatable read"},
        {"standard_conforming_strings": "off", "transform_null_equals": "on", "array_nulls": "off"},
        {"client_encoding": "LATIN1"},
        {"client_encoding": "SQL_ASCII"},
        {"search_path": "pg_catalog", "row_security": "off"},
        {"TimeZone": "Pacific/Chatham", "DateStyle": "German", "IntervalStyle": "iso_8601", "bytea_output": "escape"},
        {"extra_float_digits": "-15", "jit_above_cost": "0", "plan_cache_mode": "force_custom_plan"},
        {"lock_timeout": "5ms", "idle_in_transaction_session_timeout": "1s"},
    ],
    ids=lambda settings: ", ".join(f"{name} {value}" for name, value in settings.items()),
)
def test_settings_of_others_change_nothing(postgres_url: str, settings: dict[str, str]) -> None:
    set_for_all(postgres_url, settings)
    with closing(PostgresStore(postgres_url)) as store:
        store.open()
        start(store, owned("a"), owned("b", "w2"), run("c", input=f'{{"self": "{TEXT}"}}'))
        assert write(store, wait_for("b"), watch="b", run_state=State.WAITING) == Recorded()
        done(store, finish("b", "w2", output=f'"{TEXT}"'))
        assert len(store.notices("w1")) == 1
        assert write(store, step("a", "1", name=TEXT)) == Recorded()
        assert [each.run.id for each in claim(store)] == ["c"]
        assert store.strand(["wf"]) == 0
    set_for_all(postgres_url, {"client_encoding": "UTF8"})
    with psycopg.connect(postgres_url) as reader:
        stored = reader.execute(
            "SELECT output::text, (SELECT name FROM mainspring.steps WHERE run = 'a' AND position = '1')"
            " FROM mainspring.runs WHERE id = 'b'"
        ).fetchone()
    assert stored == (f'"{TEXT}"', TEXT)


def test_the_librarys_sessions_do_not_end_because_they_are_idle(postgres_url: str) -> None:
    set_for_all(postgres_url, {"idle_session_timeout": "1h"})
    with closing(PostgresStore(postgres_url)) as store:
        store.open()
        with store._db.connection() as connection:  # pyright: ignore[reportPrivateUsage]
            assert connection.execute("SHOW idle_session_timeout").fetchone() == ("0",)


def test_behind_a_pooler_the_isolation_must_be_right_already(postgres_url: str) -> None:
    set_for_all(postgres_url, {"default_transaction_isolation": "repeatable read"})
    with TransactionPooler(postgres_url) as pooler, pytest.raises(StoreError, match="ALTER ROLE"):
        PostgresStore(pooler.url).open()


_NOTE = """
  CREATE TABLE noted AS SELECT current_setting('statement_timeout') AS statements, current_setting('lock_timeout') AS locks WHERE false;
  CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.noted VALUES (current_setting('statement_timeout'), current_setting('lock_timeout'));
  END $$;
  CREATE EVENT TRIGGER note ON ddl_command_end EXECUTE FUNCTION note();
"""


@pytest.mark.empty_database
def test_a_migration_may_take_longer_than_queries(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(_NOTE)
        set_for_all(postgres_url, {"statement_timeout": "1min", "lock_timeout": "1min"})
        with closing(PostgresStore(postgres_url)) as store:
            store.open()
        assert set(admin.execute("SELECT * FROM noted").fetchall()) == {("0", "0")}


def test_a_database_that_is_read_only_says_so_and_can_be_read(postgres_url: str) -> None:
    with closing(PostgresStore(postgres_url)) as store:
        start(store, owned("a"))
    set_for_all(postgres_url, {"default_transaction_read_only": "on"})
    with closing(PostgresStore(postgres_url)) as store:
        store.open()
        assert get(store, "a").state is State.RUNNING
        with pytest.raises(StoreUnavailable, match="default_transaction_read_only"):
            store.cancel(["a"], None, 0)


def test_a_role_without_rights_hears_which_it_needs(postgres_url: str, shared_postgres: PostgresServer) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        name = f"viewer_of_{admin.info.dbname}"
        admin.execute(f"CREATE ROLE {name} LOGIN".encode())
        try:
            url = postgres_url.replace("postgres@", f"{name}@")
            with closing(PostgresStore(url)) as store, pytest.raises(StoreError, match="USAGE on the schema"):
                store.open(migrate=False)
            admin.execute(f"GRANT USAGE ON SCHEMA mainspring TO {name}".encode())
            admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA mainspring TO {name}".encode())
            with closing(PostgresStore(url)) as store:
                store.open()
                assert store.counts() == {}
        finally:
            shared_postgres.terminate_backends(postgres_url.replace("postgres@", f"{name}@"))
            with psycopg.connect(postgres_url, autocommit=True) as again:
                again.execute(f"DROP OWNED BY {name}".encode())
                again.execute(f"DROP ROLE {name}".encode())


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_store_every_text_is_refused(shared_postgres: PostgresServer, encoding: str) -> None:
    with psycopg.connect(shared_postgres.url(), autocommit=True) as admin:
        name = f"encoded_{encoding}".lower()
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}'".encode())
        try:
            with pytest.raises(StoreError, match=rf"encoding {encoding}.*UTF8"):
                PostgresStore(shared_postgres.url(name)).open()
        finally:
            admin.execute(f"DROP DATABASE {name}".encode())


def test_a_server_that_is_too_old_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_OLDEST", 99)
    with pytest.raises(StoreError, match=r"is PostgreSQL \d\d\.\d+; Mainspring needs PostgreSQL 99 or newer"):
        PostgresStore(postgres_url).open()
