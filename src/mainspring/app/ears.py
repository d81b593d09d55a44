"""Those in this process, outside runs, who wait for a run to say something or to end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

from mainspring.app.options import micros

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.options import Duration
    from mainspring.model.clock import Alarm, Clock
    from mainspring.store.protocol import Signal


class Ears:
    """Who listens to which run. A wake-up that got lost is made up for by one timer for all of them."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._lock = threading.Lock()
        self._listening: dict[str, list[Callable[[], None]]] = {}
        self._timed = False

    def listen(self, run_id: str, tell: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Have `tell` called, on any thread, when the run may have said something. Returns how to stop."""
        with self._lock:
            self._listening.setdefault(run_id, []).append(tell)
            begin, self._timed = not self._timed, True
        if begin:
            loop.call_later(self._poll, self._round, loop)
        return lambda: self._stop(run_id, tell)

    def _stop(self, run_id: str, tell: Callable[[], None]) -> None:
        with self._lock:
            others = self._listening.get(run_id)
            if others is not None and tell in others:
                others.remove(tell)
                if not others:
                    del self._listening[run_id]

    def hear(self, signal: Signal) -> None:
        """Something happened. Tell whom it may concern."""
        if not self._listening:
            return
        if signal.said is None or signal.ended is None:
            self._tell(None)
        elif signal.said or signal.ended:
            self._tell({run for run, _, _ in signal.said} | signal.ended)

    def _tell(self, runs: set[str] | frozenset[str] | None) -> None:
        with self._lock:
            concerned = self._listening if runs is None else runs & self._listening.keys()
            tellers = [tell for run in concerned for tell in self._listening[run]]
        for tell in tellers:
            tell()

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tell(None)
        with self._lock:
            self._timed = bool(self._listening)
        if self._timed:
            loop.call_later(self._poll, self._round, loop)


class Ear:
    """One coroutine's wait. Entered, it hears of the run, and of its own time being over."""

    def __init__(self, ears: Ears, clock: Clock, run_id: str, timeout: Duration | None) -> None:
        self._ears = ears
        self._clock = clock
        self._run_id = run_id
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._until = None if timeout is None else clock.now() + micros(timeout)
        self._alarm: Alarm | None = None

    def __enter__(self) -> Self:
        self._stop = self._ears.listen(self._run_id, self._tell, self._loop)
        if self._until is not None:
            self._alarm = self._clock.call_at(self._until, self._loop, self._event.set)
        self._clock.waiting(1)
        return self

    def __exit__(self, *exc: object) -> None:
        self._clock.waiting(-1)
        self._stop()
        if self._alarm is not None:
            self._alarm.cancel()

    def _tell(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> bool:
        """Wait until there is a reason to look again. False when the time is over."""
        if self._until is not None and self._clock.now() >= self._until:
            return False
        await self._event.wait()
        self._event.clear()
        return True
