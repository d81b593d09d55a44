"""Operations of a run: steps, sleeps, and starting, calling and awaiting other runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from mainspring.codec import INCOMPLETE, add_note, fingerprint, summarize_exception
from mainspring.engine.effects import (
    Consult,
    Effect,
    Pause,
    active_write,
    await_turn,
    commit_or_stop,
    conclude,
    error_text,
    frontier,
    key_error,
    replayed,
    taken_error,
    waiting_write,
)
from mainspring.engine.replay.signals import Lost
from mainspring.engine.retry import Retry
from mainspring.errors import Conflict, Interrupted, NotFound, StillRunning
from mainspring.model.retry_scope import OUTCOME_OF, is_once
from mainspring.model.runs import Step
from mainspring.store.verbs.start import is_last_attempt
from mainspring.store.writes import RecordAndRevive, RecordStep, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.codec import ValueCodec
    from mainspring.engine.effects import Flow
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import Ending, NewRun, Run
    from mainspring.store.writes import Recorded

_ONCE = Retry(1)
Make = Callable[[], "list[NewRun]"]
"""Makes the runs to start. Called only if they are not recorded as started."""


class StepCall(Struct):
    """A step to execute: the function, its arguments and its retry policy."""

    name: str
    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_async: bool
    result: ValueCodec
    retry: Retry = _ONCE
    timeout: int | None = None
    at_most_once: bool = False
    interruptible: bool = False
    batch: int | None = None
    """Most inputs of one call of a batch function."""
    awaits_result: bool = False
    """Whether a coroutine that the function returns is awaited: a lambda or an object does not say that it makes one."""

    @classmethod
    def of(cls, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepCall:
        return cls(
            function.name,
            function.fn,
            args,
            kwargs,
            function.is_async,
            function.codec.result,
            retry=function.retry,
            timeout=function.timeout,
            at_most_once=function.at_most_once,
            interruptible=function.interruptible,
            batch=function.batch,
        )


class Invoke(Effect):
    """Execute the user's function of a step."""

    call: StepCall
    position: str
    attempt: int


# -- steps -------------------------------------------------------------------------------------------------------------
def step(ex: Execution, position: str, call: StepCall, under_way: Step | None = None) -> Flow:  # noqa: C901
    """Execute a step until it succeeds or its retries are exhausted, and record the outcome once.

    `under_way`: the record of a new step whose first attempt has begun. The first effect is that attempt.
    """
    recorded = ex.recall(position, "step", call.name) if under_way is None else None
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, call.result))
    if under_way is None:
        yield from frontier(ex, position)
    began = ex.begins() if under_way is None else under_way.started or 0
    record = under_way or recorded or Step(ex.id, position, "step", call.name, started=began)
    record.epoch = ex.epoch
    if recorded is not None:
        obstacle = yield from _taken_up(ex, record, call)
        if obstacle is not None:
            return (yield from conclude(ex, record, call.result, error=obstacle))
        began = ex.engine.clock.now()
    elif call.at_most_once and ex.function.kind == "workflow":
        before = _begun_before(ex, record, call)
        if before is not None:
            return (yield from _again(ex, record, call, before))
    while True:
        record.due = None
        if call.at_most_once or ex.stored_as_waiting:
            yield from commit_or_stop(ex, active_write(ex, record))
        _raise_if_halted(ex, call, begun=under_way is not None)
        under_way = None
        record.attempts += 1  # stored with the outcome: an attempt that a crash cuts off does not count
        try:
            value = yield Invoke(call, position, record.attempts)
            text = encoded(ex, call.name, call.result, value)
        except Exception as caught:  # noqa: BLE001  (an exception of the user's function is the outcome)
            error = caught
        else:
            ex.output = text if ex.function.kind == "step" else None
            if call.batch is not None and recorded is None and _is_whole_job(ex, record, call):
                return None
            return (yield from conclude(ex, _succeeded(record, began), call.result, output=text))
        pause, error = _judged(call.retry, record, error, began, ex.engine.clock.now())
        record.due = None if pause is None else ex.engine.clock.now() + pause
        if pause is None or not (yield from _back_off(ex, record)):
            return (yield from conclude(ex, record, call.result, error=error))
        began = ex.engine.clock.now()


def encoded(ex: Execution, name: str, codec: ValueCodec, value: Any) -> str:
    """The text of the result of a step. Raises an error if the value cannot be stored."""
    return ex.engine.check_size(codec.encode(value), value, f"the result of step {name!r}")


def _raise_if_halted(ex: Execution, call: StepCall, *, begun: bool) -> None:
    """Raise the signal of a run that was halted since the operation began: no attempt begins, unless it has `begun`.

    An `at_most_once` step whose start is recorded is executed, unless another worker owns the run.
    """
    if ex.signal is not None and not begun and (not call.at_most_once or isinstance(ex.signal, Lost)):
        raise ex.signal


def _succeeded(record: Step, began: int) -> Step:
    """The record of a step, with the successful attempt added to its trail if there were others."""
    if record.trail is not None and not is_once(record):
        record.trail = _trail(record.trail, {"error": None, "from": began})
    return record


def _is_whole_job(ex: Execution, record: Step, call: StepCall) -> bool:
    """Whether the end of the run is record enough: a job of a batch function that succeeds at once is one row, not two.

    In a halted run the outcome of a step in flight is recorded by itself.
    """
    return ex.function.kind == "step" and record.attempts == 1 and not call.at_most_once and ex.signal is None


def _begun_before(ex: Execution, record: Step, call: StepCall) -> Step | None:
    """Note the input of an `at_most_once` step, by which later attempts of the run know the call. Return its record from an earlier one."""
    key = fingerprint(call.fn, call.args, call.kwargs, ad_hoc=call.awaits_result)
    before = ex.history.begun_before(record.position, call.name, key, anywhere=not key.endswith(INCOMPLETE))
    note = {"error": None, "from": record.started, "input": key}
    record.trail = json.dumps([note if before is None else {**note, OUTCOME_OF: before.position}])
    return before


def _again(ex: Execution, record: Step, call: StepCall, before: Step) -> Flow:
    """Record and deliver the outcome that an `at_most_once` step had in an earlier attempt of the run."""
    record.attempts = before.attempts
    if before.output is not None:
        return (yield from conclude(ex, record, call.result, output=before.output))
    if before.error is not None:
        return (yield from conclude(ex, record, call.result, error_text=before.error))
    begun = f"step {call.name!r} has begun in an earlier attempt of the run and is not to be started again"
    return (yield from conclude(ex, record, call.result, error=Interrupted(begun)))


def _taken_up(ex: Execution, record: Step, call: StepCall) -> Flow:
    """Continue a step that had begun before. Return the exception that ends it, or None when its next attempt may begin."""
    if call.at_most_once and record.due is None:
        return Interrupted(f"step {call.name!r} was interrupted and is at_most_once, so it is not executed again")
    return None if (yield from _back_off(ex, record)) else _not_again(record)


def _back_off(ex: Execution, record: Step) -> Flow:
    """Record the attempts, and wait for the next one. Return False if there is none because another run has taken the run's key."""
    if record.due is None:
        return True  # a crash cut the attempt off
    if not (yield from _has_lost_key(ex)):
        with ex.wait(until=record.due) as wait:
            yield from commit_or_stop(ex, waiting_write(ex, record))
            if record.due > ex.engine.clock.now():
                yield Pause(wait, record)
        if not (yield from _has_lost_key(ex)):
            return True
    record.due = None
    return False


def _has_lost_key(ex: Execution) -> Flow:
    """Whether another run has taken the key of a step that is a run of its own. Then it has no further attempt."""
    if ex.function.kind == "workflow":
        return False
    if ex.run.key is None:
        return is_last_attempt(ex.run)
    row: Run | None = yield Consult(lambda: ex.engine.store.run(ex.id))
    return row is not None and is_last_attempt(row)


def _not_again(record: Step) -> Interrupted:
    """The exception of a step that is not retried and whose last exception is no longer in memory."""
    tried = json.loads(record.trail or "[]")
    last = f": {tried[-1]['error']}" if tried else ""
    return Interrupted(f"step {record.name!r} failed and is not tried again, since another run has taken its key{last}")


def _judged(retry: Retry, record: Step, error: Exception, began: int, now: int) -> tuple[int | None, Exception]:
    """The pause before the next attempt, or None if there is none, and the exception of this attempt."""
    if retry.attempts > 1:
        record.trail = _trail(record.trail, {"error": summarize_exception(error), "from": began, "to": now})
    try:
        pause = retry.pause(record.attempts, error, f"{record.run}/{record.position}")
    except Exception as mistake:  # noqa: BLE001  (raised by the user's own `Retry.on`)
        return None, mistake
    if pause is None:
        _note_attempts(error, record)
    return pause, error


def _trail(trail: str | None, attempt: dict[str, str | int | None]) -> str:
    """The trail of attempts with another one added: the error and the times of each. The last may have no error."""
    before: list[Any] = json.loads(trail) if trail else []
    return json.dumps([*before, attempt], ensure_ascii=False)


def _note_attempts(error: BaseException, record: Step) -> None:
    if record.trail and record.attempts > 1:
        tried = [f"  {number}. {each['error']}" for number, each in enumerate(json.loads(record.trail), 1)]
        add_note(error, "\n".join([f"gave up after {record.attempts} attempts:", *tried]))


# -- waits -------------------------------------------------------------------------------------------------------------
def sleep(ex: Execution, position: str, until: int) -> Flow:
    """Wait until a wall-clock time. The time is recorded first, so restarts neither shorten nor lengthen it."""
    recorded = ex.recall(position, "sleep", "sleep")
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, None))
    yield from frontier(ex, position)
    now = ex.engine.clock.now()
    record = recorded or Step(ex.id, position, "sleep", "sleep", started=ex.begins(), due=until)
    record.epoch = ex.epoch
    due = record.due if record.due is not None else until
    overdue = due <= now
    # Overdue sleeps of several branches end in the order of their times, so they wait for their timers, too.
    if not overdue or (recorded is not None and ex.tasks.unfinished):
        with ex.wait(until=due) as wait:
            if not overdue:
                yield from commit_or_stop(ex, waiting_write(ex, record))
            yield Pause(wait, record)
    return (yield from conclude(ex, record, None, output="null"))


def call(ex: Execution, position: str, name: str, make: Make, result: ValueCodec) -> Flow:
    """Start another run and wait for its result, as one operation."""
    recorded = ex.recall(position, "call", name)
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, result))
    yield from frontier(ex, position)
    if recorded is not None:
        return (yield from _await_run(ex, recorded, result, starts=[]))
    (child,) = starts = make()
    if (yield from _takes_up(ex, position, name, child)):
        starts = []
    ex.engine.local_starts.reserve_each(starts, in_run=True)
    record = Step(ex.id, position, "call", name, started=ex.begins(), child=child.id)
    return (yield from _await_run(ex, record, result, starts=starts))


def _takes_up(ex: Execution, position: str, name: str, child: NewRun) -> Flow:
    """Whether the call continues the child of a call that a retry has forgotten: it has the same input. With another input it is another child."""
    edition = ex.history.edition(position)
    if edition.name != name:
        return False
    before: Run | None = yield Consult(lambda: ex.engine.store.run(child.id))
    if before is None or (before.parent, before.workflow) != (ex.id, child.workflow):
        return False
    if child.id != ex.child_id(ex.history.place(position, name)) or _is_same_input(ex, before, child):
        return True
    child.id = ex.child_id(f"{position}~{edition.failed}")
    return False


def _is_same_input(ex: Execution, before: Run, child: NewRun) -> bool:
    if before.input == child.input:
        return True
    codec = ex.engine.registry.get(child.workflow).codec
    try:
        return bool(codec.decode(before.input) == codec.decode(child.input))  # a set has no order
    except Exception:  # noqa: BLE001  (the function has other parameters now, or its values compare in their own way)
        return False


def result(
    ex: Execution, position: str, run_id: str, codec: ValueCodec, until: int | None, *, together: bool = False
) -> Flow:
    """Wait for the end of a run that was started before, at most until a time."""
    recorded = ex.recall(position, "result", run_id)
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, codec))
    yield from frontier(ex, position, together=together)
    record = recorded or Step(ex.id, position, "result", run_id, started=ex.begins(), child=run_id, due=until)
    return (yield from _await_run(ex, record, codec, starts=[]))


def ended(ex: Execution, position: str, run_id: str) -> Flow:
    """Wait for the end of a run, however it ends. One of several waits that are made together."""
    recorded = ex.recall(position, "ended", run_id)
    if recorded is not None and recorded.completed is not None:
        return (yield from replayed(ex, recorded, None))
    yield from frontier(ex, position, together=True)
    record = recorded or Step(ex.id, position, "ended", run_id, started=ex.begins(), child=run_id)
    ending = yield from _ending(ex, record, starts=[])
    if isinstance(ending, Exception):
        return (yield from conclude(ex, record, None, error=ending))
    return (yield from conclude(ex, record, None, output="null"))


def _await_run(ex: Execution, record: Step, codec: ValueCodec, *, starts: list[NewRun]) -> Flow:
    ending = yield from _ending(ex, record, starts=starts)
    if isinstance(ending, Exception):
        return (yield from conclude(ex, record, codec, error=ending))
    if ending.output is not None:
        return (yield from conclude(ex, record, codec, output=ending.output))
    return (yield from conclude(ex, record, codec, error_text=error_text(ending)))


def _ending(ex: Execution, record: Step, *, starts: list[NewRun]) -> Flow:
    """Wait for the end of a run. Return its ending, or the exception if the run cannot be awaited or the time is over."""
    edition = ex.history.edition(record.position)
    begins = record.epoch == 0  # one that was recorded has the epoch of the worker that recorded it
    record.epoch = ex.epoch
    with ex.wait(until=record.due, child=record.child) as wait:
        write = waiting_write(ex, record)
        write.starts, write.watch = starts, record.child
        if begins and edition.name == record.name and not starts:
            write = RecordAndRevive(**structs.asdict(write), asked=edition.asked)
        answer = yield from commit_or_stop(ex, write)
        if answer.verdict is Verdict.TAKEN or answer.missing:
            taken = answer.taken
            return _taken(starts, taken) if taken else NotFound(f"there is no run {record.child!r} to wait for")
        ending: Ending | None = answer.ending
        if ending is None:
            ending = yield Pause(wait, record)
    if ending is None:
        return StillRunning(
            f"run {record.child!r} had not ended when the time to wait for it was over; nothing was done to the run"
        )
    return ending


class Begun(Struct, frozen=True):
    """The ids of the runs that an operation started, and which of them existed before."""

    ids: list[str]
    taken: frozenset[str] = frozenset()


def start(ex: Execution, position: str, name: str, make: Make) -> Flow:
    """Start runs in the background, in one commit with the record of the operation. Returns `Begun`.

    In a fork they are the runs of the original: the record has their ids.
    """
    recorded = ex.recall(position, "start", name)
    if recorded is not None and recorded.completed is not None:
        taken = ex.history.mark(f"c:{position}")
        yield from replayed(ex, recorded, None)
        return Begun(json.loads(recorded.output or "[]"), frozenset(taken or ()))
    yield from frontier(ex, position)
    now = ex.engine.clock.now()
    children = make()
    ex.engine.local_starts.reserve_each(children, in_run=True)
    only = children[0].id if len(children) == 1 else None
    record = Step(ex.id, position, "start", name, started=ex.begins(), epoch=ex.epoch, child=only)
    record.completed, record.seq = now, ex.history.take_seq()
    record.output = json.dumps([child.id for child in children])
    answer = yield from commit_or_stop(ex, RecordStep(ex.engine.worker_id, record, starts=children), final=record)
    if answer.verdict is Verdict.TAKEN:
        ex.history.delivery.skip(record.seq)
        return (yield from conclude(ex, record, None, error=_not_started(children, answer)))
    ids = [answer.became.get(child.id, child.id) for child in children]
    record.output = json.dumps(ids)
    taken = {*answer.taken, *answer.became.values()}
    if taken:
        yield from commit_or_stop(ex, RecordStep(ex.engine.worker_id, ex.new_mark(f"c:{position}", sorted(taken))))
    yield from await_turn(ex, record, record)
    ex.history.last_time = record.completed
    return Begun(ids, frozenset(taken))


def _not_started(starts: list[NewRun], answer: Recorded) -> Conflict:
    for run in starts:
        if run.id in answer.refused:
            return key_error(run.key, answer.refused[run.id])
    return _taken(starts, answer.taken)


def _taken(starts: list[NewRun], taken: Mapping[str, str]) -> Conflict:
    run = next(run for run in starts if taken.get(run.id, run.workflow) != run.workflow)
    return taken_error(run.id, run.workflow, taken[run.id])
