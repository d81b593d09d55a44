"""Mistakes at a call: errors and warnings that name the line to write instead."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from mainspring.errors import WrongColour

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType

    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function


def on_running_loop() -> bool:
    """Whether this thread is running an event loop now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_blocking_on_loop(instead: str) -> None:
    """Refuse a blocking call on a thread that runs an event loop: it would block the loop and wait for itself for ever."""
    if on_running_loop():
        raise WrongColour(f"this blocks, and here an event loop is running; write `{instead}` instead")


def named_after(function: Function, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    """Give a coroutine the name of the user's function, for Python's warning about a coroutine that was never awaited."""
    work.__qualname__ = function.name  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    return work


def warn_of_unresolved(function: Function) -> None:
    """Warn of annotations that name nothing while the decorator is applied: the values would not be checked, without a word."""
    for parameter, text in function.codec.unresolved.items():
        which = "the result" if parameter == "return" else parameter
        warnings.warn_explicit(
            f"{function.name}: the annotation {text!r} of {which} names nothing here yet, so it counts as Any and nothing is checked; "
            "import it at run time, not only for type checkers, or define it above the function",
            RuntimeWarning,
            function.fn.__code__.co_filename,
            function.fn.__code__.co_firstlineno,
        )


_WAITS = ("threading", "concurrent.futures", "queue", "multiprocessing.pool")
"""Modules in which code waits for other threads."""
_LIBRARY = "mainspring."


def warn_if_a_run_is_lost(runtime: Runtime, function: Function) -> None:
    """Warn of a step called on a thread that a workflow started: threads do not inherit the run, so nothing is recorded."""
    thread = threading.current_thread()
    if thread is threading.main_thread() or not runtime.executing:
        return
    if thread.name.startswith("asyncio_"):
        how = f"write `await {function.name}{'' if function.is_async else '.aio'}(…)`"
    elif (line := _line_that_waits_for_threads()) is not None:
        how = (
            f"which waits for threads at {line}, call {function.name} on its own thread, or write the workflow as `async def` and "
            "use asyncio.gather"
        )
    else:
        return
    warnings.warn(
        f"{function.name} was called on a thread that does not know of any run (run_in_executor loses it, and so do threads), so it is a "
        f"plain call and nothing is recorded; in a workflow, {how}",
        RuntimeWarning,
        stacklevel=4,
    )


def _line_that_waits_for_threads() -> str | None:
    """Return the line of a `def` workflow that is waiting for other threads now."""
    running = {thread.ident for thread in threading.enumerate() if thread.name.startswith("mainspring-run")}
    for thread, frame in sys._current_frames().items():  # noqa: SLF001  (there is no other way to see another thread)
        line = _line_that_waits(frame) if thread in running else None
        if line is not None:
            return line
    return None


def _line_that_waits(frame: FrameType | None) -> str | None:
    waits = False
    while frame is not None and _module(frame).startswith(_WAITS):
        waits, frame = True, frame.f_back
    if not waits or frame is None or _module(frame).startswith(_LIBRARY):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
