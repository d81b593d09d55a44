"""Runs all of whose branches wait: recorded as resting, kept in memory as long as there is room, then parked.

A parked run has no memory and no owner; it comes back by replay when its time has come. Those that will be woken last go first.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import TYPE_CHECKING

from mainspring.engine.signals import Lost, Parked
from mainspring.model.clock import SECOND
from mainspring.store.ops import Rest, Verdict

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mainspring.engine.engine import Engine
    from mainspring.engine.execution import Execution

_SETTLE_ROUNDS = 8
"""Rounds of the event loop in which a branch that was just woken shows whether it does anything."""
_TOLERATED = 100


class Parking:
    """Decides which runs of one engine rest, and which of those leave its memory."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.resting = 0
        """How many runs are in memory and recorded as waiting."""
        self._sleepers: list[tuple[int, int, Execution]] = []
        """Runs that rest, or did; the last to wake first."""
        self._count = 0

    def count(self, change: int) -> None:
        """A run has begun to rest, or goes on. From any thread of the run's own."""
        self.resting += change
        if change > 0:
            self._engine.here(self._engine.on_room)

    def waiting(self, ex: Execution) -> None:
        """One of the run's operations has begun to wait. When nothing else goes on, the run rests."""
        if not ex.function.is_async:
            self._engine.clock.idle()
        if ex.active == 0 and ex.halted is None:
            if ex.resting:
                self._rested(ex)
            else:
                self._after_rounds(_SETTLE_ROUNDS, partial(self._perhaps_rest, ex))

    def going_on(self, ex: Execution) -> None:
        """One of the run's operations waits no more."""
        if not ex.function.is_async:
            self._engine.clock.busy()

    def reconsider(self, ex: Execution) -> None:
        """Something happened to a run that may not concern it after all: then it rests again."""
        if not ex.resting and ex.active == 0:
            self._after_rounds(_SETTLE_ROUNDS, partial(self._perhaps_rest, ex))

    def _perhaps_rest(self, ex: Execution) -> None:
        """A run with several branches rests when all of them wait."""
        if ex.active == 0 and not ex.resting and ex.waits and ex.halted is None and ex.parking is None:
            self._rest(ex, park=False)

    def _rested(self, ex: Execution) -> None:
        settings = self._engine.settings
        if ex.function.at_most_once:
            return  # parked, it could only come back by being started a second time
        if not ex.function.is_async:
            park_at = self._engine.clock.now() + round(settings.park_after * SECOND)
            if ex.next_due() > park_at:
                self._engine.timers.at(park_at, partial(self._park, ex))
            return
        self._remember(ex)
        if self.resting > settings.resident:
            self._park(self._last_to_wake())

    def _remember(self, ex: Execution) -> None:
        """Keep the run in mind for parking; forget those that have gone on meanwhile when they are too many."""
        self._count += 1
        heapq.heappush(self._sleepers, (-ex.next_due(), self._count, ex))
        if len(self._sleepers) > 2 * self.resting + _TOLERATED:
            self._sleepers = [sleeper for sleeper in self._sleepers if _still_sleeps(sleeper)]
            heapq.heapify(self._sleepers)

    def _last_to_wake(self) -> Execution | None:
        while self._sleepers:
            sleeper = heapq.heappop(self._sleepers)
            if _still_sleeps(sleeper):
                return sleeper[2]
        return None

    def _park(self, ex: Execution | None) -> None:
        if ex is not None and ex.resting and ex.active == 0 and ex.halted is None and ex.parking is None:
            self._rest(ex, park=True)

    def _rest(self, ex: Execution, *, park: bool) -> None:
        """Ask the store to let the run rest, or be parked. What happens meanwhile waits for the answer."""
        ex.parking = []
        ex.rest_due = ex.next_due()
        op = Rest(self._engine.worker_id, ex.id, ex.epoch, ex.rest_due, park)
        answer = self._engine.committer.commit(op)
        answer.add_done_callback(partial(self._answered, ex, park=park))

    def _answered(self, ex: Execution, answer: asyncio.Future[Verdict], *, park: bool) -> None:
        happened, ex.parking = ex.parking or [], None
        verdict = Verdict.FENCED if answer.cancelled() or answer.exception() is not None else answer.result()
        if ex.halted is not None:
            return
        if verdict is Verdict.DONE and park:
            self._engine.stopping.halt(ex, Parked())
            return
        if verdict is Verdict.DONE:
            ex.set_resting(resting=True)
            self._rested(ex)
        elif verdict is Verdict.FENCED:
            self._engine.stopping.halt(ex, Lost())
        else:
            self._engine.on_poke()  # something happened to it meanwhile
        for wait, value in happened:
            wait.resolve(value)

    def _after_rounds(self, rounds: int, then: Callable[[], None]) -> None:
        if rounds:
            self._engine.loop.call_soon(self._after_rounds, rounds - 1, then)
        else:
            then()


def _still_sleeps(sleeper: tuple[int, int, Execution]) -> bool:
    due, _, ex = sleeper
    return ex.resting and ex.parking is None and -due == ex.next_due()
