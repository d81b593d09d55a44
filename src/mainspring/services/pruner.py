"""Forgetting what was kept long enough, a little at a time.

Every worker does so; on PostgreSQL they leave to each other what is locked. A batch that takes long makes the next one smaller,
and after each one as much time is left to others as it took.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mainspring.services.service import Service

if TYPE_CHECKING:
    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Alarm, Clock
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.prune import Keep

_POLL = 300.0
_MINUTE = 60_000_000
_MOST, _FEWEST = 500, 5
_LONG, _SHORT = 0.05, 0.01
"""Seconds: a batch that takes longer is too large, one that takes less could be larger."""


class Pruner(Service):
    """Woken when the first run may have been kept long enough. The first look is not at once: a worker that starts has better to do."""

    name = "pruner"
    chore = True

    def __init__(self, clock: Clock, *, store: Store, engine: Engine, keep: Keep) -> None:
        super().__init__(clock, _POLL)
        self._store = store
        self._engine = engine
        self._keep = keep
        self._limit = 100
        self._wakes: Alarm | None = None

    def ended(self) -> None:
        """A run has ended: some time from now there will be something to do."""
        if self._wakes is None and self._keep.shortest is not None:
            due = self.clock.now() + self._keep.shortest
            self._wakes = self.clock.call_at(due, self._loop, self._wake, chore=True)

    def _wake(self) -> None:
        self._wakes = None
        self.kick()

    async def run_once(self, now: int) -> int | None:
        if self._keep.shortest is None or self.rounds == 0:
            return None
        next_due: int | None = None
        while self._engine.accepting:
            asked, begun = self._limit, self.clock.monotonic()
            pruned = await self._engine.in_thread(self._store.retention.prune, self._keep, now, asked)
            took = self.clock.monotonic() - begun
            self._limit = (
                max(asked // 2, _FEWEST) if took > _LONG else min(asked * 2, _MOST) if took < _SHORT else asked
            )
            next_due = pruned.next_due
            if pruned.runs < asked:
                break
            self.clock.busy()  # there is more to do now
            try:
                await asyncio.sleep(took)
            finally:
                self.clock.idle()
        # Not for each run by itself: those that end within a minute go together.
        return None if next_due is None else max(next_due, now) + _MINUTE
