"""How long it takes from `send` to the line after `receive`, in one process and between two stores: `python -m bench.messages URL`.

Both ends commit on the way (the message, then that it was received), so two commits of the database are part of it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time

from mainspring import App, Client, run

ROUNDS = 100
_heard: dict[int, float] = {}
_woken = asyncio.Event()


def make(url: str) -> App:
    app = App(url)

    @app.workflow(name="listener")
    async def listener(count: int) -> None:
        for _ in range(count):
            number: int = await run.receive("t")
            _heard[number] = time.perf_counter()
            _woken.set()

    return app


async def main(url: str) -> None:
    app = make(url)
    async with app, Client(url) as other:
        kind = url.partition(":")[0]
        for speaker, where in ((app, "the app itself"), (other, "a client with a connection of its own")):
            started = await other.start("listener", ROUNDS)
            await asyncio.sleep(0.2)
            await rounds(started.id, speaker, f"{kind}, sent by {where}")
            await started.result(timeout=30)


async def rounds(run_id: str, speaker: App | Client, name: str) -> None:
    took: list[float] = []
    for number in range(ROUNDS):
        await asyncio.sleep(0.005)  # until it waits again: a message that is there already wakes nobody
        begun = time.perf_counter()
        await speaker.send(run_id, "t", number)
        await _woken.wait()
        _woken.clear()
        took.append((_heard[number] - begun) * 1000)
    _heard.clear()
    took.sort()
    print(f"{name:<56} p50 {statistics.median(took):6.2f} ms   p99 {took[int(ROUNDS * 0.99)]:6.2f} ms")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/bench.db"))
