"""Fetch the notices of runs that this worker owns: cancelled, terminated, or a wait that can end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.engine.residency.phases import Phase
from mainspring.model.states import State
from mainspring.services.service import Service
from mainspring.store.changes import Notice

if TYPE_CHECKING:
    from mainspring.engine.engine import Engine


_LATEST_LOOK = 120.0
"""Seconds after a lost connection during which the worker looks for late commits of the server."""


class Inbox(Service):
    """Kicked by notifications of the store. The poll covers lost notifications."""

    name = "inbox"

    def __init__(self, engine: Engine, poll: float) -> None:
        super().__init__(engine, poll)
        self._unattended: list[Notice] = []
        self._missed = False
        """Whether a response was lost, and with it perhaps notices."""
        self._broke = 0.0
        self._later = _LATEST_LOOK

    def missed(self) -> None:
        """Look for notices whose notification may have been lost.

        A server may notice late that its client is gone, and commit an earlier request after that. So there are further looks, each after
        twice the interval.
        """
        self._missed = True
        self._broke, self._later = self.clock.monotonic(), self.poll
        self.kick()

    def _may_look_again(self) -> bool:
        if self._later >= _LATEST_LOOK or self.clock.monotonic() - self._broke < self._later:
            return False
        self._later *= 2
        return True

    async def run_once(self, now: int) -> int | None:
        del now
        if self._engine.executions:
            if self._may_look_again() or self._missed:
                self._unattended += await self._all_owned()
                self._missed = False
            # The store returns each notice once. If handling them fails, they are kept for the next round.
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

    async def _all_owned(self) -> list[Notice]:
        """Return the state of all runs of this worker as notices.

        A suspended run that is not found is no longer owned by this worker. Other runs find that out by their next write.
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
