"""How much PostgreSQL writes to its log for a job: bytes, which a busy machine does not change.

Without full pages: how many of those there are depends on how often checkpoints come.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg

from bench.harness import Figure
from mainspring import App, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Target

JOBS = 20_000
STEPS = 3
_BATCH = 1_000


def wal(target: Target) -> Iterator[Figure]:
    """Bytes of WAL for a job through a queue, from its start to its end, and for each of its steps."""
    if target.kind != "postgres":
        return
    trivial, stepped = asyncio.run(_bytes(target.fresh()))
    note = f"{JOBS:,} jobs through a queue, {_BATCH:,} to a start"
    yield Figure("mainspring", "log of a trivial job", target.kind, trivial, "B", note)
    yield Figure(
        "mainspring", "log of a step", target.kind, (stepped - trivial) / STEPS, "B", f"{STEPS} in each of as many jobs"
    )


async def _bytes(url: str) -> tuple[float, float]:
    app = App(url, settings=Settings())
    app.queue("q", concurrency=100_000)

    @app.step
    async def step(number: int) -> int:
        return number

    @app.workflow(queue="q")
    async def trivial(number: int) -> int:
        return number

    @app.workflow(queue="q")
    async def stepped(number: int) -> int:
        for _ in range(STEPS):
            await step(number)
        return number

    found: list[float] = []
    async with app:
        with psycopg.connect(url, autocommit=True) as watch:
            _write_full_pages(watch, on=False)
            for function in (trivial, stepped):
                before = _position(watch)
                app.pause()
                for first in range(0, JOBS, _BATCH):
                    await app.start_many(function.bind(number) for number in range(first, first + _BATCH))
                app.resume()
                await app.drain()
                found.append((_position(watch) - before) / JOBS)
            _write_full_pages(watch, on=True)
    return found[0], found[1]


def _write_full_pages(connection: psycopg.Connection, *, on: bool) -> None:
    connection.execute(f"ALTER SYSTEM SET full_page_writes = {'on' if on else 'off'}".encode())
    connection.execute("SELECT pg_reload_conf()")
    while (row := connection.execute("SHOW full_page_writes").fetchone()) != ("on" if on else "off",):
        assert row is not None


def _position(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])
