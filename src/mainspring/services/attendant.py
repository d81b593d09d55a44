"""Noticing what happens from outside to runs that this worker has in hand: cancelled, terminated, or something they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.services.service import Service

if TYPE_CHECKING:
    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Poke, Store


class Attendant(Service):
    """Kicked by the store's wake-ups; the poll is for one that got lost."""

    name = "attendant"

    def __init__(self, clock: Clock, poll: float, *, store: Store, engine: Engine) -> None:
        super().__init__(clock, poll)
        self._store = store
        self._engine = engine
        self._unattended: list[Poke] = []

    async def run_once(self, now: int) -> int | None:
        del now
        if self._engine.executions:
            # The store tells each of them once; if attending to them fails, they are still to be attended to.
            self._unattended += await self._engine.in_thread(self._store.pokes, self._engine.worker_id)
            await self._engine.attend(self._unattended)
            self._unattended = []
        return None
