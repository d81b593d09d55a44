"""Jobs through a queue while a transaction elsewhere keeps an old snapshot open: a dump, a report, a forgotten psql.

The rows that jobs leave behind in the indexes cannot be removed meanwhile. Beside the rates stand the pages that the server read for
each job, which a busy machine does not change.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import psycopg

from bench.harness import Figure
from mainspring import App, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Target

JOBS = int(os.environ.get("BENCH_SNAPSHOT_JOBS", "100000"))
PART = 20_000
_PAGES = (
    "SELECT pg_stat_force_next_flush(), blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
)


def snapshots(target: Target) -> Iterator[Figure]:
    """The first and the last of many jobs."""
    if target.kind != "postgres":
        return
    parts = asyncio.run(_parts(target.fresh()))
    for name, (rate, pages) in (("first", parts[0]), ("last", parts[-1])):
        note = f"the {name} {PART:,} of {JOBS:,}, {pages:,.0f} pages a job"
        yield Figure("mainspring", f"jobs under an old snapshot, {name}", target.kind, rate, "/s", note)


async def _parts(url: str) -> list[tuple[float, float]]:
    """Jobs a second, and pages read for each job, in each part."""
    app = App(url, settings=Settings())
    app.queue("q", concurrency=100_000)

    @app.workflow(queue="q")
    async def job(number: int) -> int:
        return number

    found: list[tuple[float, float]] = []
    async with app:
        with psycopg.connect(url) as old, psycopg.connect(url, autocommit=True) as watch:
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT 1 FROM mainspring.runs LIMIT 1")
            for part in range(JOBS // PART):
                app.pause()
                await app.start_many(job.bind(number) for number in range(part * PART, (part + 1) * PART))
                before, began = _pages(watch), time.perf_counter()
                app.resume()
                await app.drain()
                took = time.perf_counter() - began
                await asyncio.sleep(1.5)  # the server counts pages at most once a second
                found.append((PART / took, (_pages(watch) - before) / PART))
    return found


def _pages(connection: psycopg.Connection) -> int:
    row = connection.execute(_PAGES).fetchone()
    assert row is not None
    return int(row[1])
