"""Databases with a past: the same figures must come out where a million runs have ended before.

A database of each kind is filled once, by the database itself, and copied whenever a fresh one is asked for.
"""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mainspring import App
from mainspring.store.sql.dialect import prefixed

if TYPE_CHECKING:
    from bench.harness import Target

_STEPS: Final = 2
_RUNS: Final = """
  INSERT INTO runs (id, uid, workflow, kind, state, input, output, due, created, started, completed, epoch)
  SELECT 'past-' || n, '1h0000000000000' || CAST(10000000 + n AS text), 'trivial', 'workflow', CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'succeeded' END,
    '{"number": 1}', '1', 1700000000000000 + n, 1700000000000000 + n, 1700000000000000 + n, 1700000000001000 + n, 1
  FROM numbers
"""
_OUTCOMES: Final = f"""
  INSERT INTO steps (run, position, kind, name, seq, output, started, completed, attempts, epoch)
  SELECT 'past-' || (n / {_STEPS}), n % {_STEPS}, 'step', 'step', n % {_STEPS}, '{{"number": 1}}',
    1700000000000000 + n, 1700000000000500 + n, 1, 1
  FROM numbers
"""


def with_past(target: Target, runs: int) -> Target:
    """A target whose fresh databases hold so many finished runs, with two steps each."""

    @cache
    def template() -> str:
        url = target.fresh()
        with App(url, version="past"):
            pass
        _fill(url, runs)
        return url

    return replace(target, fresh=lambda: _copy(template(), target.fresh()))


def _fill(url: str, runs: int) -> None:
    fill(url, _RUNS, runs)
    fill(url, _OUTCOMES, runs * _STEPS)


def fill(url: str, insert: str, count: int) -> None:
    """Have the database make so many rows by itself: `insert` selects from `numbers`, which has `n` from 0 on."""
    if url.startswith("sqlite"):
        with sqlite3.connect(_path(url)) as database:
            numbers = (
                f"WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count - 1}) "
            )
            if count:
                database.execute(numbers + prefixed(insert))
            database.commit()
            database.execute("ANALYZE")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    with psycopg.connect(url, autocommit=True, options="-c search_path=mainspring") as connection:
        numbers = f"(SELECT generate_series(0, {count - 1}) AS n) AS numbers"
        connection.execute(insert.replace("FROM numbers", f"FROM {numbers}").encode())
        connection.execute("VACUUM ANALYZE")


def _copy(template: str, fresh: str) -> str:
    if template.startswith("sqlite"):
        shutil.copyfile(_path(template), _path(fresh))
        return fresh
    with psycopg.connect(fresh, autocommit=True) as connection:
        wanted = connection.info.dbname
    source = str(conninfo_to_dict(template)["dbname"])
    with psycopg.connect(make_conninfo(template, dbname="postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(wanted)))
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(wanted), sql.Identifier(str(source)))
        )
    return fresh


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
