"""Forgotten what was kept long enough, a little at a time.

Every worker does so; on PostgreSQL they leave to each other what is locked. A batch whose rows take long makes the next one smaller, and
after each one as much time is left to others as its rows took. How far away the database is does not count: a smaller batch
needs the same round trip.
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
_MOST, _FEWEST = 500, 100
_LONG, _SHORT = 0.05, 0.02
"""Seconds: a batch whose rows take longer is too large, one whose rows take less could be larger."""


def next_batch(size: int, took: float) -> int:
    """How many runs to delete at once, after the rows of a batch of that size took so many seconds."""
    if took > _LONG:
        return max(size // 2, _FEWEST)
    return min(size * 2, _MOST) if took < _SHORT else size


class Pruner(Service):
    """Woken when the first run may have been kept long enough. The first look is not at once: a worker that starts has better to do."""

    name = "pruner"
    background = True

    def __init__(self, clock: Clock, *, store: Store, engine: Engine, keep: Keep) -> None:
        super().__init__(clock, _POLL)
        self._store = store
        self._engine = engine
        self._keep = keep
        self._limit = _FEWEST
        self._wakes: Alarm | None = None

    def ended(self) -> None:
        """A run has ended: some time from now there will be something to do."""
        if self._wakes is None and self._keep.shortest is not None:
            due = self.clock.now() + self._keep.shortest
            self._wakes = self.clock.call_at(due, self._loop, self._wake, background=True)

    def _wake(self) -> None:
        self._wakes = None
        self.kick()

    async def run_once(self, now: int) -> int | None:
        if self._keep.shortest is None or self.rounds == 0:
            return None
        retention, in_thread = self._store.retention, self._engine.in_thread
        due = await in_thread(retention.due, self._keep, now)
        if due.rules:
            round_trip = await in_thread(retention.round_trip)
            while self._engine.accepting:
                asked, begun = self._limit, self.clock.monotonic()
                pruned = await in_thread(retention.prune, due, asked)
                took = max(0.0, self.clock.monotonic() - begun - round_trip)
                self._limit = next_batch(asked, took)
                if pruned < asked:
                    break
                self.clock.busy()  # there is more to do now
                try:
                    await asyncio.sleep(took)
                finally:
                    self.clock.idle()
            due = await in_thread(retention.due, self._keep, now)
        # Not for each run by itself: those that end within a minute go together.
        return None if due.next_due is None else max(due.next_due, now) + _MINUTE
