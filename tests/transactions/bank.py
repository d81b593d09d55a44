"""Accounts in the user's own tables, beside the library's, and ways to look at them."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg

from mainspring.store.open import sqlite_path
from tests.support.samples import of

if TYPE_CHECKING:
    from collections.abc import Generator


LEDGER = "CREATE TABLE ledger (entry text NOT NULL)"
STRIDE = of(1, 5)
"""Crashes happen at every second call in CI; 1 is every one."""


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


@contextlib.contextmanager
def database(url: str) -> Generator[Any]:
    """A connection of the user's own, on which every statement commits."""
    if is_sqlite(url):
        with contextlib.closing(sqlite3.connect(sqlite_path(url), isolation_level=None, timeout=30)) as connection:
            yield connection
    else:
        with psycopg.connect(url, autocommit=True) as postgres:
            yield postgres


def execute(url: str, *statements: str) -> None:
    with database(url) as db:
        for statement in statements:
            db.execute(statement)


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with database(url) as db:
        return [tuple(row) for row in db.execute(query).fetchall()]


def value(url: str, query: str) -> Any:
    return rows(url, query)[0][0]


def entries(url: str) -> list[str]:
    return [entry for (entry,) in rows(url, "SELECT entry FROM ledger ORDER BY entry")]


def lock_refused(url: str) -> str:
    """The error of somebody who asks for the ledger's lock without waiting, or nothing."""
    lock = ("PRAGMA busy_timeout = 0", "BEGIN IMMEDIATE") if is_sqlite(url) else ("BEGIN", "LOCK TABLE ledger NOWAIT")
    try:
        execute(url, *lock, "ROLLBACK")
    except (sqlite3.OperationalError, psycopg.errors.LockNotAvailable) as error:
        return str(error)
    return ""


def runs_table(url: str) -> str:
    return "mainspring_runs" if is_sqlite(url) else "mainspring.runs"


def count_runs(url: str, workflow: str) -> int:
    found: int = value(url, f"SELECT count(*) FROM {runs_table(url)} WHERE workflow = '{workflow}'")
    return found
