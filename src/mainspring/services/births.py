"""Runs that a schedule starts and that begin at once in the worker that acts on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.engine.registry import Bound
from mainspring.model.states import State

if TYPE_CHECKING:
    from collections.abc import Collection

    from mainspring.engine.engine import Engine
    from mainspring.model.records import NewRun
    from mainspring.store.schedules import Beginning, Plan


class Births:
    """The runs of one pass that are to begin here, each with a slot reserved for it. On the thread that makes the pass."""

    def __init__(self, engine: Engine, now: int, *, wanted: bool) -> None:
        self._starts = engine.local_starts
        self._registry = engine.registry
        self._version = engine.version
        self._now = now
        self._wanted = wanted
        self._by_schedule: dict[str, list[Beginning]] = {}

    def reserve(self, plan: Plan) -> None:
        """Let the runs of a plan begin here, as far as there are slots. An earlier plan for the same schedule is forgotten."""
        for start in self._by_schedule.pop(plan.schedule.id, ()):
            self._starts.discard(start.run)
        reserved = [start for start in plan.starts if self._wanted and self._reserve(start.run)]
        if reserved:
            self._by_schedule[plan.schedule.id] = reserved

    def _reserve(self, run: NewRun) -> bool:
        if run.state is not State.QUEUED or run.queue is not None or run.key is not None:
            return False
        function = self._registry.find(run.workflow)
        if function is None or function.bound is Bound.INSTANCE:
            return False  # a method is begun by a claim, which looks for its instance
        if run.version not in {None, self._version} or not self._starts.reserve(run):
            return False
        run.deadline = None if run.timeout is None else self._now + run.timeout
        return True

    def begin(self, stored: Collection[str]) -> None:
        """Begin those that were stored, and free the slots of the others."""
        for schedule, starts in self._by_schedule.items():
            for start in starts:
                if start.run.id in stored:
                    self._starts.begin(start.run, schedule=schedule, tick=start.tick)
                else:
                    self._starts.discard(start.run)

    def hand_back(self) -> None:
        """Whether they were stored is not known: those that are there are for any worker."""
        for starts in self._by_schedule.values():
            for start in starts:
                self._starts.hand_back(start.run)
