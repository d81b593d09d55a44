"""Compares the runs that the database says this worker owns with those it has.

A claim that commits while its answer gets lost leaves runs owned by a worker that does not know of them, and as long as it
lives no other worker recovers them. So after a claim that failed, and now and then besides, the worker compares.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainspring.model.runs import Claim
from mainspring.model.states import State

if TYPE_CHECKING:
    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Clock
    from mainspring.store.changes import Notice
    from mainspring.store.protocol import Store

log = logging.getLogger("mainspring.services")

_EVERY = 60.0
"""Seconds. A commit can also come after its line was lost, later than any look that is taken because of that."""


class Stock:
    """Finds runs that got lost in this worker's hand, and sets them off."""

    def __init__(self, clock: Clock, *, store: Store, engine: Engine) -> None:
        self._clock = clock
        self._store = store
        self._engine = engine
        self._next = clock.monotonic() + _EVERY

    def doubt(self) -> None:
        """A claim may have committed whose answer was lost."""
        self._next = self._clock.monotonic()

    async def take(self) -> None:
        """Launch what is owned and not known, if it is time to look. Not while a claim is under way."""
        if self._clock.monotonic() < self._next:
            return
        engine = self._engine
        known = self._known()
        owned: list[Notice] = await engine.in_thread(self._store.owned, engine.worker_id)
        known |= self._known()  # what began meanwhile; what ended meanwhile is in the first half
        strays = [notice for notice in owned if notice.run not in known and not notice.state.ended]
        if strays:
            log.warning("recovered %d runs owned by this worker whose claim response was lost", len(strays))
            engine.take(await engine.in_thread(self._claims, strays))
            await engine.attend([notice for notice in strays if notice.state is State.CANCELLING])
        self._next = self._clock.monotonic() + _EVERY

    def _known(self) -> set[str]:
        return {*self._engine.executions, *self._engine.local_starts.ids, *self._engine.given_up}

    def _claims(self, strays: list[Notice]) -> list[Claim]:
        """The runs with what they have recorded, as far as they are still this worker's."""
        claims: list[Claim] = []
        for notice in strays:
            run = self._store.run(notice.run)
            if run is not None and (run.owner, run.epoch) == (self._engine.worker_id, notice.epoch):
                claims.append(Claim(run, self._store.steps(run.id)))
        return claims
