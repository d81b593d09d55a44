"""A warning for code that blocks the worker's event loop: `time.sleep` or a long computation in a coroutine."""

from __future__ import annotations

import contextlib
import logging
import sys
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType

log = logging.getLogger("mainspring.app")

_NOT_THE_USERS = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]), "<frozen")
_INTERVAL = 1.0
"""Seconds between two looks: code that blocks the loop for twice as long is always found."""
_LOOPS = {"_run_once", "run_forever", "run_until_complete"}
"""Functions of asyncio that run the loop: the frames outside of them belong to the code that started the loop."""


class LoopWatch:
    """Finds, from another thread, the line of the user's code at which the loop has been blocked since the last look."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        self._loop = loop
        self._thread = thread
        self._answered = True
        self._reported = False
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._run, name="mainspring-loop-watch", daemon=True)

    def start(self) -> Callable[[], None]:
        """Look once a second, on a thread of its own. Return the function that ends it."""
        self._watcher.start()
        return self._stop

    def _stop(self) -> None:
        self._stopping.set()
        self._watcher.join()

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL):
            self.look()

    def look(self) -> None:
        if not self._answered:
            self._warn()
            return
        if self._users_line() is None:  # the loop is idle, or the library works: no need to wake it
            return
        self._answered = self._reported = False
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._answered = True

    def _warn(self) -> None:
        """Log the line that blocks the loop, once for each time that the loop is blocked."""
        line = self._users_line()
        if line is not None and not self._reported:
            self._reported = True
            log.warning(
                "the event loop has been blocked at %s for more than a second, and every other run of this worker with it; write a step that "
                "blocks as `def`, or use asyncio.to_thread",
                line,
            )

    def _users_line(self) -> str | None:
        return _users_line(sys._current_frames().get(self._thread))  # noqa: SLF001  (there is no other way to see another thread)


def _users_line(frame: FrameType | None) -> str | None:
    """Return the innermost line that belongs neither to Python nor to the library."""
    while frame is not None and frame.f_code.co_name not in _LOOPS:
        file = frame.f_code.co_filename
        if "site-packages" in file or not file.startswith(_NOT_THE_USERS):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None
