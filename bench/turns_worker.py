"""One side of `bench.turns`: an app that does the work named on each line of its standard input, and prints what a unit of it took.

Another revision of the library executes this file, so it uses nothing but what all of them have: public names that do not change.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Final

from mainspring import App, Tx

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

app = App(version="bench")  # the URL is in the environment
app.queue("jobs", concurrency=500)
app.queue("tenants", partition_concurrency=1)
app.queue("later", concurrency=1)


@app.step
async def step(number: int) -> dict[str, int]:
    return {"number": number}


@app.step
def blocking_step(number: int) -> dict[str, int]:
    return {"number": number}


@app.transaction
def transaction(tx: Tx, number: int) -> int:
    del tx
    return number


@app.workflow
async def steps(count: int) -> int:
    for number in range(count):
        await step(number)
    return count


@app.workflow
def blocking_steps(count: int) -> int:
    for number in range(count):
        blocking_step(number)
    return count


@app.workflow
def transactions(count: int) -> int:
    for number in range(count):
        transaction(number)
    return count


@app.workflow
async def trivial(number: int) -> int:
    return number


async def _one_run() -> int:
    return await steps(400)


async def _one_blocking_run() -> int:
    return await blocking_steps.aio(400)


async def _round_trips() -> int:
    for _ in range(100):
        await steps(1)
    return 100


async def _at_once() -> int:
    return sum(await asyncio.gather(*(steps(5) for _ in range(1_000))))


async def _queued() -> int:
    handles = await app.start_many(trivial.bind(number) for number in range(2_000))
    return len(await asyncio.gather(*(handle.result() for handle in handles)))


async def _jobs() -> int:
    call = trivial.options(queue="jobs")
    handles = await app.start_many(call.bind(number) for number in range(5_000))
    return len(await asyncio.gather(*(handle.result() for handle in handles)))


async def _partitions() -> int:
    calls = [trivial.options(queue="tenants", partition=f"tenant {number}") for number in range(1_000)]
    handles = await app.start_many(call.bind(number) for number in range(3) for call in calls)
    return len(await asyncio.gather(*(handle.result() for handle in handles)))


async def _enqueue() -> int:
    call = trivial.options(queue="later", after="30d")
    return sum([len(await app.start_many(call.bind(number) for number in range(1_000))) for _ in range(5)])


async def _transactions() -> int:
    return await transactions.aio(200)


WORK: Final[dict[str, Callable[[], Awaitable[int]]]] = {
    "step, async run": _one_run,
    "step, def run": _one_blocking_run,
    "start + step + finish": _round_trips,
    "concurrent steps": _at_once,
    "queued runs": _queued,
    "jobs through a queue": _jobs,
    "jobs of 1,000 partitions": _partitions,
    "enqueue": _enqueue,
    "transaction, def run": _transactions,
}
"""Each does some units of work and returns how many."""


async def serve() -> None:
    loop = asyncio.get_running_loop()
    async with app:
        while what := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            used, begin = time.process_time(), time.perf_counter()
            units = await WORK[what]()
            took = {"wall": time.perf_counter() - begin, "worker": time.process_time() - used}
            print(json.dumps({"units": units} | {name: each / units * 1e6 for name, each in took.items()}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
