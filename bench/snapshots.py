"""Work while a transaction elsewhere keeps an old snapshot open: a dump, a report, a forgotten psql.

What runs and schedules leave behind in the indexes cannot be removed meanwhile. Everything is made in parts, and the last part is compared
with the first. Beside the rates stand the pages that the server read for each piece, which a busy machine does not change.

    BENCH_SNAPSHOT_JOBS=300000 python -m bench.run --only snapshots --database postgres
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psycopg

from bench.harness import Figure
from bench.history import fill
from mainspring import App, Declaration, Settings, Spec, run, testing
from mainspring.store.postgres.store import PostgresStore
from mainspring.store.verbs.prune import Keep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from bench.harness import Target

    Work = Callable[[str, "_Watch", int, int], AsyncIterator[None]]

JOBS = int(os.environ.get("BENCH_SNAPSHOT_JOBS", "100000"))
PART = min(20_000, JOBS // 5)
FEWER = 5
"""By how much the other kinds of work are fewer."""
SNAPSHOT_KINDS = (
    "jobs",
    "jobs of partitions",
    "sleepers",
    "ticks of many schedules",
    "ticks of few schedules",
    "deleted runs",
)
_PARTITIONS = 100
_BATCH = 500
_ROUNDS = 20
"""How often each of few schedules acts in a part."""
_PAGES = (
    "SELECT pg_stat_force_next_flush(), blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
)
_ENDED = """
  INSERT INTO runs (id, uid, workflow, kind, state, input, output, due, created, started, completed, epoch)
  SELECT 'old-' || n, 'old-' || n, 'trivial', 'workflow', 'succeeded', '{"number": 1}', '1', n, n, n, n, 1 FROM numbers
"""


def snapshots(target: Target) -> Iterator[Figure]:
    """The first and the last part of each kind of work."""
    if target.kind != "postgres":
        return
    for what, (work, many) in _kinds().items():
        part = PART if many == JOBS else PART // FEWER
        parts = asyncio.run(_parts(target.fresh(), work, part, many // part))
        for name, (rate, pages) in (("first", parts[0]), ("last", parts[-1])):
            note = f"the {name} {part:,} of {many:,}, {pages:,.0f} pages each"
            yield Figure("mainspring", f"{what} under an old snapshot, {name}", target.kind, rate, "/s", note)


def _kinds() -> dict[str, tuple[Work, int]]:
    """The kinds of work, with how many pieces of each."""
    works = (
        (_jobs(partitions=0), JOBS),
        (_jobs(partitions=_PARTITIONS), JOBS // FEWER),
        (_sleepers, JOBS // FEWER),
        (_ticks(rounds=1), JOBS // FEWER),
        (_ticks(rounds=_ROUNDS), JOBS // FEWER),
        (_deleted, JOBS),
    )
    return dict(zip(SNAPSHOT_KINDS, works, strict=True))


class _Watch:
    """Keeps a snapshot open, and counts the pages that the server reads."""

    def __init__(self, url: str) -> None:
        self._old = psycopg.connect(url)
        self._connection = psycopg.connect(url, autocommit=True)

    def begin(self) -> None:
        self._old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._old.execute("SELECT 1 FROM mainspring.runs LIMIT 1")

    def pages(self) -> int:
        row = self._connection.execute(_PAGES).fetchone()
        assert row is not None
        return int(row[1])

    def close(self) -> None:
        self._old.close()
        self._connection.close()


async def _parts(url: str, work: Work, part: int, parts: int) -> list[tuple[float, float]]:
    """Pieces a second, and pages read for each, in each part."""
    watch = _Watch(url)
    found: list[tuple[float, float]] = []
    try:
        steps = work(url, watch, part, parts)
        async for _ in steps:  # a part is ready to be made
            before, began = watch.pages(), time.perf_counter()
            await anext(steps)
            took = time.perf_counter() - began
            await asyncio.sleep(1.5)  # the server counts pages at most once a second
            found.append((part / took, (watch.pages() - before) / part))
    finally:
        watch.close()
    return found


def _jobs(*, partitions: int) -> Work:
    async def work(url: str, watch: _Watch, part: int, parts: int) -> AsyncIterator[None]:
        app = App(url, settings=Settings())
        app.queue("q", concurrency=100_000)

        @app.workflow(queue="q")
        async def job(number: int) -> int:
            return number

        async with app:
            watch.begin()
            for _ in range(parts):
                app.pause()
                for begin in range(0, part, 1_000):
                    each = [job.options(partition=f"p{n}") for n in range(partitions)] or [job]
                    await app.start_many(each[n % len(each)].bind(n) for n in range(begin, min(part, begin + 1_000)))
                yield
                app.resume()
                await app.drain()
                yield

    return work


async def _sleepers(url: str, watch: _Watch, part: int, parts: int) -> AsyncIterator[None]:
    """Runs of a queue that are parked while they sleep: they wake by time and go on."""
    app = App(url, settings=Settings(resident=100))
    app.queue("q", concurrency=100_000)

    @app.workflow(queue="q")
    async def sleeper() -> None:
        await run.sleep(1)

    async with app:
        watch.begin()
        for _ in range(parts):
            handles = await app.start_many(sleeper.bind() for _ in range(part))
            yield
            await app.gather(*handles)
            yield


def _ticks(*, rounds: int) -> Work:
    """Schedules that act so many times in every part, on the virtual clock. Fewer schedules leave more versions of each behind."""

    async def work(url: str, watch: _Watch, part: int, parts: int) -> AsyncIterator[None]:
        app = App(version="bench")

        @app.workflow
        async def act() -> None: ...

        async with testing.world(app, at=datetime(2026, 1, 1, tzinfo=UTC), url=url) as world:
            every = Spec(intervals=["1h"])
            await app.schedules.apply(
                [Declaration(f"s{number}", act.bind(), every) for number in range(part // rounds)]
            )
            watch.begin()
            for _ in range(parts):
                yield
                for _ in range(rounds):
                    await world.advance("1h")
                yield

    return work


async def _deleted(url: str, watch: _Watch, part: int, parts: int) -> AsyncIterator[None]:
    async with App(url):
        pass
    fill(url, _ENDED, part * parts)
    watch.begin()
    store = PostgresStore(url)
    try:
        due = store.retention.due(Keep(runs=0), 10**15)
        for _ in range(parts):
            yield
            for _ in range(part // _BATCH):
                store.retention.prune(due, _BATCH)
            yield
    finally:
        store.close()
