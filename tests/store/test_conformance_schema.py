"""Tables: made once by whoever comes first, checked by the others, refused when they are newer than the code."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, get_args

import psycopg
import pytest

from mainspring.errors import SchemaError
from mainspring.model.clock import to_datetime
from mainspring.model.runs import StepKind
from mainspring.model.schedules import Overlap, TickOutcome, TickSource
from mainspring.model.states import ENDED, State
from mainspring.schedules.alerts import LATE, MISSED, PAUSED
from mainspring.store.migrations import Migration
from mainspring.store.open import open_store, sqlite_path
from mainspring.store.postgres import schema as postgres_schema
from mainspring.store.sqlite import schema as sqlite_schema
from mainspring.store.writes import RecordStep, Start, Verdict
from tests.store import raw
from tests.store.build import NOW, SECOND, StoreSettings, get, owned, run, start, state, step, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from mainspring.store.protocol import Store

pytestmark = pytest.mark.empty_database

OPENER = """
import sys
from mainspring.store.open import open_store
from tests.store.build import StoreSettings, run
from mainspring.store.writes import Start
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
    raw.execute(store_url, "INSERT INTO {schema}migrations (name, checksum) VALUES ('9999_from_the_future', '')")
    second = open_store(store_url, StoreSettings())
    with closing(second), pytest.raises(SchemaError, match="newer than this version of mainspring") as refused:
        second.open(migrate=migrate)
    assert "9999_from_the_future" in str(refused.value)
    assert closed.schema_report().unknown == ["9999_from_the_future"]


EDITED = "0001_initial"


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put something at the end of the first migration."""

    def edited(more: str) -> None:
        for schema in (sqlite_schema, postgres_schema):
            first, *later = schema.MIGRATIONS
            monkeypatch.setattr(schema, "MIGRATIONS", [replace(first, sql=first.sql + more), *later])

    return edited


@pytest.mark.parametrize("migrate", [True, False])
def test_a_migration_that_was_edited_after_it_was_applied_is_refused_with_words(
    closed: Store, store_url: str, edit: Callable[[str], None], migrate: bool
) -> None:
    closed.open()
    before = raw.described(store_url)
    edit("CREATE TABLE more (id integer);")
    second = open_store(store_url, StoreSettings())
    with closing(second), pytest.raises(SchemaError, match=f"{EDITED} is not the one that made the tables") as refused:
        second.open(migrate=migrate)
    report = closed.schema_report()
    assert list(report.edited) == [EDITED]
    assert report.edited[EDITED] in str(refused.value)
    assert raw.described(store_url) == before


@pytest.mark.parametrize("schema", [sqlite_schema, postgres_schema])
def test_each_column_has_a_comment_and_each_index_the_query_it_serves(schema: ModuleType) -> None:
    for migration in schema.MIGRATIONS:
        lines = re.sub(r"CREATE FUNCTION.*?\$\$.*?\$\$;", "", migration.sql, flags=re.DOTALL).splitlines()
        columns = [line for line in lines if re.match(r"  [a-z_]+ +(TEXT|INTEGER|text|bigint|boolean|jsonb?)\b", line)]
        assert columns
        assert [line for line in columns if " -- " not in line] == []
        made = [number for number, line in enumerate(lines) if re.match(r"CREATE (TABLE|(UNIQUE )?INDEX)", line)]
        assert [lines[number] for number in made if not lines[number - 1].startswith("-- ")] == []


def test_the_comments_of_a_migration_may_be_edited(closed: Store, store_url: str, edit: Callable[[str], None]) -> None:
    closed.open()
    edit("\n-- what somebody's comment says\n")
    second = open_store(store_url, StoreSettings())
    with closing(second):
        second.open(migrate=False)
        assert second.schema_report().edited == {}


def test_what_stands_in_quotes_is_no_comment_of_a_migration() -> None:
    one, two = (Migration("m", f"INSERT INTO t VALUES ('it''s -- {text}'); -- {text}") for text in ("a", "b"))
    assert one.checksum != two.checksum
    assert replace(one, sql=one.sql.replace("; -- a", ";\n-- c")).checksum == one.checksum


def test_the_database_accepts_the_kinds_and_states_that_the_code_has_and_no_others(
    closed: Store, store_url: str
) -> None:
    closed.open()
    functions, overlaps = {"workflow", "step", "transaction"}, set(Overlap)
    assert raw.checks(store_url) == {
        ("runs", "kind"): functions,
        ("runs", "state"): set(State),
        ("steps", "kind"): set(get_args(StepKind)),
        ("messages", "kind"): {"message", "question"},
        ("ticks", "source"): set(TickSource),
        ("ticks", "outcome"): set(TickOutcome),
        ("ticks", "overlap"): overlaps,
        ("backfills", "overlap"): overlaps,
        ("hooks", "event"): {MISSED, LATE, PAUSED},
        ("hooks", "kind"): functions,
        ("activity", "measure"): {"duration", "lateness"},
        ("activity", "state"): set(ENDED),
        ("activity_totals", "measure"): {"duration", "lateness"},
        ("activity_totals", "state"): set(ENDED),
        ("runs", "due"): {"queued"},  # the state in which it is required
        ("runs", "parent"): set(),
    }


@pytest.mark.parametrize("kind", get_args(StepKind))
def test_every_kind_of_step_is_stored(store: Store, kind: StepKind) -> None:
    start(store, owned("a"))
    assert write(store, step("a", kind=kind)).verdict is Verdict.DONE


def test_a_step_of_no_known_kind_is_refused(store: Store) -> None:
    start(store, owned("a"))
    (answer,) = store.apply([RecordStep("w1", step("a", kind="no such kind"))], NOW)
    assert isinstance(answer, Exception)
    assert store.steps("a") == []


def test_a_run_that_is_ready_is_due_at_a_time(store: Store) -> None:
    """A due time of NULL is that of a run which something else has to wake. No claim would find a ready one."""
    answers = store.apply([Start(run("a", state=State.QUEUED, due=None)), Start(run("b"))], NOW)
    assert isinstance(answers[0], Exception)
    assert store.run("a") is None
    assert state(store, "b") is State.QUEUED


def test_the_views_of_postgres_show_times(postgres_url: str) -> None:
    with closing(open_store(postgres_url, StoreSettings())) as store:
        store.open()
        start(store, owned("a", timeout=90 * SECOND), run("b", state=State.WAITING, due=None))
        write(store, step("a"))
    with psycopg.connect(postgres_url) as db:
        db.execute("SET timezone TO 'UTC'")
        created, timeout = db.execute("SELECT created, timeout FROM mainspring.runs_view WHERE id = 'a'").fetchall()[0]
        assert (created, timeout) == (to_datetime(NOW), timedelta(seconds=90))
        dues = db.execute("SELECT id, due::text FROM mainspring.runs_view ORDER BY id").fetchall()
        assert dues == [("a", "2026-09-21 14:13:20+00"), ("b", None)]
        (completed,) = db.execute("SELECT completed FROM mainspring.steps_view").fetchall()[0]
        assert completed == to_datetime(NOW + 1)


NUMBERS = {
    "runs": {"epoch", "began_epoch", "recoveries", "attempts", "priority", "generation"},
    "steps": {"seq", "attempts", "epoch"},
    "messages": {"number"},
    "events": {"number"},
    "streams": {"number"},
    "logs": {"number", "attempt"},
    "schedules": {"revision", "remaining", "starts", "missed", "skipped", "dropped", "failures"},
    "ticks": {"count"},
    "backfills": {"started", "skipped"},
    "workers": {"pid", "pid_start", "beat"},
    "activity": {"count"},
    "activity_totals": {"bucket", "count"},
}
"""The columns of numbers that are neither times nor durations."""


def test_each_table_with_times_has_a_view_with_the_same_columns(postgres_url: str) -> None:
    with closing(open_store(postgres_url, StoreSettings())) as store:
        store.open()
    tables, types = raw.columns(postgres_url), raw.types(postgres_url)
    views = {name.removesuffix("_view"): name for name in types if name.endswith("_view")}
    assert tables.keys() - views.keys() == {"hooks", "queue_partitions", "meta", "migrations"}
    for table, view in views.items():
        assert list(raw.columns(postgres_url, views=True)[view]) == tables[table]
        shown = {column for column, kind in types[view].items() if kind != types[table][column]}
        assert {types[view][column] for column in shown} <= {"timestamp with time zone", "interval"}
        assert shown == {column for column in tables[table] if types[table][column] == "bigint"} - NUMBERS.get(
            table, set()
        ), table


def test_the_printed_script_makes_the_same_tables(closed: Store, store_url: str) -> None:
    if store_url.startswith("sqlite"):
        raw.script(store_url, sqlite_schema.script())
    else:
        raw.script(store_url, postgres_schema.script())
    by_hand = raw.described(store_url)
    closed.open(migrate=False)
    raw.drop_everything(store_url)
    closed.close()
    fresh = open_store(store_url, StoreSettings())
    with closing(fresh):
        fresh.open()
        assert raw.described(store_url) == by_hand


def test_every_table_and_column_of_one_store_is_in_the_other(sqlite_url: str, postgres_url: str) -> None:
    """The order differs: what changes comes last on PostgreSQL, what may be large on SQLite, which reads it to get at what follows."""
    found: list[dict[str, list[str]]] = []
    for url in (sqlite_url, postgres_url):
        made = open_store(url, StoreSettings())
        with closing(made):
            made.open()
        found.append({table: sorted(columns) for table, columns in raw.columns(url).items()})
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
