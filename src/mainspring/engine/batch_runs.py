"""The fast path of runs that are one call of a batch function: such a run has no task of its own.

The outcome of the batch drives the run's operation, which is the same as in any other run. When the operation has to wait for something else than a
batch (the back-off before a retry, a record that is replayed, a stopping worker), the rest of it becomes a task.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mainspring.engine.drivers import drive
from mainspring.engine.operations.steps import Invoke, StepCall, encoded, step
from mainspring.engine.runner import ONLY_POSITION, arguments, come_to_its_end, only_operation
from mainspring.model.runs import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.engine.batching import Batched
    from mainspring.engine.effects import Effect, Flow
    from mainspring.engine.replay.execution import Execution


class BatchRun:
    """One such run, from its beginning to the end of its code. It takes the place of the run's task, and is the `Reply` of its batch.

    A new run joins its batch directly, and if that succeeds, nothing is left but its end. Its operation is made only if there is more to do.
    """

    __slots__ = ("_args", "_began", "_ex", "_flow", "_kwargs", "_waiting")

    def __init__(self, ex: Execution) -> None:
        self._ex = ex
        self._args: tuple[Any, ...]
        self._kwargs: dict[str, Any]
        self._began = 0
        """When the run joined its batch."""
        self._flow: Flow | None = None
        """The operation of the run, or None if it has only joined its batch."""
        self._waiting = False
        """Whether the run waits for the outcome of its batch."""

    def begin(self) -> None:
        """Begin the operation of the run. On the loop."""
        ex = self._ex
        ex.tasks.root = self
        ex.acting += 1
        try:
            self._args, self._kwargs = arguments(ex)
        except BaseException as error:  # noqa: BLE001  (it is the outcome of the run)
            self._end(None, error)
            return
        if _may_join(ex):
            ex.outstanding += 1
            self._began = ex.engine.clock.now()
            self._join(ex.function)
        else:
            self._flow = only_operation(ex, self._args, self._kwargs)
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
        if isinstance(effect, Invoke):
            self._join(effect.call)
        else:
            ex.acting -= 1  # `drive` counts it again
            ex.engine.execute(ex, drive(ex, self._operation(), effect))

    def _join(self, call: Batched) -> None:
        self._ex.enter_batch()
        self._waiting = True
        try:
            self._ex.engine.batches.join(call, self._args, self._kwargs, self)
        except Exception as error:  # noqa: BLE001  (it is the outcome of the attempt)
            self.set_exception(error)

    def _operation(self) -> Flow:
        """The operation of the run, which waits for the outcome of its batch."""
        if self._flow is None:
            ex, call = self._ex, StepCall.of(self._ex.function, self._args, self._kwargs)
            ex.history.recalled = ONLY_POSITION
            record = Step(ex.id, ONLY_POSITION, "step", call.name, started=self._began)
            self._flow = step(ex, ONLY_POSITION, call, under_way=record)
            next(self._flow)  # the call of the function
        return self._flow

    # -- the outcome -----------------------------------------------------------------------------------------------------
    def done(self) -> bool:
        """Whether the run waits no longer."""
        return not self._waiting

    def set_result(self, outcome: Any, /) -> None:
        if self._flow is not None or not self._succeed(outcome):
            self._receive(self._operation().send, outcome)

    def set_exception(self, error: BaseException, /) -> None:
        self._receive(self._operation().throw, error)

    def _succeed(self, outcome: Any) -> bool:
        """End a run that has only joined its batch, unless it was halted or its outcome cannot be stored."""
        ex = self._ex
        if ex.signal is not None:
            return False
        try:
            ex.output = encoded(ex, ex.function.name, ex.function.codec.result, outcome)
        except Exception:  # noqa: BLE001  (what it means is for the operation to say)
            return False
        self._waiting = False
        ex.leave_batch()
        self._end(None, None)
        return True

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


def _may_join(ex: Execution) -> bool:
    """Whether the operation of a run that is about to begin would call its function at once."""
    is_halted = ex.signal is not None or ex.undoing is not None or ex.engine.draining
    return not (ex.replays or is_halted or ex.function.at_most_once)
