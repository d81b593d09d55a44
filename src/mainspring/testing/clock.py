"""A clock whose wall-clock time advances only when the test requests it, or when a caller waits and the app is idle.

Monotonic time stays real: leases and polls concern processes, not the calendar.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mainspring.errors import InvalidInput
from mainspring.model.clock import to_datetime, to_micros
from mainspring.recurrence.durations import micros

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sized
    from datetime import timedelta

_QUIET_ROUNDS = 50
"""How many rounds of the event loop without a change count as idle."""
_STANDSTILL = 10.0
"""Seconds of real time after which a wait that nothing can end is an error. The test itself may take so long."""
_ALONE_ROUNDS = 2
"""The same, on an event loop that shows that it has nothing else to call."""


class _VirtualAlarm:
    __slots__ = ("background", "loop", "number", "ring", "when")

    def __init__(
        self, when: int, number: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], *, background: bool
    ) -> None:
        self.background = background
        self.when = when
        self.number = number
        self.loop = loop
        self.ring: Callable[[], None] | None = ring

    def cancel(self) -> None:
        self.ring = None

    def __lt__(self, other: _VirtualAlarm) -> bool:
        return (self.when, self.number) < (other.when, other.number)


def _moment(at: object) -> int:
    try:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise InvalidInput(f"a time is a datetime or a text such as 2026-01-01T00:00Z, not {at!r}")
    if moment.tzinfo is None:
        raise InvalidInput(f"the time {moment.isoformat()} has no zone; write it with one, such as 2026-01-01T00:00Z")
    return to_micros(moment)


class VirtualClock:
    """Wall-clock time for tests. Give it to an app as `clock=`, or let `testing.world` do so.

    Wall-clock time stands still while the app is working (a step, a commit). When a caller waits for a result and the app is idle, time jumps
    to the next due time. Raises `InvalidInput` for a time without a zone.
    """

    def __init__(self, at: datetime | str = "2026-01-01T00:00:00Z") -> None:
        self._now = _moment(at)
        self._heap: list[_VirtualAlarm] = []
        self._count = 0
        self._busy = 0
        self._waiting = 0
        self._changes = 0
        self._goal: int | None = None
        self._reached: asyncio.Future[None] | None = None
        self._wake: asyncio.Event | None = None
        self._failure: Exception | None = None
        self._still_since: float | None = None
        self.on_standstill: Callable[[], None] | None = None
        """Called when a caller has waited for long, nothing is due, and no work is in progress."""

    # -- called by the app ---------------------------------------------------------------------------------------------
    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return time.monotonic()

    def call_at(
        self, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], *, background: bool = False
    ) -> _VirtualAlarm:
        self._count += 1
        if not background:
            self.progress()
        alarm = _VirtualAlarm(when, self._count, loop, ring, background=background)
        heapq.heappush(self._heap, alarm)
        self._changed()
        return alarm

    @property
    def doubtful(self) -> bool:
        return False

    def confirm(self) -> None:
        pass

    def busy(self) -> None:
        self._busy += 1
        self._changes += 1

    def idle(self) -> None:
        self._busy -= 1
        self._changed()

    def waiting(self, change: int) -> None:
        self._waiting += change
        self.progress()
        self._changed()

    def progress(self) -> None:
        """Note that a caller's wait may still end, because something happened. Thread-safe."""
        self._still_since = None

    def _changed(self) -> None:
        self._changes += 1
        if self._wake is not None:
            self._wake.set()

    # -- called by the test --------------------------------------------------------------------------------------------
    @property
    def time(self) -> datetime:
        """Wall-clock time, as an aware datetime in UTC."""
        return to_datetime(self._now).astimezone(UTC)

    async def advance(self, by: timedelta | float | str) -> None:
        """Advance wall-clock time by a duration, and finish everything that becomes due on the way."""
        await self._advance_to(self._now + micros(by))

    async def advance_to(self, when: datetime | str) -> None:
        """Advance wall-clock time to a moment, and finish everything that becomes due on the way.

        Raises `InvalidInput` if the moment has no zone or has passed or the clock is not running, and `Endless` if the test would
        never end.
        """
        await self._advance_to(_moment(when))

    async def _advance_to(self, goal: int) -> None:
        if goal < self._now:
            raise InvalidInput(f"time does not go back: it is {self.time.isoformat()} already")
        if self._wake is None:
            raise InvalidInput(
                "the clock is not running; use it through testing.world, or inside `async with clock.running():`"
            )
        if self._failure is not None:
            raise self._failure
        while self._reached is not None:
            await asyncio.shield(self._reached)
        self._reached = asyncio.get_running_loop().create_future()
        self._goal = goal
        self._changed()
        await self._reached

    async def drain(self) -> None:
        """Wait until everything that is due now is done."""
        await self.advance(0)

    def give_up(self, error: Exception) -> None:
        """Raise `error` in every caller that waits for time to pass, now or later. Must be called on the loop's thread."""
        self._failure = error
        reached, self._reached, self._goal = self._reached, None, None
        if reached is not None and not reached.done():
            reached.set_exception(error)

    def set(self, when: datetime | str) -> None:
        """Set the clock, as an administrator would: times on the way are skipped, and time may go back."""
        self._now = _moment(when)
        self._changed()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[VirtualClock]:
        """Run the clock on the current event loop, for as long as the context is entered."""
        self._wake = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self._wake = None

    # -- moving --------------------------------------------------------------------------------------------------------
    async def _run(self) -> None:
        wake = self._wake
        assert wake is not None  # noqa: S101
        while True:
            wake.clear()
            if not await self._quiet():
                await wake.wait()
                continue
            if self._ring_next():
                continue
            if self._goal is not None:
                self._now = max(self._now, self._goal)
                self._goal = None
                reached, self._reached = self._reached, None
                if reached is not None and not reached.done():
                    reached.set_result(None)
                continue
            await self._rest(wake)

    async def _rest(self, wake: asyncio.Event) -> None:
        """Wait for a change. Polls do not count, since they end no caller's wait."""
        if not self._waiting or self.on_standstill is None:
            await wake.wait()
            return
        self._still_since = self._still_since or time.monotonic()
        left = self._still_since + _STANDSTILL - time.monotonic()
        if left <= 0:
            self.progress()
            self.on_standstill()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await wake.wait()

    async def _quiet(self) -> bool:
        """Whether no work is in progress, after some rounds of the event loop. False: wait for a change."""
        # The callbacks that asyncio's own loops have still to call. If there are none, nothing more will happen.
        ready: Sized | None = getattr(asyncio.get_running_loop(), "_ready", None)
        while True:
            if self._busy:
                return False
            changes, alone = self._changes, 0
            for _ in range(_QUIET_ROUNDS):
                await asyncio.sleep(0)
                if self._changes != changes:
                    break
                alone = alone + 1 if ready is not None and not len(ready) else 0
                if alone == _ALONE_ROUNDS:
                    return True
            else:
                return True

    def _limit(self) -> int:
        """Return how far time may advance: to the requested time, or to the next alarm that a caller may be waiting for."""
        if self._goal is not None:
            return self._goal
        if not self._waiting:
            return self._now
        first = self._heap[0]
        if not first.background:
            return first.when
        return min((alarm.when for alarm in self._heap if alarm.ring and not alarm.background), default=self._now)

    def _ring_next(self) -> bool:
        """Advance to the next alarm if it is due or a caller waits for time to pass, and ring all alarms of that moment."""
        while self._heap and self._heap[0].ring is None:
            heapq.heappop(self._heap)
        if not self._heap:
            return False
        when = self._heap[0].when
        if when > self._limit():
            return False
        self._now = max(self._now, when)
        running = asyncio.get_running_loop()
        while self._heap and self._heap[0].when <= self._now:
            alarm = heapq.heappop(self._heap)
            ring, alarm.ring = alarm.ring, None
            if ring is not None:
                if alarm.loop is running:
                    alarm.loop.call_soon(ring)
                else:
                    alarm.loop.call_soon_threadsafe(ring)
        return True
