"""An event loop on a thread, for blocking code."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.engine.replay.branches import ours

if TYPE_CHECKING:
    from collections.abc import Coroutine

R = TypeVar("R")


@ours
async def bridged(work: Coroutine[Any, Any, R]) -> R:
    """Await `work` on behalf of a thread that blocks on it."""
    return await work


class Portal:
    """A loop that runs on a thread of its own until it is closed."""

    def __init__(self) -> None:
        ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            ready.set()
            await self._stop.wait()

        self._thread = threading.Thread(target=asyncio.run, args=(serve(),), name="mainspring-loop", daemon=True)
        self._thread.start()
        ready.wait()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop and block until it is done."""
        return asyncio.run_coroutine_threadsafe(bridged(work), self.loop).result()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
