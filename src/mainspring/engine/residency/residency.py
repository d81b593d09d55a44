"""Suspending runs whose branches all wait: stored as waiting, kept in memory while there is room, then parked.

A parked run has no memory and no owner, and is replayed when it wakes. The runs that wake last are parked first. The store derives
the time at which a run wakes from its record; the times in memory only decide which run is parked first.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import TYPE_CHECKING

from mainspring.engine.replay.asyncio_sleep_warning import not_durable_until
from mainspring.engine.replay.signals import Lost, Parked
from mainspring.engine.residency.phases import Phase
from mainspring.model.clock import SECOND
from mainspring.store.writes import Suspend, Verdict

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mainspring.engine.host import Host
    from mainspring.engine.replay.execution import Execution

QUIET_ROUNDS = 8
"""Rounds of the event loop after which a branch that was just woken has begun its next operation, if it has one."""
_TOLERATED = 100


class Residency:
    """Decides which runs of one engine are suspended, and which suspended runs are parked."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self.waiting = 0
        """Number of runs in memory that are stored as waiting."""
        self._sleepers: list[tuple[int, int, Execution]] = []
        """Heap of `async def` runs that were suspended, the last to wake first. Runs that woke since are removed lazily."""
        self._blocked: dict[Execution, None] = {}
        """Suspended `def` runs. Each holds a thread."""
        self._count = 0

    def count(self, change: int) -> None:
        """Count a run that is now stored as waiting (+1) or no longer (-1). The caller holds the engine's lock for phases."""
        self.waiting += change
        if change > 0:
            self._engine.here(self._engine.on_room)

    # -- from running to waiting ---------------------------------------------------------------------------------------
    def begin_wait(self, ex: Execution) -> None:
        """Note that an operation of a run waits. The run is suspended when no other operation of it acts."""
        if not ex.function.on_loop:
            self._engine.clock.idle()
        if self._engine.draining:
            self._engine.halting.hand_back_if_idle(ex)
        elif ex.suspended:
            self._suspended(ex)
        elif ex.acting == 0 and ex.phase is Phase.RUNNING:
            self.after_rounds(QUIET_ROUNDS, partial(self._perhaps_suspend, ex))

    def end_wait(self, ex: Execution) -> None:
        """Note that an operation of a run has stopped waiting."""
        if not ex.function.on_loop:
            self._engine.clock.busy()
            self._blocked.pop(ex, None)
        if ex.park_timer is not None:
            ex.park_timer.cancel()
            ex.park_timer = None

    def reconsider(self, ex: Execution) -> None:
        """Suspend a run again whose wake-up led to no operation."""
        if ex.phase is Phase.RUNNING and ex.acting == 0:
            self.after_rounds(QUIET_ROUNDS, partial(self._perhaps_suspend, ex))

    def _perhaps_suspend(self, ex: Execution) -> None:
        """Suspend a run if all its branches wait."""
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
            return  # a replay would start the function a second time
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
        """Park a waiting `def` run, so that another `def` run gets its thread. Thread-safe."""
        self._engine.here(self._free_a_thread)

    def _free_a_thread(self) -> None:
        waiting = [ex for ex in self._blocked if ex.suspended and not ex.function.at_most_once]
        if waiting:
            self._park(max(waiting, key=lambda ex: ex.next_due()))

    def _remember(self, ex: Execution) -> None:
        """Add a suspended run to the heap. Drop runs that woke since from the heap when they are most of it."""
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
        """Commit the suspend or park of a run. Wake-ups are held until the commit is answered."""
        limit = not_durable_until(ex)
        if park and limit is not None and not limit.parkable:
            return
        if not ex.move(Phase.PARKING if park else Phase.SUSPENDING):
            return
        ex.held_wakes = []
        op = Suspend(self._engine.worker_id, ex.id, ex.epoch, park, None if limit is None else limit.time)
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
                self.reconsider(ex)  # the workflow's code cancelled an operation before the answer
        else:
            if ex.phase is Phase.PARKING:
                ex.move(Phase.WAITING)
            elif ex.phase is Phase.SUSPENDING:
                ex.move(Phase.RUNNING)
            self._engine.on_notice()  # the run was notified before the commit
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
