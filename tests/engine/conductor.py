# pyright: reportPrivateUsage=false
"""Steps that end when a conductor says so, in an order that only depends on a seed.

A step asks for its cue and waits. When the whole world waits for nothing but cues, the conductor gives one of them: that which
comes first by a hash of the seed and its name. So a race has an outcome that differs from seed to seed and is the same whenever
it is run again, from the beginning or from the middle.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mainspring import App
    from mainspring.testing import VirtualClock

_QUIET_ROUNDS = 30


class Conductor:
    """Who is in the middle of a step, and how often each step was begun."""

    def __init__(self) -> None:
        self.seed = 0
        self.begun: Counter[str] = Counter()
        self._waiting: dict[str, asyncio.Future[None]] = {}

    async def cue(self, name: str) -> None:
        """Wait for one's turn. Names that begin with `never` have none."""
        self.begun[name] += 1
        self._waiting[name] = future = asyncio.get_running_loop().create_future()
        try:
            await future
        finally:
            if self._waiting.get(name) is future:
                del self._waiting[name]

    @contextlib.asynccontextmanager
    async def conducting(self, app: App) -> AsyncGenerator[None]:
        task = asyncio.get_running_loop().create_task(self._conduct(app))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _conduct(self, app: App) -> None:
        while True:
            await self._quiet(app)
            ready = [name for name in self._waiting if not name.startswith("never")]
            if ready:
                self._waiting.pop(min(ready, key=self._rank)).set_result(None)
            else:
                await asyncio.sleep(0.0005)

    async def _quiet(self, app: App) -> None:
        """Until nothing but steps that wait for their cue has been under way for a while."""
        quiet, changes = 0, -1
        while quiet < _QUIET_ROUNDS:
            clock = cast("VirtualClock", app._runtime.clock)
            same = clock._busy == len(self._waiting) and clock._changes == changes
            quiet, changes = (quiet + 1 if same else 0), clock._changes
            await asyncio.sleep(0)

    def _rank(self, name: str) -> str:
        return hashlib.sha256(f"{self.seed} {name}".encode()).hexdigest()
