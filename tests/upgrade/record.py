"""Record histories of today's code: `python -m tests.upgrade.record VERSION`, at each release.

The file has what the tables hold at several moments of a run. Later versions must be able to go on from each of them.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from mainspring.store import migrations
from mainspring.testing import world
from tests.upgrade.workflows import app, everything, plain

HISTORIES = Path(__file__).parent / "histories"
MOMENTS = ("1s", "9m", "1m", "30m", "40m", "2m", "1h")


def snapshot(path: str) -> dict[str, list[dict[str, Any]]]:
    with sqlite3.connect(path) as db:
        db.row_factory = sqlite3.Row
        return {
            table: [{name: row[name] for name in row.keys() if row[name] is not None} for row in db.execute(query)]  # noqa: SIM118
            for table, query in (
                ("runs", "SELECT * FROM mainspring_runs ORDER BY uid"),
                ("steps", "SELECT * FROM mainspring_steps ORDER BY run, position"),
            )
        }


async def record(version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/history.db"
        moments: list[dict[str, Any]] = []
        async with world(app, at="2026-01-01T00:00Z", url=f"sqlite:///{path}") as w:
            handle = await everything.options(id="everything").start()
            beside = await plain.options(id="plain").start("plain")
            for pause in MOMENTS:
                await w.advance(pause)
                moments.append({"at": w.now.isoformat(), **snapshot(path)})
            results = {"everything": await handle.result(), "plain": await beside.result()}
    migration = migrations.load("mainspring.store.sqlite")[-1].name
    history = {"version": version, "migration": migration, "results": results, "moments": moments}
    text = json.dumps(history, indent=1, ensure_ascii=False)
    (HISTORIES / f"{version}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
