"""Mainspring's side of each section.

A section is a function of a `Target` that yields `Figure("mainspring", what, target.kind, …)`; `what` is spelled as in
`bench/dbos_peer.py` and in the budgets of `bench/run.py`, so that the figures find each other:

| section    | what it yields                    | of what                                                  |
|------------|-----------------------------------|----------------------------------------------------------|
| footprint  | import, memory                    | `import mainspring`; a trivial app after its first run   |
| sequential | step, async run · step, def run   | ms per step of one run of 500 steps                      |
| roundtrip  | start + step + finish             | ms, p50, one after the other                             |
| concurrent | concurrent steps                  | steps per second, 1,000 runs x 5 async steps             |
| queued     | queued runs · enqueue             | runs per second, 2,000 trivial runs, started before the worker |
| recovery   | recovery of 500 runs              | ms, from start until the last interrupted one has finished |
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from bench.bare import writers
from bench.harness import PROJECT, Figure, Measure, Target, as_installed, median_of_three
from mainspring import App

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator

T = TypeVar("T")
STEPS = 500
WARM_UP = 2 * STEPS
"""Commits after which they are not made to a file that grows with each of them: SQLite's log is a thousand pages by then, and reused."""
TURNS = 5
TRIPS = 50
RUNS = 1_000
QUEUED = 2_000
INTERRUPTED = 500


class Bench:
    """An app like the one that the peer measures."""

    def __init__(self, url: str) -> None:  # noqa: C901  (a list of functions, not a function)
        self.app = app = App(url, version="bench")
        self.hold: int | None = None
        """How many runs are to come to their second step before this process ends."""

        @app.step
        async def step(number: int) -> dict[str, int]:
            return {"number": number}

        @app.step
        def blocking_step(number: int) -> dict[str, int]:
            return {"number": number}

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
        async def trivial(number: int) -> int:
            return number

        @app.step
        async def second_step(number: int) -> int:
            if self.hold is not None:
                self.hold -= 1
                if self.hold == 0:
                    os._exit(0)
                await asyncio.Event().wait()
            return number

        @app.workflow
        async def two_steps(number: int) -> int:
            await step(number)
            return await second_step(number)

        self.steps, self.blocking_steps, self.trivial, self.two_steps = steps, blocking_steps, trivial, two_steps

    def timed(self, work: Callable[[Bench], Coroutine[Any, Any, T]]) -> T:
        async def entered() -> T:
            async with self.app:
                return await work(self)

        return asyncio.run(entered())


def sequential(target: Target) -> Iterator[Figure]:
    async def work(bench: Bench) -> dict[str, float]:
        runs: dict[str, Callable[[int], Coroutine[Any, Any, int]]] = {
            "step, async run": bench.steps,
            "step, def run": bench.blocking_steps.aio,
        }
        for run in runs.values():
            await run(WARM_UP)
        times: dict[str, list[float]] = {}
        for _ in range(TURNS):
            begin = time.perf_counter()
            for _ in range(STEPS):
                commit()
            times.setdefault("commit", []).append(time.perf_counter() - begin)
            for name, run in runs.items():
                begin = time.perf_counter()
                await run(STEPS)
                times.setdefault(name, []).append(time.perf_counter() - begin)
        return {name: statistics.median(took) / STEPS * 1e3 for name, took in times.items()}

    with bare_commits(target) as commit:
        found = Bench(target.fresh()).timed(work)
    bare = found.pop("commit")
    yield Figure("bare", "commit, beside steps", target.kind, bare, "ms", f"mean of {STEPS}, in turns with the steps")
    for name, took in found.items():
        yield Figure("mainspring", name, target.kind, took, "ms", f"one run of {STEPS} steps")


def roundtrip(target: Target) -> Iterator[Figure]:
    async def work(bench: Bench) -> tuple[float, float]:
        await bench.steps(WARM_UP)
        own, bare = list[float](), list[float]()
        for _ in range(TURNS):
            for _ in range(TRIPS):
                begin = time.perf_counter()
                commit()
                bare.append(time.perf_counter() - begin)
            for _ in range(TRIPS):
                begin = time.perf_counter()
                await bench.steps(1)
                own.append(time.perf_counter() - begin)
        return statistics.median(own) * 1e3, statistics.median(bare) * 1e3

    with bare_commits(target) as commit:
        own, bare = Bench(target.fresh()).timed(work)
    yield Figure("bare", "commit, beside runs", target.kind, bare, "ms", "one row, p50, in turns with the runs")
    yield Figure("mainspring", "start + step + finish", target.kind, own, "ms", f"p50 of {TURNS * TRIPS}")


@contextmanager
def bare_commits(target: Target) -> Generator[Callable[[], object], None, None]:
    """What makes a bare commit. It takes turns with ours: how long the disk takes differs more from minute to minute than they do."""
    commit, _, close = writers(target)
    try:
        for _ in range(WARM_UP):
            commit()
        yield commit
    finally:
        close()


def concurrent(target: Target) -> Iterator[Figure]:
    async def work(bench: Bench) -> float:
        await bench.steps(5)
        begin = time.perf_counter()
        await asyncio.gather(*(bench.steps(5) for _ in range(RUNS)))
        return RUNS * 5 / (time.perf_counter() - begin)

    rate = median_of_three(lambda: Bench(target.fresh()).timed(work))
    yield Figure("mainspring", "concurrent steps", target.kind, rate, "/s", f"{RUNS:,} runs x 5 steps")


def queued(target: Target) -> Iterator[Figure]:
    async def through(bench: Bench) -> tuple[float, float]:
        await bench.app._runtime.connected()  # the peer has its tables by now, too
        begin = time.perf_counter()
        handles = await bench.app.start_many(bench.trivial.bind(number) for number in range(QUEUED))
        enqueued = time.perf_counter() - begin
        async with bench.app:
            await asyncio.gather(*(handle.result() for handle in handles))
            return enqueued, time.perf_counter() - begin

    enqueued, took = sorted((asyncio.run(through(Bench(target.fresh()))) for _ in range(3)), key=lambda each: each[1])[
        1
    ]
    note = f"{QUEUED:,} trivial runs"
    yield Figure(
        "mainspring", "queued runs", target.kind, QUEUED / took, "/s", f"{note}, first enqueued to last finished"
    )
    yield Figure("mainspring", "enqueue", target.kind, QUEUED / enqueued, "/s", f"{note}, one start_many")


def recovery(target: Target) -> Iterator[Figure]:
    async def recovered(bench: Bench) -> float:
        begin = time.perf_counter()
        async with bench.app:
            store = bench.app._runtime.connection().store
            while store.counts():  # noqa: ASYNC110  (what the peer does, at the same pace)
                await asyncio.sleep(0.02)
            return (time.perf_counter() - begin) * 1e3

    url = target.fresh()
    subprocess.run([sys.executable, "-m", "bench.core", url], check=False, cwd=PROJECT)
    took = asyncio.run(recovered(Bench(url)))
    yield Figure(
        "mainspring", "recovery of 500 runs", target.kind, took, "ms", "from launch until the last has finished"
    )


async def interrupt(bench: Bench) -> None:
    """Start runs, and end this process once each of them has recorded its first step."""
    bench.hold = INTERRUPTED
    async with bench.app:
        await asyncio.gather(*(bench.two_steps(number) for number in range(INTERRUPTED)))


def footprint(target: Target) -> Iterator[Figure]:
    program = "import time; t = time.perf_counter(); import mainspring; print(time.perf_counter() - t)"
    times = [_printed(program) for _ in range(6)][1:]
    took = statistics.median(times)
    yield Figure("mainspring", "import", "-", took * 1e3, "ms", "warm, median of 5")
    url = target.fresh()
    memory = _printed(_TRIVIAL, url)
    yield Figure("mainspring", "memory", target.kind, memory, "MB", "a trivial app after its first run")


def _printed(program: str, *args: str) -> float:
    """The number that a program prints, in a process of its own."""
    command = [sys.executable, "-c", program, *args]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=PROJECT, env=as_installed())
    return float(done.stdout)


_TRIVIAL = """
import asyncio, sys
from pathlib import Path
from mainspring import App

app = App(sys.argv[1])

@app.step
async def step(number: int) -> int:
    return number

@app.workflow
async def trivial(number: int) -> int:
    return await step(number)

async def main():
    async with app:
        await trivial(1)
        status = Path("/proc/self/status").read_text()
        print(int(status.split("VmRSS:")[1].split()[0]) / 1024)

asyncio.run(main())
"""

SECTIONS: dict[str, Measure] = {
    "footprint": footprint,
    "sequential": sequential,
    "roundtrip": roundtrip,
    "concurrent": concurrent,
    "queued": queued,
    "recovery": recovery,
}

if __name__ == "__main__":
    asyncio.run(interrupt(Bench(sys.argv[1])))
