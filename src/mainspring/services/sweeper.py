"""Delete, in other databases, the recorded outcomes of transactions that no run needs any more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainspring.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Clock
    from mainspring.store.external.other_database import Elsewhere
    from mainspring.store.protocol import Store

log = logging.getLogger("mainspring.services")

_POLL = 600.0


class Sweeper(Service):
    """Skips the first round, so that a starting worker is not slowed down. An unreachable database does not hold up the others."""

    name = "sweeper"
    background = True

    def __init__(self, clock: Clock, *, store: Store, engine: Engine, places: Sequence[Elsewhere]) -> None:
        super().__init__(clock, _POLL)
        self._store = store
        self._engine = engine
        self._places = places

    async def run_once(self, now: int) -> int | None:
        del now
        if self.rounds > 0:
            await self.sweep()
        return None

    async def sweep(self) -> int:
        """Delete the outcomes that are no longer needed, and return how many rows."""
        count = 0
        for place in self._places:
            try:
                count += await self._engine.in_thread(place.sweep, self._store.transactions)
            except Exception as error:  # noqa: BLE001  (a user's own database may raise anything; the next round retries)
                log.warning("outcomes of transactions in %r could not be deleted, retrying later: %s", place, error)
        return count
