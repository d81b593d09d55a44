"""Batch functions: one call for inputs of several steps or runs, which keep their records, retries and cancellations.

A batch forms from inputs that are ready together: runs claimed together, or branches that call at the same time. It is executed
when it is full, or when the first of its inputs has waited for `LINGER`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.engine.batch_outcomes import checked, own_error
from mainspring.engine.users_code import await_here, call_here
from mainspring.errors import StepTimedOut
from mainspring.model.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.engine.host import Host, Reply

LINGER = 0.002
"""Seconds for which an input waits for others."""


class Batched(Protocol):
    """A batch function, or a call of one."""

    @property
    def name(self) -> str: ...
    @property
    def fn(self) -> Any: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def timeout(self) -> int | None: ...
    @property
    def batch(self) -> int | None: ...


class _Forming:
    """A batch that inputs may still join."""

    __slots__ = ("call", "inputs", "replies", "timer")

    def __init__(self, call: Batched) -> None:
        self.call = call
        self.inputs: list[Any] = []
        self.replies: list[Reply] = []
        self.timer: asyncio.TimerHandle | None = None


class Batches:
    """The batches of one engine, on its loop."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._forming: dict[tuple[str, int | None], _Forming] = {}

    def join(self, call: Batched, args: tuple[Any, ...], kwargs: Mapping[str, Any], reply: Reply) -> None:
        """Add an input to a batch. `reply` receives its outcome."""
        key = call.name, call.timeout
        forming = self._forming.get(key)
        if forming is None:
            forming = self._forming[key] = _Forming(call)
            forming.timer = self._engine.loop.call_later(LINGER, self._begin, key)
        forming.inputs.append(args[0] if args else next(iter(kwargs.values())))
        forming.replies.append(reply)
        if len(forming.inputs) >= (call.batch or 1):
            self._begin(key)

    def begin_all(self) -> None:
        """Begin all batches that wait for more inputs: a stopping worker gets none."""
        for key in list(self._forming):
            self._begin(key)

    def _begin(self, key: tuple[str, int | None]) -> None:
        forming = self._forming.pop(key)
        if forming.timer is not None:
            forming.timer.cancel()
        self._engine.spawn(self._execute(forming))

    async def _execute(self, forming: _Forming) -> None:
        waiting = [pair for pair in zip(forming.inputs, forming.replies, strict=True) if not pair[1].done()]
        if not waiting:
            return
        outcomes: Sequence[Any]
        try:
            outcomes = checked(
                forming.call.name, len(waiting), await self._called(forming.call, [one for one, _ in waiting])
            )
        except BaseException as error:  # noqa: BLE001  (it is the outcome of each)
            outcomes = [own_error(error, forming.call.name) for _ in waiting]
        for (_, reply), outcome in zip(waiting, outcomes, strict=True):
            if not reply.done():  # else the caller no longer waits
                self._answer(forming.call.name, reply, outcome)

    def _answer(self, name: str, reply: Reply, outcome: Any) -> None:
        try:
            if isinstance(outcome, BaseException):
                reply.set_exception(own_error(outcome, name))
            else:
                reply.set_result(outcome)
        except Exception as error:  # noqa: BLE001  (the others are to get their outcomes all the same)
            self._engine.loop.call_exception_handler(
                {"message": f"an outcome of batch function {name!r} could not be followed", "exception": error}
            )

    async def _called(self, call: Batched, inputs: list[Any]) -> Any:
        if call.is_async:
            work: Any = await_here(call.fn(inputs))
        else:
            work = self._engine.loop.run_in_executor(self._engine.step_pool, call_here, call.fn, inputs)
        if call.timeout is None:
            return await work
        limit = asyncio.timeout(call.timeout / SECOND)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                seconds = call.timeout / SECOND
                raise StepTimedOut(
                    f"batch function {call.name!r} took longer than its timeout of {seconds:g} s for {len(inputs)} inputs"
                ) from None
            raise
