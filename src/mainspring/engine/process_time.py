"""Telling a workflow that the time it waits for is the process's own.

`asyncio.sleep` and `asyncio.timeout` in the body of a workflow begin anew in every process, and cannot be parked. Nothing is lost by
them, but a sleep of an hour may take days of restarts. So whoever uses them is told, once for each place.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from mainspring.engine.context import Line, current

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from contextvars import Context
    from types import FrameType

log = logging.getLogger("mainspring.engine")

_MARK = "_mainspring_process_time"
_LIBRARIES = ("asyncio", "anyio")


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Watch the timers of a loop. Doing so twice is once; loops that cannot be watched are left alone."""
    original = loop.call_at
    if getattr(original, _MARK, False):
        return
    told: set[tuple[str, int]] = set()

    def call_at(
        when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        where = current.get()
        if isinstance(where, Line):
            _perhaps_tell(where, sys._getframe(1), told)  # noqa: SLF001  (there is no other way to ask who sets a timer)
        return original(when, callback, *args, context=context)

    setattr(call_at, _MARK, True)
    with contextlib.suppress(AttributeError, TypeError):
        loop.call_at = call_at  # type: ignore[method-assign, assignment]


def _perhaps_tell(line: Line, frame: FrameType | None, told: set[tuple[str, int]]) -> None:
    while frame is not None and _package(frame) in _LIBRARIES:
        frame = frame.f_back
    if frame is None or _package(frame) == "mainspring":
        return
    place = (frame.f_code.co_filename, frame.f_lineno)
    if place not in told:
        told.add(place)
        log.warning(
            "workflow %s waits for the time of this process at %s:%d (asyncio.sleep, asyncio.timeout or the like): it begins anew after "
            "a restart. Use run.sleep and run.timeout, or do it in a step.",
            line.execution.function.name,
            *place,
        )


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
