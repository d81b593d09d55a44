"""Report to listeners what no run of this worker did: the ends of unowned runs, and changes of queues and schedules.

One of the workers with listeners reports each end, once. Changes are reported in each worker with listeners for them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND
from mainspring.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.engine.engine import Engine
    from mainspring.model.queues import Queue
    from mainspring.store.schedules import Revision
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


_MANY = 1_000
_PAUSE = 1.0
"""Seconds between two comparisons of many schedules, which take long."""


class DefinitionWatch(Service):
    """Kicked by notifications of the store. Compares definitions with those of the last round, so two quick changes count as one."""

    name = "definition watch"

    def __init__(
        self,
        engine: Engine,
        poll: float,
        *,
        wants: Callable[[str], bool],
        tell_queue: Callable[[str, str], None],
        tell_schedule: Callable[[str, str, str], None],
    ) -> None:
        super().__init__(engine, poll)
        self._wants = wants
        self._tell_queue = tell_queue
        self._tell_schedule = tell_schedule
        self._queues: dict[str, Queue] | None = None
        self._schedules: dict[str, Revision] | None = None

    async def run_once(self, now: int) -> int | None:
        del now
        self._queues = await self._look_at_queues() if self._wants("queue") else None
        self._schedules = await self._look_at_schedules() if self._wants("schedule") else None
        if self._schedules is not None and len(self._schedules) > _MANY:
            await asyncio.sleep(_PAUSE)
        return None

    async def _look_at_queues(self) -> dict[str, Queue]:
        found = {queue.name: queue for queue in await self._engine.in_thread(self._store.queues.all)}
        for name in [] if self._queues is None else sorted({*self._queues, *found}):
            before, after = (self._queues or {}).get(name), found.get(name)
            if what := _change_of_queue(before, after):
                self._tell_queue(what, name)
        return found

    async def _look_at_schedules(self) -> dict[str, Revision]:
        found: dict[str, Revision] = await self._engine.in_thread(self._store.schedules.revisions)
        for name in [] if self._schedules is None else sorted({*self._schedules, *found}):
            before, after = (self._schedules or {}).get(name), found.get(name)
            if what := _change_of_schedule(before, after):
                self._tell_schedule(what, name, (after or before).workflow)  # type: ignore[union-attr]
        return found


def _change_of_queue(before: Queue | None, after: Queue | None) -> str | None:
    if before is None or after is None:
        return "created" if before is None else "deleted"
    if before.paused != after.paused:
        return "paused" if after.paused else "resumed"
    settings = [(each.limits, each.retry, each.exceptions) for each in (before, after)]
    return "changed" if settings[0] != settings[1] else None


def _change_of_schedule(before: Revision | None, after: Revision | None) -> str | None:
    if before is None or after is None:
        return "created" if before is None else "deleted"
    if before.created != after.created:
        return "created"
    if before.paused != after.paused:
        return "paused" if after.paused else "resumed"
    return "changed" if before.revision != after.revision else None
