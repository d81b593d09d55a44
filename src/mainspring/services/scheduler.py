"""Act on due schedules. Every worker does so, and the first one to lock a schedule plans it.

An index finds due schedules, and one alarm waits for the next: schedules that are not due cost nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import structs

from mainspring.services.service import Service
from mainspring.store.schedules import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mainspring.engine.engine import Engine
    from mainspring.model.ids import IdMaker
    from mainspring.store.schedules import Beginning, Passed, Situation

log = logging.getLogger("mainspring.services")

_AT_ONCE = 250
_MINUTE = 60_000_000
_HOUR = 60 * _MINUTE
_FORGOTTEN_AT_ONCE = 1_000


class Scheduler(Service):
    """Plans due schedules, one batch per transaction, until none is left. Kicked when a schedule may have become due.

    Once an hour it deletes ticks that are older than `retention`, in microseconds.
    """

    name = "scheduler"

    def __init__(self, engine: Engine, poll: float, *, ids: IdMaker, retention: int | None = None) -> None:
        super().__init__(engine, poll)
        self._retention = retention
        self._forget_at = 0
        self._latest: int | None = None
        """The time of the last pass."""
        self.paused = False
        """Whether this worker claims no runs, so that it leaves the runs of schedules to others."""
        self._ids = ids
        self.on_plans: Callable[[Sequence[Plan]], None] = lambda _plans: None
        """Called on the loop with the plans of a pass, after their commit."""

    async def run_once(self, now: int) -> int | None:
        await self._rewind(now)
        while self._engine.accepting:
            passed: Passed = await self._engine.in_store(self._fire, now)
            if passed.plans:
                self.on_plans(passed.plans)
            if not passed.more:
                await self._forget(now)
                return passed.next_due
            now = self.clock.now()
        return None

    async def _rewind(self, now: int) -> None:
        """Move schedules back that acted on future times. Needed at the start, and after the clock was set back."""
        latest, self._latest = self._latest, now
        if latest is None or now < latest - _MINUTE:
            for schedule in await self._engine.in_store(self._store.schedules.rewind, now):
                log.warning("schedule %s was ahead of the clock, which was set back; continuing from now", schedule)

    async def _forget(self, now: int) -> None:
        if self._retention is None or now < self._forget_at:
            return
        prune, before = self._store.schedules.prune, now - self._retention
        while await self._engine.in_store(prune, before, _FORGOTTEN_AT_ONCE) == _FORGOTTEN_AT_ONCE:
            pass
        self._forget_at = now + _HOUR

    def _fire(self, now: int) -> Passed:
        """Plan the due schedules, and begin their runs here if slots are free. Called on the thread of the store."""
        starts = ScheduledStarts(self._engine, now, wanted=not self.paused)
        try:
            decider = _Decider(now, self._ids, starts)
            passed = self._store.schedules.fire(now, _AT_ONCE, decider, starts.expect, decider.set_aside)
        except BaseException:
            starts.hand_back()
            raise
        starts.begin(passed.owned)
        return passed


class _Decider:
    """Plans one schedule after the other. A schedule that cannot be planned does not hold up the others."""

    def __init__(self, now: int, ids: IdMaker, starts: ScheduledStarts) -> None:
        self._now = now
        self._ids = ids
        self._starts = starts

    def __call__(self, situation: Situation) -> Plan:
        from mainspring.schedules.plan import plan  # noqa: PLC0415  (slow to import, and not every app has schedules)

        try:
            made = plan(situation, self._now, self._ids.new)
            self._starts.give(made)
            return made
        except Exception as error:  # noqa: BLE001  (whatever it is, the others are planned)
            return self.set_aside(situation, error)

    def set_aside(self, situation: Situation, error: Exception) -> Plan:
        """The plan of a schedule that cannot be planned, or whose plan the database refuses: try again in a minute."""
        fault = f"{type(error).__name__}: {error}"[:500]
        if situation.schedule.fault != fault:  # otherwise it was already logged
            log.error(
                "schedule %s (a row of table schedules) cannot be planned; retrying every minute",
                situation.schedule.id,
                exc_info=error,
            )
        schedule = structs.replace(situation.schedule, fault=fault, due=self._now + _MINUTE)
        processed = [run.id for run in situation.runs if run.state.ended]
        made = Plan(schedule, moved=True, processed=processed)
        self._starts.give(made)
        return made


class ScheduledStarts:
    """The runs of one scheduler pass that begin in this worker. Used on the thread of the pass.

    Slots are reserved before the transaction, one per due schedule. Plans made in the transaction only use reserved slots. The runs begin
    after the transaction.
    """

    def __init__(self, engine: Engine, now: int, *, wanted: bool) -> None:
        self._starts = engine.local_starts
        self._room = engine.local_starts.room()
        self._now = now
        self._wanted = wanted
        self._by_schedule: dict[str, list[Beginning]] = {}

    def expect(self, functions: Sequence[str]) -> None:
        """Reserve slots for runs of these functions. Called before the transaction."""
        if self._wanted:
            self._room.expect(functions)

    def give(self, plan: Plan) -> None:
        """Assign reserved slots to the runs of a plan. Replaces an earlier plan of the same schedule."""
        for start in self._by_schedule.pop(plan.schedule.id, ()):
            self._room.take_back(start.run)
        given = self._room.give((start.run for start in plan.starts), self._now)
        if given:
            self._by_schedule[plan.schedule.id] = [start for start in plan.starts if start.run.uid in given]

    def begin(self, stored: Collection[str]) -> None:
        """Begin the runs that were stored, and free the slots of the others. Called after the transaction."""
        self._room.close()
        for schedule, starts in self._by_schedule.items():
            for start in starts:
                if start.run.id in stored:
                    self._starts.begin(start.run, schedule=schedule, tick=start.tick)
                else:
                    self._starts.discard(start.run)

    def hand_back(self) -> None:
        """Release all runs, because it is unknown whether they were stored. Any worker may claim those that were."""
        self._room.close()
        for starts in self._by_schedule.values():
            for start in starts:
                self._starts.hand_back(start.run)
