"""How long it takes from `send` to the line after `receive`, in one process and between two stores: `python -m bench.messages URL`.

Both ends commit on the way (the message, then that it was received), so two commits of the database are part of it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from bench.harness import Figure
from mainspring import App, Client, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Target

ROUNDS = 100
_arrived: dict[int, float] = {}


def make(url: str, woken: asyncio.Event) -> App:
    app = App(url)

    @app.workflow(name="listener")
    async def listener(count: int) -> None:
        for _ in range(count):
            number: int = await run.receive("t")
            _arrived[number] = time.perf_counter()
            woken.set()

    return app


def messages(target: Target) -> Iterator[Figure]:
    """For `bench.run`: half of the messages take no longer than this."""
    here, there = asyncio.run(measured(target.fresh()))
    yield Figure(
        "mainspring", "message, same process", target.kind, here[0], "ms", "send to the line after receive, p50"
    )
    yield Figure(
        "mainspring", "message from elsewhere", target.kind, there[0], "ms", "over a connection of its own, p50"
    )


async def main(url: str) -> None:
    kind = url.partition(":")[0]
    found = await measured(url)
    for (half, most), where in zip(found, ("the app itself", "a client with a connection of its own"), strict=True):
        name = f"{kind}, sent by {where}"
        print(f"{name:<56} p50 {half:6.2f} ms   p99 {most:6.2f} ms")


async def measured(url: str) -> list[tuple[float, float]]:
    """p50 and p99 of messages that the app itself sends, and of those that a client does."""
    woken = asyncio.Event()
    app = make(url, woken)
    found: list[tuple[float, float]] = []
    async with app, Client(url) as other:
        for speaker in (app, other):
            started = await other.start("listener", ROUNDS)
            await asyncio.sleep(0.2)
            found.append(await rounds(started.id, speaker, woken))
            await started.result(timeout=30)
    return found


async def rounds(run_id: str, speaker: App | Client, woken: asyncio.Event) -> tuple[float, float]:
    took: list[float] = []
    for number in range(ROUNDS):
        await asyncio.sleep(0.005)  # until it waits again: a message that is there already wakes nobody
        begun = time.perf_counter()
        await speaker.send(run_id, "t", number)
        await woken.wait()
        woken.clear()
        took.append((_arrived[number] - begun) * 1000)
    _arrived.clear()
    took.sort()
    return statistics.median(took), took[int(ROUNDS * 0.99)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/bench.db"))
