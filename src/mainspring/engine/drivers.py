"""Drivers of operations: they perform the effects of an operation, awaiting in `async def` runs, blocking in `def` runs."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from concurrent.futures import TimeoutError as PoolTimeout
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mainspring.engine import users_code
from mainspring.engine.effects import Commit, Consult, Forever, Hold, Nap, Pause, active_write
from mainspring.engine.operations import transactions
from mainspring.engine.operations.steps import Invoke
from mainspring.engine.operations.transactions import Transact
from mainspring.engine.replay.context import StepScope, current
from mainspring.engine.replay.signals import Halt, Lost
from mainspring.engine.residency.phases import Phase
from mainspring.engine.users_code import EXITS, error_of, exits_of, was_closed
from mainspring.errors import StepTimedOut
from mainspring.model import forks
from mainspring.model.clock import SECOND
from mainspring.model.states import State
from mainspring.store.writes import DiscardOutcome, RecordStep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from mainspring.engine.effects import Effect, Flow
    from mainspring.engine.operations.steps import StepCall
    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import Step


async def drive(ex: Execution, flow: Flow, effect: Effect | None = None) -> Any:
    """Perform an operation on the loop. The caller has counted it as outstanding. `effect`: the next one, if the operation has begun."""
    ex.acting += 1
    position = ""
    try:
        effect = effect or next(flow)
        position = ex.history.recalled
        while True:
            try:
                answer = await perform(ex, effect)
            except BaseException as error:  # noqa: BLE001  (the operation handles it)
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
                answer = None  # free it: the next effect may take long
    except StopIteration as done:
        return done.value
    except asyncio.CancelledError:
        if position in ex.history.open_records and ex.signal is None:
            abandon(ex, ex.history.open_records[position])
        raise
    except Halt:
        while (quiet := ex.quiet()) is not None:  # unwinding the code now would cut off a step of another branch
            await quiet
        raise
    finally:
        ex.acting -= 1
        ex.outstanding -= 1
        if ex.waits or ex.engine.draining:
            _end_operation(ex)


def _end_operation(ex: Execution) -> None:
    """Note that an operation has ended, in a run whose other branches wait or whose worker stops."""
    if ex.engine.draining:
        ex.engine.halting.hand_back_if_idle(ex)
    else:
        ex.engine.residency.reconsider(ex)  # this branch may have come to its end


def drive_blocking(ex: Execution, flow: Flow) -> Any:
    """Perform an operation on the thread of a `def` run: steps and commits on the thread, waits on the loop."""
    ex.acting += 1
    try:
        effect = next(flow)
        while True:
            try:
                if isinstance(effect, Commit):
                    answer = _commit_blocking(ex, effect)
                elif isinstance(effect, Invoke):
                    answer = _invoke_blocking(ex, effect)
                elif isinstance(effect, Transact) and not effect.call.is_async:
                    transactions.make(ex, effect)
                    answer = None
                else:
                    answer = on_loop(ex, performed(ex, effect))
            except BaseException as error:  # noqa: BLE001
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as done:
        return done.value
    finally:
        ex.acting -= 1
        ex.outstanding -= 1


def perform(ex: Execution, effect: Effect) -> Awaitable[Any]:
    """Return an awaitable that performs one effect. Not a coroutine function, which would cost each waiting run one more frame."""
    return PERFORMERS[type(effect)](ex, effect)


async def performed(ex: Execution, effect: Effect) -> Any:
    return await perform(ex, effect)


def on_loop(ex: Execution, work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on the loop, and block this thread until it is done."""
    return asyncio.run_coroutine_threadsafe(work, ex.engine.loop).result()


# -- awaiting ----------------------------------------------------------------------------------------------------------
async def _commit(ex: Execution, effect: Commit) -> Any:
    op = effect.op
    answer = ex.engine.committer.commit(op)
    if isinstance(op, RecordStep) and op.starts:
        answer = ex.engine.local_starts.follow_write(op.starts, answer)
    try:
        return await answer
    except asyncio.CancelledError:
        await _void(ex, effect.final)
        if effect.begins is not None and ex.signal is None:
            abandon(ex, effect.begins, stored_as_waiting=isinstance(op, RecordStep) and op.run_state is State.WAITING)
        raise


def _commit_blocking(ex: Execution, effect: Commit) -> Any:
    op = effect.op
    if not isinstance(op, RecordStep) or not op.starts:
        return ex.engine.committer.commit_sync(op)
    try:
        answer = ex.engine.committer.commit_sync(op)
    except BaseException as error:
        ex.engine.local_starts.begin_if_stored(op.starts, [error] * len(op.starts))
        raise
    ex.engine.local_starts.begin_if_stored(op.starts, [answer] * len(op.starts))
    return answer


def _hold(ex: Execution, effect: Hold) -> Awaitable[Any]:
    return effect.future if effect.final is None else _hold_outcome(ex, effect)


async def _hold_outcome(ex: Execution, effect: Hold) -> Any:
    try:
        return await effect.future
    except asyncio.CancelledError:
        await _void(ex, effect.final)
        raise


async def _void(ex: Execution, outcome: Step | None) -> None:
    """Record that the workflow's own code cancelled an operation before its outcome was delivered."""
    if outcome is None or ex.signal is not None or ex.disagreement is not None or outcome.seq is None:
        return
    if ex.phase is Phase.ENDING:
        return  # the end of the run has cancelled it, not the code, and another attempt may use the outcome
    ex.history.landmark = max(ex.history.landmark, outcome.completed or 0)
    delivery = ex.history.delivery
    with delivery.held():
        delivery.skip(outcome.seq)
        record_ends = delivery.frontier() if delivery.replaying else None
        if record_ends is not None:
            record_ends.add_done_callback(partial(_discard_after_replay, ex, outcome))
            return
        written = ex.engine.committer.commit(DiscardOutcome(ex.engine.worker_id, ex.id, ex.epoch, outcome.position))
        while not written.done():
            try:
                await asyncio.shield(written)
            except asyncio.CancelledError:
                continue


def _discard_after_replay(ex: Execution, outcome: Step, record_ends: asyncio.Future[None]) -> None:
    """Discard an outcome that a replay has cancelled: only now, because code that does not agree with the record must not change it."""
    if record_ends.cancelled() or record_ends.exception() is not None:
        return
    if ex.signal is None and ex.disagreement is None:
        ex.write_unconfirmed(DiscardOutcome(ex.engine.worker_id, ex.id, ex.epoch, outcome.position))
        assert ex.unconfirmed is not None  # noqa: S101
        arrived = (ex.id, outcome.kind, outcome.name)
        ex.unconfirmed.add_done_callback(lambda _: ex.engine.waits.arrived([arrived]))  # a message is there again


async def _pause(ex: Execution, effect: Pause) -> Any:
    wait = effect.wait
    if wait.future.done():  # the wait ended before its beginning was committed
        ex.woken(wait)
        return wait.future.result()
    ex.history.note_closed(effect.record.position)
    ex.acting -= 1
    ex.engine.residency.begin_wait(ex)
    try:
        value = await wait.future
    except asyncio.CancelledError:
        if ex.signal is None:
            abandon(ex, effect.record)
        raise
    finally:
        ex.woken(wait)
        ex.acting += 1
        ex.engine.residency.end_wait(ex)
    ex.history.note_open(effect.record)
    return value


def abandon(ex: Execution, begun: Step, *, stored_as_waiting: bool = False) -> None:
    """Record that the workflow's own code cancelled an operation, so that a replay does not wait for its outcome.

    `stored_as_waiting`: a write that is under way, and that the operation no longer awaits, stores the run as waiting.
    """
    if ex.disagreement is not None:
        return  # a version that agrees with the record may continue the operation
    now = ex.history.landmark = ex.begins()
    ex.history.note_closed(begun.position)
    write = active_write(ex, structs.replace(begun, epoch=ex.epoch, completed=now, seq=None, output=None, error=None))
    if stored_as_waiting:
        write.run_state, write.due = State.RUNNING, now
    ex.write_unconfirmed(write)


def abandon_unreached(ex: Execution, given_up: Callable[[str], bool] | None = None) -> None:
    """Abandon operations of an `async def` run that are recorded as begun and that its code no longer reaches: all, or those given up."""
    for step in ex.history.take_unreached(given_up) if ex.function.on_loop else ():
        abandon(ex, step)


async def _forever(ex: Execution, _: Effect) -> None:
    wait = ex.wait()
    try:
        await wait.future
    finally:
        ex.woken(wait)


async def _transact(ex: Execution, effect: Transact) -> None:
    """Execute a transaction. A cancellation waits until it has committed or rolled back."""
    clock = ex.engine.clock
    clock.busy()
    ex.invoking += 1
    try:
        if ex.unconfirmed is not None and not ex.unconfirmed.done():
            await asyncio.wait(
                {ex.unconfirmed}
            )  # a transaction does not go through the committer, and must not commit before earlier writes
        if effect.call.is_async:
            work: asyncio.Future[None] = ex.engine.loop.create_task(transactions.make_async(ex, effect))
        else:
            context = contextvars.copy_context()
            work = _on_thread(ex, lambda: context.run(transactions.make, ex, effect))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():
                try:
                    await asyncio.wait({work})
                except asyncio.CancelledError:
                    continue
            if not work.cancelled() and work.exception() is None:
                await _void(ex, effect.record)
            raise
    finally:
        ex.invoked()
        clock.idle()


async def _nap(ex: Execution, effect: Nap) -> None:
    ex.engine.clock.busy()
    try:
        await asyncio.sleep(effect.seconds)
    finally:
        ex.engine.clock.idle()


async def _invoke(ex: Execution, effect: Invoke) -> Any:
    call = effect.call
    if call.batch is not None:
        return await _invoke_batch(ex, effect)
    clock = ex.engine.clock
    token = current.set(StepScope(ex, effect.position, effect.attempt, call.name, on_pool=not call.is_async))
    leave = ex.engine.around(ex.run, effect.position) if ex.engine.around is not None else None
    clock.busy()
    ex.invoking += 1
    before = forks.count
    try:
        work: Any = call.fn(*call.args, **call.kwargs) if call.is_async else _in_pool(ex, effect)
        if call.awaits_result and not call.is_async:
            work = _with_coroutine(call, work)
        if call.interruptible and call.is_async:
            work = _interruptible(ex, effect, users_code.await_here(work))
        value = await (work if call.timeout is None else _in_time(effect, work, call.timeout))
    except BaseException as error:
        users_code.end_if_child(before, error)
        if isinstance(error, exits_of(ex)) and not was_closed(error):
            raise error_of(error, f"step {call.name!r}") from error
        raise
    else:
        users_code.end_if_child(before, None)
        return value
    finally:
        ex.invoked()
        clock.idle()
        try:  # noqa: SIM105  (suppress() costs as much as all the rest here)
            current.reset(token)
        except ValueError:  # the coroutine was closed by the garbage collector, in another context
            pass
        if leave is not None:
            leave()


async def _invoke_batch(ex: Execution, effect: Invoke) -> Any:
    """Call a batch function with the input of one step among others. The batch belongs to no run, and has its own timeout."""
    outcome: asyncio.Future[Any] = ex.engine.loop.create_future()
    ex.enter_batch()
    try:
        ex.engine.batches.join(effect.call, effect.call.args, effect.call.kwargs, outcome)
        return await outcome
    finally:
        ex.leave_batch()


async def _in_time(effect: Invoke, work: Awaitable[Any], timeout: int) -> Any:
    """Await the function of a step until its timeout. A result or exception that comes later is ignored."""
    limit = asyncio.timeout(timeout / SECOND)
    try:
        async with limit:
            value = await work
    except TimeoutError:
        if limit.expired():
            raise _timed_out(effect) from None
        raise
    except Exception as error:
        if limit.expired():
            raise _timed_out(effect) from error
        raise
    if limit.expired():  # the step has swallowed the cancellation
        raise _timed_out(effect)
    return value


async def _with_coroutine(call: StepCall, work: Awaitable[Any]) -> Any:
    """Await what a function returned on its thread, and then the coroutine that it may have returned."""
    value = await work
    return await _awaited(call, value) if inspect.iscoroutine(value) else value


async def _awaited(call: StepCall, work: Coroutine[Any, Any, Any]) -> Any:
    """Await an `async def` step in a task of its own."""
    try:
        return await work
    except EXITS as error:
        if was_closed(error):
            raise
        raise error_of(error, f"step {call.name!r}") from error


async def _interruptible(ex: Execution, effect: Invoke, work: Coroutine[Any, Any, Any]) -> Any:
    """Execute a step as a task that a halt of the run cancels. An exception of the interrupted step is not its outcome."""
    task = ex.engine.loop.create_task(_awaited(effect.call, work))
    ex.tasks.add_interruptible(task)
    try:
        return await task
    except BaseException:
        if ex.signal is not None:
            raise ex.signal from None
        raise
    finally:
        ex.tasks.interruptible.pop(task, None)


def _in_pool(ex: Execution, effect: Invoke) -> asyncio.Future[Any]:
    call = effect.call
    context = contextvars.copy_context()
    return _on_thread(ex, lambda: context.run(_plainly, ex, call))


def _on_thread(ex: Execution, work: Callable[[], Any]) -> asyncio.Future[Any]:
    """Call a function on a thread of the pool for steps.

    The pool of a worker that was declared dead, or has stopped, is shut down. That is no outcome of a step: another worker continues the run.
    """
    try:
        return ex.engine.loop.run_in_executor(ex.engine.step_pool, work)
    except RuntimeError:
        raise _lost(ex) from None


def _lost(ex: Execution) -> Halt:
    ex.engine.halting.halt(ex, Lost())
    return ex.signal or Lost()


def _plainly(ex: Execution, call: StepCall) -> Any:
    """Call a `def` step."""
    try:
        return users_code.call_here(call.fn, *call.args, **call.kwargs)
    except exits_of(ex) as error:
        raise error_of(error, f"step {call.name!r}") from error


# -- blocking ----------------------------------------------------------------------------------------------------------
def _invoke_blocking(ex: Execution, effect: Invoke) -> Any:
    call = effect.call
    if call.is_async or call.batch is not None:
        return on_loop(ex, _invoke(ex, effect))
    on_pool = call.timeout is not None
    token = current.set(StepScope(ex, effect.position, effect.attempt, call.name, on_pool=on_pool))
    leave = ex.engine.around(ex.run, effect.position) if ex.engine.around is not None else None
    try:
        value = _call_blocking(ex, effect)
        if not (call.awaits_result and inspect.iscoroutine(value)):
            return value
        work = _awaited(call, value)
        return on_loop(ex, work if call.timeout is None else _in_time(effect, work, call.timeout))
    finally:
        current.reset(token)
        if leave is not None:
            leave()


def _call_blocking(ex: Execution, effect: Invoke) -> Any:
    call = effect.call
    if call.timeout is None:
        return _plainly(ex, call)
    context = contextvars.copy_context()
    # A thread cannot be interrupted: after the timeout its result is ignored, and it keeps its slot in the pool.
    try:
        work = ex.engine.step_pool.submit(context.run, _plainly, ex, call)
    except RuntimeError:
        raise _lost(ex) from None
    try:
        return work.result(call.timeout / SECOND)
    except PoolTimeout:
        if work.done():
            raise
        raise _timed_out(effect) from None


def _timed_out(effect: Invoke) -> StepTimedOut:
    seconds = (effect.call.timeout or 0) / SECOND
    return StepTimedOut(
        f"step {effect.call.name!r} took longer than its timeout of {seconds:g} s (attempt {effect.attempt})"
    )


async def _consult(ex: Execution, effect: Consult) -> Any:
    return await ex.engine.consult(ex, effect.question)


PERFORMERS: dict[type[Effect], Callable[[Execution, Any], Awaitable[Any]]] = {
    Invoke: _invoke,
    Commit: _commit,
    Hold: _hold,
    Pause: _pause,
    Transact: _transact,
    Consult: _consult,
    Nap: _nap,
    Forever: _forever,
}
