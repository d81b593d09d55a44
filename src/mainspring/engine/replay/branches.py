"""A task factory that makes the tasks of a workflow branches of its run, numbered in the order of their creation.

Outside runs, and inside steps, it changes nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.engine.drivers import PERFORMERS, abandon_unreached, drive, performed
from mainspring.engine.operations.transactions import make_async
from mainspring.engine.replay.context import branch, current
from mainspring.engine.users_code import TaskOfRun

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from types import FrameType

    from mainspring.engine.replay.context import Branch
    from mainspring.engine.replay.execution import Execution

    Factory = Callable[..., asyncio.Future[Any]]

CoroutineFunction = TypeVar("CoroutineFunction", bound="Callable[..., Any]")

_MARK = "_mainspring_branches"
_OURS = {
    drive.__code__,
    performed.__code__,
    make_async.__code__,
    *(performer.__code__ for performer in PERFORMERS.values()),
}
"""Coroutines of the library. A task of one is no branch of the workflow."""
_WAIT_FOR = asyncio.wait_for.__code__
_AS_COMPLETED = asyncio.as_completed.__code__
_DEPTH = 8


async def _generator() -> AsyncGenerator[None]:
    yield


def _type_of_clean_up() -> type[Any]:
    clean_up = _generator().aclose()
    clean_up.close()  # else Python 3.13 warns that it was never awaited
    return type(clean_up)


_CLEAN_UP = _type_of_clean_up()
"""The type that an event loop wraps in a task when an unfinished generator is collected."""


def ours(function: CoroutineFunction) -> CoroutineFunction:
    """Mark a coroutine function as the library's own."""
    _OURS.add(function.__code__)
    return function


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Install the factory on a loop, in front of a factory that is there. Idempotent."""
    previous = loop.get_task_factory()
    if getattr(previous, _MARK, False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Future[Any]:
        where = branch(options.get("context"))
        if where is None:
            return _create(previous, loop, coro, options)
        if type(coro) is _CLEAN_UP:
            # The garbage collector decides when it runs, so it is outside the run: a step in it is a plain call.
            options["context"] = context = (options.get("context") or contextvars.copy_context()).copy()
            context.run(current.set, None)
        if not _is_users(coro):
            code = getattr(coro, "cr_code", None)
            task = _create(previous, loop, coro if code in _OURS else TaskOfRun(coro), options)
            if code is drive.__code__:
                # One operation, as in `create_task(charge(order))`: a task of the run, but no branch.
                where.execution.adopt(task, _site(sys._getframe(1)))  # noqa: SLF001
                if where.execution.history.unreached:
                    task.add_done_callback(partial(_close_operation, where.execution, _position(coro)))
            return task
        caller = _creator(sys._getframe(1))  # noqa: SLF001  (asyncio does not tell who creates a task)
        if caller is not None and caller.f_code is _WAIT_FOR:
            # Python 3.11 creates a task for `wait_for`, 3.12 does not: it must be the same branch in both.
            return _create(previous, loop, TaskOfRun(coro), options)
        created = where.create_branch(_number(caller, coro, where))
        context = options.get("context") or contextvars.copy_context()
        context = context.copy()
        context.run(current.set, created)
        options["context"] = context
        task = _create(previous, loop, TaskOfRun(coro), options)
        where.execution.adopt(task, _site(sys._getframe(1)), branch=True)  # noqa: SLF001
        if where.execution.history.unreached:
            task.add_done_callback(partial(_close_branch, created))
        return task

    setattr(factory, _MARK, True)
    loop.set_task_factory(factory)  # type: ignore[arg-type]


def _close_branch(over: Branch, _: asyncio.Future[Any]) -> None:
    """Abandon the operations that a finished branch has recorded as begun and not reached in this replay."""
    _give_up(over.execution, over.is_ahead)


def _close_operation(ex: Execution, position: str, _: asyncio.Future[Any]) -> None:
    """Abandon an operation whose task ended before this replay reached it: the task was cancelled before it began."""
    _give_up(ex, position.__eq__)


def _give_up(ex: Execution, given_up: Callable[[str], bool]) -> None:
    """Record that the code has given up operations, so that they do not wake the run any more.

    The previous worker died before it recorded that. A branch that still executes may reach such an operation, however long the rest
    of the run has waited. While recorded outcomes remain to be delivered, the code may still turn out to disagree with the record.
    """
    if not any(given_up(position) for position in ex.history.unreached):
        return
    replay = ex.history.delivery.frontier()
    if replay is not None:
        replay.add_done_callback(partial(_replayed, ex, given_up))
    elif ex.signal is None and ex.in_code:
        abandon_unreached(ex, given_up)
        ex.engine.residency.reconsider(ex)


def _replayed(ex: Execution, given_up: Callable[[str], bool], done: asyncio.Future[None]) -> None:
    if not done.cancelled() and done.exception() is None:
        _give_up(ex, given_up)


def _position(coro: Any) -> str:
    """The position of an operation that has not begun yet."""
    flow = coro.cr_frame.f_locals["flow"]
    return str(flow.gi_frame.f_locals["position"])


def _create(
    previous: Any, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], options: dict[str, Any]
) -> asyncio.Future[Any]:
    if previous is not None:
        made: asyncio.Future[Any] = previous(loop, coro, **options)
        return made
    return asyncio.Task(coro, loop=loop, **options)


def _is_users(coro: object) -> bool:
    """Whether this is a coroutine of the workflow, not one of the library or the clean-up of a generator."""
    code = getattr(coro, "cr_code", None)
    return code is not None and code not in _OURS


def _creator(frame: FrameType | None) -> FrameType | None:
    """The frame of `wait_for` or `as_completed` that creates a task for the workflow, if it is one of these."""
    for _ in range(_DEPTH):
        if frame is None or frame.f_code in {_WAIT_FOR, _AS_COMPLETED}:
            return frame
        if not frame.f_globals.get("__name__", "").startswith("asyncio."):
            return None
        frame = frame.f_back
    return None


def _number(caller: FrameType | None, coro: object, parent: Branch) -> int | None:
    """The number of a task that `as_completed` creates, by its place in the arguments: it creates tasks in the order of a set."""
    if caller is None or caller.f_code is not _AS_COMPLETED:
        return None
    given: Any = caller.f_locals.get("fs")
    if type(given) not in {list, tuple}:
        return None
    base = parent.reserve_branches(given, len(given))
    return base + next(number for number, item in enumerate(given) if item is coro)


def _site(frame: FrameType | None) -> str:
    """The file and line of the workflow's code that created a task."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("asyncio.", "mainspring.engine.", "anyio.")
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "an unknown place"
