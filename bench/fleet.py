"""What an idle fleet costs a PostgreSQL server, and how fast ended runs are deleted from a server that is some way off."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import psycopg

from bench.harness import Figure
from bench.history import fill
from mainspring import App, Client, Settings
from mainspring.services.pruner import next_batch
from mainspring.store.postgres.libpq import Wire
from mainspring.store.postgres.store import PostgresStore
from mainspring.store.verbs.prune import Keep
from tests.store.proxies import Distance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Target

WORKERS = 12
_JOBS = 20
_OLD = 20_000
_ROUND_TRIP = 0.005
_RUNS = """
  INSERT INTO runs (id, uid, workflow, kind, state, input, output, due, created, started, completed, epoch)
  SELECT 'old-' || n, 'old-' || n, 'trivial', 'workflow', 'succeeded', '{"number": 1}', '1', n, n, n, n, 1 FROM numbers
"""
_STEPS = """
  INSERT INTO steps (run, position, kind, name, seq, output, started, completed, attempts, epoch)
  SELECT 'old-' || (n / 2), n % 2, 'step', 'step', n % 2, '1', n, n, 1, 1 FROM numbers
"""
_CONNECTIONS = b"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def fleet(target: Target) -> Iterator[Figure]:
    if target.kind != "postgres":
        return
    statements, connections = asyncio.run(_idle(target.fresh()))
    yield Figure(
        "mainspring",
        "statements per job",
        target.kind,
        statements,
        "pieces",
        f"{WORKERS} idle workers, one job at a time",
    )
    yield Figure("mainspring", "connections of an idle worker", target.kind, connections, "pieces", f"of {WORKERS}")
    yield Figure(
        "mainspring",
        "retention, 5 ms away",
        target.kind,
        _pruned(target.fresh()),
        "/s",
        "runs with two steps, through a proxy that delays each request by 5 ms",
    )


async def _idle(url: str) -> tuple[float, float]:
    sent = 0
    execute, cursor = Wire.execute, psycopg.Cursor.execute

    def by_wire(self: Wire, *asked: Any) -> Any:
        nonlocal sent
        sent += len(asked)
        return execute(self, *asked)

    def by_cursor(self: psycopg.Cursor[Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal sent
        sent += 1
        return cursor(self, *args, **kwargs)

    apps = [App(url, settings=Settings(poll=600, lease=600)) for _ in range(WORKERS)]
    for app in apps:

        @app.workflow(name="job")
        async def job() -> None: ...

    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app)
        for app in apps:
            worker = app._worker
            if worker is not None:
                await asyncio.to_thread(worker._heartbeat.run_once)
                await worker.drained()
        client = await stack.enter_async_context(Client(url))
        await client.runs.list(limit=1)  # it is connected
        Wire.execute, psycopg.Cursor.execute = by_wire, by_cursor  # type: ignore[method-assign]
        try:
            for _ in range(_JOBS):
                await client.start("job")
                await asyncio.sleep(0.5)
        finally:
            Wire.execute, psycopg.Cursor.execute = execute, cursor  # type: ignore[method-assign]
        await asyncio.sleep(12)
        with psycopg.connect(url) as connection:
            row = connection.execute(_CONNECTIONS).fetchone()
    return sent / _JOBS, (row[0] if row else 0) / WORKERS


def _pruned(url: str) -> float:
    with App(url):
        pass
    fill(url, _RUNS, _OLD)
    fill(url, _STEPS, _OLD * 2)
    with Distance(url, _ROUND_TRIP) as far:
        store = PostgresStore(far.url)
        due = store.retention.due(Keep(runs=0), 10**15)
        trip, size, begun = store.retention.round_trip(), 100, time.perf_counter()
        while True:
            asked = time.perf_counter()
            done = store.retention.prune(due, size)
            took = max(0.0, time.perf_counter() - asked - trip)
            if done < size:
                break
            size = next_batch(size, took)
            time.sleep(took)
        rate = _OLD / (time.perf_counter() - begun)
        store.close()
    return rate
