"""A warning for steps that are called on a thread which does not know of the run that it works for."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function

_WAITS = ("threading", "concurrent.futures", "queue", "multiprocessing.pool")
"""Modules in which code waits for other threads."""
_LIBRARY = "mainspring."


def warn_if_a_run_is_lost(runtime: Runtime, function: Function) -> None:
    """Threads that a workflow starts do not inherit its run: a step on them is a plain call, and nothing records it."""
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
    """The line of a `def` workflow that is waiting for other threads at this moment, by code of its own."""
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
