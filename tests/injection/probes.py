"""Whether a worker that has come to rest has all its slots: as many runs as it may execute at once must be under way at once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring import App

CONCURRENCY = 4
"""Slots of a worker, and threads for `def` runs."""
PREFIX = "probe_"
_PATIENCE = 2


def make_probes(app: App, life: int) -> list[Any]:
    """Workflows that wait for each other: an `async def` one and a `def` one.

    Only this life knows them. A claim that is under way reserves slots, so a probe that is started meanwhile is stored as queued; after a takeover there is
    another worker, which would claim it, and the others would wait for it in vain although no slot is missing here.
    """
    there: dict[str, int] = {}
    full = asyncio.Event()
    filled = threading.Event()

    def count(group: str) -> bool:
        there[group] = there.get(group, 0) + 1
        return there[group] == CONCURRENCY

    @app.workflow(name=f"{PREFIX}async_{life}")
    async def probe_async(group: str) -> bool:
        if count(group):
            full.set()
        try:
            async with asyncio.timeout(_PATIENCE):
                await full.wait()
        except TimeoutError:
            return False
        return True

    @app.workflow(name=f"{PREFIX}blocking_{life}")
    def probe_blocking(group: str) -> bool:
        if count(group):
            filled.set()
        return filled.wait(_PATIENCE)

    return [probe_async, probe_blocking]


async def missing_slots(probes: list[Any]) -> list[str]:
    """Start as many of each as there are slots. What is wrong if some of them had to wait for others to end."""
    found: list[str] = []
    for probe in probes:
        ids = [f"{probe.name}-{number}" for number in range(CONCURRENCY)]
        handles = [await probe.options(id=run_id).start(probe.name) for run_id in ids]
        done = await asyncio.gather(*(handle.result() for handle in handles))
        if not all(done):
            found.append(f"slots: {done.count(False)} of {CONCURRENCY} {probe.name} runs had none to be executed in")
    return found
