"""The watcher of the soak finds rows that break a promise at this moment."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.soak.watcher import Watcher

if TYPE_CHECKING:
    from pathlib import Path

RUNS = "CREATE TABLE mainspring_runs (workflow TEXT, state TEXT, key TEXT, queue TEXT, partition TEXT, attempt_started INTEGER)"
Row = tuple[str, str | None, str | None, str, int | None]


@pytest.mark.parametrize(
    ("rows", "findings"),
    [
        (
            [("queued", "k", None, "", None), ("running", "k", None, "", 1)],
            ["keys: 2 unfinished runs had the key 'k' at once"],
        ),
        ([("succeeded", "k", None, "", None), ("running", "k", None, "", 1)], []),
        (
            [("waiting", None, "serial", "", 1), ("running", None, "serial", "", 1)],
            ["queues: 2 runs had begun and not ended in queue serial"],
        ),
        ([("queued", None, "serial", "", None), ("running", None, "serial", "", 1)], []),
        (
            [("running", None, "tenants", "a", 1)] * 2,
            ["queues: 2 runs had begun and not ended in partition a of queue tenants"],
        ),
        ([("running", None, "tenants", "a", 1), ("running", None, "tenants", "b", 1)], []),
    ],
)
def test_a_key_or_a_limit_that_does_not_hold_at_a_moment_is_found(
    tmp_path: Path, rows: list[Row], findings: list[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as db, db:
        db.execute(RUNS)
        db.executemany("INSERT INTO mainspring_runs VALUES ('job', ?, ?, ?, ?, ?)", rows)
        watcher = Watcher(f"sqlite:///{tmp_path}/store.db")
        watcher.look(db)
    assert watcher.findings == findings
    assert watcher.backlog == sum(state != "succeeded" for state, *_ in rows)
