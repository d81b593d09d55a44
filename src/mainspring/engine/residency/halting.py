"""Halting runs before their end: cancelled, out of time, handed back by a stopping worker, or owned by another worker.

Halting never cuts off a step that is executing, in any branch: the signal passes through the workflow's code when no step
executes. When the worker stops, a run continues until it would begin another operation or waits. A run that reaches its end
first, ends.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from mainspring.engine.replay.execution import Execution
from mainspring.engine.replay.signals import HandedBack, Lost, Stopped
from mainspring.engine.residency.phases import Phase
from mainspring.engine.residency.residency import QUIET_ROUNDS
from mainspring.errors import StoreError
from mainspring.model.clock import SECOND
from mainspring.model.states import State
from mainspring.store.writes import Compensate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.engine.host import Host
    from mainspring.engine.replay.signals import Halt
    from mainspring.store.changes import Notice

log = logging.getLogger("mainspring.engine")

_UNREACHED_CHECKS = 300
"""How often the replay of a stopped run is given time to reach what it had begun: five minutes, at one check a second."""


class Halting:
    """Halts the runs of one engine, cancels code that does not unwind, and starts the compensations of stopped runs."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._stopped_early: dict[str, Notice] = {}
        """By run: stops of runs that were claimed or stored by this worker, and not begun yet."""

    def halt(self, ex: Execution, signal: Halt) -> None:
        """Halt a run: its code unwinds with the signal. Thread-safe."""
        if ex.begin_halt(signal):
            self._engine.here(self._interrupt, ex)

    def _interrupt(self, ex: Execution) -> None:
        if isinstance(ex.signal, Stopped):
            self._engine.changed(ex, "run.cancelling", ex.signal.args[0] if ex.signal.args else None)
        ex.interrupt()
        self._engine.loop.call_later(self._engine.patience, self._press, ex)

    def _press(self, ex: Execution) -> None:
        """Cancel the tasks of a halted run whose code still awaits something other than an operation, once no step executes."""
        if ex.phase is not Phase.HALTED or not ex.function.on_loop or ex.tasks.root is None:
            return
        if ex.must_finish and not isinstance(ex.signal, Lost):
            self._engine.loop.call_later(self._engine.patience, self._press, ex)
            return
        _cancel(ex)

    def end_disagreeing(self, ex: Execution) -> None:
        """Cancel the code of a run that disagrees with its record, if it does not end by itself. On the loop.

        The branch that met the disagreement has its exception. Another one may await something that will never come now.
        """
        if ex.in_code and ex.function.on_loop:
            if ex.history.watch is not None:
                ex.history.watch.cancel()
            ex.history.watch = self._engine.loop.call_later(self._engine.patience, self._press_disagreeing, ex)

    def _press_disagreeing(self, ex: Execution) -> None:
        if ex.in_code and not ex.must_finish:
            _cancel(ex)
        self.end_disagreeing(ex)

    # -- stopped from outside -----------------------------------------------------------------------------------------
    def raise_if_stopping(self, ex: Execution, notice: Notice) -> bool:
        """Halt a run that was stopped or that another worker owns. Return True if it was halted. Thread-safe."""
        if notice.epoch != ex.epoch or notice.state.ended:
            self.halt(ex, Lost())
        elif notice.state is State.CANCELLING:
            self.halt(ex, Stopped(notice.reason))
        else:
            return False
        return True

    def heed_all(self, stops: Iterable[Notice]) -> None:
        """Halt the runs of this worker that a commit of this process has stopped, so that none begins another step. Thread-safe."""
        for notice in stops:
            ex = self._engine.executions.get(notice.run)
            if ex is not None:
                self.raise_if_stopping(ex, notice)
            else:  # claimed or stored, and not begun yet; or it has just ended
                self._stopped_early[notice.run] = notice
                self._engine.here(self._forget_later, notice)

    def halt_if_stopped_early(self, ex: Execution) -> None:
        """Halt a run that has just begun if it was stopped before that. On the loop."""
        notice = self._stopped_early.pop(ex.id, None)
        if notice is not None and notice.epoch >= ex.epoch:
            self.raise_if_stopping(ex, notice)

    def _forget_later(self, notice: Notice) -> None:
        self._engine.loop.call_later(self._engine.patience, self._forget, notice)

    def _forget(self, notice: Notice) -> None:
        if self._stopped_early.get(notice.run) is notice:
            del self._stopped_early[notice.run]

    # -- the worker stops ----------------------------------------------------------------------------------------------
    def hand_back_if_idle(self, ex: Execution) -> None:
        """Release a run of a stopping worker once it only waits, or only asks for operations that must not begin. On the loop.

        The loop goes round a few times first: the code may reach its end with an outcome that was just delivered.
        """
        if _is_idle(ex) and not self._has_its_grace(ex):
            self._engine.residency.after_rounds(QUIET_ROUNDS, partial(self._hand_back_if_still_idle, ex))

    def _hand_back_if_still_idle(self, ex: Execution) -> None:
        if _is_idle(ex):
            self.halt(ex, HandedBack())

    def _has_its_grace(self, ex: Execution) -> bool:
        """Whether an `at_most_once` run may continue until the grace ends: releasing it would fail it."""
        if not ex.function.at_most_once or self._engine.drained_at is None:
            return False
        left = self._engine.drained_at - self._engine.loop.time()
        return left > 0 and not (ex.suspended and ex.next_due() > self._engine.clock.now() + left * SECOND)

    # -- cancelled, or out of time -------------------------------------------------------------------------------------
    def out_of_time(self, ex: Execution) -> None:
        """Stop a run whose time is over: the run at once, in memory, and its children through the database."""
        self.halt(ex, Stopped("timeout"))
        self._engine.spawn(self._cancel_for_time(ex))

    async def _cancel_for_time(self, ex: Execution) -> None:
        """Cancel a run and its children with the reason "timeout". Retried while the database is unavailable."""
        while self._engine.accepting:
            try:
                await self._engine.in_thread(self._engine.store.cancel, [ex.id], "timeout", self._engine.clock.now())
            except StoreError as error:
                log.warning("run %s has timed out and cannot be cancelled yet; retrying: %s", ex.id, error)
                await asyncio.sleep(self._engine.patience)
            else:
                return

    # -- undoing -------------------------------------------------------------------------------------------------------
    async def undo(self, ex: Execution) -> None:
        """Replay a stopped run up to the end of its record, so that it makes its compensations; in another worker if this one stops."""
        if ex.ahead is not None:
            # The last outcome is undone as well, so its commit must be answered before the record is read.
            with suppress(Exception):
                await ex.ahead.arrival()
        engine = self._engine
        reason = ex.signal.args[0] if ex.signal is not None and ex.signal.args else None
        while engine.accepting:
            try:
                steps = await engine.in_thread(engine.store.steps, ex.id)
            except StoreError as error:
                log.warning("run %s has compensations to execute and waits for the database: %s", ex.id, error)
                await asyncio.sleep(engine.patience)
                continue
            if engine.accepting:
                engine.launch(Execution(engine, ex.run, ex.function, steps, Stopped(reason)))
                return
        with suppress(StoreError):  # the connection is closed: when this worker leaves, the run is freed to be undone
            await engine.committer.commit(Compensate(engine.worker_id, ex.id, ex.epoch, undo_reason=reason or ""))

    def press_on_later(self, ex: Execution, unreached: int = 0) -> None:
        """Check later that the replay of a stopped run reaches its end."""
        self._engine.loop.call_later(self._engine.patience, self._press_on, ex, unreached)

    def _press_on(self, ex: Execution, unreached: int) -> None:
        """Cancel the tasks of a stopped run whose replay awaits something other than an operation.

        Not while the record has more than the replay has reached: the code may be in a scope that the run had left. The code may
        never reach an operation that it had only begun, so that is checked for a number of times.
        """
        if not ex.in_code or ex.unwound or ex.tasks.root is None:
            return
        if ex.history.delivery.replaying or ex.history.will_leave_scope or ex.acting or not ex.function.on_loop:
            self.press_on_later(ex, unreached)
            return
        if ex.history.unreached and unreached < _UNREACHED_CHECKS:
            self.press_on_later(ex, unreached + 1)
            return
        ex.unwound = True
        _cancel(ex)


def _is_idle(ex: Execution) -> bool:
    """Whether each operation of a run waits, may be interrupted, or is held back because the worker stops."""
    left = len(ex.held_back) + len(ex.tasks.interruptible)
    return ex.in_code and ex.acting == left and bool(left or ex.waits)


def _cancel(ex: Execution) -> None:
    for task in ex.tasks.unfinished:
        task.cancel()
    if ex.tasks.root is not None:
        ex.tasks.root.cancel()
