"""The operations of a run, each written once, as a generator of the few effects it needs.

A driver performs the effects: one awaits them, for `async def` runs, the other blocks on them, for `def` runs. What is recorded
is decided here; how it is waited for is decided there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainspring.codec import decode_exception, encode_exception
from mainspring.engine.signals import Lost, Stopped
from mainspring.errors import (
    Conflict,
    Interrupted,
    MainspringError,
    NotFound,
    NotSerializable,
    RemoteError,
    RunCancelled,
    RunTimedOut,
    StillRunning,
)
from mainspring.model.records import Step
from mainspring.model.states import State
from mainspring.store.ops import Verdict, Write

if TYPE_CHECKING:
    import asyncio

    from mainspring.codec import ValueCodec
    from mainspring.engine.execution import Execution, Wait
    from mainspring.engine.registry import Function
    from mainspring.engine.retry import Retry
    from mainspring.model.records import Ending, NewRun
    from mainspring.store.ops import Op


@dataclass(slots=True)
class Commit:
    """Commit a write and come back with its answer. `final` carries an outcome, which the code must not miss."""

    op: Op
    final: Step | None = None


@dataclass(slots=True)
class Invoke:
    """Execute the user's function of a step."""

    call: StepCall
    position: str
    attempt: int


@dataclass(slots=True)
class Pause:
    """Wait for a registered wait to be over. `record` is what was recorded when it began."""

    wait: Wait
    record: Step


@dataclass(slots=True)
class Hold:
    """Await something of the engine's own: a turn, or the end of the record. `final` is the outcome that waits for its turn."""

    future: asyncio.Future[None]
    final: Step | None = None


@dataclass(slots=True)
class Forever:
    """Wait to be cancelled by the workflow's own code, as it was when this was recorded."""


Effect = Commit | Invoke | Pause | Hold | Forever
Flow = Generator[Effect, Any, Any]
Make = Callable[[], "list[NewRun]"]
"""Makes the runs to start, at the moment when they are really to be started."""


@dataclass(slots=True)
class StepCall:
    """A step to be executed: the function with its arguments and how to try it."""

    name: str
    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_async: bool
    retry: Retry
    timeout: int | None
    at_most_once: bool
    interruptible: bool
    result: ValueCodec

    @classmethod
    def of(cls, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepCall:
        return cls(
            function.name,
            function.fn,
            args,
            kwargs,
            function.is_async,
            function.retry,
            function.timeout,
            function.at_most_once,
            function.interruptible,
            function.codec.result,
        )


# -- steps -------------------------------------------------------------------------------------------------------------
def step(ex: Execution, position: str, call: StepCall) -> Flow:
    """Execute a step until it succeeds or is given up, and record the outcome once."""
    recorded = ex.recall(position, "step", call.name)
    if recorded is not None and recorded.completed is not None:
        return (yield from _replayed(ex, recorded, call.result))
    yield from _frontier(ex, position)
    now = ex.engine.clock.now()
    record = recorded or Step(ex.id, position, "step", call.name, started=now)
    record.epoch = ex.epoch
    if recorded is not None:
        if call.at_most_once and record.due is None:
            failure = Interrupted(
                f"step {call.name!r} was cut off in the middle and is not to be started a second time"
            )
            return (yield from _conclude(ex, record, call.result, error=failure))
        yield from _back_off(ex, record)
    while True:
        record.due = None
        if call.at_most_once or ex.resting:
            yield from _record(ex, _stirring(ex, record))
        record.attempts += 1  # once it is over: an attempt that a crash cuts off does not count
        try:
            value = yield Invoke(call, position, record.attempts)
            text = ex.engine.check_size(call.result.encode(value), f"the result of step {call.name!r}")
        except Exception as caught:  # noqa: BLE001  (whatever the user's function raises is the outcome)
            error = caught
        else:
            return (yield from _conclude(ex, record, call.result, output=text))
        pause, error = _judged(call.retry, record, error)
        if pause is None:
            return (yield from _conclude(ex, record, call.result, error=error))
        record.due = ex.engine.clock.now() + pause
        yield from _back_off(ex, record)


def _back_off(ex: Execution, record: Step) -> Flow:
    """Wait for the next attempt; how many there were is recorded first."""
    if record.due is None:
        return
    wait = ex.wait(until=record.due)
    yield from _record(ex, _waiting(ex, record, record.due))
    if record.due > ex.engine.clock.now():
        yield Pause(wait, record)
    else:
        ex.woken(wait)


def _judged(retry: Retry, record: Step, error: Exception) -> tuple[int | None, Exception]:
    """How long to wait for the next attempt, or None to give up, and with which exception."""
    if retry.attempts > 1:
        record.trail = _trail(record.trail, error)
    try:
        pause = retry.pause(record.attempts, error, f"{record.run}/{record.position}")
    except Exception as mistake:  # noqa: BLE001  (the user's own test of exceptions is at fault)
        return None, mistake
    if pause is None:
        _note_attempts(error, record)
    return pause, error


def _trail(trail: str | None, error: BaseException) -> str:
    before: list[str] = json.loads(trail) if trail else []
    text = f"{type(error).__name__}: {error}"
    return json.dumps([*before, text[:500]], ensure_ascii=False)


def _note_attempts(error: BaseException, record: Step) -> None:
    if record.trail and record.attempts > 1:
        tried = [f"  {number}. {what}" for number, what in enumerate(json.loads(record.trail), 1)]
        error.add_note("\n".join([f"gave up after {record.attempts} attempts:", *tried]))


# -- waits -------------------------------------------------------------------------------------------------------------
def sleep(ex: Execution, position: str, until: int) -> Flow:
    """Wait until a civil time. The time is recorded first, so restarts neither shorten nor lengthen it."""
    recorded = ex.recall(position, "sleep", "sleep")
    if recorded is not None and recorded.completed is not None:
        return (yield from _replayed(ex, recorded, None))
    yield from _frontier(ex, position)
    now = ex.engine.clock.now()
    record = recorded or Step(ex.id, position, "sleep", "sleep", started=now, due=until)
    record.epoch = ex.epoch
    due = record.due if record.due is not None else until
    if due > now:
        wait = ex.wait(until=due)
        yield from _record(ex, _waiting(ex, record, due))
        yield Pause(wait, record)
    return (yield from _conclude(ex, record, None, output="null"))


def call(ex: Execution, position: str, name: str, make: Make, result: ValueCodec) -> Flow:
    """Start another run and wait for its result, as one operation."""
    recorded = ex.recall(position, "call", name)
    if recorded is not None and recorded.completed is not None:
        return (yield from _replayed(ex, recorded, result))
    yield from _frontier(ex, position)
    if recorded is not None:
        return (yield from _await_run(ex, recorded, result, starts=[]))
    (child,) = starts = make()
    record = Step(ex.id, position, "call", name, started=ex.engine.clock.now(), child=child.id)
    return (yield from _await_run(ex, record, result, starts=starts))


def result(ex: Execution, position: str, run_id: str, codec: ValueCodec, until: int | None) -> Flow:
    """Wait for the end of a run that was started before, at most until a time."""
    recorded = ex.recall(position, "result", run_id)
    if recorded is not None and recorded.completed is not None:
        return (yield from _replayed(ex, recorded, codec))
    yield from _frontier(ex, position)
    record = recorded or Step(ex.id, position, "result", run_id, started=ex.engine.clock.now(), child=run_id, due=until)
    return (yield from _await_run(ex, record, codec, starts=[]))


def _await_run(ex: Execution, record: Step, codec: ValueCodec, *, starts: list[NewRun]) -> Flow:
    record.epoch = ex.epoch
    wait = ex.wait(until=record.due, child=record.child)
    write = _waiting(ex, record, record.due)
    write.starts, write.watch = starts, record.child
    answer = yield from _begin(ex, write)
    ending: Ending | None = answer.ending
    if answer.verdict is Verdict.TAKEN or answer.missing:
        ex.woken(wait)
        refused = (
            _taken(starts, answer.taken) if answer.taken else NotFound(f"there is no run {record.child!r} to wait for")
        )
        return (yield from _conclude(ex, record, codec, error=refused))
    if ending is None:
        ending = yield Pause(wait, record)
    else:
        ex.woken(wait)
    if ending is None:
        failure = StillRunning(f"run {record.child!r} had not ended when the time to wait for it was over; it goes on")
        return (yield from _conclude(ex, record, codec, error=failure))
    if ending.output is not None:
        return (yield from _conclude(ex, record, codec, output=ending.output))
    return (yield from _conclude(ex, record, codec, error_text=error_text(ending)))


def start(ex: Execution, position: str, name: str, make: Make) -> Flow:
    """Start runs that go on by themselves. They begin if, and only if, this is recorded."""
    recorded = ex.recall(position, "start", name)
    if recorded is not None and recorded.completed is not None:
        yield from _replayed(ex, recorded, None)
        return None
    yield from _frontier(ex, position)
    now = ex.engine.clock.now()
    children = make()
    only = children[0].id if len(children) == 1 else None
    record = Step(ex.id, position, "start", name, started=now, epoch=ex.epoch, child=only)
    record.completed, record.seq = now, ex.take_seq()
    record.output = json.dumps([child.id for child in children])
    answer = yield from _begin(ex, Write(ex.engine.worker_id, record, starts=children), final=record)
    if answer.verdict is Verdict.TAKEN:
        ex.delivery.skip(record.seq)
        return (yield from _conclude(ex, record, None, error=_taken(children, answer.taken)))
    yield from _turn(ex, record.seq, record)
    ex.last_time = record.completed
    return None


def _begin(ex: Execution, write: Write, final: Step | None = None) -> Flow:
    """Record an operation that starts runs, and set off those that begin here. A place held for one that does not is freed."""
    created: set[str] = set()
    try:
        answer = yield from _record(ex, write, final)
        if answer.verdict is Verdict.DONE:
            created = {run.id for run in write.starts} - set(answer.taken)
    finally:
        for run in write.starts:
            ex.engine.begin(run, created=run.id in created)
    return answer


def _taken(starts: list[NewRun], taken: dict[str, str]) -> Conflict:
    run = next(run for run in starts if taken.get(run.id, run.workflow) != run.workflow)
    return taken_error(run.id, run.workflow, taken[run.id])


# -- what all have in common -------------------------------------------------------------------------------------------
def _frontier(ex: Execution, position: str) -> Flow:
    """Hold an operation without a recorded outcome back until the record is used up."""
    hold = ex.delivery.frontier() if ex.function.is_async else None
    if hold is not None:
        ex.engine.watch_for_disagreement(ex, position)
        yield Hold(hold)
    elif ex.delivery.replaying:
        raise ex.disagree(f"position {position} is new, but the record goes on")
    if ex.halted is not None:
        raise ex.halted


def _turn(ex: Execution, seq: int, final: Step | None = None) -> Flow:
    if ex.halted is not None:
        raise ex.halted
    hold = ex.delivery.turn(seq, alone=ex.alone or not ex.function.is_async)
    if hold is not None:
        yield Hold(hold, final)


def _replayed(ex: Execution, recorded: Step, codec: ValueCodec | None) -> Flow:
    """Hand over a recorded outcome when its turn has come."""
    if recorded.interrupted or recorded.seq is None:
        yield Forever()
    else:
        yield from _turn(ex, recorded.seq)
    return _outcome(ex, recorded, codec)


def _outcome(ex: Execution, record: Step, codec: ValueCodec | None) -> Any:
    """The value or exception of a completed operation, made from what is stored: live and replay see the same."""
    if record.completed is not None:
        ex.last_time = record.completed
    if record.error is not None:
        raise _rebuilt(record.error)
    if codec is None or record.output is None:
        return None
    return codec.decode(record.output)


def _conclude(
    ex: Execution,
    record: Step,
    codec: ValueCodec | None,
    *,
    output: str | None = None,
    error: BaseException | None = None,
    error_text: str | None = None,
) -> Flow:
    """Record an outcome, wait for its turn, and hand it over."""
    record.output = output
    record.error = encode_exception(error) if error is not None else error_text
    record.completed = ex.engine.clock.now()
    record.seq = ex.take_seq()
    try:
        yield from _record(ex, _stirring(ex, record), final=record)
    except NotSerializable as refused:
        ex.delivery.skip(record.seq)
        if isinstance(error, NotSerializable):  # not even that it cannot be stored can be stored
            raise
        return (yield from _conclude(ex, record, codec, error=refused))
    yield from _turn(ex, record.seq, record)
    return _outcome(ex, record, codec)


def _stirring(ex: Execution, record: Step) -> Write:
    """A write that records the beginning of an attempt, and that a run which rested goes on."""
    write = Write(ex.engine.worker_id, record)
    if ex.resting:
        write.mood, write.due = State.RUNNING, ex.engine.clock.now()
        ex.set_resting(resting=False)
    return write


def _waiting(ex: Execution, record: Step, due: int | None) -> Write:
    """A write that records the beginning of a wait. If nothing else goes on in the run, the run itself is waiting."""
    write = Write(ex.engine.worker_id, record)
    if ex.alone:
        write.mood = State.WAITING
        if due is not None:
            write.due = due
    return write


def _record(ex: Execution, write: Write, final: Step | None = None) -> Flow:
    """Commit, and stop here if the run is no longer ours or is not to begin anything new."""
    try:
        answer = yield Commit(write, final)
    except MainspringError:
        raise
    except Exception as error:
        raise NotSerializable(
            f"the database refused {write.step.kind} {write.step.name!r} of run {ex.id}: {error}"
        ) from error
    if answer.verdict is Verdict.FENCED:
        ex.engine.halt(ex, Lost())
        raise ex.halted or Lost()
    if answer.verdict is Verdict.STOPPING:
        ex.engine.look_at(ex)
        raise ex.halted or Stopped()
    if write.mood is State.WAITING and answer.ending is None:
        ex.set_resting(resting=True)
    return answer


def error_text(ending: Ending) -> str:
    """The stored exception of a run that did not succeed."""
    return ending.error if ending.error is not None else encode_exception(failure_of(ending))


def failure_of(ending: Ending) -> BaseException:
    """What waiting for a run that did not succeed raises."""
    if ending.state is State.CANCELLED:
        if ending.reason == "timeout":
            return RunTimedOut(
                f"run {ending.id!r} was cancelled: its timeout passed", run_id=ending.id, reason="timeout"
            )
        why = f": {ending.reason}" if ending.reason else ""
        return RunCancelled(f"run {ending.id!r} was cancelled{why}", run_id=ending.id, reason=ending.reason)
    if ending.error is not None:
        return _rebuilt(ending.error)
    return MainspringError(f"run {ending.id!r} failed: {ending.reason or 'no reason is recorded'}")


def _rebuilt(text: str) -> Exception:
    """The exception of another run or step. One that means something to whoever it passes through (a cancellation, an exit) is
    only told of: it must not cancel or end the process that asks.
    """
    error = decode_exception(text)
    if isinstance(error, Exception):
        return error
    trace: str = getattr(error, "remote_traceback", "")
    return RemoteError(type(error).__qualname__, str(error), traceback=trace)


def taken_error(run_id: str, wanted: str, found: str) -> Conflict:
    return Conflict(
        f"run id {run_id!r} belongs to a run of {found!r}, so a run of {wanted!r} cannot have it; choose another id"
    )
