"""Runs all of whose branches wait: recorded as waiting, kept in memory as long as there is room, then parked.

A parked run has no memory and no owner; it comes back by replay when its time has come. Those that will be woken last go first. When
a run is to be woken is for the store to say, from what is recorded; what memory knows of it only decides which run goes first.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import TYPE_CHECKING

from mainspring.engine.replay.asyncio_sleep_warning import not_durable_until
from mainspring.engine.replay.signals import Lost, Parked
from mainspring.engine.residency.phases import Phase
from mainspring.model.clock import SECOND
from mainspring.store.writes import FAR, Suspend, Verdict

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mainspring.engine.host import Host
    from mainspring.engine.replay.execution import Execution

QUIET_ROUNDS = 8
"""Rounds of the event loop in which a branch that was just woken shows whether it does anything."""
_TOLERATED = 100


class Residency:
    """Decides which runs of one engine are suspended, and which of those leave its memory."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self.waiting = 0
        """How many runs are in memory and stored as waiting."""
        self._sleepers: list[tuple[int, int, Execution]] = []
        """`async def` runs that are suspended, or were; the last to wake first."""
        self._blocked: dict[Execution, None] = {}
        """`def` runs that are suspended: each of them holds a thread."""
        self._count = 0

    def count(self, change: int) -> None:
        """A run is stored as waiting, or no longer. Under the engine's lock for changes of phases."""
        self.waiting += change
        if change > 0:
            self._engine.here(self._engine.on_room)

    # -- from running to waiting ---------------------------------------------------------------------------------------
    def begin_wait(self, ex: Execution) -> None:
        """One of the run's operations has begun to wait. When nothing else goes on, the run is suspended."""
        if not ex.function.on_loop:
            self._engine.clock.idle()
        if self._engine.draining:
            self._engine.halting.hand_back_if_idle(ex)
        elif ex.suspended:
            self._suspended(ex)
        elif ex.acting == 0 and ex.phase is Phase.RUNNING:
            self.after_rounds(QUIET_ROUNDS, partial(self._perhaps_suspend, ex))

    def end_wait(self, ex: Execution) -> None:
        """One of the run's operations waits no more."""
        if not ex.function.on_loop:
            self._engine.clock.busy()
            self._blocked.pop(ex, None)
        if ex.park_timer is not None:
            ex.park_timer.cancel()
            ex.park_timer = None

    def reconsider(self, ex: Execution) -> None:
        """Something happened to a run that may not concern it after all: then it is suspended again."""
        if ex.phase is Phase.RUNNING and ex.acting == 0:
            self.after_rounds(QUIET_ROUNDS, partial(self._perhaps_suspend, ex))

    def _perhaps_suspend(self, ex: Execution) -> None:
        """A run with several branches is suspended when all of them wait."""
        if (
            ex.held_wakes is None
            and ex.phase is Phase.RUNNING
            and ex.acting == 0
            and ex.waits
            and not self._engine.draining
        ):
            self._request(ex, park=False)

    def _suspended(self, ex: Execution) -> None:
        settings = self._engine.settings
        if ex.function.at_most_once:
            return  # parked, it could only come back by being started a second time
        if not ex.function.on_loop:
            self._blocked[ex] = None
            park_at = self._engine.clock.now() + round(settings.park_after * SECOND)
            if self._engine.slots.threads() <= 0:
                self._park(ex)
            elif ex.next_due() > park_at:
                ex.park_timer = self._engine.timers.at(park_at, partial(self._park, ex))
            return
        self._remember(ex)
        if self.waiting > settings.resident:
            self._park(self._last_to_wake())

    # -- from memory to the store --------------------------------------------------------------------------------------
    def free_a_thread(self) -> None:
        """A `def` run cannot begin for lack of a thread: park one that waits. From any thread."""
        self._engine.here(self._free_a_thread)

    def _free_a_thread(self) -> None:
        waiting = [ex for ex in self._blocked if ex.suspended and not ex.function.at_most_once]
        if waiting:
            self._park(max(waiting, key=lambda ex: ex.next_due()))

    def _remember(self, ex: Execution) -> None:
        """Keep the run in mind for parking; forget those that have gone on meanwhile when they are too many."""
        self._count += 1
        heapq.heappush(self._sleepers, (-ex.next_due(), self._count, ex))
        if len(self._sleepers) > 2 * self.waiting + _TOLERATED:
            self._sleepers = [sleeper for sleeper in self._sleepers if _still_sleeps(sleeper)]
            heapq.heapify(self._sleepers)

    def _last_to_wake(self) -> Execution | None:
        while self._sleepers:
            sleeper = heapq.heappop(self._sleepers)
            if _still_sleeps(sleeper):
                return sleeper[2]
        return None

    def _park(self, ex: Execution | None) -> None:
        if ex is not None and ex.suspended:
            self._request(ex, park=True)

    def _request(self, ex: Execution, *, park: bool) -> None:
        """Ask the store to suspend or park the run. What happens meanwhile is held until it has answered."""
        limit = not_durable_until(ex)
        if park and limit is not None and not limit.parkable:
            return
        if not ex.move(Phase.PARKING if park else Phase.SUSPENDING):
            return
        ex.held_wakes = []
        op = Suspend(self._engine.worker_id, ex.id, ex.epoch, park, FAR if limit is None else limit.time)
        self._engine.committer.commit(op).add_done_callback(partial(self._answered, ex, park=park))

    def _answered(self, ex: Execution, answer: asyncio.Future[Verdict], *, park: bool) -> None:
        happened = ex.release_wakes()
        verdict = Verdict.FENCED if answer.cancelled() or answer.exception() is not None else answer.result()
        if verdict is Verdict.FENCED:
            self._engine.halting.halt(ex, Lost())
        elif verdict is Verdict.DONE and park:
            self._engine.halting.halt(ex, Parked())
        elif verdict is Verdict.DONE:
            if ex.phase is Phase.SUSPENDING and ex.move(Phase.WAITING):
                self._engine.changed(ex, "run.waiting")
                if self._engine.draining:
                    self._engine.halting.hand_back_if_idle(ex)
                elif not happened and ex.suspended:
                    self._suspended(ex)
            else:
                self.reconsider(ex)  # its code has cancelled an operation meanwhile
        else:
            if ex.phase is Phase.PARKING:
                ex.move(Phase.WAITING)
            elif ex.phase is Phase.SUSPENDING:
                ex.move(Phase.RUNNING)
            self._engine.on_notice()  # something happened to it meanwhile
        for wait, value in happened:
            wait.resolve(value)

    def after_rounds(self, rounds: int, then: Callable[[], None]) -> None:
        if rounds:
            self._engine.loop.call_soon(self.after_rounds, rounds - 1, then)
        else:
            then()


def _still_sleeps(sleeper: tuple[int, int, Execution]) -> bool:
    due, _, ex = sleeper
    return ex.suspended and -due == ex.next_due()
