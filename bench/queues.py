"""Queues: jobs through one worker, and claims from queues that are full, on both databases."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.harness import Figure
from bench.history import fill
from mainspring import App, Settings
from mainspring.model.queues import Limits, Queue
from mainspring.model.states import State
from mainspring.queues.fairness import FAIR
from mainspring.store.open import open_store
from mainspring.store.protocol import ClaimRequest
from mainspring.store.writes import Finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bench.harness import Target
    from mainspring import AsyncFn
    from mainspring.store.protocol import Store

NOW = 1_790_000_000_000_000
_CLAIMS = 20
_WAITING = f"""
  INSERT INTO runs (id, uid, workflow, kind, state, input, due, created, queue, partition)
  SELECT 'w' || n, 'w' || (10000000 + n), 'wf', 'workflow', 'queued', '{{}}', {NOW}, {NOW}, 'full', 'p' || (n % 1000)
  FROM numbers
"""
_PLAIN = f"""
  INSERT INTO runs (id, uid, workflow, kind, state, input, due, created)
  SELECT 'p' || n, 'p' || (10000000 + n), 'plain', 'workflow', 'queued', '{{}}', {NOW}, {NOW} FROM numbers
"""
_OVER = f"""
  INSERT INTO runs (id, uid, workflow, kind, state, input, output, due, created, started, completed, since, epoch, queue, partition)
  SELECT 'o' || n, 'o' || (10000000 + n), 'wf', 'workflow', 'succeeded', '{{}}', '1', {NOW}, {NOW}, {NOW}, {NOW}, {NOW}, 1,
    'full', 'p' || (n % 1000)
  FROM numbers
"""


FEW, JOBS, AT_ONCE = 2_000, 20_000, 1_000
MANY = int(os.environ.get("BENCH_WAITING", "1000000"))
"""So many runs wait, and as many have ended."""


def queues(target: Target) -> Iterator[Figure]:
    """What a claim costs when few and when many wait."""
    for what, waiting, over in (("few", FEW, 0), ("many", MANY, MANY)):
        took, plain = claim_milliseconds(target.fresh(), waiting, over)
        note = f"ten of {waiting:,}; {over:,} have ended"
        yield Figure("mainspring", f"claims, {what} waiting", target.kind, took, "ms", f"{note}; 1,000 partitions")
        yield Figure("mainspring", f"plain claims, {what} waiting", target.kind, plain, "ms", f"{note}; no queue")


def jobs(target: Target, peer: Callable[[], Iterable[Figure]] | None) -> Iterator[Figure]:
    """Jobs through a queue, in turns with those of a peer on the same server: of each the median of three."""
    ours: list[tuple[float, float, float]] = []
    theirs: list[list[Figure]] = []
    for _ in range(3):
        ours.append((*jobs_per_second(target.fresh(), JOBS), batched_jobs_per_second(target.fresh(), JOBS)))
        if peer is not None:
            theirs.append(list(peer()))
    done, enqueued, batched = (statistics.median(each) for each in zip(*ours, strict=True))
    yield Figure("mainspring", "jobs through a queue", target.kind, done, "/s", f"{JOBS:,}, one worker")
    yield Figure(
        "mainspring", "jobs of a batch function", target.kind, batched, "/s", f"{JOBS:,}, batch=100, one worker"
    )
    yield Figure("mainspring", "jobs enqueued", target.kind, enqueued, "/s", f"by start_many, {AT_ONCE:,} at a time")
    for same in zip(*theirs, strict=True):
        yield replace(same[0], value=statistics.median(each.value for each in same))


def jobs_per_second(url: str, jobs: int) -> tuple[float, float]:
    """How many trivial jobs one worker takes from a queue in a second, and how many are enqueued in one.

    Until the last end is committed and nothing is left to take, as PgQueuer does when it is told to drain.
    """
    app = App(url, settings=Settings(synchronous="NORMAL"))
    app.queue("q", concurrency=100_000)

    @app.workflow(queue="q")
    async def job(number: int) -> int:
        return number

    return asyncio.run(_measure(app, job, jobs))


def batched_jobs_per_second(url: str, jobs: int) -> float:
    """The same for a batch function: a hundred jobs to a call."""
    app = App(url, settings=Settings(synchronous="NORMAL"))
    app.queue("q", concurrency=100_000)

    @app.step(batch=100)
    async def job(numbers: list[int]) -> list[int]:
        return numbers

    return asyncio.run(_measure(app, job.options(queue="q"), jobs))[0]


async def _measure(app: App, job: AsyncFn[[int], int], jobs: int) -> tuple[float, float]:
    async with app:
        app.pause()
        began = time.perf_counter()
        for first in range(0, jobs, AT_ONCE):
            await app.start_many(job.bind(number) for number in range(first, first + AT_ONCE))
        enqueued = time.perf_counter() - began
        began = time.perf_counter()
        app.resume()
        await app.drain()
        return jobs / (time.perf_counter() - began), jobs / enqueued


def claim_milliseconds(url: str, waiting: int, over: int) -> tuple[float, float]:
    """The median time of a claim of ten where so many wait and so many have ended: from a limited queue, and without one."""
    store = open_store(url, Settings(synchronous="OFF"))
    store.open()
    try:
        store.queues.set(Queue("full", Limits(concurrency=50, partition_concurrency=5), created=NOW))
        fill(url, _WAITING, waiting)
        fill(url, _OVER, over)
        limited = _claims(store, "wf", frozenset({"full"}))
        fill(url, _PLAIN, waiting)
        return limited, _claims(store, "plain", frozenset())
    finally:
        store.close()


def _claims(store: Store, function: str, arrived: frozenset[str]) -> float:
    times: list[float] = []
    for number in range(_CLAIMS):
        began = time.perf_counter()
        request = ClaimRequest(function, "v", {function: "print"}, 10, NOW + number, FAIR, queues=arrived)
        claimed = store.claim(request)
        times.append((time.perf_counter() - began) * 1000)
        ends = [Finish(function, each.run.id, each.run.epoch, State.SUCCEEDED, NOW) for each in claimed.claims]
        assert len(ends) == 10
        store.apply(ends, NOW)
    return sorted(times)[len(times) // 2]
