"""A run that begins anew reads the messages of its last generation, not the keys of all that it ever received."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import psycopg

from mainspring.store.open import open_store, sqlite_path
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.sql.runs import START_OVER
from tests.store.build import StoreSettings

KEYS = 5_000
VALUES = {"run": "a", "now": 0, "input": "null", "long_ago": 0}
_OLD = """
  INSERT INTO messages (run, number, kind, topic, body, key, sent, received)
  {numbers} SELECT 'a', n, 'message', 't', 'null', 'key-' || n, 0, 0 FROM numbers
"""


def test_old_keys_are_not_read(store_url: str) -> None:
    store = open_store(store_url, StoreSettings())
    store.open()
    store.close()
    plans = _on_sqlite(store_url) if store_url.startswith("sqlite") else _on_postgres(store_url)
    assert len(plans) == 3
    for plan in plans:
        assert re.search(r"INDEX (Scan (on|using) )?(mainspring_)?messages_over", plan, re.IGNORECASE), plan


def _on_sqlite(url: str) -> list[str]:
    with closing(sqlite3.connect(sqlite_path(url))) as db:
        return [
            "\n".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement.sqlite}", VALUES))
            for statement in START_OVER
            if "messages" in statement.sqlite
        ]


def _on_postgres(url: str) -> list[str]:
    dialect = Dialect("mainspring")
    numbers = f"WITH numbers AS (SELECT generate_series(1, {KEYS}) AS n)"
    with psycopg.connect(url) as db:
        db.execute(dialect(_OLD.format(numbers=numbers)))
        db.execute("ANALYZE mainspring.messages")
        return [
            "\n".join(row[0] for row in db.execute(b"EXPLAIN " + dialect(statement), VALUES))
            for statement in START_OVER
            if "messages" in statement.postgres
        ]
