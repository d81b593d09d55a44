"""Compensations (`run.undo`) of a run that fails, is cancelled or runs out of time.

Entering a scope is recorded, so that a stopped run is replayed to compensate. The pushed compensations are not recorded: a replay
pushes them again. The first operation without a record raises instead of beginning, and the scopes that this unwinds make their
compensations, each recorded once. Leaving a scope in good order is recorded as well, unless the run was stopped before: until
that commit the run is in its scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mainspring.engine.effects import (
    Hold,
    active_write,
    await_turn,
    commit_or_stop,
    end_of_record,
    frontier,
    replayed,
)
from mainspring.engine.operations.steps import StepCall, step
from mainspring.engine.operations.transactions import TransactionCall, transaction
from mainspring.engine.replay.signals import Continued, Stopped
from mainspring.model.retry_scope import UNDO
from mainspring.model.runs import Step

if TYPE_CHECKING:
    from mainspring.engine.effects import Flow
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.execution import Execution
    from mainspring.engine.retry import Retry
    from mainspring.model.clock import Clock

KIND: Final = "undo"
_LEFT = "left"
BUDGET = 300_000_000
"""Microseconds that the compensations of one scope may take together. Those that have not begun by then are not made."""


def enter(ex: Execution, position: str) -> Flow:
    """Enter a scope: from here on a stop of the run owes compensations."""
    ex.undoable = True
    recorded = ex.recall(position, KIND, KIND)
    if recorded is not None and recorded.completed is not None:
        ex.history.landmark = max(ex.history.landmark, recorded.completed)
        return (yield from replayed(ex, recorded, None))
    yield from frontier(ex, position)
    now = ex.history.landmark = ex.begins()
    record = Step(ex.id, position, KIND, KIND, started=now, completed=now, epoch=ex.epoch, output="null")
    record.seq = ex.history.take_seq()
    yield from commit_or_stop(ex, active_write(ex, record), final=record)
    yield from await_turn(ex, record, record)
    return None


def leave(ex: Execution, scope: str, following: str) -> Flow:
    """Leave a scope in good order: its compensations are dropped. Return False if the run was stopped in the scope.

    Only a scope with compensations is left by this. If the operation at the position `following` is recorded and the leaving is not,
    the code pushed nothing when it was past here: a patch has added the compensation since.
    """
    position = left_position(scope)
    recorded = ex.recall(position, KIND, _LEFT)
    if recorded is not None:
        yield from replayed(ex, recorded, None)
        return True
    if following in ex.history.journal:
        return not ex.unwound
    yield from end_of_record(ex, position)
    if ex.undoing is not None:
        ex.unwound = True
        return False
    while ex.held_wakes is not None:
        yield Hold(ex.request_answered())
    now = ex.engine.clock.now()
    if ex.run.deadline is not None and now >= ex.run.deadline:
        ex.engine.halting.halt(ex, Stopped("timeout"))
        ex.engine.here(ex.engine.halting.out_of_time, ex)
    if ex.signal is not None:
        raise ex.signal
    record = Step(ex.id, position, KIND, _LEFT, started=now, completed=now, epoch=ex.epoch, output="null")
    record.seq = ex.history.take_seq()
    write = active_write(ex, record)
    write.unless_stopping = True
    yield from commit_or_stop(ex, write, final=record)
    yield from await_turn(ex, record, record)
    return True


def compensation_position(scope: str, number: int) -> str:
    """The position of a compensation."""
    return f"{UNDO}{scope}.{number}"


def left_position(scope: str) -> str:
    """The position of the successful end of a scope."""
    return f"{UNDO}{scope}.{_LEFT}"


def compensation(  # noqa: PLR0917  (a call and where it stands)
    ex: Execution,
    scope: str,
    number: int,
    function: Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    until: int,
) -> Flow:
    """Make one compensation of a scope, at a position beside the operations of the run.

    If an exception that the code got leaves the scope, its outcome has its place in the order of outcomes as that of any operation. In
    the replay that undoes a stopped run it comes after all others.
    """
    position = compensation_position(scope, number)
    if function.kind == "transaction":
        return (yield from transaction(ex, position, TransactionCall.of(function, args, kwargs)))
    call = StepCall.of(function, args, kwargs)
    left = max(1, until - ex.engine.clock.now())
    call.timeout = left if call.timeout is None else min(call.timeout, left)
    call.retry = _Bounded(call.retry, ex.engine.clock, until)  # type: ignore[assignment]
    return (yield from step(ex, position, call))


class _Bounded:
    """A retry policy that gives up before a time."""

    def __init__(self, retry: Retry, clock: Clock, until: int) -> None:
        self._retry = retry
        self._clock = clock
        self._until = until
        self.attempts = retry.attempts

    def pause(self, failed: int, error: BaseException, seed: str) -> int | None:
        pause = self._retry.pause(failed, error, seed)
        return pause if pause is not None and self._clock.now() + pause < self._until else None


def continue_as(ex: Execution, position: str, text: str) -> Flow:
    """End this generation of the run, and begin another with a new input. Never returns."""
    if ex.signal is not None:
        raise ex.signal
    yield from frontier(ex, position)
    signal = Continued(text)
    ex.engine.halting.halt(ex, signal)
    raise ex.signal or signal
