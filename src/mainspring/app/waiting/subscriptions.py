"""Waiting, outside runs, for what a run publishes, or for its end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

from mainspring.app.functions.options import micros

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.functions.options import Duration
    from mainspring.model.clock import Alarm, Clock
    from mainspring.store.changes import Signal


class Subscriptions:
    """The subscriptions of one process, by run. One timer for all of them makes up for notifications that got lost."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._lock = threading.Lock()
        self._by_run: dict[str, list[Callable[[], None]]] = {}
        self._timed = False

    def add(self, run_id: str, notify: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Have `notify` called, on any thread, when the run may have published something. Returns how to stop."""
        with self._lock:
            self._by_run.setdefault(run_id, []).append(notify)
            begin, self._timed = not self._timed, True
        if begin:
            loop.call_later(self._poll, self._round, loop)
        return lambda: self._remove(run_id, notify)

    def _remove(self, run_id: str, notify: Callable[[], None]) -> None:
        with self._lock:
            others = self._by_run.get(run_id)
            if others is not None and notify in others:
                others.remove(notify)
                if not others:
                    del self._by_run[run_id]

    def notify(self, signal: Signal) -> None:
        """Something was committed. Notify those whom it may concern."""
        if not self._by_run:
            return
        if signal.published is None or signal.ended is None:
            self._notify(None)
        elif signal.published or signal.ended:
            self._notify({run for run, _, _ in signal.published} | signal.ended)

    def _notify(self, runs: set[str] | frozenset[str] | None) -> None:
        with self._lock:
            concerned = self._by_run if runs is None else runs & self._by_run.keys()
            callbacks = [callback for run in concerned for callback in self._by_run[run]]
        for callback in callbacks:
            callback()

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._notify(None)
        with self._lock:
            self._timed = bool(self._by_run)
        if self._timed:
            loop.call_later(self._poll, self._round, loop)


class Subscription:
    """One coroutine's wait. Entered, it is notified of the run, and of its own time being over."""

    def __init__(self, subscriptions: Subscriptions, clock: Clock, run_id: str, timeout: Duration | None) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._run_id = run_id
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._until = None if timeout is None else clock.now() + micros(timeout)
        self._alarm: Alarm | None = None

    def __enter__(self) -> Self:
        self._stop = self._subscriptions.add(self._run_id, self._notify, self._loop)
        if self._until is not None:
            self._alarm = self._clock.call_at(self._until, self._loop, self._event.set)
        self._clock.waiting(1)
        return self

    def __exit__(self, *exc: object) -> None:
        self._clock.waiting(-1)
        self._stop()
        if self._alarm is not None:
            self._alarm.cancel()

    def _notify(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> bool:
        """Wait until there is a reason to look again. False when the time is over."""
        if self._until is not None and self._clock.now() >= self._until:
            return False
        await self._event.wait()
        self._event.clear()
        return True
