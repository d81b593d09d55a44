"""Many runs asleep in one worker: what they cost in memory, threads and time, and how punctually they wake.

    python -m bench.sleepers                             20,000 runs on SQLite
    python -m bench.sleepers --runs 200000 --url postgresql:///bench

The runs are enqueued by a process of its own, so that the figures are the worker's alone. Their times to wake are spread evenly over a
period that begins when the worker has had time to put them all to sleep.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from bench.harness import PROJECT, console
from mainspring import App, run

_CHUNK: Final = 10_000


class Sleepers:
    """An app with one workflow, which sleeps until it is told to wake and notes how late it was."""

    def __init__(self, url: str) -> None:
        self.app = App(url, version="bench")
        self.late: list[float] = []

        @self.app.workflow
        async def sleeper(wake: float) -> None:
            await run.sleep_until(datetime.fromtimestamp(wake, UTC))
            self.late.append(time.time() - wake)

        self.sleeper = sleeper

    async def enqueue(self, count: int, first: float, spread: float) -> None:
        for begin in range(0, count, _CHUNK):
            numbers = range(begin, min(begin + _CHUNK, count))
            await self.app.start_many(self.sleeper.bind(first + spread * number / count) for number in numbers)

    async def work(self, count: int) -> None:
        began = time.perf_counter()
        async with self.app:
            store = self.app._runtime.connection().store
            told = asleep = False
            while len(self.late) < count:
                await asyncio.sleep(1)
                counts = store.counts()
                asleep = asleep or counts.get("waiting", 0) + len(self.late) == count
                if asleep and not told:
                    told = True
                    console().print(
                        f"asleep after {time.perf_counter() - began:.0f} s, {len(self.late):,} awake already: "
                        f"{_megabytes():.0f} MB, {_threads()} threads"
                    )
            late = sorted(self.late)
            console().print(
                f"all awake: late by {late[len(late) // 2] * 1e3:.0f} ms (p50), {late[len(late) * 99 // 100] * 1e3:.0f} ms (p99), "
                f"{late[-1] * 1e3:.0f} ms at most; {_megabytes():.0f} MB"
            )


def _megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@click.command(help=__doc__)
@click.option("--runs", default=20_000, show_default=True)
@click.option("--url", default=None, help="Default: a SQLite file of its own.")
@click.option("--settle", default=30.0, show_default=True, help="Seconds until the first wakes.")
@click.option("--spread", default=30.0, show_default=True, help="Seconds from the first to the last that wakes.")
@click.option("--enqueue", type=float, default=None, hidden=True)
def main(runs: int, url: str | None, settle: float, spread: float, enqueue: float | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = url or f"sqlite:///{folder}/sleepers.db"
        if enqueue is not None:
            asyncio.run(Sleepers(url).enqueue(runs, enqueue, spread))
            return
        first = time.time() + settle
        command = [sys.executable, "-m", "bench.sleepers", "--url", url, "--runs", str(runs)]
        began = time.perf_counter()
        subprocess.run([*command, "--spread", str(spread), "--enqueue", str(first)], check=True, cwd=PROJECT)
        console().print(f"{runs:,} enqueued in {time.perf_counter() - began:.1f} s; before: {_megabytes():.0f} MB")
        asyncio.run(Sleepers(url).work(runs))


if __name__ == "__main__":
    main()
