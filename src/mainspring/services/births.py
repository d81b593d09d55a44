"""Runs that a schedule starts and that begin at once in the worker that acts on it: one transaction less before their first line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.engine.registry import Bound
from mainspring.model.states import State
from mainspring.store.ops import Release

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Collection

    from mainspring.engine.engine import Engine
    from mainspring.model.records import NewRun
    from mainspring.store.schedules import Beginning, Plan


class Births:
    """The runs of one pass that are to begin here, each with a place held for it. On the thread that makes the pass."""

    def __init__(self, engine: Engine, now: int, *, wanted: bool) -> None:
        self._engine = engine
        self._now = now
        self._wanted = wanted
        self._by_schedule: dict[str, list[Beginning]] = {}

    def take_in_hand(self, plan: Plan) -> None:
        """Let the runs of a plan begin here, as far as there is room. A plan that was made before for the schedule is forgotten."""
        for start in self._by_schedule.pop(plan.schedule.id, ()):
            self._engine.begin(start.run, created=False)
        taken = [start for start in plan.starts if self._wanted and self._fits(start.run)]
        if taken:
            self._by_schedule[plan.schedule.id] = taken

    def _fits(self, run: NewRun) -> bool:
        engine = self._engine
        if run.state is not State.QUEUED or run.queue is not None or run.key is not None:
            return False
        function = engine.registry.find(run.workflow)
        if function is None or run.version not in {None, engine.version} or function.bound is Bound.INSTANCE:
            return False  # a method is begun by a claim, which looks for its instance
        if not engine.places.admit(function, run.id):
            return False
        run.state, run.owner, run.kind = State.RUNNING, engine.worker_id, function.kind
        run.version, run.fingerprint = engine.version, function.fingerprint
        run.deadline = None if run.timeout is None else self._now + run.timeout
        return True

    def begin(self, stored: Collection[str]) -> None:
        """Set off those that were stored, and give back the places of the others."""
        for schedule, starts in self._by_schedule.items():
            for start in starts:
                run = start.run
                self._engine.begin(run, created=run.id in stored, schedule=schedule, tick=start.tick)

    def doubt(self) -> None:
        """Whether they were stored is not known, only that they do not begin here: those that are there are anybody's."""
        for starts in self._by_schedule.values():
            for start in starts:
                self._engine.begin(start.run, created=False)
                self._engine.expected.add(start.run.id)  # until it is handed back: nobody here is to take it up
                self._engine.here(self._hand_back, start.run.id)

    def _hand_back(self, run: str) -> None:
        engine = self._engine

        def answered(done: Future[Any]) -> None:
            engine.expected.discard(run)
            if not done.cancelled():
                done.exception()  # nobody waits for it

        engine.committer.commit(Release(engine.worker_id, run, 1)).add_done_callback(answered)
