"""Delete, in other databases, the recorded outcomes of transactions that no run needs any more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND
from mainspring.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.engine.engine import Engine
    from mainspring.store.external.other_database import OtherDatabase

log = logging.getLogger("mainspring.services")

_POLL = 600.0
_DAY = 86_400 * SECOND


class Sweeper(Service):
    """Skips the first round, so that a starting worker is not slowed down. An unreachable database does not hold up the others."""

    name = "sweeper"
    background = True

    def __init__(self, engine: Engine, other_databases: Sequence[OtherDatabase]) -> None:
        super().__init__(engine, _POLL)
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
            log.warning("values outside of the database that no run needs could not be deleted: %s", error)
        else:
            log.info("%d values outside of the database that no run needs were deleted", count)

    async def sweep(self) -> int:
        """Delete the outcomes that are no longer needed, and return how many rows."""
        count = 0
        for other in self._other_databases:
            try:
                count += await self._engine.in_thread(other.sweep, self._store.transactions)
            except Exception as error:  # noqa: BLE001  (a user's own database may raise anything; the next round retries)
                log.warning("outcomes of transactions in %r could not be deleted, retrying later: %s", other, error)
        return count
