"""Taking runs from their code before they come to their end: cancelled, out of time, handed back, or no longer this worker's.

A step that is being executed is never cut off by that, in whichever branch it is: the signal passes through a run's code when
no step is under way. When the worker stops, a run goes on until it asks for an operation that would begin, or waits; one that
comes to its end first, ends.
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


class Halting:
    """Halts runs of one engine, cancels those that do not let go, and has those undone that have something to undo."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._stopped_early: dict[str, Notice] = {}
        """Runs that were stopped between being claimed or stored and being begun."""

    def halt(self, ex: Execution, signal: Halt) -> None:
        """Take a run from its code. From any thread."""
        if ex.take_away(signal):
            self._engine.here(self._interrupt, ex)

    def _interrupt(self, ex: Execution) -> None:
        if isinstance(ex.signal, Stopped):
            self._engine.changed(ex, "run.cancelling", ex.signal.args[0] if ex.signal.args else None)
        ex.interrupt()
        self._engine.loop.call_later(self._engine.patience, self._press, ex)

    def _press(self, ex: Execution) -> None:
        """A run that was halted still holds on, in something that is not an operation: cancel it, as long as no step is cut off."""
        if ex.phase is not Phase.HALTED or not ex.function.on_loop or ex.root is None:
            return
        if ex.must_finish and not isinstance(ex.signal, Lost):
            self._engine.loop.call_later(self._engine.patience, self._press, ex)
            return
        _cancel(ex)

    # -- stopped from outside -----------------------------------------------------------------------------------------
    def heed(self, ex: Execution, notice: Notice) -> bool:
        """Halt a run that was stopped, or is another's by now; whether it was. From any thread."""
        if notice.epoch != ex.epoch or notice.state.ended:
            self.halt(ex, Lost())
        elif notice.state is State.CANCELLING:
            self.halt(ex, Stopped(notice.reason))
        else:
            return False
        return True

    def heed_all(self, stops: Iterable[Notice]) -> None:
        """Runs of this worker were stopped by a commit of this process: nothing of them begins from now on. From any thread."""
        for notice in stops:
            ex = self._engine.executions.get(notice.run)
            if ex is not None:
                self.heed(ex, notice)
            else:  # claimed or stored, and not begun yet; or just over
                self._stopped_early[notice.run] = notice
                self._engine.here(self._forget_later, notice)

    def halt_if_stopped_early(self, ex: Execution) -> None:
        """A run is in memory from now on: it may have been stopped before. On the loop."""
        notice = self._stopped_early.pop(ex.id, None)
        if notice is not None and notice.epoch >= ex.epoch:
            self.heed(ex, notice)

    def _forget_later(self, notice: Notice) -> None:
        self._engine.loop.call_later(self._engine.patience, self._forget, notice)

    def _forget(self, notice: Notice) -> None:
        if self._stopped_early.get(notice.run) is notice:
            del self._stopped_early[notice.run]

    # -- the worker stops ----------------------------------------------------------------------------------------------
    def hand_back_if_idle(self, ex: Execution) -> None:
        """The worker stops: hand a run back once nothing of it is at work but operations that are not to begin. On the loop.

        The loop goes round a few times first: an outcome that was just handed over may be the last that the code has waited for.
        """
        if _is_idle(ex) and not self._has_its_grace(ex):
            self._engine.residency.after_rounds(QUIET_ROUNDS, partial(self._hand_back_if_still_idle, ex))

    def _hand_back_if_still_idle(self, ex: Execution) -> None:
        if _is_idle(ex):
            self.halt(ex, HandedBack())

    def _has_its_grace(self, ex: Execution) -> bool:
        """A function that is not to be started a second time goes on as long as the grace lasts, if that may help it."""
        if not ex.function.at_most_once or self._engine.drained_at is None:
            return False
        left = self._engine.drained_at - self._engine.loop.time()
        return left > 0 and not (ex.suspended and ex.next_due() > self._engine.clock.now() + left * SECOND)

    # -- cancelled, or out of time -------------------------------------------------------------------------------------
    def out_of_time(self, ex: Execution) -> None:
        """Stop the run here and now; its children, wherever they are, through the database."""
        self.halt(ex, Stopped("timeout"))
        self._engine.spawn(self._cancel_for_time(ex))

    async def _cancel_for_time(self, ex: Execution) -> None:
        """Cancel a run and its children for being out of time, however long the database is away."""
        while self._engine.accepting:
            try:
                await self._engine.in_thread(self._engine.store.cancel, [ex.id], "timeout", self._engine.clock.now())
            except StoreError as error:
                log.warning("run %s is out of time, but cannot be cancelled yet: %s", ex.id, error)
                await asyncio.sleep(self._engine.patience)
            else:
                return

    # -- undoing -------------------------------------------------------------------------------------------------------
    async def undo(self, ex: Execution) -> None:
        """Replay a run that was stopped as far as it is recorded, so that it makes its compensations: here, or in another worker."""
        if ex.ahead is not None:
            # What its code has done last is to be undone as well, so it has to be among what is recorded.
            with suppress(Exception):
                await ex.ahead.arrival()
        engine = self._engine
        reason = ex.signal.args[0] if ex.signal is not None and ex.signal.args else None
        while engine.accepting:
            try:
                steps = await engine.in_thread(engine.store.steps, ex.id)
            except StoreError as error:
                log.warning("run %s has something to undo, and waits for the database: %s", ex.id, error)
                await asyncio.sleep(engine.patience)
                continue
            if engine.accepting:
                again = Execution(engine, ex.run, ex.function, steps)
                again.undoing = Stopped(reason)
                engine.launch(again)
                return
        with suppress(StoreError):  # the connection is closed: when this worker leaves, the run is freed to be undone
            await engine.committer.commit(Compensate(engine.worker_id, ex.id, ex.epoch, undo_reason=reason or ""))

    def press_on_later(self, ex: Execution) -> None:
        """See to it that a run which is executed as far as it is recorded comes to an end."""
        self._engine.loop.call_later(self._engine.patience, self._press_on, ex)

    def _press_on(self, ex: Execution) -> None:
        """A run that is to undo what it did waits for something that is no operation, and will not come: cancel it."""
        if not ex.in_code or ex.unwound or ex.root is None:
            return
        if ex.delivery.replaying or ex.acting or not ex.function.on_loop:
            self.press_on_later(ex)
            return
        ex.unwound = True
        _cancel(ex)


def _is_idle(ex: Execution) -> bool:
    """Whether all operations of a run wait, may be cut off, or are held back because the worker stops."""
    left = len(ex.held_back) + len(ex.interruptible)
    return ex.in_code and ex.acting == left and bool(left or ex.waits)


def _cancel(ex: Execution) -> None:
    for task in ex.tasks:
        task.cancel()
    if ex.root is not None:
        ex.root.cancel()
