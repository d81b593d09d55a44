"""Delete what is no longer needed: runs that were kept long enough, and what they have left outside of the database.

Every worker deletes runs, in small batches. On PostgreSQL they skip rows that another worker has locked. A slow batch makes the next one
smaller, and after each batch the pruner pauses as long as its rows took. The round trip to the database does not count: a smaller
batch needs the same round trip.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND
from mainspring.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Alarm
    from mainspring.store.external.other_database import OtherDatabase
    from mainspring.store.verbs.prune import Keep

_POLL = 300.0
_FIRST = 300 * SECOND
"""How long a worker has been at work when it deletes runs for the first time."""
_MINUTE = 60_000_000
_MOST, _FEWEST = 500, 100
_LONG, _SHORT = 0.05, 0.02
"""Seconds. A batch that takes longer is too large, one that takes less could be larger."""


def next_batch(size: int, took: float) -> int:
    """Return how many runs to delete in the next batch, from the size of the last one and its duration in seconds."""
    if took > _LONG:
        return max(size // 2, _FEWEST)
    return min(size * 2, _MOST) if took < _SHORT else size


class Pruner(Service):
    """Woken when the first run may have been kept long enough. Skips the first round, so that a starting worker is not slowed down."""

    name = "pruner"
    background = True

    def __init__(self, engine: Engine, keep: Keep) -> None:
        super().__init__(engine, _POLL)
        self._keep = keep
        self._limit = _FEWEST
        self._wakes: Alarm | None = None

    def ended(self) -> None:
        """Set an alarm for when the run that just ended has been kept long enough."""
        if self._wakes is None and self._keep.shortest is not None:
            due = self.clock.now() + self._keep.shortest
            self._wakes = self.clock.call_at(due, self._loop, self._wake, background=True)

    def _wake(self) -> None:
        self._wakes = None
        self.kick()

    async def first_deleted(self) -> None:
        """Wait until all that is due now is deleted, if this worker has not deleted anything yet."""
        if self.rounds == 0:
            await self.next_round()
        if self.rounds == 1:
            await self.next_round()

    async def run_once(self, now: int) -> int | None:
        if self._keep.shortest is None:
            return None
        if self.rounds == 0:
            return now + _FIRST
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
                self.clock.busy()  # there are more runs to delete now
                try:
                    await asyncio.sleep(took)
                finally:
                    self.clock.idle()
            due = await in_thread(retention.due, self._keep, now)
        # Runs that end within one minute are deleted together.
        return None if due.next_due is None else max(due.next_due, now) + _MINUTE


log = logging.getLogger("mainspring.services")

_SWEEP_EVERY = 600.0
_DAY = 86_400 * SECOND


class Sweeper(Service):
    """Skips the first round, so that a starting worker is not slowed down. An unreachable database does not hold up the others."""

    name = "sweeper"
    background = True

    def __init__(self, engine: Engine, other_databases: Sequence[OtherDatabase]) -> None:
        super().__init__(engine, _SWEEP_EVERY)
        self._other_databases = other_databases
        self.sweep_values: Callable[[], int] | None = None
        """Deletes what a codec has stored outside of the database and no stored value names any more; None: there is no such codec."""

    async def run_once(self, now: int) -> int | None:
        if self.rounds > 0:
            await self.sweep()
            await self._sweep_values(now)
        return None

    async def _sweep_values(self, now: int) -> None:
        """Values outside of the database, once a day in the whole fleet: that reads every stored value."""
        if self.sweep_values is None or not await self._engine.in_thread(self._store.retention.begin_sweep, now, _DAY):
            return
        try:
            count = await self._engine.in_thread(self.sweep_values)
        except Exception as error:  # noqa: BLE001  (it is a user's own storage: the next day tries again)
            log.warning("could not delete offloaded values that no run needs; retrying in a day: %s", error)
        else:
            log.info("deleted %d offloaded values that no run needs", count)

    async def sweep(self) -> int:
        """Delete the outcomes that are no longer needed, and return how many rows."""
        count = 0
        for other in self._other_databases:
            try:
                count += await self._engine.in_thread(other.sweep, self._store.transactions)
            except Exception as error:  # noqa: BLE001  (a user's own database may raise anything; the next round retries)
                log.warning("could not delete old outcomes of transactions in %r; retrying later: %s", other, error)
        return count
