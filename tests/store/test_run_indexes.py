"""Each index of `runs` has a query that needs it, and no other index is there: every one is written with each run."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from mainspring.model.runs import RunFilter
from mainspring.store.open import open_store, sqlite_path
from mainspring.store.postgres import claim_statements
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.sql import conditions, queues, retention, run_filters, runs, schedules
from mainspring.store.sql.dialect import PerDatabase
from mainspring.store.sqlite import claims
from mainspring.store.sqlite.dialect import DIALECT
from mainspring.store.verbs import dashboard, scheduled_functions, unreported_ends
from tests.store.build import StoreSettings

if TYPE_CHECKING:
    from mainspring.store.sql.dialect import Sql


def page(**wanted: Any) -> Sql:
    """A page of runs by some filters."""
    made = RunFilter(**wanted)
    return run_filters.runs_page(made)[0]


READ_BY: dict[str, Sql] = {
    "pkey": runs.GET_RUN,
    "uid": page(),
    "waiting": PerDatabase(claim_statements.FULL.take, claims._GROUP.format(waits=conditions.PLAIN)),
    "resumed": PerDatabase(claim_statements.RESUMED, claims._RESUMED),
    "placed": queues.COUNT_PLACED,
    "due": PerDatabase(claim_statements.PROMOTE, claims._PROMOTE),
    "key": runs.KEY_TAKEN,
    "owner": runs.OWNED_RUNS,
    "deadline": runs.FIND_OVERDUE,
    "parent": runs.LIST_CHILDREN,
    "end_unhandled": unreported_ends._TAKE,
    "failed": page(states=("failed",)),
    "of_schedule": page(schedule=("s",)),
    "forked": page(forked_from=("a",)),
    "attributes": page(attributes='{"a": 1}'),
    "functions": scheduled_functions._NAMES,
    "ended": retention.OLDEST_ENDS,
}
"""The name of each index, and a statement that is read by it."""
CASES = [
    *READ_BY.items(),
    ("pkey", page()),
    ("pkey", runs.by_uids("id")),
    ("uid", runs.by_uids("id")),
    ("pkey", runs.oldest_of(before=True)),
    ("uid", runs.oldest_of(before=True)),
    ("parent", page(parent=("a",))),
    ("waiting", PerDatabase(claim_statements.FULL.take_shares, claims._GROUP.format(waits=claims._QUEUED))),
    ("waiting", PerDatabase(claim_statements.FULL.known, claims._NEXT_NAME.format(waits=claims._QUEUED))),
    ("waiting", PerDatabase(claim_statements.FULL.partitions, claims._PARTITIONS)),
    ("failed", page(stranded=True)),
    ("failed", page(states=("failed", "cancelled"))),
    ("failed", runs.STRAND),
    ("of_schedule", schedules.UNPROCESSED_ENDS),
    ("end_unhandled", unreported_ends._ANY),
    ("end_unhandled", dashboard._UNREPORTED_TOTALS),
]
ON_POSTGRES_ONLY = {"attributes"}  # SQLite has no index for parts of JSON


class Anything(dict[str, Any]):
    """A value for every parameter: plans do not depend on it."""

    def __missing__(self, name: str) -> Any:
        return (
            "[]"
            if name in {"ids", "listed", "rules"}
            else "{}"
            if name in {"functions", "instances", "kinds"}
            else None
        )


@pytest.fixture
def made(store_url: str) -> str:
    store = open_store(store_url, StoreSettings())
    store.open()
    store.close()
    return store_url


def test_every_index_of_runs_is_accounted_for(made: str) -> None:
    if made.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(made))) as file:
            query = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'mainspring_runs'"
            found = {name.removeprefix("mainspring_runs_") for (name,) in file.execute(query)}
        assert found == READ_BY.keys() - ON_POSTGRES_ONLY - {"pkey"} | {"sqlite_autoindex_mainspring_runs_1"}
    else:
        with psycopg.connect(made) as db:
            query = "SELECT indexname FROM pg_indexes WHERE schemaname = 'mainspring' AND tablename = 'runs'"
            found = {name.removeprefix("runs_") for (name,) in db.execute(query)}
        assert found == READ_BY.keys()


@pytest.mark.parametrize(("index", "read"), CASES, ids=[index for index, _ in CASES])
def test_an_index_serves_the_query_that_it_is_there_for(made: str, index: str, read: Sql) -> None:
    if made.startswith("sqlite"):
        if index in ON_POSTGRES_ONLY:
            pytest.skip("SQLite has no such index")
        name = "sqlite_autoindex_mainspring_runs_1" if index == "pkey" else f"mainspring_runs_{index}"
        with closing(sqlite3.connect(sqlite_path(made))) as file:
            plan = "\n".join(row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {DIALECT.spelled(read)}", Anything()))
    else:
        name = f"runs_{index}"
        with psycopg.connect(made) as db:
            # The table is empty. Before PostgreSQL 18, a scan that is disabled but inevitable hides all other costs; an expensive one does
            # not, but it makes bitmaps expensive, too.
            plan = "\n".join(_generic_plan(db, read, how) for how in ("enable_seqscan = off", "seq_page_cost = 50"))
    assert re.search(rf"\b{name}\b", plan), plan


def _generic_plan(db: psycopg.Connection, read: Sql, setting: str) -> str:
    statement = Dialect("mainspring").raw(read)
    values = f"({', '.join(['NULL'] * len(statement.order))})" if statement.order else ""
    with db.transaction(force_rollback=True):
        db.execute(f"SET LOCAL {setting}".encode())
        db.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        db.execute(b"PREPARE read AS " + statement.query)
        plan = db.execute(f"EXPLAIN EXECUTE read {values}".encode()).fetchall()
        db.execute("DEALLOCATE read")
    return "\n".join(row[0] for row in plan)


_MANY = """
  INSERT INTO mainspring.runs (id, uid, workflow, kind, state, input, due, created, completed)
  SELECT CASE WHEN n % 10 = 0 THEN 'chosen-' || n ELSE uid END, uid, 'wf', 'workflow', 'succeeded', '{}', n, n, n
  FROM (SELECT n, '1m0000000000000' || lpad(n::text, 8, '0') AS uid FROM generate_series(0, 60000) n) made ORDER BY md5(uid)
"""


@pytest.mark.parametrize("wanted", [{}, {"before": "1m00000000000000000590"}])
def test_a_page_of_many_runs_is_read_in_the_order_of_two_indexes(postgres_url: str, wanted: dict[str, Any]) -> None:
    store = open_store(postgres_url, StoreSettings())
    store.open()
    store.close()
    statement, values = run_filters.runs_page(RunFilter(**wanted))
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(_MANY)
        db.execute("VACUUM ANALYZE mainspring.runs")
        raw = Dialect("mainspring").raw(statement)
        db.execute(b"PREPARE page AS " + raw.query)
        given = sql.SQL(", ").join(values[name] for name in raw.order)
        plan = "\n".join(row[0] for row in db.execute(sql.SQL("EXPLAIN EXECUTE page ({})").format(given)))
    assert "Seq Scan" not in plan, plan
    assert re.search(r"Index (Only )?Scan Backward using runs_pkey", plan), plan
    assert re.search(r"Index (Only )?Scan Backward using runs_uid", plan), plan
