"""Tables: made once by whoever comes first, checked by the others, refused when they are newer than the code."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring.errors import SchemaError
from mainspring.store.open import open_store, sqlite_path
from mainspring.store.postgres import store as postgres_store
from mainspring.store.sqlite import store as sqlite_store
from tests.store import raw
from tests.store.build import StoreSettings, get, run, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.store.protocol import Store

OPENER = """
import sys
from mainspring.store.open import open_store
from tests.store.build import StoreSettings, run
from mainspring.store.ops import Start
store = open_store(sys.argv[1], StoreSettings())
sys.stdin.readline()
store.open()
print(store.apply([Start(run(sys.argv[2]))], 1)[0].created)
store.close()
"""


@pytest.fixture
def closed(store_url: str) -> Iterator[Store]:
    """A store on an empty database, not opened yet."""
    made = open_store(store_url, StoreSettings())
    yield made
    made.close()


def test_an_empty_database_gets_its_tables(closed: Store) -> None:
    closed.open()
    report = closed.schema_report()
    assert (report.current, report.pending, report.unknown) == (report.wanted, [], [])


def test_opening_again_changes_nothing(closed: Store, store_url: str) -> None:
    closed.open()
    start(closed, run("a"))
    second = open_store(store_url, StoreSettings())
    with closing(second):
        second.open()
        assert get(second, "a").id == "a"


def test_a_store_that_may_not_migrate_refuses_an_empty_database_and_leaves_it_empty(
    closed: Store, store_url: str
) -> None:
    with pytest.raises(SchemaError, match="mainspring db migrate"):
        closed.open(migrate=False)
    assert raw.tables(store_url) == []


def test_a_store_that_may_not_migrate_opens_what_is_up_to_date(closed: Store, store_url: str) -> None:
    closed.open()
    second = open_store(store_url, StoreSettings())
    with closing(second):
        second.open(migrate=False)
        assert second.counts() == {}


@pytest.mark.parametrize("migrate", [True, False])
def test_tables_that_are_newer_than_the_code_are_refused_with_words(
    closed: Store, store_url: str, migrate: bool
) -> None:
    closed.open()
    raw.execute(store_url, "INSERT INTO {schema}migrations (name) VALUES ('9999_from_the_future')")
    second = open_store(store_url, StoreSettings())
    with closing(second), pytest.raises(SchemaError, match="newer than this version of mainspring") as refused:
        second.open(migrate=migrate)
    assert "9999_from_the_future" in str(refused.value)
    assert closed.schema_report().unknown == ["9999_from_the_future"]


def test_the_printed_script_makes_the_same_tables(closed: Store, store_url: str) -> None:
    if store_url.startswith("sqlite"):
        raw.script(store_url, sqlite_store.script())
    else:
        raw.script(store_url, postgres_store.script())
    by_hand = raw.described(store_url)
    closed.open(migrate=False)
    raw.drop_everything(store_url)
    closed.close()
    fresh = open_store(store_url, StoreSettings())
    with closing(fresh):
        fresh.open()
        assert raw.described(store_url) == by_hand


def test_every_table_and_column_of_one_store_is_in_the_other(sqlite_url: str, postgres_url: str) -> None:
    found: list[dict[str, list[str]]] = []
    for url in (sqlite_url, postgres_url):
        made = open_store(url, StoreSettings())
        with closing(made):
            made.open()
        found.append(raw.columns(url))
    assert found[0] == found[1]


@pytest.mark.processes
def test_many_processes_may_start_on_an_empty_database_at_once(store_url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, store_url, f"r{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == [b"True"] * 4
    made = open_store(store_url, StoreSettings())
    with closing(made):
        made.open(migrate=False)
        assert made.counts() == {"queued": 4}


def test_two_apps_share_a_postgres_by_schema(postgres_url: str) -> None:
    names = ["mainspring", "billing", 'odd "name" with 100%']
    stores = [open_store(postgres_url, StoreSettings(schema=name)) for name in names]
    for number, each in enumerate(stores):
        each.open()
        start(each, run("same id", workflow=f"wf-{number}"))
    assert [get(each, "same id").workflow for each in stores] == ["wf-0", "wf-1", "wf-2"]
    assert [each.counts() for each in stores] == [{"queued": 1}] * 3
    for each in stores:
        each.close()


def test_a_schema_that_somebody_has_made_for_us_is_enough(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(b"CREATE ROLE modest LOGIN")
        admin.execute(b"CREATE SCHEMA mainspring AUTHORIZATION modest")
    try:
        made = open_store(postgres_url.replace("postgres@", "modest@"), StoreSettings())
        with closing(made):
            made.open()
            assert made.counts() == {}
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(b"DROP SCHEMA mainspring CASCADE")
            admin.execute(b"DROP ROLE modest")


def test_a_store_whose_tables_vanished_says_so(postgres_url: str) -> None:
    made = open_store(postgres_url, StoreSettings())
    with closing(made):
        made.open()
        raw.drop_everything(postgres_url)
        with pytest.raises(SchemaError):
            made.counts()
        with pytest.raises(SchemaError):
            start(made, run("a"))


def test_the_path_of_a_sqlite_url_is_taken_literally(sqlite_url: str) -> None:
    assert sqlite_url.endswith(sqlite_path(sqlite_url))
