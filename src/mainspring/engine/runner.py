"""Executing one run from the top of its function to its end, or until it is let go."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from mainspring.codec import encode_exception, summarize_exception
from mainspring.engine.drivers import abandon_unreached, drive, drive_blocking
from mainspring.engine.effects import Commit
from mainspring.engine.operations.steps import StepCall, step
from mainspring.engine.operations.ticks import times_of
from mainspring.engine.operations.transactions import TransactionCall, transaction
from mainspring.engine.registry import Bound
from mainspring.engine.replay.context import Branch, current
from mainspring.engine.replay.signals import Continued, Halt, HandedBack, Lost, Parked, Stopped
from mainspring.engine.replay.watchdog import watch
from mainspring.engine.residency.phases import Phase
from mainspring.engine.retry import Retry, pause_of
from mainspring.engine.users_code import call_here, end_if_child, was_closed
from mainspring.errors import Interrupted, MainspringError, NonDeterminism, NotSerializable
from mainspring.model import forks
from mainspring.model.runs import Ending
from mainspring.model.states import State
from mainspring.store.writes import Compensate, ContinueAs, Finish, Release, RetryLater, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mainspring.engine.effects import Flow
    from mainspring.engine.replay.execution import Execution
    from mainspring.store.writes import Op

log = logging.getLogger("mainspring.engine")

_ONCE = Retry(1)
ONLY_POSITION = "0"
"""The position of the operation of a run that is one step or transaction."""
_CANCELLED_ITSELF = (
    "the code of the run cancelled itself: it awaited a task that it had cancelled, or a task group failed in the moment in which a timeout "
    "around it ended (before Python 3.13); catch that where it happens"
)
_PATIENCE = 1.0
"""Seconds that cancelled tasks of a run have to end."""


async def run_async(ex: Execution, body: Awaitable[Any] | None = None) -> None:
    """Execute the code of an `async def` run on the loop, up to its end, which `Ends` records. `body`: the rest of it, if it has begun."""
    value: Any = None
    error: BaseException | None = None
    before = forks.count
    if ex.replays and ex.history.delivery.replaying:
        watch(ex)
    try:
        if body is None:
            args, kwargs = arguments(ex)
            current.set(Branch(ex, _prefix(ex)))
            value = await _body(ex, args, kwargs)
        else:
            current.set(Branch(ex, _prefix(ex)))
            value = await body
    except BaseException as caught:
        if was_closed(caught):
            raise
        error = caught
    end_if_child(before, error)
    ex.outcome = value, come_to_its_end(ex, error)
    current.set(None)
    if ex.tasks.unfinished or ex.unawaited or ex.signal is not None or ex.unwound:
        await _clear_tasks(ex)


def _refusal(ex: Execution) -> NotSerializable | None:
    """The error of an outcome that was delivered to the code before its commit, and that the database then refused."""
    refused = ex.ahead.error if ex.ahead is not None else None
    if refused is None:
        return None
    return NotSerializable(f"the database refused the outcome of a step of run {ex.id}: {refused}")


def run_blocking(ex: Execution) -> Ending | None:
    """Execute a `def` run on a thread of its own."""
    value: Any = None
    error: BaseException | None = None
    if ex.replays and ex.history.delivery.replaying:
        ex.engine.here(watch, ex)
    try:
        args, kwargs = arguments(ex)
        current.set(Branch(ex, _prefix(ex)))
        value = _body(ex, args, kwargs)
    except BaseException as caught:  # noqa: BLE001
        error = caught
    current.set(None)
    ex.outcome = value, come_to_its_end(ex, error)
    flow = conclude(ex)
    try:
        effect = next(flow)
        while True:
            try:
                answer = _commit_blocking(ex, effect.op)  # type: ignore[attr-defined]
            except Exception as refused:  # noqa: BLE001
                effect = flow.throw(refused)
            else:
                effect = flow.send(answer)
    except StopIteration as done:
        if ex.ahead is not None and ex.ahead.kept:
            ex.ahead.commit_sync()
        return done.value  # type: ignore[no-any-return]


def _commit_blocking(ex: Execution, op: Op) -> Any:
    """Commit the write that ends a `def` run, on its thread, in one piece with its last outcome if that is not committed yet."""
    if ex.ahead is not None and ex.ahead.kept:
        return ex.ahead.commit_sync(op)
    return ex.engine.committer.commit_sync(op)


def come_to_its_end(ex: Execution, error: BaseException | None) -> BaseException | None:
    """Move a run whose code has returned or raised to `ENDING`. Return the exception if it is the outcome of the run.

    A signal that the code raised came from an operation of the run, before the loop could halt the run: it halts the run now.
    """
    if isinstance(error, Halt):
        ex.begin_halt(error)
        if ex.undoing is None:  # in every phase: a signal is never the outcome of a run
            ex.signal = ex.signal or error
    ex.move(Phase.ENDING)
    return None if ex.signal is not None else error


def _prefix(ex: Execution) -> str:
    """The prefix of all positions in a later generation of a run, so that its children and keys differ from earlier ones."""
    return f"g{ex.run.generation}." if ex.run.generation else ""


def arguments(ex: Execution) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The decoded arguments of a run's function."""
    if ex.function.at_most_once and ex.run.is_continuation and not _has_outcome(ex):
        raise Interrupted(
            f"run {ex.id} was interrupted, and {ex.function.name!r} is at_most_once, so it is not executed again"
        )
    times = times_of(ex.run) if ex.run.generation == 0 else None
    if times is not None:
        return times, {}
    args, kwargs = ex.function.codec.decode(ex.run.input)
    if ex.function.bound is not Bound.NOT:
        args = (ex.engine.receiver(ex.function, args[0]), *args[1:])
    return args, kwargs


def _has_outcome(ex: Execution) -> bool:
    """Whether the outcome of an `at_most_once` step or transaction is recorded, so that it only has to be delivered."""
    recorded = ex.history.journal.get(ONLY_POSITION) if ex.function.kind != "workflow" else None
    return recorded is not None and recorded.completed is not None


def _body(ex: Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function of a run. A step or transaction that is a run of its own becomes a run with that one operation."""
    function = ex.function
    if function.kind == "workflow":
        return function.fn(*args, **kwargs) if function.is_async else call_here(function.fn, *args, **kwargs)
    flow = only_operation(ex, args, kwargs)
    return drive(ex, flow) if function.on_loop else drive_blocking(ex, flow)


def only_operation(ex: Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flow:
    """The operation of a run that is one step or transaction."""
    ex.outstanding += 1
    if ex.function.kind == "transaction":
        return transaction(ex, ONLY_POSITION, TransactionCall.of(ex.function, args, kwargs))
    return step(ex, ONLY_POSITION, StepCall.of(ex.function, args, kwargs))


async def _clear_tasks(ex: Execution) -> None:
    """Cancel and await the unfinished tasks of a run, so that nothing of the run executes after its end."""
    if ex.signal is None and not ex.unwound:
        _warn_of_mistakes(ex)
    elif (quiet := ex.quiet()) is not None:
        await quiet  # an executing step is recorded first
    for _ in range(3):
        left = list(ex.tasks.unfinished)
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_PATIENCE)
        while (compensated := ex.compensated()) is not None:
            await compensated
        for task in left:
            if task.done() and not task.cancelled():
                task.exception()
    if ex.tasks.unfinished:
        log.error(
            "run %s of %s: %d tasks ignored their cancellation; abandoning them",
            ex.id,
            ex.function.name,
            len(ex.tasks.unfinished),
        )


def _warn_of_mistakes(ex: Execution) -> None:
    """Warn of what the code has created and not awaited, unless it was cut off because it disagrees with the record."""
    if ex.disagreement is not None:
        return
    _warn_of_unawaited(ex)
    for site in [site for task, site in ex.tasks.unfinished.items() if task not in ex.tasks.responders]:
        log.warning(
            "run %s of %s ended while a task created at %s was unfinished; it is cancelled. Await what you start.",
            ex.id,
            ex.function.name,
            site,
        )


def _warn_of_unawaited(ex: Execution) -> None:
    """Warn of operations whose coroutine the code never awaited: they were not executed."""
    if ex.dry or ex.tasks.unfinished:  # `_warn_of_mistakes` warns of tasks that have not begun
        return
    for name, code, instruction in ex.unawaited.values():
        lines = list(code.co_positions())
        line = lines[instruction // 2][0] if instruction // 2 < len(lines) else code.co_firstlineno
        log.warning(
            "run %s of %s called %s at %s:%s and never awaited it, so it was not executed; write `await`",
            ex.id,
            ex.function.name,
            name,
            code.co_filename,
            line,
        )


def conclude(ex: Execution) -> Flow:
    """Record the end of a run. Return its ending, or None if the run has not ended here.

    In a halted run the outcome of the code does not count, and the run is released or cancelled. All effects are commits.
    """
    if ex.ended_with is not None:
        return Ending(ex.id, State.SUCCEEDED, None, ex.ended_with, None)
    value, error = ex.outcome
    error = error or _refusal(ex)
    _disagree_if_record_goes_on(ex, error)
    if ex.signal is not None:
        return (yield from _leave_halted(ex, ex.signal))
    if ex.undoing is not None:
        return (yield from _finish_unwound(ex))
    if ex.disagreement is not None:
        if ex.run.fingerprint != ex.function.fingerprint:
            yield Commit(Release(ex.engine.worker_id, ex.id, ex.epoch, blocked=_blocked(ex)))
            return None
        error = ex.disagreement
    elif ex.history.unreached:
        abandon_unreached(ex)
    finish = _finish_of(ex, value, error)
    due = _next_attempt(ex, finish, error)
    if due is not None:
        verdict = yield Commit(RetryLater(finish.owner, ex.id, ex.epoch, due, finish.error or "{}"))
        if verdict is Verdict.DONE:
            ex.engine.changed(ex, "run.retrying", finish.reason)
        if verdict not in {Verdict.STOPPING, Verdict.LAST}:
            return None
    return (yield from record_end(ex, finish))


def plain_success(ex: Execution) -> Finish | None:
    """The end of a run that has succeeded with nothing else to consider. None: `conclude` decides how the run ends."""
    value, error = ex.outcome
    if error is not None or ex.signal is not None or ex.ahead is not None or ex.ended_with is not None:
        return None
    if ex.undoing is not None or ex.disagreement is not None or ex.replays:
        return None
    finish = _finish_of(ex, value, None)
    return finish if finish.state is State.SUCCEEDED else None


def _disagree_if_record_goes_on(ex: Execution, error: BaseException | None) -> None:
    if ex.signal is not None or ex.disagreement is not None or isinstance(error, Interrupted):
        return
    unused = ex.history.unused(ex.tasks.responders.values()) if ex.history.delivery.replaying else None
    if unused is not None:
        what = f"{unused.kind} {unused.name!r} at position {unused.position}"
        ex.disagree(f"the function came to its end, but the record continues with {what}")


def _blocked(ex: Execution) -> str:
    """The reason why this version cannot continue the run, with all versions that could not: none of them claims it again."""
    before: list[str] = json.loads(ex.run.blocked)["versions"] if ex.run.blocked else []
    return json.dumps({"versions": [*before, ex.engine.version], "reason": str(ex.disagreement)})


def _finish_of(ex: Execution, value: Any, error: BaseException | None) -> Finish:
    finish = Finish(ex.engine.worker_id, ex.id, ex.epoch, State.SUCCEEDED, ex.engine.clock.now())
    finish.schedule = ex.run.schedule
    if ex.run.deadline is not None and finish.completed >= ex.run.deadline:
        # The outcome came after the deadline of the run. It is most likely the timeout of a child.
        finish.state, finish.reason = State.CANCELLED, "timeout"
        return finish
    if error is None and ex.output is not None:
        finish.output = ex.output
    elif error is None:
        try:
            text = ex.function.codec.result.encode(value)
            finish.output = ex.engine.check_size(text, value, f"the result of {ex.function.name!r}")
        except MainspringError as refused:
            error = refused
    if error is not None:
        error = _with_words(error)
        finish.state, finish.error = State.FAILED, encode_exception(error)
        finish.reason = "interrupted" if isinstance(error, Interrupted) else summarize_exception(error)
    return finish


def _with_words(error: BaseException) -> BaseException:
    """A cancellation that came out of the code of a run which nothing has stopped, with a message: asyncio's has none."""
    if not isinstance(error, asyncio.CancelledError) or error.args:
        return error
    error.args = (_CANCELLED_ITSELF,)
    return error


def _next_attempt(ex: Execution, finish: Finish, error: BaseException | None) -> int | None:
    """The time of the next attempt of a failed run. None: there is none."""
    beyond_help = (NonDeterminism, Interrupted)
    if finish.state is not State.FAILED or not isinstance(error, Exception) or isinstance(error, beyond_help):
        return None
    function, run = ex.function, ex.run
    if function.at_most_once:
        return None
    own = function.retry if function.kind == "workflow" else _ONCE
    try:
        pause = pause_of(run.retry, own, run.attempts, error, run.uid)
    except Exception:
        log.exception("run %s of %s: the function in Retry(on=…) raised; the run is not retried", ex.id, function.name)
        return None
    if pause is None:
        return None
    log.info("run %s of %s failed (%s); retrying in %g s", ex.id, function.name, finish.reason, pause / 1e6)
    return finish.completed + pause


def record_end(ex: Execution, finish: Finish, *, once_more: bool = True) -> Flow:
    """Commit the end of a run. Return its ending, or None if another worker owns the run."""
    try:
        verdict = yield Commit(finish)
    except MainspringError:
        raise
    except Exception as refused:  # the database refuses the value itself
        if not once_more:
            raise
        problem = _refusal(ex) or NotSerializable(f"the database refused the result of {ex.function.name!r}: {refused}")
        return (yield from record_end(ex, _finish_of(ex, None, problem), once_more=False))
    if verdict is Verdict.STOPPING:
        finish = Finish(finish.owner, finish.run, finish.epoch, State.CANCELLED, finish.completed)
        verdict = yield Commit(finish)
    if verdict is not Verdict.DONE:
        return None
    if ex.ahead is not None and ex.ahead.refused:
        log.error(
            "run %s of %s has ended, but the database refused the outcome of its last step", ex.id, ex.function.name
        )
    ex.end_processed = finish.end_processed
    return Ending(ex.id, finish.state, finish.reason, finish.output, finish.error)


def _finish_unwound(ex: Execution) -> Flow:
    """Record the end of a stopped run that has made its compensations."""
    assert ex.undoing is not None  # noqa: S101
    reason = ex.undoing.args[0] if ex.undoing.args else None
    if ex.disagreement is not None:
        ex.complaints += (str(ex.disagreement),)
    if ex.complaints and not ex.dry:
        log.error("run %s of %s: %s", ex.id, ex.function.name, "; ".join(ex.complaints))
        if reason != "timeout":
            reason = "; ".join([*([reason] if reason else []), *ex.complaints])[:500]
    return (yield from _cancelled(ex, reason))


def _leave_halted(ex: Execution, signal: Halt) -> Flow:
    """Release, cancel or continue a halted run, by its signal."""
    owner = ex.engine.worker_id
    if isinstance(signal, (Parked, Lost)):
        return None
    if isinstance(signal, Stopped):
        return None if ex.undoable else (yield from _cancelled(ex, signal.args[0] if signal.args else None))
    if isinstance(signal, Continued):
        verdict = yield Commit(ContinueAs(owner, ex.id, ex.epoch, input=signal.args[0]))
        if verdict is Verdict.STOPPING and ex.undoable:
            ex.signal = Stopped()  # cancelled before it continued: its compensations are owed
            return None
    elif ex.undoing is not None:
        reason = ex.undoing.args[0] if ex.undoing.args else None
        verdict = yield Commit(Compensate(owner, ex.id, ex.epoch, undo_reason=reason or ""))
    else:
        assert isinstance(signal, HandedBack)  # noqa: S101
        verdict = yield Commit(Release(owner, ex.id, ex.epoch))
    return (yield from _cancelled(ex, None)) if verdict is Verdict.STOPPING else None


def _cancelled(ex: Execution, reason: str | None) -> Flow:
    """Record the end of a run that was stopped."""
    engine = ex.engine
    verdict = yield Commit(
        Finish(engine.worker_id, ex.id, ex.epoch, State.CANCELLED, engine.clock.now(), reason=reason)
    )
    return Ending(ex.id, State.CANCELLED, reason, None, None) if verdict is Verdict.DONE else None
