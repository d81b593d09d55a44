"""Four workers at a distance from their PostgreSQL server, with jobs that only wait: which part of their slots is in use.

What a worker does between two jobs of a slot (ending one, claiming the next) costs round trips, and where the fleet shares a limit the
workers wait for each other. Each worker is a process, and so is the proxy that delays what they send. What is counted is the middle of
the jobs: neither the start of the workers nor the last jobs, for which there are more slots than jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psycopg

from bench.harness import PROJECT, Figure, as_installed
from mainspring import App, Settings
from tests.store.proxies import Distance

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from bench.harness import Target

WORKERS = 4
_SLOTS = 50
_SCALE = float(os.environ.get("BENCH_DISTANCE_SCALE", "1"))
"""On a busy machine: by how much jobs and round trips are longer than they should be, and jobs fewer. What counts is how they compare."""
_JOB = 0.05 * _SCALE
_ROUND_TRIP = 0.001 * _SCALE
_JOBS = max(4_000, round(24_000 / _SCALE))
_IDEAL = WORKERS * _SLOTS / _JOB
_MIDDLE = """
  SELECT count(*) / ((max(completed) - min(completed)) / 1e6) FROM (
    SELECT completed, percent_rank() OVER (ORDER BY completed) AS rank FROM mainspring.runs WHERE completed IS NOT NULL) ended
  WHERE rank BETWEEN 0.2 AND 0.8
"""


def distant(target: Target) -> Iterator[Figure]:
    if target.kind != "postgres":
        return
    for what, limit in (("with", WORKERS * _SLOTS), ("without", None)):
        rate = _rate(target.fresh(), limit)
        note = f"{rate:,.0f} of {_IDEAL:,.0f} jobs/s; {WORKERS} workers of {_SLOTS} slots, jobs of {_JOB * 1e3:g} ms, {_ROUND_TRIP * 1e3:g} ms of round trip"
        name = f"slots in use at a distance, {what} a limit"
        yield Figure("mainspring", name, target.kind, 100 * rate / _IDEAL, "%", note)


def _app(url: str, limit: int | None) -> tuple[App, object]:
    app = App(url, settings=Settings(concurrency=_SLOTS))
    app.queue("q", concurrency=limit)

    @app.step
    async def job(_: int) -> None:
        await asyncio.sleep(_JOB)

    return app, job.options(queue="q")


def _rate(url: str, limit: int | None) -> float:
    app, job = _app(url, limit)
    app.queue("q", concurrency=limit)

    async def enqueue() -> None:
        async with app:
            app.pause()
            for begin in range(0, _JOBS, 1_000):
                await app.start_many(job.bind(number) for number in range(begin, begin + 1_000))  # type: ignore[attr-defined]

    asyncio.run(enqueue())
    with contextlib.ExitStack() as stack:
        far = stack.enter_context(_process("proxy", url))
        assert far.stdout is not None
        distant_url = far.stdout.readline().strip()
        for _ in range(WORKERS):
            stack.enter_context(_process("worker", distant_url, str(limit or 0)))
        with psycopg.connect(url, autocommit=True) as connection:
            while (left := _count(connection)) > 0:
                time.sleep(0.2)
            del left
            row = connection.execute(_MIDDLE).fetchone()
    return float(row[0]) if row else 0.0


def _count(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM mainspring.runs WHERE completed IS NULL").fetchone()
    return int(row[0]) if row else 0


@contextlib.contextmanager
def _process(*arguments: str) -> Generator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "bench.distant", *arguments]
    process = subprocess.Popen(
        words, cwd=PROJECT, env=as_installed(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.communicate()  # closes its standard input, which ends it


def main(what: str, url: str, limit: str = "0") -> None:
    """What the processes do until their standard input ends."""
    if what == "proxy":
        with Distance(url, _ROUND_TRIP) as far:
            print(far.url, flush=True)
            sys.stdin.read()
        return
    app, _ = _app(url, int(limit) or None)

    async def work() -> None:
        async with app:
            await asyncio.to_thread(sys.stdin.read)

    asyncio.run(work())


if __name__ == "__main__":
    main(*sys.argv[1:])
