"""Calls of users' functions. A process that is forked in one ends with it, and an exception that would end more than it becomes its error.

A forked child has one thread, in the middle of a user's function, and copies of all objects of its parent: the engine, the
committer, connections whose sockets the parent still uses. The run ignores the function's outcome in the child. So the child
ends where the function ends, and where it would continue in the event loop of its parent. Until then it is outside of any run:
it may use the app like any other process, over a connection of its own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from mainspring.engine.replay.context import current
from mainspring.model import forks

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Generator

    from mainspring.engine.replay.execution import Execution

R = TypeVar("R")

_ADVICE = (
    "a process that was forked inside a run cannot continue in the event loop of its parent, and ends here; "
    "leave it with os._exit, or use multiprocessing or subprocess"
)


# -- exceptions -------------------------------------------------------------------------------------------------------
# StopIteration and GeneratorExit end the generators and coroutines above. A SystemExit of a task ends the event loop, and the worker with it; the
# next worker would recover the run and end in the same way. So each of them becomes an error of its function. A KeyboardInterrupt comes from the
# user at the terminal, and ends the process. A step or transaction that is a run of its own has no tasks of the user's above it, so its SystemExit
# is recorded as it is.
EXITS: Final = (StopIteration, GeneratorExit, SystemExit)


def exits_of(ex: Execution) -> tuple[type[BaseException], ...]:
    """Return the exceptions that become errors of a step or transaction of this run."""
    return EXITS if ex.function.kind == "workflow" else (StopIteration, GeneratorExit)


def error_of(exit_: BaseException, what: str) -> RuntimeError:
    """Return the error of a function that raised one of these exceptions."""
    return RuntimeError(f"{what} raised {type(exit_).__name__}")


def was_closed(error: BaseException) -> bool:
    """Whether an exception means that a coroutine was closed by the garbage collector, and was not raised by code below it."""
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)


class TaskOfRun(Coroutine[Any, Any, Any]):
    """The coroutine of a task that a workflow created. An exit of its code becomes an error of the task.

    An `async def` around the coroutine would leave it unawaited if the task is cancelled before it began. Code that looks at the task sees the
    coroutine itself.
    """

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self._forks = forks.count

    def __repr__(self) -> str:
        return repr(self._work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def send(self, value: Any, /) -> Any:
        try:
            return self._work.send(value)
        except SystemExit as exit_:
            raise self._error(exit_) from exit_

    def throw(self, *error: Any) -> Any:
        try:
            return self._work.throw(*error)
        except SystemExit as exit_:
            raise self._error(exit_) from exit_

    def _error(self, exit_: SystemExit) -> RuntimeError:
        end_if_child(self._forks, exit_)
        return error_of(exit_, f"task {getattr(self._work, '__qualname__', self._work)!r}")

    def close(self) -> None:
        self._work.close()


# -- forked children ---------------------------------------------------------------------------------------------------
def call_here(fn: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Call a user's function. A child process that the function forks ends here and does not return."""
    before = forks.count
    try:
        value = fn(*args, **kwargs)
    except BaseException as error:
        end_if_child(before, error)
        raise
    end_if_child(before, None)
    return value


async def await_here(work: Awaitable[R]) -> R:
    """Await a user's coroutine. A child process that the coroutine forks ends here and does not return."""
    before = forks.count
    try:
        value = await work
    except BaseException as error:
        end_if_child(before, error)
        raise
    end_if_child(before, None)
    return value


def end_if_child(before: int, error: BaseException | None) -> None:
    """End this process if it was forked since `forks.count` was read. `error` is what the user's function raised, if it did."""
    if forks.count != before:
        end(error)


def end(error: BaseException | None) -> NoReturn:
    """End this process with the exit code that the interpreter would use: for success, for `sys.exit`, or for an exception."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)  # noqa: T201
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def _in_child() -> None:
    where = current.get()
    if where is None:
        return
    current.set(None)
    engine = where.place.execution.engine if where.place is not None else None
    if engine is not None and engine.on_loop_thread(threading.get_ident()):
        _close_loop(engine.loop)


def _close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Stop the parent's event loop in this process. Loops other than asyncio's own cannot be stopped in this way."""
    for name, value in (("_run_once", _stop_here), ("_ready", _Nothing())):
        with contextlib.suppress(AttributeError, TypeError):
            setattr(loop, name, value)


def _stop_here(*_: object) -> NoReturn:
    print(_ADVICE, file=sys.stderr)  # noqa: T201
    end(SystemExit(1))


class _Nothing:
    """Takes the place of the loop's queue of callbacks: always empty, and ends the process if it is popped."""

    append = extend = appendleft = staticmethod(lambda *_: None)
    popleft = staticmethod(_stop_here)

    def __len__(self) -> int:
        return 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
