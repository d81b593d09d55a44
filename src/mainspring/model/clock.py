"""The two clocks everything is measured by.

Civil time says when something is due, in integer microseconds since 1970 UTC. Monotonic time says how long something has
been so: leases, polls and internal back-off. They are separate because civil time may jump, and because a test moves civil
time by years while leases must go on in real time.

Where the database has a clock, it is the clock of the fleet. A process measures it now and then and counts on from there by the
machine's steady clock, so that setting the machine's civil clock changes nothing. Without a database's clock there is only the
machine's own, and civil time jumps with it.
"""

from __future__ import annotations

import threading
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
_TRUSTED = 90 * SECOND
"""How long a measurement is trusted. Three times as long as it takes until the next one."""
_STEP = SECOND // 4
"""By how much civil and steady time drift apart only if one of them was set."""
_SAME = SECOND // 200
"""What two measurements may differ by without one being better than the other: time is not to go back for that."""
_MOST_DOUBTS = 20
_DOUBT_PAUSE = 0.1
_STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""The clock that goes on while the machine is suspended, where there is one."""


def machine_time() -> int:
    """The machine's civil time, which an administrator may set."""
    return time.time_ns() // 1_000


def steady_time() -> int:
    """Microseconds since some moment. It cannot be set."""
    return (time.monotonic_ns() if _STEADY is None else time.clock_gettime_ns(_STEADY)) // 1_000


def _nothing() -> None:
    pass


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

        No caller waits for a `chore`: a virtual clock does not go on for its sake alone.
        """
        ...

    @property
    def doubtful(self) -> bool:
        """Whether `confirm` is to be called before anything is done because of the time."""
        ...

    def confirm(self) -> None:
        """Make sure of the time. May block, and raise what the database raises."""

    def busy(self) -> None:
        """Something has begun that civil time must not overtake. Only a virtual clock cares."""

    def idle(self) -> None:
        """That something is over."""

    def waiting(self, change: int) -> None:
        """A caller has begun (+1) or ceased (-1) to wait for something that only time can bring."""


class SystemClock:
    """The machine's clocks, and once it follows a database, that of the database."""

    def __init__(self) -> None:
        self._measure: Callable[[], int] | None = None
        self._measuring = threading.Lock()
        self._ahead = 0
        """How far the database's civil time is ahead of the steady clock; microseconds, as everything here."""
        self._skew = 0
        """How far the machine's civil time was ahead of it when that was measured."""
        self._measured = 0
        self.on_doubt: Callable[[], None] = _nothing
        """Called, on any thread and often, while the time should be measured again."""

    def now(self) -> int:
        if self._measure is None:
            return machine_time()
        if self.doubtful:
            self.on_doubt()
        return steady_time() + self._ahead

    def follow(self, measure: Callable[[], int]) -> None:
        """Go by another clock; `measure` tells how far it is ahead of the machine's civil time, and may block."""
        self._measure = measure
        self.confirm()

    @property
    def offset(self) -> int:
        """How far the clock that this follows was ahead of the machine's when it was measured."""
        return self._ahead - self._skew

    @offset.setter
    def offset(self, offset: int) -> None:
        self.follow(lambda: offset)

    @property
    def doubtful(self) -> bool:
        """Whether the time has to be confirmed before anything is done because of it.

        Because the machine's civil clock was set, which it also is when the machine was suspended, or because the last
        measurement is too long ago.
        """
        if self._measure is None:
            return False
        steady = steady_time()
        return not 0 <= steady - self._measured <= _TRUSTED or abs(machine_time() - steady - self._skew) > _STEP

    def confirm(self) -> None:
        """Measure the clock that this follows once more. Blocks, and raises what measuring raises."""
        if self._measure is None:
            return
        with self._measuring:
            while True:
                before = machine_time() - steady_time()
                offset = self._measure()
                skew = machine_time() - steady_time()
                if abs(skew - before) <= _STEP:  # else the machine's clock was set in that very moment
                    break
            ahead = skew + offset
            if abs(ahead - self._ahead) > _SAME:
                self._ahead = ahead
            self._skew, self._measured = skew, steady_time()

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
    """Looks at the clock again now and then, because civil time can be set and machines can be suspended.

    What a clock says that is in doubt is not acted on for a moment, in which it can be confirmed.
    """

    __slots__ = ("_clock", "_doubts", "_handle", "_loop", "_ring", "_when")

    def __init__(
        self, clock: SystemClock, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]
    ) -> None:
        self._clock, self._when, self._loop, self._ring = clock, when, loop, ring
        self._doubts = 0
        self._handle = self._arm()

    def _arm(self) -> asyncio.TimerHandle:
        left = (self._when - self._clock.now()) / SECOND
        return self._loop.call_later(min(max(left, 0.0), _LONGEST_NAP), self._look)

    def _look(self) -> None:
        if self._clock.now() >= self._when:
            if self._clock.doubtful and self._doubts < _MOST_DOUBTS:
                self._doubts += 1
                self._handle = self._loop.call_later(_DOUBT_PAUSE, self._look)
            else:
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
