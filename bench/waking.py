"""From enqueuing a job to its first instruction, and what queues cost in which nothing happens.

python -m bench.waking URL          a worker, for the figures across processes
python -m bench.waking --idle URL   processor time, in ms per second, of a worker with a hundred queues
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench.harness import PROJECT, Figure
from mainspring import App

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Target
    from mainspring import AsyncFn

JOBS = 100
_WARM = 10
QUEUES = 100
_IDLE_SECONDS = 5


def made(url: str) -> tuple[App, AsyncFn[[], float]]:
    app = App(url)
    app.queue("q", concurrency=10)

    @app.workflow(queue="q")
    async def job() -> float:
        return time.monotonic()

    return app, job


def waking(target: Target) -> Iterator[Figure]:
    """`time.monotonic` is one clock for all processes of a machine."""
    here = asyncio.run(_here(target.fresh()))
    yield Figure("mainspring", "enqueue to start", target.kind, here, "ms", "same process, idle, p50; commit included")
    if target.kind == "postgres":
        there = _elsewhere(target.fresh())
        yield Figure("mainspring", "enqueue to start elsewhere", target.kind, there, "ms", "another process, p50")
    words = [sys.executable, "-m", "bench.waking", "--idle", target.fresh()]
    done = subprocess.run(words, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True)
    yield Figure(
        "mainspring", f"idle with {QUEUES} queues", target.kind, float(done.stdout), "ms", "processor time per second"
    )


async def _p50(job: AsyncFn[[], float]) -> float:
    took: list[float] = []
    for _ in range(JOBS):
        asked = time.monotonic()
        handle = await job.start()
        took.append(await handle.result() - asked)
        await asyncio.sleep(0.01)
    return statistics.median(took[_WARM:]) * 1e3


async def _here(url: str) -> float:
    app, job = made(url)
    async with app:
        return await _p50(job)


def _elsewhere(url: str) -> float:
    words = [sys.executable, "-m", "bench.waking", url]
    with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        try:
            app, job = made(url)
            found = asyncio.run(_p50(job))
            app.close()
            return found
        finally:
            worker.terminate()


async def _work(url: str) -> None:
    async with made(url)[0]:
        print("ready", flush=True)
        await asyncio.Event().wait()


async def _idle(url: str) -> float:
    app, _ = made(url)
    for number in range(QUEUES):
        app.queue(f"q{number}", concurrency=1)
    async with app:
        await asyncio.sleep(1)
        before = time.process_time()
        await asyncio.sleep(_IDLE_SECONDS)
        return (time.process_time() - before) / _IDLE_SECONDS * 1e3


if __name__ == "__main__":
    *flags, database = sys.argv[1:]
    if flags:
        print(asyncio.run(_idle(database)))
    else:
        asyncio.run(_work(database))
