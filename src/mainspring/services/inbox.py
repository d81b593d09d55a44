"""Reads what happened from outside to runs that this worker owns: cancelled, terminated, or something they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.engine.residency.phases import Phase
from mainspring.model.states import State
from mainspring.services.service import Service
from mainspring.store.changes import Notice

if TYPE_CHECKING:
    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store


_LATEST_LOOK = 120.0
"""How long after a line broke there is still a look at what the server may have done since, in seconds."""


class Attendant(Service):
    """Kicked by the store's wake-ups; the poll is for one that got lost."""

    name = "attendant"

    def __init__(self, clock: Clock, poll: float, *, store: Store, engine: Engine) -> None:
        super().__init__(clock, poll)
        self._store = store
        self._engine = engine
        self._unattended: list[Notice] = []
        self._missed = False
        """An answer was lost, and with it perhaps what had happened."""
        self._broke = 0.0
        self._later = _LATEST_LOOK

    def missed(self) -> None:
        """Runs of this worker may have messages of which no notification arrived.

        Or is about to be: a server finds out late that its client is gone, and commits what it was asked for before.
        So there are further looks, the next one at twice the distance.
        """
        self._missed = True
        self._broke, self._later = self.clock.monotonic(), self.poll
        self.kick()

    def _once_more(self) -> bool:
        if self._later >= _LATEST_LOOK or self.clock.monotonic() - self._broke < self._later:
            return False
        self._later *= 2
        return True

    async def run_once(self, now: int) -> int | None:
        del now
        if self._engine.executions:
            if self._once_more() or self._missed:
                self._unattended += await self._everything()
                self._missed = False
            # The store tells each of them once; if attending to them fails, they are still to be attended to.
            self._unattended += await self._notices()
            await self._engine.attend(self._unattended)
            self._unattended = []
        return None

    async def _notices(self) -> list[Notice]:
        try:
            found: list[Notice] = await self._engine.in_thread(self._store.notices, self._engine.worker_id)
        except Exception:
            self._missed = True
            raise
        return found

    async def _everything(self) -> list[Notice]:
        """How all runs of this worker stand, as if something had happened to all of them. One that is suspended and is not found is
        no longer this worker's.

        One that is not suspended finds that out by itself, with its next write.
        """
        engine = self._engine
        suspended = [ex for ex in engine.executions.values() if ex.phase is Phase.WAITING]
        owned: list[Notice] = await engine.in_thread(self._store.owned, engine.worker_id)
        there = {notice.run for notice in owned}
        gone = [
            Notice(ex.id, -1, State.CANCELLED, None)
            for ex in suspended
            if ex.id not in there and ex.phase is Phase.WAITING
        ]
        return owned + gone
