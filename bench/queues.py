"""Queues: jobs through one worker, and claims from queues that are full, on both databases."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bench.harness import Figure
from mainspring import App, Settings
from mainspring.model.queues import Limits, Queue
from mainspring.model.records import NewRun
from mainspring.model.states import State
from mainspring.queues.admission import admit
from mainspring.store.open import open_store
from mainspring.store.ops import Finish, Start
from mainspring.store.protocol import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Target
    from mainspring.store.protocol import Store

NOW = 1_790_000_000_000_000
_BATCH = 5_000
_CLAIMS = 20


FEW, MANY, JOBS = 2_000, 200_000, 20_000


def queues(target: Target) -> Iterator[Figure]:
    """Jobs through a queue with a limit, and what a claim costs when few and when many wait."""
    done, enqueued = jobs_per_second(target.fresh(), JOBS)
    yield Figure("mainspring", "jobs through a queue", target.kind, done, "/s", f"{JOBS:,}, one worker")
    yield Figure("mainspring", "jobs enqueued", target.kind, enqueued, "/s", "by start_many")
    for what, waiting in (("few", FEW), ("many", MANY)):
        took = claim_milliseconds(target.fresh(), waiting)
        yield Figure(
            "mainspring", f"claims, {what} waiting", target.kind, took, "ms", f"ten of {waiting:,}, 1,000 partitions"
        )


def jobs_per_second(url: str, jobs: int) -> tuple[float, float]:
    """How many trivial jobs one worker takes from a queue in a second, and how many are enqueued in one."""
    app = App(url, settings=Settings(synchronous="NORMAL"))
    app.queue("q", concurrency=100_000)

    @app.workflow(queue="q")
    async def job(number: int) -> int:
        return number

    async def measure() -> tuple[float, float]:
        async with app:
            app.pause()
            began = time.perf_counter()
            handles = await app.start_many(job.bind(number) for number in range(jobs))
            enqueued = time.perf_counter() - began
            began = time.perf_counter()
            app.resume()
            await asyncio.gather(*(handle.result() for handle in handles))
            return jobs / (time.perf_counter() - began), jobs / enqueued

    return asyncio.run(measure())


def claim_milliseconds(url: str, waiting: int) -> float:
    """The median time of a claim of ten from a limited queue in which so many wait."""
    store = open_store(url, Settings(synchronous="OFF"))
    store.open()
    try:
        store.queues.set(Queue("full", Limits(concurrency=50, partition_concurrency=5), created=NOW))
        for begin in range(0, waiting, _BATCH):
            store.apply([Start(_waiting(number)) for number in range(begin, min(begin + _BATCH, waiting))], NOW)
        return _claims(store)
    finally:
        store.close()


def _waiting(number: int) -> NewRun:
    made = NewRun(f"r{number:09d}", f"u{number:09d}", "wf", "workflow", "{}", State.QUEUED, NOW, NOW)
    made.queue, made.partition = "full", f"p{number % 1000:04d}"
    return made


def _claims(store: Store) -> float:
    times: list[float] = []
    for number in range(_CLAIMS):
        began = time.perf_counter()
        claimed = store.claim(ClaimRequest("w", "v", {"wf": "print"}, 10, NOW + number, admit=admit))
        times.append((time.perf_counter() - began) * 1000)
        ends = [Finish("w", each.run.id, each.run.epoch, State.SUCCEEDED, NOW) for each in claimed.claims]
        assert len(ends) == 10
        store.apply(ends, NOW)
    return sorted(times)[len(times) // 2]
