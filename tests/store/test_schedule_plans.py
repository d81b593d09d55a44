"""What a pass over schedules reads is what is due, however many schedules, runs and ticks there are."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring.store.open import open_store, sqlite_path
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.sql import schedules as sql
from mainspring.store.sqlite.dialect import DIALECT
from tests.store.build import NOW, StoreSettings

if TYPE_CHECKING:
    from mainspring.store.sql.dialect import Sql

MANY = 5_000
_FILL = {
    "schedules": """
  INSERT INTO {schedules} (id, spec, canonical, workflow, action, input, policy, attributes, created, updated, cursor, due)
  SELECT 's' || n, '{{}}', '{{}}', 'wf', '{{}}', '{{}}', '{{}}', '{{}}', 1, 1, 1, {now} + n FROM {numbers}
""",
    "ticks": """
  INSERT INTO {ticks} (schedule, nominal, request, source, due, outcome)
  SELECT 's' || n % 50, n, '', 'clock', n, 'fired' FROM {numbers}
""",
}
LOOKS: dict[str, tuple[Sql, dict[str, Any]]] = {
    "idle": (sql.DUE, {"now": NOW, "limit": 250, "passed": [], "due_floor": 0, "ended_floor": 0}),
    "present": (sql.PRESENT, {"ids": ["s1", "s2"]}),
    "runs": (sql.UNPROCESSED_ENDS, {"ids": ["s1", "s2"], "since": ""}),
    "ticks": (sql.WAITING_TICKS, {"ids": ["s1", "s2"]}),
    "lock": (sql.LOCK_FREE, {"ids": ["s1", "s2"]}),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_pass_reads_what_is_due_by_indexes(store_url: str, look: str) -> None:
    store = open_store(store_url, StoreSettings())
    store.open()
    store.close()
    statement, values = LOOKS[look]
    read = _by_postgres if store_url.startswith("postgres") else _by_sqlite
    assert read(store_url, statement, values) == []


def _by_sqlite(url: str, statement: Sql, values: dict[str, Any]) -> list[str]:
    """The tables that are read from one end to the other."""
    numbers = f"(WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {MANY}) SELECT n FROM n)"
    given = {name: json.dumps(value) if isinstance(value, list) else value for name, value in values.items()}
    with closing(sqlite3.connect(sqlite_path(url))) as db, db:
        for table, text in _FILL.items():
            db.execute(text.format(now=NOW, numbers=numbers, **{table: f"mainspring_{table}"}))
        db.execute("ANALYZE")
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {DIALECT.spelled(statement)}", given)]
    return [line for line in plan if line in {"SCAN schedules", "SCAN s", "SCAN ticks", "SCAN runs"}]


def _by_postgres(url: str, statement: Sql, values: dict[str, Any]) -> list[str]:
    """The nodes that read more than a few rows."""
    numbers = f"generate_series(1, {MANY}) AS n"
    with psycopg.connect(url, autocommit=True) as db:
        for table, text in _FILL.items():
            db.execute(text.format(now=NOW, numbers=numbers, **{table: f"mainspring.{table}"}).encode())
        db.execute("ANALYZE")
        explain = b"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "
        row = db.execute(explain + Dialect("mainspring")(statement), values).fetchone()
    assert row is not None
    return [node["Node Type"] for node in _nodes(row[0][0]["Plan"]) if _rows_read(node) > MANY // 10]


def _rows_read(node: dict[str, Any]) -> float:
    read: float = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return read


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(inner for part in plan.get("Plans", ()) for inner in _nodes(part))]
