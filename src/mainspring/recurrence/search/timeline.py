"""The times of a spec, in whole seconds: what the search finds, within the bounds, less the exclusions."""

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
"""A week into the year 1: intervals have no first time, dates have."""


class Sources(NamedTuple):
    """What a timeline is made of: calendars and cycles that name times, patterns that take some away."""

    calendars: Sequence[Values] = ()
    cycles: Sequence[Cycle] = ()
    excluded: Sequence[Pattern] = ()


class Timeline:
    """A set of instants in the order of time. `start` and `end` belong to it."""

    __slots__ = ("_end", "_exclusions", "_search", "_start", "find", "on_the_wall")

    def __init__(self, search: Search, exclusions: Exclusions | None, start: int, end: int) -> None:
        self._search, self._exclusions = search, exclusions
        self._start, self._end = max(start, EARLIEST), min(end, NEVER - 1)
        plain = exclusions is None and start <= EARLIEST and end >= NEVER and not search.has_cycles
        self.find = search.leanest if plain else self.at_or_after
        """`at_or_after`, past everything this timeline does not have."""
        self.on_the_wall = search.on_the_wall if plain else None

    def at_or_after(self, instant: int) -> int:
        """The first time that is not before `instant`, or NEVER."""
        return self._first(instant, self._end)

    def _first(self, instant: int, last: int) -> int:
        """The first time from `instant` to `last`, or NEVER."""
        search, exclusions = self._search, self._exclusions
        found = search.at_or_after(max(instant, self._start))
        if exclusions is not None:
            while found <= last and found in exclusions:
                found = search.at_or_after(exclusions.beyond(found))
        return found if found <= last else NEVER

    def before(self, instant: int) -> int | None:
        """The last time before `instant`.

        Found by looking forward alone, so that looking back can never disagree with it: first from ever further back,
        until there is a time before `instant`, then by halving what lies between that time and `instant`.
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
        exclusions = Exclusions(sources.excluded, patterns, cycles, zone, shifts=gap == "shift")
        # Calendars, and so exclusions, know the years from 2000 on; what they cannot judge is not offered.
        bounds = max(bounds[0], FIRST_SECOND - zone.offsets[0]), bounds[1]
    return Timeline(Search(patterns, cycles, zone, gap, fold), exclusions, *bounds)


def jitter_microseconds(seed: str, nominal: int, bound: int) -> int:
    """A number in [0, bound) that depends on nothing but the seed and the nominal time, in seconds since 1970."""
    from hashlib import blake2b  # noqa: PLC0415 - most specs have no jitter, and the module is not a light one

    digest = blake2b(f"{nominal}\0{seed}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") * bound >> 64
