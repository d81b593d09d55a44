"""`async with run.undo() as undo:` … `undo.push(refund.bind(receipt))`: compensations of a block that does not end well."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from mainspring.app.functions.functions import as_call
from mainspring.codec import add_note, summarize_exception
from mainspring.engine.drivers import drive, drive_blocking
from mainspring.engine.operations import undo
from mainspring.engine.replay.context import branch, here
from mainspring.engine.replay.signals import Halt
from mainspring.engine.users_code import was_closed
from mainspring.errors import InvalidInput, NotInRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.app.functions.functions import Call
    from mainspring.engine.effects import Flow
    from mainspring.engine.replay.execution import Execution


class Undo:
    """A block with compensations.

    If an exception leaves the block, or the run is cancelled or times out inside it, the pushed steps are executed, last first, each
    once. After the block has ended well none is executed.
    """

    def __init__(self) -> None:
        here()
        where = branch()
        if where is None:
            raise NotInRun("run.undo belongs in a workflow; a step that fails has nothing recorded to undo")
        self._branch = where
        self._calls: list[Call[Any]] = []
        self._position = ""
        self._entered = False

    def push(self, call: Call[Any]) -> None:
        """Add a step or transaction to be executed if the block does not end well: `undo.push(refund.bind(receipt))`."""
        if not self._entered:
            raise InvalidInput(
                "undo.push outside of its block: the call would never be made; write `async with run.undo() as undo:` "
                "(`with` in a `def` workflow), and push inside it"
            )
        made = as_call(call)
        if made.function.kind == "workflow":
            raise InvalidInput(
                f"{made.name!r} is a workflow; what undoes something is a step or a transaction, so that it cannot be stopped half-way"
            )
        made.function.codec.bind_and_encode(made.args, made.kwargs)  # wrong arguments raise here, at the push
        self._calls.append(made)

    # -- entering ------------------------------------------------------------------------------------------------------
    def _enter(self) -> Flow:
        self._position = self._branch.next_position()
        self._entered = True
        self._branch.execution.outstanding += 1
        self._branch.execution.scopes += 1
        return undo.enter(self._branch.execution, self._position)

    async def __aenter__(self) -> Self:
        await drive(self._branch.execution, self._enter())
        return self

    def __enter__(self) -> Self:
        drive_blocking(self._branch.execution, self._enter())
        return self

    # -- leaving -------------------------------------------------------------------------------------------------------
    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        ex, cancelled = self._branch.execution, list[asyncio.CancelledError]()
        self._entered = False
        if error is None and await _uninterrupted(ex, self._leave(), cancelled):
            if cancelled:
                raise cancelled[-1]
            return
        failures: list[str] = []
        ex.compensating += 1
        try:
            for flow in self._compensations(error, failures):
                try:
                    await _uninterrupted(ex, flow, cancelled)
                except BaseException as failed:  # noqa: BLE001  (the other compensations are made all the same)
                    failures.append(_failure(ex, failed))
        finally:
            ex.end_compensating()
        self._tell(error, failures)
        if cancelled and not isinstance(error, (Halt, asyncio.CancelledError)):
            raise cancelled[-1]

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        ex = self._branch.execution
        self._entered = False
        if error is None and drive_blocking(ex, self._leave()):
            return
        failures: list[str] = []
        for flow in self._compensations(error, failures):
            try:
                drive_blocking(ex, flow)
            except BaseException as failed:  # noqa: BLE001
                failures.append(_failure(ex, failed))
        self._tell(error, failures)

    def _leave(self) -> Flow:
        """Record that the block ended well. Return False if the run was stopped in it."""
        ex = self._branch.execution
        ex.scopes -= 1
        if self._calls and not (ex.dry and undo.left_position(self._position) not in ex.history.journal):
            ex.outstanding += 1
            return (yield from undo.leave(ex, self._position, self._branch.following()))
        return True

    def _compensations(self, error: BaseException | None, failures: list[str]) -> Iterator[Flow]:
        """Yield the compensations to execute now, the last pushed first."""
        ex = self._branch.execution
        if error is not None:
            ex.scopes -= 1
        stopped = ex.undoing is not None and ex.unwound
        if ex.signal is not None or ex.disagreement is not None:
            return
        if ex.function.is_async and error is not None and was_closed(error) and not _in_own_task(ex):
            return  # the loop is closed; the worker that recovers the run executes the compensations
        if isinstance(error, Halt) and not stopped:
            return
        until = ex.engine.clock.now() + undo.BUDGET
        for number, call in reversed(list(enumerate(self._calls))):
            if ex.dry and undo.compensation_position(self._position, number) not in ex.history.journal:
                continue
            if ex.engine.clock.now() >= until:
                failures.append(f"no time was left for {call.name}")
                continue
            ex.outstanding += 1
            yield undo.compensation(ex, self._position, number, call.function, call.args, call.kwargs, until)

    def _tell(self, error: BaseException | None, failures: list[str]) -> None:
        ex = self._branch.execution
        if failures:
            text = f"could not undo everything: {'; '.join(failures)}"
            ex.complaints += (text,)
            if error is not None:
                add_note(error, text)
        if error is None and ex.undoing is not None:
            raise ex.undoing  # the run was stopped in the block: the code after the block is not executed


def _failure(ex: Execution, error: BaseException) -> str:
    """Describe what a compensation raised: the others are made all the same, also if it cancelled itself. Raise what ends the code."""
    ends = isinstance(error, (Halt, KeyboardInterrupt, GeneratorExit)) or ex.signal is not None
    if ends and not isinstance(error, Exception):
        raise error
    return summarize_exception(error)


async def _uninterrupted(ex: Execution, flow: Flow, cancelled: list[asyncio.CancelledError]) -> Any:
    """Perform an operation to its end, also if the code cancels the task meanwhile: a branch that fails, or that a stop has unwound, makes
    `gather`, task groups and races cancel the others. The cancellations are added to `cancelled`.

    It is a task of its own, and not one of the run, whose tasks are cancelled when its code has ended. A halt of the run ends it.
    """
    task = asyncio.Task(drive(ex, flow))
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                break
            cancelled.append(error)
            if ex.signal is not None:
                task.cancel()
        except BaseException:
            if not task.done():
                raise
    return task.result()


def _in_own_task(ex: Execution) -> bool:
    return asyncio.current_task() in {ex.tasks.root, *ex.tasks.unfinished}
