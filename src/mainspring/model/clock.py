"""The two clocks everything is measured by.

Civil time says when something is due, in integer microseconds since 1970 UTC. Monotonic time says how long something has
been so: leases, polls and internal back-off. They are separate because civil time may jump, and because a test moves civil
time by years while leases must go on in real time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

SECOND = 1_000_000
"""One second, in the unit that times are kept in."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_NAP = 30.0


class Alarm(Protocol):
    """Something that was asked for at a civil time and can be called off."""

    def cancel(self) -> None:
        """Call it off. Harmless when it has already rung."""


class Clock(Protocol):
    """Civil and monotonic time, and alarms on the former."""

    def now(self) -> int:
        """Civil time in microseconds UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        ...

    def call_at(
        self, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], *, chore: bool = False
    ) -> Alarm:
        """Call `ring` on `loop` when civil time has reached `when`. To be called on the loop's own thread.

        A `chore` is nothing that anybody waits for: a virtual clock does not go on for its sake alone.
        """
        ...

    def busy(self) -> None:
        """Something has begun that civil time must not overtake. Only a virtual clock cares."""

    def idle(self) -> None:
        """That something is over."""

    def waiting(self, change: int) -> None:
        """A caller has begun (+1) or ceased (-1) to wait for something that only time can bring."""


class SystemClock:
    """The machine's clocks. `offset` (microseconds) is added to civil time: the database's clock is the fleet's clock."""

    def __init__(self) -> None:
        self.offset = 0

    def now(self) -> int:
        return time.time_ns() // 1000 + self.offset

    def monotonic(self) -> float:
        return time.monotonic()

    def call_at(
        self, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], *, chore: bool = False
    ) -> Alarm:
        del chore
        return _SystemAlarm(self, when, loop, ring)

    def busy(self) -> None:
        pass

    def idle(self) -> None:
        pass

    def waiting(self, change: int) -> None:
        pass


class _SystemAlarm:
    """Looks at the clock again now and then, because civil time can be set and machines can be suspended."""

    __slots__ = ("_clock", "_handle", "_loop", "_ring", "_when")

    def __init__(
        self, clock: SystemClock, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]
    ) -> None:
        self._clock, self._when, self._loop, self._ring = clock, when, loop, ring
        self._handle = self._arm()

    def _arm(self) -> asyncio.TimerHandle:
        left = (self._when - self._clock.now()) / SECOND
        return self._loop.call_later(min(max(left, 0.0), _LONGEST_NAP), self._look)

    def _look(self) -> None:
        if self._clock.now() >= self._when:
            self._ring()
        else:
            self._handle = self._arm()

    def cancel(self) -> None:
        self._handle.cancel()


def to_datetime(micros: int) -> datetime:
    """The aware datetime, in UTC, of a stored time."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(moment: datetime) -> int:
    """The stored form of an aware datetime."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds
