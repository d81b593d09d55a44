"""The ticks of the clock that have come up since a schedule was last looked at."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND, to_micros
from mainspring.model.schedules import Tick, TickOutcome, TickSource
from mainspring.recurrence.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Iterator

LATE = 10 * SECOND
"""A tick that is acted on later than this after its time is late, or made up for."""
MOST_AT_ONCE = 1_000
"""How many ticks of one schedule may wait for a decision in one pass; the rest follows in the next."""
MOST_PASSED_BY = 20_000
"""How many ticks one pass may leave out."""
LONG_STRETCH = 10
"""More than so many ticks of one fate, one after the other, become one row."""


@lru_cache(maxsize=8192)
def spec_of(text: str) -> Spec:
    """The spec as a schedule's row has it."""
    return Spec.from_dict(json.loads(text))


_STEPS = 8


class Times:
    """The nominal times of a schedule with the times to act on them, in microseconds.

    It remembers its last steps: a plan asks for most of them several times, and the next plan for the last one again.
    """

    def __init__(self, spec: Spec, seed: str) -> None:
        self.spec = spec
        self._seed = seed
        self._jitters = bool(spec.jitter)
        self._steps: dict[int, int | None] = {}

    def next(self, after: int) -> int | None:
        """The first nominal time after a time."""
        steps = self._steps
        if after in steps:
            return steps[after]
        found = self.spec.next(after // SECOND)
        if len(steps) >= _STEPS:
            self._steps = steps = {}
        steps[after] = nominal = None if found is None else round(found.timestamp()) * SECOND
        return nominal

    def before(self, nominal: int) -> int | None:
        """The last nominal time before a time."""
        steps = self._steps
        for before, after in list(steps.items()):
            if after == nominal and before in steps.values():
                return before
        found = self.spec.previous(nominal / SECOND)
        return None if found is None else round(found.timestamp()) * SECOND

    def last(self, until: int) -> int | None:
        """The last nominal time whose time to act is not after a time."""
        found = self.spec.previous(until // SECOND + 1)
        while found is not None and self.act(nominal := round(found.timestamp()) * SECOND) > until:
            found = self.spec.previous(nominal // SECOND)
        return None if found is None else round(found.timestamp()) * SECOND

    def act(self, nominal: int) -> int:
        """When to act on a nominal time."""
        return to_micros(self.spec.jittered(nominal // SECOND, self._seed)) if self._jitters else nominal

    def elapsed(self, cursor: int, now: int) -> Iterator[tuple[int, int]]:
        """The nominal times after the cursor whose time to act has come, with that time."""
        nominal = self.next(cursor)
        while nominal is not None and (act := self.act(nominal)) <= now:
            yield nominal, act
            nominal = self.next(nominal)


class Stretches:
    """Ticks that are left out, gathered: a long stretch of one fate becomes one row."""

    def __init__(self, schedule: str, now: int) -> None:
        self._schedule = schedule
        self._now = now
        self._open: list[Tick] = []
        self._key: tuple[TickOutcome, str] | None = None
        self._uncounted = False
        self.ticks: list[Tick] = []

    def add(self, nominal: int, act: int, outcome: TickOutcome, reason: str) -> None:
        if self._key != (outcome, reason):
            self.close()
            self._key = outcome, reason
        if len(self._open) > LONG_STRETCH:
            last = self._open[-1]
            last.nominal, last.due, last.count = nominal, act, last.count + 1
        else:
            source = TickSource.CLOCK if self._now - act <= LATE else TickSource.CATCHUP
            self._open.append(Tick(self._schedule, nominal, "", source, act, outcome, reason, self._now))

    def reach(self, nominal: int) -> None:
        """Let the stretch go on to a nominal time without counting what lies between."""
        last = self._open[-1]
        if nominal > last.nominal:
            last.nominal = nominal
            self._uncounted = True

    def close(self) -> None:
        """End the stretch."""
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
    """The times of a schedule, by its spec as the row has it."""
    return Times(spec_of(spec), schedule)
