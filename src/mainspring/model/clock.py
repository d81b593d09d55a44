"""The wall clock and the monotonic clock.

Wall-clock time decides when something is due, in integer microseconds since 1970 UTC. Monotonic time measures durations: leases, polls and
internal back-off. They are separate because wall-clock time may jump, and because a test advances wall-clock time by years while leases must
continue in real time.

Where the database has a clock, all processes follow it. A process measures the offset regularly and extrapolates with
the machine's steady clock, so setting the machine's wall clock changes nothing. Without a database clock, wall-clock time
is the machine's, and jumps with it.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

SECOND = 1_000_000
"""One second, in the unit of stored times."""
CLOCK_ERROR = SECOND
"""The most by which the clocks of a fleet may differ, in microseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_LONGEST_SLEEP = 30.0
_TRUSTED = 90 * SECOND
"""How long a measurement of the offset is trusted: three times the interval between measurements."""
_STEP = SECOND // 4
"""The difference between wall-clock and steady time above which one of the two clocks must have been set."""
_SAME = SECOND // 200
"""The difference below which a new measurement is ignored, so that wall-clock time does not go backwards for noise."""
_LOOK_EVERY = SECOND // 100
"""How often `now` looks whether a clock was set. Between two looks it reads one clock instead of two."""
_MOST_DOUBTS = 20
_DOUBT_PAUSE = 0.1


def machine_time() -> int:
    """Return the machine's wall-clock time, which an administrator may set."""
    return time.time_ns() // 1_000


def _steady_clock() -> Callable[[], int]:
    """The clock that also counts while the machine is suspended, on platforms that have one."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        if hasattr(time, name):
            return partial(time.clock_gettime_ns, getattr(time, name))
    return time.monotonic_ns


_read_steady = _steady_clock()


def steady_time() -> int:
    """Return microseconds since a fixed moment, from a clock that cannot be set."""
    return _read_steady() // 1_000


def _nothing() -> None:
    pass


class Alarm(Protocol):
    """A callback at a wall-clock time that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the callback. No effect after it was called."""


class Clock(Protocol):
    """Wall-clock and monotonic time, and alarms at wall-clock times."""

    def now(self) -> int:
        """Return wall-clock time in microseconds UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from a clock that never goes backwards."""
        ...

    def call_at(
        self, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], *, background: bool = False
    ) -> Alarm:
        """Call `ring` on `loop` when wall-clock time reaches `when`. Must be called on the thread of the loop.

        With `background` no caller waits for the alarm: a virtual clock does not advance for that alarm alone.
        """
        ...

    @property
    def doubtful(self) -> bool:
        """Whether `confirm` must be called before acting on the time."""
        ...

    def confirm(self) -> None:
        """Measure the time again. May block, and raises the database's errors."""

    def busy(self) -> None:
        """Begin work that wall-clock time must not overtake. Only a virtual clock uses this."""

    def idle(self) -> None:
        """End the work that `busy` began."""

    def waiting(self, change: int) -> None:
        """Count a caller that begins (+1) or ends (-1) a wait that only the passing of time can resolve."""


class SystemClock:
    """The machine's clocks. After `follow`, wall-clock time is the database's."""

    def __init__(self) -> None:
        self._measure: Callable[[], int] | None = None
        self._measuring = threading.Lock()
        self._ahead = 0
        """Microseconds that the database's wall-clock time is ahead of the steady clock."""
        self._skew = 0
        """Microseconds that the machine's wall-clock time was ahead of the steady clock at the last measurement."""
        self._measured = 0
        self._looked = 0
        """The steady time at which `now` last found that no clock was set."""
        self.on_doubt: Callable[[], None] = _nothing
        """Called while the time should be measured again, on any thread and often."""

    def now(self) -> int:
        if self._measure is None:
            return time.time_ns() // 1_000  # as `machine_time`, without a call: every step asks three times
        steady = _read_steady() // 1_000  # as `steady_time`, without a call
        if not 0 <= steady - self._looked < _LOOK_EVERY:
            self._look(steady)
        return steady + self._ahead

    def _look(self, steady: int) -> None:
        if self._doubtful(steady):
            self.on_doubt()
        else:
            self._looked = steady

    def follow(self, measure: Callable[[], int]) -> None:
        """Follow another clock. `measure` returns how far that clock is ahead of the machine's wall-clock time, and may block."""
        self._measure = measure
        self.confirm()

    def unfollow(self) -> None:
        """Follow the machine's clock again: the other one can no longer be measured."""
        self._measure, self.on_doubt = None, _nothing

    @property
    def offset(self) -> int:
        """How far the followed clock was ahead of the machine's at the last measurement."""
        return self._ahead - self._skew

    @offset.setter
    def offset(self, offset: int) -> None:
        self.follow(lambda: offset)

    @property
    def doubtful(self) -> bool:
        """Whether the time must be confirmed before acting on it.

        True after the machine's wall clock was set (a suspend of the machine also sets it), and when the last measurement is too old.
        """
        return self._measure is not None and self._doubtful(steady_time())

    def _doubtful(self, steady: int) -> bool:
        return not 0 <= steady - self._measured <= _TRUSTED or abs(machine_time() - steady - self._skew) > _STEP

    def confirm(self) -> None:
        """Measure the followed clock again. Blocks, and raises the errors of the measurement."""
        measure = self._measure
        if measure is None:
            return
        with self._measuring:
            while True:
                before = machine_time() - steady_time()
                offset = measure()
                skew = machine_time() - steady_time()
                if abs(skew - before) <= _STEP:  # otherwise the machine's clock was set during the measurement
                    break
            ahead = skew + offset
            if abs(ahead - self._ahead) > _SAME:
                self._ahead = ahead
            self._skew, self._measured = skew, steady_time()

    def monotonic(self) -> float:
        return time.monotonic()

    def call_at(
        self, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], *, background: bool = False
    ) -> Alarm:
        del background
        return _SystemAlarm(self, when, loop, ring)

    def busy(self) -> None:
        pass

    def idle(self) -> None:
        pass

    def waiting(self, change: int) -> None:
        pass


class _SystemAlarm:
    """An alarm that checks the clock again regularly, because wall-clock time can be set and machines can be suspended.

    While the clock is doubtful, the alarm waits for a confirmation, up to a limit.
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
        return self._loop.call_later(min(max(left, 0.0), _LONGEST_SLEEP), self._look)

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
    """Convert a stored time to an aware datetime in UTC. A time that a datetime cannot hold becomes the last or first one it can."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:  # written by other means than this library: one such row must not hide the others
        return _LAST if micros > 0 else _FIRST


def to_micros(moment: datetime) -> int:
    """Convert an aware datetime to a stored time."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds
