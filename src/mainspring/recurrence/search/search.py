"""Find the next instant of a union of patterns and intervals in a zone, with a policy for gaps and folds.

All times are whole seconds since 1970. Almost every search stays clear of the zone's transitions, where an instant plus an offset is
local time. Only a search that begins or ends next to a transition uses `_around`, which applies the policies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Literal, NamedTuple

from mainspring.recurrence.search.days import DAY, FIRST_DAY, LAST_DAY, NEVER, YEAR_OF, YEAR_START

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.recurrence.search.patterns import Pattern
    from mainspring.recurrence.zones.zones import Zone

Gap = Literal["after", "skip", "shift"]
"""What a local time becomes that the clocks jump over: the first instant after the gap, none, or as much later as the gap is long."""
Fold = Literal["first", "second", "both"]
"""Which instants of a local time count that the clocks show twice."""

GAPS: tuple[Gap, ...] = ("after", "skip", "shift")
FOLDS: tuple[Fold, ...] = ("first", "second", "both")


class Cycle(NamedTuple):
    """Every instant `t` with `(t - phase) % every == 0`."""

    every: int
    phase: int

    def at_or_after(self, instant: int) -> int:
        return instant + (self.phase - instant) % self.every


_MOST_TIMES = 1_440
"""Patterns with more times of day are searched field by field."""


class Search:
    """The union of patterns and cycles in a zone, without bounds and exclusions."""

    __slots__ = ("_cycles", "_end", "_fold", "_gap", "_only", "_patterns", "_zone")

    def __init__(self, patterns: Sequence[Pattern], cycles: Sequence[Cycle], zone: Zone, gap: Gap, fold: Fold) -> None:
        self._patterns = tuple(pattern for pattern in patterns if pattern.has_times)
        self._cycles = tuple(cycles)
        self._zone, self._gap, self._fold = zone, gap, fold
        self._end = zone.end
        self._only = self._patterns[0] if len(self._patterns) == 1 else None

    @property
    def fastest_find(self) -> Callable[[int], int]:
        """`at_or_after` without the parts that this union does not need."""
        return self.at_or_after if self._cycles or not self._patterns else self._calendar_time

    @property
    def next_wall_time(self) -> Callable[[int], int] | None:
        """A fast search from one wall clock time to the next, if there is one. It returns -1 where a full search is needed."""
        times = None if self._cycles or self._only is None else self._only.times_of_day(_MOST_TIMES)
        return None if times is None or self._only is None else _wall_search(self._only, times, self._zone)

    @property
    def has_cycles(self) -> bool:
        return bool(self._cycles)

    def at_or_after(self, instant: int) -> int:
        """Return the first instant that is not before `instant`, or NEVER."""
        found = self._calendar_time(instant) if self._patterns else NEVER
        for cycle in self._cycles:
            at = cycle.at_or_after(instant)
            if at < found and at < self._end:
                found = at
        return found

    def _calendar_time(self, instant: int) -> int:
        zone = self._zone
        edges = zone.edges
        index = bisect_right(edges, instant)
        if not index & 1:
            offset = zone.edge_offsets[index]
            local = instant + offset
            if self._only is not None:
                local = self._only.at_or_after(local)
            else:
                local = min([pattern.at_or_after(local) for pattern in self._patterns])
            if local == NEVER:
                return NEVER
            found = local - offset
            if found < edges[index]:
                return found
            # The time lies after a transition: the offset there counts, if that time is clear of transitions too.
            index = bisect_right(edges, found)
            if not index & 1:
                found = local - zone.edge_offsets[index]
                if edges[index - 1] <= found < edges[index]:
                    return found
        return min([self._around(pattern, instant) for pattern in self._patterns])

    def _around(self, pattern: Pattern, instant: int) -> int:
        """Search one pattern as `at_or_after` does, anywhere, in steps from transition to transition."""
        gap, fold = ("skip", "both") if pattern.is_hourly else (self._gap, self._fold)
        instants, offsets = self._zone.instants, self._zone.offsets
        index = bisect_right(instants, instant)
        while True:
            offset = offsets[index]
            begin, end = -NEVER, NEVER
            found = NEVER
            if index:
                changed, before = instants[index - 1], offsets[index - 1]
                begin = changed + offset
                if before < offset:
                    found = _time_in_gap(pattern, gap, changed, (before, offset), instant)
                elif fold == "first":
                    begin = changed + before
            if index < len(instants):
                end = instants[index] + (min(offset, offsets[index + 1]) if fold == "second" else offset)
            local = pattern.at_or_after(max(instant + offset, begin))
            if local < end and local != NEVER:
                found = min(found, local - offset)
            if found != NEVER or index == len(instants):
                return found
            index += 1
            instant = max(instant, instants[index - 1])


def _wall_search(pattern: Pattern, times: tuple[int, ...], zone: Zone) -> Callable[[int], int]:
    """Return a search from one wall clock time to the next. It returns -1 if a transition is near either of them.

    Between two times of a pattern there is none that a transition could move or repeat, so transitions between them do not matter.
    A function over local names takes half the time of a method.
    """
    edges, count, first_time = zone.local_edges, len(times), times[0]
    masks, compute_mask, day_at_or_after = pattern.days.masks, pattern.days.mask, pattern.days.at_or_after
    year_of, year_start = YEAR_OF, YEAR_START
    bisect_edges, bisect_times, first_day, last_day = bisect_right, bisect_left, FIRST_DAY, LAST_DAY

    def after(local: int) -> int:
        # Decided at the first second: one second later the clocks may already have been turned back.
        index = bisect_edges(edges, local)
        local += 1
        day, time = divmod(local, DAY)
        if index & 1 or not first_day <= day < last_day:
            return -1
        at = bisect_times(times, time)
        if at < count:
            year = year_of[day - first_day]
            mask = masks[year]
            if mask < 0:
                mask = compute_mask(year)
            if mask >> (day - year_start[year]) & 1:
                found = local - time + times[at]
                if found < edges[index]:
                    return found
                return -1 if bisect_edges(edges, found) & 1 else found
        day = day_at_or_after(day + 1)
        found = day * DAY + first_time
        return -1 if day == NEVER or bisect_edges(edges, found) & 1 else found

    return after


def _time_in_gap(pattern: Pattern, gap: str, changed: int, offsets: tuple[int, int], instant: int) -> int:
    """Return the first instant, at or after `instant`, of the times that the clocks jumped over at `changed`."""
    before, after = offsets
    if gap == "after" and instant <= changed:
        return changed if pattern.at_or_after(changed + before) < changed + after else NEVER
    if gap == "shift":
        local = pattern.at_or_after(max(instant, changed) + before)
        return local - before if local < changed + after else NEVER
    return NEVER
