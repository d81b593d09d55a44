"""However long the history of a schedule is: what is done all the time goes by an index."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from mainspring.store.open import sqlite_path
from tests.schedules.conftest import bench_at


async def test_on_sqlite_nothing_that_a_schedule_does_reads_its_whole_history(sqlite_url: str) -> None:
    said: list[str] = []
    async with bench_at(sqlite_url, tick_retention="1h") as bench:
        database: Any = bench.app._runtime.connection().store
        connect = database._db._connect

        def traced() -> Any:
            made = connect()
            made.set_trace_callback(said.append)
            return made

        database._db._connect = traced
        for connection in database._db._all:
            connection.set_trace_callback(said.append)
        await bench.create("5m")
        await bench.app.schedules.trigger("s")
        await bench.world.advance("3h")
        assert len(await bench.ticks()) < 36  # some have been forgotten
    asked = [each for each in dict.fromkeys(said) if each.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "INSERT"))]
    assert any("CROSS JOIN mainspring_ticks" in each for each in asked)
    with closing(sqlite3.connect(sqlite_path(sqlite_url))) as db:
        for statement in asked:
            for step in db.execute(f"EXPLAIN QUERY PLAN {statement}"):
                whole = step[3].startswith("SCAN") and "INDEX" not in step[3]
                assert not (whole and step[3].split()[1] in {"runs", "ticks", "t", "schedules", "s"}), statement
