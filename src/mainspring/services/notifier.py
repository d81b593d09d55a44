"""Report the ends of unowned runs. One of the workers with listeners reports each end, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND
from mainspring.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.engine.engine import Engine
    from mainspring.store.verbs.unreported_ends import UnreportedEnd

_AT_ONCE = 500
_STALE = 86_400 * SECOND
"""Ends that are older, from a time without listeners, are not reported."""


class Notifier(Service):
    """Kicked by notifications of the store. `wanted` returns whether this worker has listeners. If not, other workers may have some."""

    name = "notifier"

    def __init__(
        self,
        engine: Engine,
        poll: float,
        *,
        wanted: Callable[[], bool],
        report: Callable[[UnreportedEnd], None],
        count: Callable[[UnreportedEnd], None],
    ) -> None:
        super().__init__(engine, poll)
        self._wanted = wanted
        self._report = report
        self._count = count

    async def run_once(self, now: int) -> int | None:
        while self._wanted():
            found = await self._engine.in_thread(self._store.unreported_ends.take, now, _AT_ONCE)
            for each in found:
                self._count(each)
                if each.completed > now - _STALE:
                    self._report(each)
            if len(found) < _AT_ONCE:
                break
        return None
