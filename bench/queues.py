"""Queues: jobs through one worker, and claims from queues that are full, on both databases."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import psycopg

from bench.harness import Figure
from bench.history import fill
from bench.processor import server_seconds
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
  INSERT INTO runs (id, uid, workflow, kind, state, input, output, due, created, started, completed, attempt_started, epoch, queue, partition)
  SELECT 'o' || n, 'o' || (10000000 + n), 'wf', 'workflow', 'succeeded', '{{}}', '1', {NOW}, {NOW}, {NOW}, {NOW}, {NOW}, 1,
    'full', 'p' || (n % 1000)
  FROM numbers
"""


FEW, JOBS, AT_ONCE, _BATCH = 2_000, 20_000, 1_000, 100
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
    turns = [
        [*_ours(target, batch=1), *_ours(target, batch=_BATCH), *(() if peer is None else peer())] for _ in range(3)
    ]
    for same in zip(*turns, strict=True):
        yield replace(same[0], value=statistics.median(each.value for each in same))


def _ours(target: Target, batch: int) -> Iterator[Figure]:
    what, note = (
        ("jobs of a batch function", f"{batch} to a call") if batch > 1 else ("jobs through a queue", "one worker")
    )
    used = jobs_per_second(target, JOBS, batch)
    figure = partial(Figure, "mainspring", database=target.kind)
    yield figure(what=what, value=JOBS / used.seconds, unit="/s", note=f"{JOBS:,}, {note}")
    yield figure(what=f"{what}: worker", value=used.worker / JOBS * 1e6, unit="µs", note="processor time of each")
    if target.kind == "postgres":
        yield figure(what=f"{what}: server", value=used.server / JOBS * 1e6, unit="µs", note="processor time of each")
    if batch == 1:
        at_once = f"by start_many, {AT_ONCE:,} at a time"
        yield figure(what="jobs enqueued", value=JOBS / used.enqueued, unit="/s", note=at_once)


@dataclass(frozen=True, slots=True)
class Used:
    """Seconds: until all jobs have ended, processor time of worker and server for that, and until all were enqueued."""

    seconds: float
    worker: float
    server: float
    enqueued: float


def jobs_per_second(target: Target, jobs: int, batch: int = 1) -> Used:
    """Trivial jobs that one worker takes from a queue, or a batch function in parts.

    Until the last end is committed and nothing is left to take, as PgQueuer does when it is told to drain.
    """
    url = target.fresh()
    app = App(url, settings=Settings(synchronous="NORMAL"))
    app.queue("q", concurrency=100_000)

    @app.workflow(queue="q")
    async def job(number: int) -> int:
        return number

    @app.step(batch=max(batch, 2))
    async def batched(numbers: list[int]) -> list[int]:
        return numbers

    async def measure() -> Used:
        function = job if batch == 1 else batched.options(queue="q")
        async with app:
            app.pause()
            began = time.perf_counter()
            for first in range(0, jobs, AT_ONCE):
                await app.start_many(function.bind(number) for number in range(first, first + AT_ONCE))
            enqueued = time.perf_counter() - began
            server = _server(target, url)
            worker, began = time.process_time(), time.perf_counter()
            app.resume()
            await app.drain()
            took, used = time.perf_counter() - began, time.process_time() - worker
            return Used(took, used, _server(target, url) - server, enqueued)

    return asyncio.run(measure())


def _server(target: Target, url: str) -> float:
    if target.kind != "postgres":
        return 0.0
    with psycopg.connect(url) as connection:
        return server_seconds(connection.info.backend_pid)


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
