"""Schedules in tables that older versions made."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import psycopg
import pytest

from mainspring import Policy, Spec
from mainspring.schedules.definition import Definition
from mainspring.store.open import open_store, sqlite_path
from tests.store.build import StoreSettings
from tests.upgrade.test_histories import load

BEFORE = "0022_names"
OLD = Definition("s", "wf", "{}", Spec(intervals=["1h"]), Policy())


def insert(url: str, *, paused: bool) -> None:
    """A schedule as that version stored it, whose note may be that of a pause."""
    columns = {name: value for name, value in OLD.columns().items() if name != "note"}
    values = columns | {"id": "s", "created": 1, "updated": 1, "cursor": 1, "due": 1, "paused": paused, "note": "why"}
    names = ", ".join(values)
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as lite:
            lite.execute(
                f"INSERT INTO schedules ({names}) VALUES ({', '.join('?' * len(values))})", list(values.values())
            )
    else:
        with psycopg.connect(url) as db:
            marks = ", ".join(["%s"] * len(values))
            db.execute(f"INSERT INTO mainspring.schedules ({names}) VALUES ({marks})".encode(), list(values.values()))


@pytest.mark.parametrize("paused", [True, False])
def test_the_note_of_a_pause_becomes_one_and_any_other_stays(store_url: str, *, paused: bool) -> None:
    load(store_url, [], BEFORE)
    insert(store_url, paused=paused)
    store = open_store(store_url, StoreSettings())
    store.open()
    try:
        row = store.schedules.get("s")
    finally:
        store.close()
    assert row is not None
    assert (row.note, row.pause_note) == ((None, "why") if paused else ("why", None))
    assert (row.declared, json.loads(row.spec)) == (None, OLD.spec.to_dict())
