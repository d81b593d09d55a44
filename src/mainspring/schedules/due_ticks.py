"""The ticks of the clock that became due since a schedule was last planned."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND, to_micros
from mainspring.model.schedules import Tick, TickOutcome, TickSource
from mainspring.recurrence.spec import Spec, stored_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

LATE = 10 * SECOND
"""A tick that starts later than this after its time is late, or a catch-up."""
MOST_AT_ONCE = 1_000
"""The maximum number of ticks of one schedule that one pass decides. The rest follows in the next pass."""
MOST_PASSED_BY = 20_000
"""The maximum number of ticks that one pass leaves out one by one."""
LONG_STRETCH = 10
"""More consecutive ticks with one outcome than this become one row."""


@lru_cache(maxsize=8192)
def spec_of(text: str) -> Spec:
    """Return the spec of a schedule's row."""
    return stored_spec(json.loads(text))


_STEPS = 8


class Times:
    """The nominal times of a schedule with the times to act on them, in microseconds.

    Caches its last steps: a plan needs most of them several times, and the next plan needs the last one again.
    """

    def __init__(self, spec: Spec, seed: str) -> None:
        self.spec = spec
        self._seed = seed
        self._jitters = bool(spec.jitter)
        self._steps: dict[int, int | None] = {}

    def next(self, after: int) -> int | None:
        """Return the first nominal time after a time."""
        steps = self._steps
        if after in steps:
            return steps[after]
        found = self.spec.next(after // SECOND)
        if len(steps) >= _STEPS:
            self._steps = steps = {}
        steps[after] = nominal = None if found is None else round(found.timestamp()) * SECOND
        return nominal

    def before(self, nominal: int) -> int | None:
        """Return the last nominal time before a time."""
        steps = self._steps
        for before, after in list(steps.items()):
            if after == nominal and before in steps.values():
                return before
        found = self.spec.previous(nominal / SECOND)
        return None if found is None else round(found.timestamp()) * SECOND

    def last(self, until: int) -> int | None:
        """Return the last nominal time whose time to act is not after a time."""
        found = self.spec.previous(until // SECOND + 1)
        while found is not None and self.act(nominal := round(found.timestamp()) * SECOND) > until:
            found = self.spec.previous(nominal // SECOND)
        return None if found is None else round(found.timestamp()) * SECOND

    def act(self, nominal: int) -> int:
        """Return when to act on a nominal time."""
        return to_micros(self.spec.jittered(nominal // SECOND, self._seed)) if self._jitters else nominal

    def elapsed(self, cursor: int, now: int) -> Iterator[tuple[int, int]]:
        """Yield the nominal times after the cursor whose time to act has come, with that time."""
        nominal = self.next(cursor)
        while nominal is not None and (act := self.act(nominal)) <= now:
            yield nominal, act
            nominal = self.next(nominal)


class SkippedRanges:
    """Collects ticks that are left out: many consecutive ones with one outcome become one row."""

    def __init__(self, schedule: str, now: int) -> None:
        self._schedule = schedule
        self._now = now
        self._open: list[Tick] = []
        self._key: tuple[TickOutcome, str] | None = None
        self._uncounted = False
        self.ticks: list[Tick] = []

    def add(self, nominal: int, act: int, outcome: TickOutcome, reason: str) -> None:
        """Add a tick."""
        if self._key != (outcome, reason):
            self.close()
            self._key = outcome, reason
        if len(self._open) > LONG_STRETCH:
            last = self._open[-1]
            last.nominal, last.due, last.count = nominal, act, last.count + 1
        else:
            source = TickSource.CLOCK if self._now - act <= LATE else TickSource.CATCHUP
            self._open.append(Tick(self._schedule, nominal, "", source, act, outcome, reason, self._now))

    def extend_to(self, nominal: int) -> None:
        """Extend the range to a nominal time, without counting the ticks between."""
        last = self._open[-1]
        if nominal > last.nominal:
            last.nominal = nominal
            self._uncounted = True

    def close(self) -> None:
        """End the range."""
        if len(self._open) > LONG_STRETCH:
            first, last = self._open[0], self._open[-1]
            first.until = last.nominal
            first.count = sum(tick.count for tick in self._open)
            if self._uncounted:
                first.reason = f"{first.reason}; not all of them were counted"
            self._open = [first]
        self.ticks += self._open
        self._open, self._key, self._uncounted = [], None, False


@lru_cache(maxsize=8192)
def times_of(spec: str, schedule: str) -> Times:
    """Return the times of a schedule, by the spec of its row."""
    return Times(spec_of(spec), schedule)
