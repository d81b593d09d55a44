"""Runs that a schedule starts and that begin at once in the worker that planned it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mainspring.engine.engine import Engine
    from mainspring.store.schedules import Beginning, Plan


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
