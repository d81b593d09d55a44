"""The times of a spec, in whole seconds: what the search finds, within the bounds, less the exclusions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainspring.recurrence.days import FIRST_SECOND, NEVER
from mainspring.recurrence.exclusions import Exclusions
from mainspring.recurrence.search import Cycle, Fold, Gap, Search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.recurrence.dialects.reading import Values
    from mainspring.recurrence.patterns import Pattern
    from mainspring.recurrence.zones import Zone

_FIRST_LOOK_BACK = 64
EARLIEST = -62_135_000_000
"""A week into the year 1: intervals have no first time, dates have."""


class Sources(NamedTuple):
    """What a timeline is made of: calendars and cycles that name times, patterns that take some away."""

    calendars: Sequence[Values] = ()
    cycles: Sequence[Cycle] = ()
    excluded: Sequence[Pattern] = ()


class Timeline:
    """A set of instants in the order of time. `start` and `end` belong to it."""

    __slots__ = ("_end", "_exclusions", "_search", "_start", "find")

    def __init__(self, search: Search, exclusions: Exclusions | None, start: int, end: int) -> None:
        self._search, self._exclusions = search, exclusions
        self._start, self._end = max(start, EARLIEST), min(end, NEVER - 1)
        plain = exclusions is None and start <= EARLIEST and end >= NEVER and not search.has_cycles
        self.find = search.leanest if plain else self.at_or_after
        """`at_or_after`, past everything this timeline does not have."""

    def at_or_after(self, instant: int) -> int:
        """The first time that is not before `instant`, or NEVER."""
        search, exclusions = self._search, self._exclusions
        found = search.at_or_after(max(instant, self._start))
        if exclusions is not None:
            while found <= self._end and found in exclusions:
                found = search.at_or_after(exclusions.beyond(found))
        return found if found <= self._end else NEVER

    def before(self, instant: int) -> int | None:
        """The last time before `instant`.

        Found with `at_or_after` alone, so that looking back can never disagree with looking forward: first ever
        longer looks back until there is a time, then halving what lies between it and `instant`.
        """
        latest = min(instant, self._end + 1)
        earliest = self._start if self._search.has_cycles else max(self._start, FIRST_SECOND - 172_800)
        span, found = _FIRST_LOOK_BACK, NEVER
        while found >= instant:
            begin = max(latest - span, earliest)
            found = self.at_or_after(begin)
            if found >= instant and begin == earliest:
                return None
            span *= 4
        until = latest - 1
        while (following := self.at_or_after(found + 1)) < instant:
            found = following
            while found < until:
                middle = (found + until + 1) // 2
                later = self.at_or_after(middle)
                if later < instant:
                    found = later
                    break
                until = middle - 1
        return found

    def unexcluded_after(self, instant: int) -> int:
        """The first time after `instant` that bounds and exclusions do not touch: what jitter must stay before."""
        return self._search.at_or_after(instant + 1)


def build_timeline(
    sources: Sources, zone: Zone, gap: Gap, fold: Fold, bounds: tuple[int, int] = (EARLIEST, NEVER)
) -> Timeline:
    """The timeline of some sources in a zone, between two instants that belong to it."""
    patterns = [values.pattern() for values in dict.fromkeys(sources.calendars)]
    cycles = list(dict.fromkeys(sources.cycles))
    exclusions = None
    if sources.excluded:
        exclusions = Exclusions(sources.excluded, patterns, cycles, zone, moves=gap != "skip")
    return Timeline(Search(patterns, cycles, zone, gap, fold), exclusions, *bounds)
