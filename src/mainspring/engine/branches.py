"""Tasks that a workflow creates become lines of control of their own, numbered in the order of their creation.

A task factory on the loop does it. Outside runs, and inside steps, it changes nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.engine.context import Line, current
from mainspring.engine.drivers import PERFORMERS, drive, performed
from mainspring.engine.transactions import make_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from types import FrameType

    Factory = Callable[..., asyncio.Future[Any]]

CoroutineFunction = TypeVar("CoroutineFunction", bound="Callable[..., Any]")

_MARK = "_mainspring_branches"
_OURS = {
    drive.__code__,
    performed.__code__,
    make_async.__code__,
    *(performer.__code__ for performer in PERFORMERS.values()),
}
"""Coroutines of the library's own: wrapped in a task they are not a line of control of the workflow's."""
_WAIT_FOR = asyncio.wait_for.__code__
_AS_COMPLETED = asyncio.as_completed.__code__
_DEPTH = 8


async def _generator() -> AsyncGenerator[None]:
    yield


_CLEAN_UP: type[Any] = type(_generator().aclose())
"""What an event loop wraps in a task when an unfinished generator is collected."""


def ours(function: CoroutineFunction) -> CoroutineFunction:
    """Mark a coroutine function as the library's own."""
    _OURS.add(function.__code__)
    return function


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Put the factory on a loop, in front of the one that may be there. Doing so twice is once."""
    previous = loop.get_task_factory()
    if getattr(previous, _MARK, False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Future[Any]:
        where = options["context"].get(current) if options.get("context") is not None else current.get()
        if not isinstance(where, Line):
            return _create(previous, loop, coro, options)
        if type(coro) is _CLEAN_UP:
            # It happens whenever the garbage collector comes by, so it is outside the run: a step in it is a plain call.
            options["context"] = context = (options.get("context") or contextvars.copy_context()).copy()
            context.run(current.set, None)
        if not _is_users(coro):
            task = _create(previous, loop, coro, options)
            if getattr(coro, "cr_code", None) is drive.__code__:
                # One operation, as in `create_task(charge(order))`: no line of control, but a task of the run's all the same.
                where.execution.adopt(task, _site(sys._getframe(1)))  # noqa: SLF001
            return task
        caller = _creator(sys._getframe(1))  # noqa: SLF001  (there is no other way to ask who creates a task)
        if caller is not None and caller.f_code is _WAIT_FOR:
            # Python 3.11 makes a task for this, 3.12 does not: to the workflow it is the same line of control.
            return _create(previous, loop, coro, options)
        line = where.branch(_place(caller, coro, where))
        context = options.get("context") or contextvars.copy_context()
        context = context.copy()
        context.run(current.set, line)
        options["context"] = context
        task = _create(previous, loop, coro, options)
        where.execution.adopt(task, _site(sys._getframe(1)))  # noqa: SLF001
        return task

    setattr(factory, _MARK, True)
    loop.set_task_factory(factory)  # type: ignore[arg-type]


def _create(
    previous: Any, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], options: dict[str, Any]
) -> asyncio.Future[Any]:
    if previous is not None:
        made: asyncio.Future[Any] = previous(loop, coro, **options)
        return made
    return asyncio.Task(coro, loop=loop, **options)


def _is_users(coro: object) -> bool:
    """Whether this is a coroutine of the workflow's, not one of the library's own or the clean-up of a generator."""
    code = getattr(coro, "cr_code", None)
    return code is not None and code not in _OURS


def _creator(frame: FrameType | None) -> FrameType | None:
    """The frame of asyncio's that asked for the task on behalf of the workflow, if it is one that matters."""
    for _ in range(_DEPTH):
        if frame is None or frame.f_code in {_WAIT_FOR, _AS_COMPLETED}:
            return frame
        if not frame.f_globals.get("__name__", "").startswith("asyncio."):
            return None
        frame = frame.f_back
    return None


def _place(caller: FrameType | None, coro: object, line: Line) -> int | None:
    """`as_completed` starts tasks in the order of a set, which differs from run to run: go by the order they were given in."""
    if caller is None or caller.f_code is not _AS_COMPLETED:
        return None
    given: Any = caller.f_locals.get("fs")
    if type(given) not in {list, tuple}:
        return None
    base = line.reserve_branches(given, len(given))
    return base + next(number for number, item in enumerate(given) if item is coro)


def _site(frame: FrameType | None) -> str:
    """Where in the workflow's code a task was created."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("asyncio.", "mainspring.engine.", "anyio.")
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "an unknown place"
