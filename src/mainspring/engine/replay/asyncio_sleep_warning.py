"""Waits of a workflow's code that are not durable: `asyncio.sleep`, `asyncio.timeout`, and other awaitables that are no operations.

They begin anew in every process. A run with such a wait beside its operations is not parked, and is stored as waiting for a short
time only, so that it is executed again soon after a restart of any kind. The user is warned of timers, once for each line.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
from enum import IntEnum
from types import AsyncGeneratorType, CoroutineType
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from mainspring.engine.replay.context import branch
from mainspring.model.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from contextvars import Context
    from types import FrameType

    from mainspring.engine.registry import Function
    from mainspring.engine.replay.context import Branch
    from mainspring.engine.replay.execution import Execution

log = logging.getLogger("mainspring.engine")

_MARK = "_mainspring_process_time"
_LIBRARIES = ("asyncio", "anyio", "uvloop")
_WHILE = 60 * SECOND
"""The longest time for which a run is stored as waiting while its code awaits something in this process."""
_LONGER = 600 * SECOND
"""The longest time if that is an event, lock or queue of asyncio, which mostly another branch releases."""
_BETWEEN_BRANCHES = {"asyncio.locks", "asyncio.queues"}
_TASK_GROUPS = {"asyncio.taskgroups", "anyio._backends._asyncio"}
_DEEPEST = 50
_OF_SHIELD = "shield.<locals>._outer_done_callback"


async def _generator() -> AsyncGenerator[None]:
    yield


def _types_of_steps() -> set[type[Any]]:
    """The types of what `asend` and `aclose` return. The samples are closed, so that Python does not warn that they were not awaited."""
    steps: list[Any] = [_generator().asend(None), _generator().aclose()]
    for step in steps:
        step.close()
    return {type(step) for step in steps}


_KINDS: dict[type[Any], str] = {
    CoroutineType: "cr",
    AsyncGeneratorType: "ag",
    **dict.fromkeys(_types_of_steps(), "step"),
}
"""By type of an awaitable: the prefix of its attributes. A step is the next value of a generator, or its end."""


class Limit(Struct, frozen=True):
    """The latest time until which a run may be stored as waiting."""

    time: int
    parkable: bool


class AwaitedKind(IntEnum):
    """The kind of thing that a task of a run awaits, the most durable first."""

    OPERATION = 0
    BRANCH = 1
    FOREIGN = 2


def not_durable_until(ex: Execution) -> Limit | None:
    """The limit for storing a run as waiting whose operations all wait. None: until one of them ends."""
    if not ex.function.on_loop:
        return None  # the thread of a `def` run is in an operation
    now = ex.engine.clock.now()
    timer = ex.tasks.process_time(ex.engine.loop.time())
    if timer is not None:
        return Limit(now + min(round(timer * SECOND), _WHILE), parkable=False)
    if not ex.tasks.unfinished or ex.tasks.root is None:
        return None
    found = awaited_by(ex, {wait.future for wait in ex.waits})
    if found is AwaitedKind.OPERATION:
        return None
    return Limit(now + (_LONGER if found is AwaitedKind.BRANCH else _WHILE), parkable=found is AwaitedKind.BRANCH)


def awaited_by(ex: Execution, ours: set[asyncio.Future[Any]]) -> AwaitedKind:
    """The least durable thing that a branch of a run awaits. `ours`: the futures of its operations."""
    if not ex.function.on_loop:  # a thread, which does one thing at a time
        return AwaitedKind.OPERATION if ours else AwaitedKind.FOREIGN
    return max(_awaited(task, ours, 0) for task in (ex.tasks.root, *ex.tasks.unfinished))


def _awaited(future: Any, ours: set[asyncio.Future[Any]], depth: int) -> AwaitedKind:
    """Whether an awaited future ends with an operation of the run, with another branch, or with something that is not recorded."""
    if future in ours or future.done():
        return AwaitedKind.OPERATION
    if depth == _DEEPEST:
        return AwaitedKind.FOREIGN
    behind: Iterable[Any] | None = getattr(future, "_children", None)  # of `gather`
    waiter: Any = getattr(future, "_fut_waiter", None)  # of a task
    if behind is None and waiter is None:
        behind = _shielded(future)
    elif behind is None:
        frame = _innermost(future)
        module, where = _where(frame)
        if module in _BETWEEN_BRANCHES:
            return AwaitedKind.BRANCH
        behind = (waiter,)
        if frame is not None and where == "__aexit__" and module in _TASK_GROUPS:
            behind = list(frame.f_locals["self"]._tasks)  # noqa: SLF001  (a task group has no other way to list them)
        elif frame is not None and (module, where) == ("asyncio.tasks", "_wait"):
            behind = list(frame.f_locals["fs"])
    return (
        max((_awaited(each, ours, depth + 1) for each in behind), default=AwaitedKind.FOREIGN)
        if behind
        else AwaitedKind.FOREIGN
    )


def _shielded(future: Any) -> list[Any] | None:
    """The future behind one of `asyncio.shield`, which knows it only through its callback."""
    for callback, _ in getattr(future, "_callbacks", None) or ():
        if getattr(callback, "__qualname__", "") == _OF_SHIELD:
            return [cell.cell_contents for cell in callback.__closure__ if hasattr(cell.cell_contents, "done")]
    return None


def _innermost(task: asyncio.Task[Any]) -> FrameType | None:
    """The frame in which a task waits."""
    coro: Any = cast("object", task.get_coro())
    found: FrameType | None = None
    while coro is not None:
        kind = _KINDS.get(coro.__class__) or ("cr" if hasattr(coro, "cr_await") else "gi")
        if kind == "step":
            coro, kind = _generator_of(coro), "ag"
        found = getattr(coro, f"{kind}_frame", None) or found
        coro = getattr(coro, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
    return found


def _generator_of(step: object) -> Any:
    """The generator that a step belongs to, found through the garbage collector: a step has no attribute for it."""
    held: list[Any] = gc.get_referents(step)
    return next((each for each in held if hasattr(each, "ag_frame")), None)


def _where(frame: FrameType | None) -> tuple[str, str]:
    return (frame.f_globals.get("__name__", ""), frame.f_code.co_name) if frame is not None else ("", "")


# -- timers ------------------------------------------------------------------------------------------------------------
def install(loop: asyncio.AbstractEventLoop) -> None:
    """Watch the timers of a loop. Idempotent. Loops that cannot be watched are left alone."""
    if getattr(loop.call_at, _MARK, False):
        return
    warned: set[tuple[str, int]] = set()
    with contextlib.suppress(AttributeError, TypeError):
        loop.call_at = _watched(loop.call_at, warned)  # type: ignore[method-assign]
        if not isinstance(loop, asyncio.BaseEventLoop):  # where `call_later` calls `call_at`
            loop.call_later = _watched(loop.call_later, warned)  # type: ignore[method-assign]


def _watched(original: Callable[..., asyncio.TimerHandle], warned: set[tuple[str, int]]) -> Any:
    def call(
        when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = original(when, callback, *args, context=context)
        where = branch()
        if where is not None:
            frame = _users(sys._getframe(1))  # noqa: SLF001  (asyncio does not tell who sets a timer)
            if frame is not None:
                where.execution.tasks.watch_timer(timer)
                _warn(where, _in_file_of(where.execution.function, frame), warned)
        return timer

    setattr(call, _MARK, True)
    return call


def _users(frame: FrameType | None) -> FrameType | None:
    """The frame of the workflow's code that sets a timer. None: the library sets it."""
    while frame is not None and _package(frame) in _LIBRARIES:
        frame = frame.f_back
    return None if frame is None or _package(frame) == "mainspring" else frame


def _in_file_of(function: Function, frame: FrameType) -> FrameType:
    """The innermost frame in the workflow's own file, or this one if there is none: a user knows that line, not one of an HTTP client."""
    file = getattr(getattr(function.fn, "__code__", None), "co_filename", None)
    found: FrameType | None = frame
    while found is not None and found.f_code.co_filename != file:
        found = found.f_back
    return found or frame


def _warn(where: Branch, frame: FrameType, warned: set[tuple[str, int]]) -> None:
    place = (frame.f_code.co_filename, frame.f_lineno)
    if place not in warned:
        warned.add(place)
        log.warning(
            "workflow %s waits for the time of this process at %s:%d (asyncio.sleep, asyncio.timeout or the like): it starts again after "
            "a restart. Use run.sleep and run.timeout, or do it in a step.",
            where.execution.function.name,
            *place,
        )


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
