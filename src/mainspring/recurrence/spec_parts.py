"""The parts of a spec, its exclusions as plain patterns, and its zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.recurrence.calendars import Calendar
from mainspring.recurrence.cron.expression import Cron
from mainspring.recurrence.frozen import Frozen
from mainspring.recurrence.input import DateRange, Exclusion, SpecReader
from mainspring.recurrence.search.days import DaySet
from mainspring.recurrence.search.patterns import ALL_HOURS, ALL_SIXTY, Pattern
from mainspring.recurrence.zones.zones import load_zone, zone_from_data

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from mainspring.recurrence.intervals import Interval
    from mainspring.recurrence.search.search import Fold, Gap
    from mainspring.recurrence.zones.zones import Zone


class SpecParts(Frozen):
    """The parts of a spec, as they were given."""

    __slots__ = (
        *("calendars", "cron", "end", "exclude", "fold", "gap"),
        *("intervals", "jitter", "start", "timezone", "timezone_data", "zone"),
    )

    cron: tuple[Cron, ...]
    intervals: tuple[Interval, ...]
    calendars: tuple[Calendar, ...]
    exclude: tuple[Exclusion, ...]
    start: datetime | None
    end: datetime | None
    jitter: timedelta
    timezone: str
    timezone_data: bytes | None
    gap: Gap
    fold: Fold
    zone: Zone
    """The transitions of the time zone."""

    @property
    def is_empty(self) -> bool:
        """Whether the spec has no times, so that its schedule only starts runs on request."""
        return not (self.cron or self.intervals or self.calendars)


def plain_exclusions(item: Exclusion) -> list[Calendar | DateRange]:
    """Return an exclusion as calendars and dates: a cron excludes whole minutes, a calendar whole days unless it has a time."""
    if isinstance(item, DateRange):
        return [item]
    if isinstance(item, Calendar):
        return [item.excluding()]
    reading = item.reading
    return [
        Calendar.of(values if reading.to_the_second else values.whole_minutes(), reading.comment)
        for values in reading.calendars
    ]


def pattern_of(item: Calendar | DateRange) -> Pattern:
    if isinstance(item, Calendar):
        return item.values.pattern()
    days = DaySet.of_ranges([(item.first.toordinal() - 719_163, item.last.toordinal() - 719_163)])
    return Pattern(days, ALL_HOURS, ALL_SIXTY, ALL_SIXTY)


def resolve_zone(
    reader: SpecReader, crons: tuple[Cron, ...], exclude: tuple[Exclusion, ...], name: str | None, data: bytes | None
) -> Zone | None:
    """Return the zone that the spec or its expressions name, which must agree.

    UTC if there is none. None, and a fault, if they differ.
    """
    prefixes = {cron.timezone for cron in crons if cron.reading.cycle is None}
    named = {item.timezone for item in exclude if isinstance(item, Cron)} | prefixes
    named.discard(None)
    if len(named) > 1 or (len(prefixes) > 1 and None in prefixes):
        listed = ", ".join(sorted(repr(prefix) for prefix in named))
        message = f"the expressions name different zones: {listed}"
        reader.fault("cron", message if len(named) > 1 else f"some expressions name the zone {listed} and some none")
        return None
    for prefix in named:
        if data is not None or name not in {None, prefix}:
            reader.fault(
                "timezone",
                f"an expression names {prefix!r}, the spec {name or 'its own zone data'!r}",
                "name the zone once",
            )
            return None
        name = prefix
    try:
        return load_zone(name or "UTC") if data is None else zone_from_data(name or "custom", data)
    except ValueError as error:
        reader.fault("timezone" if data is None else "timezone_data", str(error))
        return None
