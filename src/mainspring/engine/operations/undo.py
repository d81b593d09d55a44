"""Compensations: what a run does to undo what it did, when it fails, is cancelled or runs out of time.

Entering a scope is recorded, so that a cancelled run is replayed to compensate. What is pushed is not: a replay pushes
it again. A run that is stopped is therefore unwound by a replay, in which the first operation that has no record stops instead of
beginning; the scopes that this leaves make their compensations, each of which is recorded once. Leaving a scope in good order is
recorded as well, unless the run has been stopped by then: a run that is stopped before that is in its scope, however little of
the code in it is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mainspring.engine.calls import StepCall, TransactionCall
from mainspring.engine.effects import Hold, committed, frontier, heed, replayed, stirring, turn
from mainspring.engine.operations.steps import step
from mainspring.engine.operations.transactions import transaction
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
"""Microseconds that the compensations of one scope may take in all; those that have not begun by then are left."""


def enter(ex: Execution, position: str) -> Flow:
    """Note that from here on there may be something to undo."""
    ex.undoable = True
    recorded = ex.recall(position, KIND, KIND)
    if recorded is not None and recorded.completed is not None:
        ex.landmark = max(ex.landmark, recorded.completed)
        return (yield from replayed(ex, recorded, None))
    yield from frontier(ex, position)
    now = ex.landmark = ex.begins()
    record = Step(ex.id, position, KIND, KIND, started=now, completed=now, epoch=ex.epoch, output="null")
    record.seq = ex.take_seq()
    answer = yield from committed(ex, stirring(ex, record), final=record)
    heed(ex, answer)
    yield from turn(ex, record, record)
    return None


def leave(ex: Execution, scope: str, following: str) -> Flow:
    """Leave a scope in good order: nothing that was pushed is called any more. False: the run was stopped in it.

    `following` is the position of the operation after it. It has a record without this one having any only where a version of the
    library left the scope that did not record this.
    """
    position = f"{UNDO}{scope}.{_LEFT}"
    recorded = ex.recall(position, KIND, _LEFT)
    if recorded is not None:
        yield from replayed(ex, recorded, None)
        return True
    if ex.undoing is not None:
        ex.unwound = ex.unwound or following not in ex.journal
        return not ex.unwound
    if following in ex.journal:
        return True
    while ex.held_wakes is not None:
        yield Hold(ex.request_answered())
    now = ex.engine.clock.now()
    if ex.run.deadline is not None and now >= ex.run.deadline:
        ex.engine.halting.halt(ex, Stopped("timeout"))
        ex.engine.here(ex.engine.halting.out_of_time, ex)
    if ex.signal is not None:
        raise ex.signal
    record = Step(ex.id, position, KIND, _LEFT, started=now, completed=now, epoch=ex.epoch, output="null")
    record.seq = ex.take_seq()
    write = stirring(ex, record)
    write.unless_stopping = True
    answer = yield from committed(ex, write, final=record)
    heed(ex, answer)
    yield from turn(ex, record, record)
    return True


def compensation(  # noqa: PLR0917  (a call and where it stands)
    ex: Execution,
    scope: str,
    number: int,
    function: Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    until: int,
) -> Flow:
    """Make one compensation of a scope. It has a place of its own beside the operations of the run."""
    position = f"{UNDO}{scope}.{number}"
    if function.kind == "transaction":
        return (yield from transaction(ex, position, TransactionCall.of(function, args, kwargs)))
    call = StepCall.of(function, args, kwargs)
    left = max(1, until - ex.engine.clock.now())
    call.timeout = left if call.timeout is None else min(call.timeout, left)
    call.retry = _Bounded(call.retry, ex.engine.clock, until)  # type: ignore[assignment]
    return (yield from step(ex, position, call))


class _Bounded:
    """A policy of retrying that comes to an end in time."""

    def __init__(self, retry: Retry, clock: Clock, until: int) -> None:
        self._retry = retry
        self._clock = clock
        self._until = until
        self.attempts = retry.attempts

    def pause(self, failed: int, error: BaseException, seed: str) -> int | None:
        pause = self._retry.pause(failed, error, seed)
        return pause if pause is not None and self._clock.now() + pause < self._until else None


def continue_as(ex: Execution, position: str, text: str) -> Flow:
    """Come to an end here and begin anew with another input. Never comes back."""
    if ex.signal is not None:
        raise ex.signal
    yield from frontier(ex, position)
    signal = Continued(text)
    ex.engine.halting.halt(ex, signal)
    raise ex.signal or signal
