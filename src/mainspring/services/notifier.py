"""Reports the ends of runs that had no owner: one of the workers that have listeners reports each, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND
from mainspring.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.unnotified import UnreportedEnd

_AT_ONCE = 500
_STALE = 86_400 * SECOND
"""What ended longer ago, while there were no listeners, is not reported."""


class Teller(Service):
    """Kicked by the store's wake-ups. `wanted` says whether there are listeners here: if not, other workers may have some."""

    name = "teller"

    def __init__(
        self,
        clock: Clock,
        poll: float,
        *,
        store: Store,
        engine: Engine,
        wanted: Callable[[], bool],
        tell: Callable[[UnreportedEnd], None],
        count: Callable[[UnreportedEnd], None],
    ) -> None:
        super().__init__(clock, poll)
        self._store = store
        self._engine = engine
        self._wanted = wanted
        self._tell = tell
        self._count = count

    async def run_once(self, now: int) -> int | None:
        while self._wanted():
            found = await self._engine.in_thread(self._store.telling.take, now, _AT_ONCE)
            for each in found:
                self._count(each)
                if each.completed > now - _STALE:
                    self._tell(each)
            if len(found) < _AT_ONCE:
                break
        return None
