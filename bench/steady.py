"""A steady load for a long time, with retention: whether sizes, waiting times and memory level off. Only with `--only steady`.

    BENCH_STEADY_MINUTES=60 BENCH_STEADY_RATE=3000 python -m bench.run --only steady --database postgres --no-peer

The worker is a process of its own. Each line has the jobs that ended in a second, the size of `runs` without and with its indexes, dead
rows, how long jobs waited from their request to their first instruction, and the memory of the worker.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bench.harness import PROJECT, Figure, as_installed, console
from mainspring import App, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Target, Unit
    from mainspring import AsyncFn

MINUTES = float(os.environ.get("BENCH_STEADY_MINUTES", "10"))
RATE = int(os.environ.get("BENCH_STEADY_RATE", "3000"))
_RETENTION = 60.0
_LINES = 12
_SIZES = """
  SELECT pg_table_size('mainspring.runs') / 1e6, pg_indexes_size('mainspring.runs') / 1e6, n_dead_tup
  FROM pg_stat_user_tables WHERE schemaname = 'mainspring' AND relname = 'runs'
"""
_WAITED = """
  SELECT count(*), coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY started - created), 0) / 1e3,
    coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY started - created), 0) / 1e3
  FROM mainspring.runs WHERE completed > %s
"""


def steady(target: Target) -> Iterator[Figure]:
    if target.kind != "postgres":
        return
    url = target.fresh()
    with App(url):
        pass
    worker = subprocess.Popen(
        [sys.executable, "-m", "bench.steady", url], cwd=PROJECT, env=as_installed(), stdin=subprocess.PIPE
    )
    try:
        lines = asyncio.run(_load(url, worker.pid))
    finally:
        worker.communicate()  # closes its standard input, which ends it
    third = len(lines) // 3
    columns: tuple[tuple[str, Unit, int], ...] = (
        ("jobs", "/s", 0),
        ("table", "MB", 1),
        ("indexes", "MB", 2),
        ("waiting, p50", "ms", 4),
        ("memory", "MB", 6),
    )
    for what, unit, column in columns:
        for name, part in (("second third", lines[third : 2 * third]), ("last third", lines[2 * third :])):
            value = sum(line[column] for line in part) / len(part)
            note = f"{MINUTES:g} minutes, {RATE:,} jobs/s asked for, retention of a minute"
            yield Figure("mainspring", f"steady load, {what}, {name}", target.kind, value, unit, note)


def _app(url: str) -> tuple[App, AsyncFn[[int], int]]:
    app = App(url, settings=Settings(retention=_RETENTION))
    app.queue("q", concurrency=2_000)

    @app.workflow(queue="q")
    async def job(number: int) -> int:
        return number

    return app, job


async def _load(url: str, worker: int) -> list[tuple[float, ...]]:
    app, job = _app(url)
    lines: list[tuple[float, ...]] = []
    async with app:
        app.pause()
        begun = measured = time.monotonic()
        sent = 0
        while (now := time.monotonic()) < begun + 60 * MINUTES:
            count = min(5_000, int((now - begun) * RATE) - sent)
            if count > 0:
                await app.start_many(job.bind(number) for number in range(count))
                sent += count
            if now - measured > 60 * MINUTES / _LINES:
                lines.append(await asyncio.to_thread(_line, url, worker, now - measured))
                measured = now
                shown = "  ".join(f"{value:,.1f}" for value in lines[-1])
                console().print(f"{now - begun:5.0f} s  {shown}")
            await asyncio.sleep(0.05)
    return lines


def _line(url: str, worker: int, seconds: float) -> tuple[float, ...]:
    with psycopg.connect(url) as connection:
        table, indexes, dead = connection.execute(_SIZES).fetchone() or (0, 0, 0)
        since = int((time.time() - seconds) * 1e6)
        ended, half, most = connection.execute(_WAITED, [max(since, int((time.time() - 50) * 1e6))]).fetchone() or (
            0,
            0,
            0,
        )
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
    memory = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return ended / min(seconds, 50), float(table), float(indexes), float(dead), float(half), float(most), memory


async def _work(url: str) -> None:
    async with _app(url)[0]:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
