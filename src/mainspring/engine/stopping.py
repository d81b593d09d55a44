"""Taking runs from their code before they come to their end: asked for, out of time, or no longer this worker's."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from mainspring.engine.execution import Execution
from mainspring.engine.signals import Lost, Stopped
from mainspring.errors import StoreError

if TYPE_CHECKING:
    from mainspring.engine.engine import Engine
    from mainspring.engine.signals import Halt

log = logging.getLogger("mainspring.engine")


class Stopping:
    """Halts runs of one engine, presses those that hold on, and has those unwound that have something to undo."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._deciding = threading.Lock()
        """Of several signals for one run the first counts."""

    def halt(self, ex: Execution, signal: Halt) -> None:
        """Take a run from its code. From any thread: no operation begins from now on, and waits end as soon as the loop gets to it."""
        if ex.unwinding is not None and isinstance(signal, Stopped):
            return  # it is being stopped
        with self._deciding:
            first = ex.halted is None
            if first:
                ex.halted = signal
        if first:
            self._engine.here(self._halt, ex, signal)

    def _halt(self, ex: Execution, signal: Halt) -> None:
        if isinstance(signal, Stopped):
            self._engine.changed(ex, "run.cancelling", signal.args[0] if signal.args else None)
        ex.end_waits(signal)
        self._engine.loop.call_later(self._engine.patience, self._press, ex.id, ex.epoch)

    def _press(self, run_id: str, epoch: int) -> None:
        """A run that was halted still holds on, in something that is not an operation: cancel it, as long as no step is cut off."""
        ex = self._engine.executions.get(run_id)
        if ex is None or ex.epoch != epoch or ex.over or not ex.function.is_async or ex.root is None:
            return
        if ex.halted is None:
            return  # it is executed once more by now, to undo what it did, and nobody has halted that
        if ex.invoking and not isinstance(ex.halted, Lost):
            self._engine.loop.call_later(self._engine.patience, self._press, run_id, epoch)
            return
        _cancel(ex)

    def out_of_time(self, ex: Execution) -> None:
        """Stop the run here and now; its children, wherever they are, through the database."""
        self.halt(ex, Stopped("timeout"))
        self._engine.spawn(self._cancel_for_time(ex))

    async def _cancel_for_time(self, ex: Execution) -> None:
        """Cancel a run and its children for being out of time, however long the database takes to be told."""
        while self._engine.accepting:
            try:
                await self._engine.in_thread(self._engine.store.cancel, [ex.id], "timeout", self._engine.clock.now())
            except StoreError as error:
                log.warning("run %s is out of time, but cannot be cancelled yet: %s", ex.id, error)
                await asyncio.sleep(self._engine.patience)
            else:
                return

    async def unwind(self, ex: Execution) -> None:
        """Execute a run that was stopped once more, as far as it is recorded, so that it undoes what it did."""
        self._engine.expected.add(ex.id)
        if ex.ahead is not None:
            # What its code has done last is to be undone as well, so it has to be among what is recorded.
            with suppress(Exception):
                await ex.ahead.arrival()
        while self._engine.accepting:
            try:
                steps = await self._engine.in_thread(self._engine.store.steps, ex.id)
            except StoreError as error:
                log.warning("run %s has something to undo, and waits for the database: %s", ex.id, error)
                await asyncio.sleep(self._engine.patience)
            else:
                if self._engine.accepting:  # otherwise nobody would take it from its code again
                    again = Execution(self._engine, ex.run, ex.function, steps)
                    again.unwinding = Stopped(*ex.halted.args) if ex.halted is not None else Stopped()
                    self._engine.launch(again)
                return

    def press_on_later(self, ex: Execution) -> None:
        """See to it that a run which is executed as far as it is recorded comes to an end."""
        self._engine.loop.call_later(self._engine.patience, self._press_on, ex)

    def _press_on(self, ex: Execution) -> None:
        """A run that is to undo what it did waits for something that is no operation, and will not come: cancel it."""
        if self._engine.executions.get(ex.id) is not ex or ex.halted is not None or ex.unwound or ex.root is None:
            return
        if ex.delivery.replaying or ex.active or not ex.function.is_async:
            self.press_on_later(ex)
            return
        ex.unwound = True
        _cancel(ex)


def _cancel(ex: Execution) -> None:
    for task in ex.tasks:
        task.cancel()
    if ex.root is not None:
        ex.root.cancel()
