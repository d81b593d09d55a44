"""Waiting, outside runs, for a run to end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from mainspring.app.options import micros
from mainspring.errors import StillRunning

if TYPE_CHECKING:
    from mainspring.app.connection import Connection
    from mainspring.app.options import Duration
    from mainspring.model.records import Ending


class Awaited:
    """One coroutine's wait for one run. Entered, it hears of the run's end, and of its own time being over."""

    def __init__(self, connection: Connection, run_id: str, timeout: Duration | None) -> None:
        self._connection = connection
        self._run_id = run_id
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._told: asyncio.Future[Ending | None] = self._loop.create_future()

    def __enter__(self) -> asyncio.Future[Ending | None]:
        clock = self._connection.clock
        self._connection.endings.watch(self._run_id, self._tell)
        until = None if self._timeout is None else clock.now() + micros(self._timeout)
        self._alarm = None if until is None else clock.call_at(until, self._loop, self._give_up)
        clock.waiting(1)
        return self._told

    def __exit__(self, *exc: object) -> None:
        self._connection.clock.waiting(-1)
        self._connection.endings.unwatch(self._run_id, self._tell)
        if self._alarm is not None:
            self._alarm.cancel()
        if self._told.done() and not self._told.cancelled():
            self._told.exception()

    def _tell(self, ending: Ending | None) -> None:
        if threading.get_ident() == self._thread:
            self._settle(ending)
        else:
            self._loop.call_soon_threadsafe(self._settle, ending)

    def _settle(self, ending: Ending | None) -> None:
        if not self._told.done():
            self._told.set_result(ending)

    def _give_up(self) -> None:
        if not self._told.done():
            self._told.set_exception(
                StillRunning(f"run {self._run_id!r} had not ended after {_length(self._timeout)}; it goes on")
            )


def _length(timeout: Duration | None) -> str:
    """How long it was, as it was given."""
    return f"{timeout} s" if isinstance(timeout, int | float) else str(timeout)
