"""Remove excluded times from a union, by their local time. The search through them is bounded by days."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING

from mainspring.recurrence.search.days import DAY, FIRST_DAY, LAST_DAY, NEVER, YEAR_OF, YEAR_START, YEARS
from mainspring.recurrence.search.patterns import EVERY_SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.recurrence.search.patterns import Pattern
    from mainspring.recurrence.search.search import Cycle
    from mainspring.recurrence.zones.zones import Zone

_KEPT_DAYS = 32
"""How many kinds of day are cached. Days of one kind have the same patterns and exclusions."""


class Exclusions:
    """Decides whether an instant is excluded, and finds the next instant that may not be.

    An exclusion is literal: it removes every time with that local time, including one that was moved out of a gap. Without such moved
    times, the rest of a day is set arithmetic on its 86,400 seconds.
    """

    __slots__ = ("_alive", "_any", "_cycles", "_days", "_excluded", "_included", "_shifted", "_zone")

    def __init__(
        self,
        excluded: Sequence[Pattern],
        included: Sequence[Pattern],
        cycles: Sequence[Cycle],
        zone: Zone,
        *,
        shifts: bool,
    ) -> None:
        self._excluded, self._included, self._cycles, self._zone = tuple(excluded), tuple(included), tuple(cycles), zone
        self._shifted = [pattern for pattern in included if shifts and not pattern.is_hourly]
        """Patterns whose times in a gap move after it, one by one."""
        self._any = [-1] * YEARS
        self._alive = [-1] * YEARS
        self._days: OrderedDict[tuple[object, ...], int] = OrderedDict()

    def __contains__(self, instant: int) -> bool:
        local = instant + self._zone.offset(instant)
        day = local // DAY
        if not FIRST_DAY <= day <= LAST_DAY:
            return False
        index = YEAR_OF[day - FIRST_DAY]
        mask = self._any[index]
        if mask < 0:
            mask = self._any[index] = self._union(self._excluded, index)
        if not mask >> (day - YEAR_START[index]) & 1:
            return False
        return any(pattern.matches(local) for pattern in self._excluded)

    def next_candidate(self, instant: int) -> int:
        """Return the first instant after an excluded one that may not be excluded, or NEVER."""
        instants, offsets = self._zone.instants, self._zone.offsets
        index = bisect_right(instants, instant)
        offset = offsets[index]
        # After the next transition the offset differs and times may be moved, so the search restarts there.
        horizon = instants[index] if index < len(instants) else NEVER
        if self._shifted and index:
            horizon = min(horizon, self._next_shifted(instant, instants[index - 1], offsets[index - 1], offset))
        day, second = divmod(instant + offset, DAY)
        while (alive := self._alive_day(day)) != NEVER:
            if alive != day:
                day, second = alive, -1
            if day * DAY - offset >= horizon:
                return horizon
            left = self._left(day, offset) >> (second + 1)
            if left:
                return min(horizon, day * DAY - offset + second + (left & -left).bit_length())
            day, second = day + 1, -1
        return horizon

    def _next_shifted(self, instant: int, changed: int, before: int, after: int) -> int:
        """Return the next time that a gap at `changed` moved to after `instant`. The arithmetic of days does not include these."""
        if instant >= changed + after - before:
            return NEVER
        local = instant + before
        while (local := min([pattern.at_or_after(local + 1) for pattern in self._shifted])) < changed + after:
            if local - before not in self:
                return local - before
        return NEVER

    def _alive_day(self, day: int) -> int:
        """Return the first day, from `day` on, that no single exclusion empties. Several together may still empty it."""
        if day > LAST_DAY:
            return NEVER
        index = YEAR_OF[day - FIRST_DAY]
        rest = self._alive_days(index) >> (day - YEAR_START[index])
        while not rest:
            index += 1
            if index == YEARS:
                return NEVER
            day, rest = YEAR_START[index], self._alive_days(index)
        return day + (rest & -rest).bit_length() - 1

    def _alive_days(self, index: int) -> int:
        alive = self._alive[index]
        if alive < 0:
            alive = 0
            for pattern in self._included:
                covering = [excluded for excluded in self._excluded if excluded.covers(pattern)]
                alive |= pattern.days.mask(index) & ~self._union(covering, index)
            if self._cycles:
                whole = [excluded for excluded in self._excluded if excluded.is_whole_day]
                every_day = (1 << (YEAR_START[index + 1] - YEAR_START[index])) - 1
                alive |= every_day & ~self._union(whole, index)
            self._alive[index] = alive
        return alive

    def _left(self, day: int, offset: int) -> int:
        """Return the seconds of a day's local time that match and are not excluded, one bit each."""
        index = YEAR_OF[day - FIRST_DAY]
        shift = day - YEAR_START[index]
        kind = (
            tuple([pattern.days.mask(index) >> shift & 1 for pattern in self._included]),
            tuple([pattern.days.mask(index) >> shift & 1 for pattern in self._excluded]),
            tuple([(cycle.phase - day * DAY + offset) % cycle.every for cycle in self._cycles]),
        )
        left = self._days.get(kind)
        if left is None:
            left = self._compute_left(*kind)
            self._days[kind] = left
            if len(self._days) > _KEPT_DAYS:
                self._days.popitem(last=False)
        return left

    def _compute_left(self, included: tuple[int, ...], excluded: tuple[int, ...], phases: tuple[int, ...]) -> int:
        left = 0
        for active, pattern in zip(included, self._included, strict=True):
            if active:
                left |= pattern.seconds_of_day
        for phase, cycle in zip(phases, self._cycles, strict=True):
            left |= _every_nth(cycle.every, phase)
        for active, pattern in zip(excluded, self._excluded, strict=True):
            if active:
                left &= ~pattern.seconds_of_day
        return left

    @staticmethod
    def _union(patterns: Sequence[Pattern], index: int) -> int:
        union = 0
        for pattern in patterns:
            union |= pattern.days.mask(index)
        return union


def _every_nth(every: int, phase: int) -> int:
    """Return a bit for each second of a day that is a whole number of cycles after `phase`."""
    if phase >= DAY:
        return 0
    mask, period = 1 << phase, every
    while period < DAY:  # doubling: each round appends a copy of the bits so far
        mask |= mask << period
        period *= 2
    return mask & EVERY_SECOND
