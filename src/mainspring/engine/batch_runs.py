"""The fast path of runs that are one call of a batch function: such a run has no task of its own.

The outcome of the batch drives the run's operation, which is the same as in any other run. When the operation has to wait for something else than a
batch (the back-off before a retry, a record that is replayed, a stopping worker), the rest of it becomes a task.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mainspring.engine.drivers import drive
from mainspring.engine.effects import Invoke
from mainspring.engine.runner import arguments, come_to_its_end, only_operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.engine.effects import Effect, Flow
    from mainspring.engine.replay.execution import Execution


class BatchRun:
    """One such run, from its beginning to the end of its code. It takes the place of the run's task, and is the `Reply` of its batch."""

    __slots__ = ("_ex", "_flow", "_waiting")

    def __init__(self, ex: Execution) -> None:
        self._ex = ex
        self._flow: Flow
        self._waiting = False
        """Whether the run waits for the outcome of its batch."""

    def begin(self) -> None:
        """Begin the operation of the run. On the loop."""
        ex = self._ex
        ex.tasks.root = self
        ex.acting += 1
        try:
            self._flow = only_operation(ex, *arguments(ex))
        except BaseException as error:  # noqa: BLE001  (it is the outcome of the run)
            self._end(None, error)
        else:
            self._advance(self._flow.send, None)

    def _advance(self, resume: Callable[[Any], Effect], given: Any) -> None:
        try:
            effect = resume(given)
        except StopIteration as done:
            self._end(done.value, None)
        except BaseException as error:  # noqa: BLE001
            self._end(None, error)
        else:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        ex = self._ex
        if type(effect) is Invoke:
            ex.enter_batch()
            self._waiting = True
            try:
                ex.engine.batches.join(effect.call, self)
            except Exception as error:  # noqa: BLE001  (it is the outcome of the attempt)
                self.set_exception(error)
        else:
            ex.acting -= 1  # `drive` counts it again
            ex.engine.execute(ex, drive(ex, self._flow, effect))

    # -- the outcome -----------------------------------------------------------------------------------------------------
    def done(self) -> bool:
        """Whether the run waits no longer."""
        return not self._waiting

    def set_result(self, outcome: Any, /) -> None:
        self._receive(self._flow.send, outcome)

    def set_exception(self, error: BaseException, /) -> None:
        self._receive(self._flow.throw, error)

    def cancel(self) -> None:
        """Cut the run off, as the cancellation of a task does."""
        if self._waiting:
            self.set_exception(asyncio.CancelledError())

    def _receive(self, resume: Callable[[Any], Effect], given: Any) -> None:
        self._waiting = False
        self._ex.leave_batch()
        self._advance(resume, given)

    def _end(self, value: Any, error: BaseException | None) -> None:
        ex = self._ex
        ex.tasks.root = None  # each would keep the other in memory
        ex.acting -= 1
        ex.outstanding = 0
        ex.outcome = value, come_to_its_end(ex, error)
        ex.engine.ends.begin(ex)
