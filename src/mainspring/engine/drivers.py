"""Performing the effects of an operation: awaiting them in `async def` runs, blocking on them in `def` runs."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import TimeoutError as PoolTimeout
from typing import TYPE_CHECKING, Any

from mainspring.engine import transactions
from mainspring.engine.context import StepScope, current
from mainspring.engine.recording import Commit, Consult, Forever, Hold, Invoke, Nap, Pause, Transact
from mainspring.engine.unused import own
from mainspring.errors import StepTimedOut
from mainspring.store.ops import Void, Write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from mainspring.engine.execution import Execution
    from mainspring.engine.flows import StepCall
    from mainspring.engine.recording import Effect, Flow
    from mainspring.model.records import Step

SECOND = 1_000_000


async def drive(ex: Execution, flow: Flow) -> Any:
    """Perform an operation on the run's loop. Counted as outstanding by whoever called it, from the call on."""
    ex.active += 1
    try:
        effect = next(flow)
        while True:
            try:
                answer = await perform(ex, effect)
            except BaseException as error:  # noqa: BLE001  (the operation decides what it means)
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
                answer = None  # it may be a long time until the next one
    except StopIteration as done:
        return done.value
    finally:
        ex.active -= 1
        ex.outstanding -= 1


def drive_blocking(ex: Execution, flow: Flow) -> Any:
    """Perform an operation on the thread of a `def` run: steps and commits right here, waits on the loop."""
    ex.active += 1
    try:
        effect = next(flow)
        while True:
            try:
                if type(effect) is Commit:
                    answer = ex.engine.committer.commit_sync(effect.op)
                elif type(effect) is Invoke:
                    answer = _invoke_blocking(ex, effect)
                elif type(effect) is Transact and not effect.call.is_async:
                    transactions.make(ex, effect)
                    answer = None
                else:
                    answer = on_loop(ex, _performed(ex, effect))
            except BaseException as error:  # noqa: BLE001
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as done:
        return done.value
    finally:
        ex.active -= 1
        ex.outstanding -= 1


def perform(ex: Execution, effect: Effect) -> Awaitable[Any]:
    """What performs one effect on the run's loop, to be awaited. Not a coroutine itself: runs that wait would hold one more each."""
    return PERFORMERS[type(effect)](ex, effect)


async def _performed(ex: Execution, effect: Effect) -> Any:
    return await perform(ex, effect)


def on_loop(ex: Execution, work: Coroutine[Any, Any, Any]) -> Any:
    """Have the run's loop do something while this thread waits."""
    return asyncio.run_coroutine_threadsafe(work, ex.engine.loop).result()


# -- awaiting ----------------------------------------------------------------------------------------------------------
async def _commit(ex: Execution, effect: Commit) -> Any:
    try:
        return await ex.engine.committer.commit(effect.op)
    except asyncio.CancelledError:
        await _void(ex, effect.final)
        raise


def _hold(ex: Execution, effect: Hold) -> Awaitable[Any]:
    return effect.future if effect.final is None else _hold_outcome(ex, effect)


async def _hold_outcome(ex: Execution, effect: Hold) -> Any:
    try:
        return await effect.future
    except asyncio.CancelledError:
        await _void(ex, effect.final)
        raise


async def _void(ex: Execution, outcome: Step | None) -> None:
    """The workflow's own code cancelled an operation whose outcome is already on its way: record that it never saw it."""
    if outcome is None or ex.halted is not None or outcome.seq is None:
        return
    ex.delivery.skip(outcome.seq)
    written = ex.engine.committer.commit(Void(ex.engine.worker_id, ex.id, ex.epoch, outcome.position))
    while not written.done():
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            continue


async def _pause(ex: Execution, effect: Pause) -> Any:
    ex.active -= 1
    ex.engine.parking.waiting(ex)
    try:
        return await effect.wait.future
    except asyncio.CancelledError:
        if ex.halted is None:
            _abandon(ex, effect)
        raise
    finally:
        ex.woken(effect.wait)
        ex.active += 1
        ex.engine.parking.going_on(ex)


def _abandon(ex: Execution, effect: Pause) -> None:
    """The workflow's own code no longer waits for this: a replay is not to take it for a wait that goes on."""
    record = effect.record
    record.completed, record.seq, record.output, record.error = ex.engine.clock.now(), None, None, None
    written = ex.engine.committer.commit(Write(ex.engine.worker_id, record))
    written.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it


async def _forever(ex: Execution, _: Effect) -> None:
    wait = ex.wait()
    try:
        await wait.future
    finally:
        ex.woken(wait)


async def _transact(ex: Execution, effect: Transact) -> None:
    """Make a transaction. It cannot be cut off in the middle: whether it commits must be known."""
    clock = ex.engine.clock
    clock.busy()
    ex.invoking += 1
    try:
        if effect.call.is_async:
            work: asyncio.Future[None] = ex.engine.loop.create_task(transactions.make_async(ex, effect))
        else:
            context = contextvars.copy_context()
            work = ex.engine.loop.run_in_executor(
                ex.engine.step_pool, lambda: context.run(transactions.make, ex, effect)
            )
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
        ex.invoking -= 1
        clock.idle()


async def _nap(ex: Execution, effect: Nap) -> None:
    ex.engine.clock.busy()
    try:
        await asyncio.sleep(effect.seconds)
    finally:
        ex.engine.clock.idle()


async def _invoke(ex: Execution, effect: Invoke) -> Any:
    call = effect.call
    clock = ex.engine.clock
    token = current.set(StepScope(ex, effect.position, effect.attempt, call.name))
    leave = ex.engine.around(ex.run, effect.position) if ex.engine.around is not None else None
    clock.busy()
    ex.invoking += 1
    try:
        work: Any = call.fn(*call.args, **call.kwargs) if call.is_async else _in_pool(ex, effect)
        if call.interruptible and call.is_async:
            work = _interruptible(ex, work)
        if call.timeout is None:
            return await work
        limit = asyncio.timeout(call.timeout / SECOND)
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
        if limit.expired():  # the step has swallowed the cancellation; what it made of it came too late
            raise _timed_out(effect)
        return value
    finally:
        ex.invoking -= 1
        clock.idle()
        try:  # noqa: SIM105  (suppress() costs as much as all the rest here)
            current.reset(token)
        except ValueError:  # abandoned, and closed by the garbage collector in some other context
            pass
        if leave is not None:
            leave()


async def _interruptible(ex: Execution, work: Coroutine[Any, Any, Any]) -> Any:
    """Execute a step as a task that a halt of the run cancels. What an interrupted step raises is not its outcome."""
    task = ex.engine.loop.create_task(work)
    ex.interruptible = own(ex.interruptible)
    ex.interruptible[task] = None
    try:
        return await task
    except BaseException:
        if ex.halted is not None:
            raise ex.halted from None
        raise
    finally:
        ex.interruptible.pop(task, None)


def _in_pool(ex: Execution, effect: Invoke) -> asyncio.Future[Any]:
    call = effect.call
    context = contextvars.copy_context()
    return ex.engine.loop.run_in_executor(ex.engine.step_pool, lambda: context.run(_plainly, call))


def _plainly(call: StepCall) -> Any:
    """Call a `def` step. A StopIteration that leaves it means something else to whatever is above, as PEP 479 says."""
    try:
        return call.fn(*call.args, **call.kwargs)
    except StopIteration as error:
        raise RuntimeError(f"step {call.name!r} raised StopIteration") from error


# -- blocking ----------------------------------------------------------------------------------------------------------
def _invoke_blocking(ex: Execution, effect: Invoke) -> Any:
    call = effect.call
    if call.is_async:
        return on_loop(ex, _invoke(ex, effect))
    token = current.set(StepScope(ex, effect.position, effect.attempt, call.name))
    leave = ex.engine.around(ex.run, effect.position) if ex.engine.around is not None else None
    try:
        if call.timeout is None:
            return _plainly(call)
        context = contextvars.copy_context()
        # A thread cannot be interrupted: after its time is up its result is ignored, and its place in the pool stays taken.
        work = ex.engine.step_pool.submit(context.run, _plainly, call)
        try:
            return work.result(call.timeout / SECOND)
        except PoolTimeout:
            if work.done():
                raise
            raise _timed_out(effect) from None
    finally:
        current.reset(token)
        if leave is not None:
            leave()


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
