"""Compare the runs that this worker owns in the database with those in its memory.

A claim whose commit succeeds while its response is lost leaves runs owned by a worker that does not know of them. No other worker
recovers them while it lives. So the worker compares after a failed claim, and regularly.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainspring.model.runs import Claim
from mainspring.model.states import State

if TYPE_CHECKING:
    from mainspring.engine.engine import Engine
    from mainspring.store.changes import Notice

log = logging.getLogger("mainspring.services")

_EVERY = 60.0
"""Seconds. A server can also commit long after its connection was lost, later than the looks that follow the loss."""


class Reconciler:
    """Finds runs that this worker owns without knowing, and starts them."""

    def __init__(self, engine: Engine) -> None:
        self._clock = engine.clock
        self._store = engine.store
        self._engine = engine
        self._next = engine.clock.monotonic() + _EVERY

    def compare_soon(self) -> None:
        """Compare at the next call of `take`, because a claim may have committed whose response was lost."""
        self._next = self._clock.monotonic()

    async def take(self) -> None:
        """Start the runs that are owned and unknown, if a comparison is due. Must not be called during a claim."""
        if self._clock.monotonic() < self._next:
            return
        engine = self._engine
        known = self._known()
        owned: list[Notice] = await engine.in_thread(self._store.owned, engine.worker_id)
        known |= self._known()  # runs that began during the query; those that ended are in the first set
        unknown = [notice for notice in owned if notice.run not in known and not notice.state.ended]
        if unknown:
            log.warning("recovered %d runs owned by this worker whose claim response was lost", len(unknown))
            engine.take(await engine.in_thread(self._claims, unknown))
            await engine.attend([notice for notice in unknown if notice.state is State.CANCELLING])
        self._next = self._clock.monotonic() + _EVERY

    def _known(self) -> set[str]:
        return {*self._engine.executions, *self._engine.local_starts.ids, *self._engine.given_up}

    def _claims(self, unknown: list[Notice]) -> list[Claim]:
        """Return the runs that this worker still owns, with their recorded operations."""
        claims: list[Claim] = []
        for notice in unknown:
            run = self._store.run(notice.run)
            if run is not None and (run.owner, run.epoch) == (self._engine.worker_id, notice.epoch):
                claims.append(Claim(run, self._store.steps(run.id)))
        return claims
