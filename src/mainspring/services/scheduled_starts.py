"""Runs that a schedule starts and that begin at once in the worker that acts on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mainspring.engine.engine import Engine
    from mainspring.store.schedules import Beginning, Plan


class ScheduledStarts:
    """The runs of one pass that are to begin here. On the thread that makes the pass.

    Slots are reserved before the transaction, one for each schedule that is due, and runs begin after it. In between, a plan that is
    made only takes from what is reserved.
    """

    def __init__(self, engine: Engine, now: int, *, wanted: bool) -> None:
        self._starts = engine.local_starts
        self._room = engine.local_starts.room()
        self._now = now
        self._wanted = wanted
        self._by_schedule: dict[str, list[Beginning]] = {}

    def expect(self, functions: Sequence[str]) -> None:
        """Reserve slots for runs of these functions. Before the transaction."""
        if self._wanted:
            self._room.expect(functions)

    def give(self, plan: Plan) -> None:
        """Let the runs of a plan begin here, if slots are reserved for them. An earlier plan for the same schedule is forgotten."""
        for start in self._by_schedule.pop(plan.schedule.id, ()):
            self._room.take_back(start.run)
        given = self._room.give((start.run for start in plan.starts), self._now)
        if given:
            self._by_schedule[plan.schedule.id] = [start for start in plan.starts if start.run.uid in given]

    def begin(self, stored: Collection[str]) -> None:
        """Begin those that were stored, and free the slots of the others. After the transaction."""
        self._room.close()
        for schedule, starts in self._by_schedule.items():
            for start in starts:
                if start.run.id in stored:
                    self._starts.begin(start.run, schedule=schedule, tick=start.tick)
                else:
                    self._starts.discard(start.run)

    def hand_back(self) -> None:
        """Whether they were stored is not known: those that are there are for any worker."""
        self._room.close()
        for starts in self._by_schedule.values():
            for start in starts:
                self._starts.hand_back(start.run)
