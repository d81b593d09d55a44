"""The times of a spec, in whole seconds: the results of the search, within the bounds, without the exclusions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainspring.recurrence.search.days import FIRST_SECOND, NEVER
from mainspring.recurrence.search.exclusions import Exclusions
from mainspring.recurrence.search.search import Cycle, Fold, Gap, Search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.recurrence.cron.dialects.reading import Values
    from mainspring.recurrence.search.patterns import Pattern
    from mainspring.recurrence.zones.zones import Zone

_FIRST_LOOK_BACK = 64
EARLIEST = -62_135_000_000
"""A week into the year 1: intervals have no first time, but a datetime has."""


class Sources(NamedTuple):
    """The parts of a timeline: calendars and cycles that match times, and patterns that exclude some."""

    calendars: Sequence[Values] = ()
    cycles: Sequence[Cycle] = ()
    excluded: Sequence[Pattern] = ()


class Timeline:
    """An ordered set of instants. `start` and `end` are included."""

    __slots__ = ("_end", "_exclusions", "_search", "_start", "find", "next_wall_time")

    def __init__(self, search: Search, exclusions: Exclusions | None, start: int, end: int) -> None:
        self._search, self._exclusions = search, exclusions
        self._start, self._end = max(start, EARLIEST), min(end, NEVER - 1)
        plain = exclusions is None and start <= EARLIEST and end >= NEVER and not search.has_cycles
        self.find = search.fastest_find if plain else self.at_or_after
        """The fastest form of `at_or_after` for this timeline."""
        self.next_wall_time = search.next_wall_time if plain else None

    def at_or_after(self, instant: int) -> int:
        """Return the first time that is not before `instant`, or NEVER."""
        return self._first(instant, self._end)

    def _first(self, instant: int, last: int) -> int:
        """Return the first time from `instant` to `last`, or NEVER."""
        search, exclusions = self._search, self._exclusions
        found = search.at_or_after(max(instant, self._start))
        if exclusions is not None:
            while found <= last and found in exclusions:
                found = search.at_or_after(exclusions.next_candidate(found))
        return found if found <= last else NEVER

    def before(self, instant: int) -> int | None:
        """Return the last time before `instant`.

        Searches forward only, so that the result always agrees with `at_or_after`: first from ever earlier starts, until there is a time
        before `instant`, then by bisection between that time and `instant`.
        """
        last = min(instant - 1, self._end)
        earliest = self._start if self._search.has_cycles else max(self._start, FIRST_SECOND - 172_800)
        span, until, found = _FIRST_LOOK_BACK, last, NEVER
        while found == NEVER:
            begin = max(last - span, earliest)
            found = self._first(begin, until)
            if found == NEVER and begin <= earliest:
                return None
            until, span = min(until, begin), span * 4
        until = last
        while (following := self._first(found + 1, until)) != NEVER:
            found = following
            while found < until:
                middle = (found + until + 1) // 2
                later = self._first(middle, until)
                if later != NEVER:
                    found = later
                    break
                until = middle - 1
        return found

    def unexcluded_after(self, instant: int) -> int:
        """Return the first time after `instant` without bounds and exclusions: the upper limit of jitter."""
        return self._search.at_or_after(instant + 1)


def build_timeline(
    sources: Sources, zone: Zone, gap: Gap, fold: Fold, bounds: tuple[int, int] = (EARLIEST, NEVER)
) -> Timeline:
    """Return the timeline of sources in a zone, between two instants that are included."""
    patterns = [values.pattern() for values in dict.fromkeys(sources.calendars)]
    cycles = list(dict.fromkeys(sources.cycles))
    exclusions = None
    if sources.excluded:
        exclusions = Exclusions(sources.excluded, patterns, cycles, zone, shifts=gap == "shift")
        # Calendars, and so exclusions, are defined from the year 2000 on. Earlier times could not be excluded, so none is returned.
        bounds = max(bounds[0], FIRST_SECOND - zone.offsets[0]), bounds[1]
    return Timeline(Search(patterns, cycles, zone, gap, fold), exclusions, *bounds)


def jitter_microseconds(seed: str, nominal: int, bound: int) -> int:
    """Return a number in [0, bound) that depends only on the seed and the nominal time, in seconds since 1970."""
    from hashlib import blake2b  # noqa: PLC0415 - most specs have no jitter, and the import is slow

    digest = blake2b(f"{nominal}\0{seed}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") * bound >> 64
