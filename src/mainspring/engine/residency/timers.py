"""One heap of timers in wall-clock time, and one alarm for the first of them."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mainspring.model.clock import Alarm, Clock


_TOLERATED = 1_000


class Timer:
    """An entry of the heap. A cancelled one stays in the heap until cancelled ones are most of it."""

    __slots__ = ("_timers", "number", "ring", "when")

    def __init__(self, timers: Timers, when: int, number: int, ring: Callable[[], None]) -> None:
        self._timers = timers
        self.when = when
        self.number = number
        self.ring: Callable[[], None] | None = ring

    def cancel(self) -> None:
        if self.ring is not None:
            self.ring = None
            self._timers.forget_one()

    def __lt__(self, other: Timer) -> bool:
        return (self.when, self.number) < (other.when, other.number)


class Timers:
    """Timers on one event loop. Timers of the same moment ring in the order in which they were set."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._heap: list[Timer] = []
        self._alarm: Alarm | None = None
        self._alarm_at = 0
        self._count = 0
        self._dead = 0

    def at(self, when: int, ring: Callable[[], None]) -> Timer:
        self._count += 1
        timer = Timer(self, when, self._count, ring)
        heapq.heappush(self._heap, timer)
        self._arm()
        return timer

    def forget_one(self) -> None:
        """Count a cancelled entry, and remove all of them when they are most of the heap."""
        self._dead += 1
        if self._dead > max(_TOLERATED, len(self._heap) // 2):
            self._heap = [timer for timer in self._heap if timer.ring is not None]
            heapq.heapify(self._heap)
            self._dead = 0

    def close(self) -> None:
        self._heap.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    def _arm(self) -> None:
        while self._heap and self._heap[0].ring is None:
            heapq.heappop(self._heap)
        if not self._heap:
            return
        first = self._heap[0].when
        if self._alarm is not None:
            if self._alarm_at <= first:
                return
            self._alarm.cancel()
        self._alarm_at = first
        self._alarm = self._clock.call_at(first, self._loop, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.now()
        while self._heap and self._heap[0].when <= now:
            ring = heapq.heappop(self._heap).ring
            if ring is not None:
                ring()
        self._arm()
