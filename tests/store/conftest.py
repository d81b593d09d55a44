"""The stores under test, and an auditor that watches every change of a run's state."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

import psycopg
import pytest

from mainspring.model.states import State, is_legal
from mainspring.store.open import open_store, sqlite_path
from mainspring.store.postgres import batch
from tests.store.build import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.store.protocol import Store

_SQLITE_AUDIT = """
  CREATE TABLE IF NOT EXISTS state_changes (before TEXT, after TEXT);
  CREATE TRIGGER IF NOT EXISTS audit_runs AFTER UPDATE OF state ON mainspring_runs WHEN OLD.state <> NEW.state
  BEGIN INSERT INTO state_changes VALUES (OLD.state, NEW.state); END;
"""
_POSTGRES_AUDIT = """
  CREATE TABLE mainspring.state_changes (before text, after text);
  CREATE FUNCTION mainspring.note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO mainspring.state_changes VALUES (OLD.state, NEW.state); RETURN NULL; END $$;
  CREATE TRIGGER audit_runs AFTER UPDATE OF state ON mainspring.runs FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION mainspring.note();
"""


class OpenStore(Protocol):
    """Opens one more store on the database of the test: another process, as far as the database can tell."""

    def __call__(self) -> Store: ...


@pytest.fixture
def connect(store_url: str) -> Iterator[OpenStore]:
    opened: list[Store] = []

    def another() -> Store:
        made = open_store(store_url, StoreSettings())
        made.open()
        opened.append(made)
        return made

    yield another
    for each in opened:
        each.close()


@pytest.fixture(autouse=True)
def long_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine somebody may hold a run for longer than a write waits for it here; then it would only have to be made again."""
    monkeypatch.setattr(batch, "_MOMENT", 60.0)


@pytest.fixture
def store(connect: OpenStore, store_url: str) -> Iterator[Store]:
    """An empty store. Whatever the test does to it, no run may ever go from one state to another illegally."""
    made = connect()
    _audit(store_url)
    yield made
    changes = _audited(store_url)
    assert all(is_legal(State(before), State(after)) for before, after in changes), changes


@pytest.fixture
def other(store: Store, connect: OpenStore) -> Store:
    """A second store on the same database."""
    return connect()


def _audit(url: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url))) as connection, connection:
            connection.executescript(_SQLITE_AUDIT)
    else:
        with psycopg.connect(url) as postgres:
            postgres.execute(_POSTGRES_AUDIT.encode())


def _audited(url: str) -> list[tuple[str, str]]:
    if url.startswith("sqlite"):
        connection = sqlite3.connect(sqlite_path(url))
        try:
            return connection.execute("SELECT DISTINCT before, after FROM state_changes").fetchall()
        finally:
            connection.close()
    with psycopg.connect(url) as postgres:
        return [
            (before, after)
            for before, after in postgres.execute(b"SELECT DISTINCT before, after FROM mainspring.state_changes")
        ]
