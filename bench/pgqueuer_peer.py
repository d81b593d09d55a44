# pyright: basic, reportMissingImports=false
"""PgQueuer, measured on one PostgreSQL database. Runs in the peers' environment and prints one JSON array of figures.

    .bench-venv/bin/python bench/pgqueuer_peer.py URL JOBS

Jobs that do nothing, enqueued a thousand at a time and taken in batches of a hundred, as its own benchmark does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
from processor import server_seconds  # type: ignore[import-not-found]

_AT_ONCE = 1_000
_BATCH = 100


async def measure(url: str, jobs: int) -> tuple[float, ...]:
    """Jobs that one worker takes in a second, jobs that are enqueued in one, and the processor time of each, of worker and server."""
    connection = await asyncpg.connect(url)
    try:
        driver = AsyncpgDriver(connection)
        queries = Queries(driver)
        await queries.install()
        began = time.perf_counter()
        for begin in range(0, jobs, _AT_ONCE):
            count = min(_AT_ONCE, jobs - begin)
            await queries.enqueue(["job"] * count, [str(begin + n).encode() for n in range(count)], [0] * count)
        enqueued = time.perf_counter() - began
        worker = PgQueuer(driver)
        done = 0

        @worker.entrypoint("job")
        async def job(given: Any) -> None:
            nonlocal done
            del given
            done += 1

        backend = connection.get_server_pid()
        worker_time, server_time = time.process_time(), server_seconds(backend)
        began = time.perf_counter()
        await worker.run(batch_size=_BATCH, mode=QueueExecutionMode.drain)
        took = time.perf_counter() - began
        assert done == jobs
        used = time.process_time() - worker_time, server_seconds(backend) - server_time
        return jobs / took, jobs / enqueued, *(seconds / jobs * 1e6 for seconds in used)
    finally:
        await connection.close()


if __name__ == "__main__":
    through, put, worker, server = asyncio.run(measure(sys.argv[1], int(sys.argv[2])))
    kinds = {"who": "pgqueuer", "database": "postgres", "unit": "/s"}
    print(
        json.dumps(
            [
                {**kinds, "what": "jobs through a queue", "value": through, "note": f"batches of {_BATCH}, one worker"},
                {**kinds, "what": "jobs enqueued", "value": put, "note": f"{_AT_ONCE:,} at a time"},
                {**kinds, "unit": "µs", "what": "jobs through a queue: worker", "value": worker},
                {**kinds, "unit": "µs", "what": "jobs through a queue: server", "value": server},
            ]
        )
    )
