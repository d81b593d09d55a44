"""The slow truth: walks every second or minute of a window and asks the standard library what the clocks show.

Shares nothing with the code under test but the fields of a calendar: not its zones, not its days, not its search.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

Fields = dict[str, tuple[int | str, ...]]
"""What `Calendar.fields()` returns."""


class Brute(NamedTuple):
    """A spec in the plainest terms."""

    calendars: Sequence[Fields]
    zone: ZoneInfo
    gap: str = "after"
    fold: str = "first"
    cycles: Sequence[tuple[int, int]] = ()
    excluded: Sequence[Fields] = ()
    excluded_dates: Sequence[tuple[date, date]] = ()

    def times(self, begin: int, end: int, step: int = 60) -> list[int]:
        """All times from `begin` to `end`, in seconds since 1970; `step` must divide every time there is."""
        found: set[int] = set()
        for instant in range(begin, end + 1, step):
            shown = datetime.fromtimestamp(instant, self.zone)
            if any((instant - phase) % every == 0 for every, phase in self.cycles) or any(
                matches(fields, shown) and self._takes(fields, shown) for fields in self.calendars
            ):
                found.add(instant)
        found |= self._moved(begin, end, step)
        return sorted(instant for instant in found if begin <= instant <= end and not self._is_excluded(instant))

    def _takes(self, fields: Fields, shown: datetime) -> bool:
        """Whether the policy for repeated times lets this one of the two through."""
        if len(fields["hour"]) == 24 or self.fold == "both":
            return True
        repeated = shown.replace(fold=0).utcoffset() != shown.replace(fold=1).utcoffset()
        return not repeated or shown.fold == (0 if self.fold == "first" else 1)

    def _moved(self, begin: int, end: int, step: int) -> set[int]:
        """Times that no clock shows, where the policy puts them."""
        if self.gap == "skip" or not self.calendars:
            return set()
        found: set[int] = set()
        for gap_begin, length, instant in gaps(self.zone, begin - 2 * 86_400, end + 2 * 86_400):
            for second in range(0, length, step):
                wall = gap_begin + timedelta(seconds=second)
                if any(len(fields["hour"]) < 24 and matches(fields, wall) for fields in self.calendars):
                    found.add(instant if self.gap == "after" else instant + second)
        return found

    def _is_excluded(self, instant: int) -> bool:
        shown = datetime.fromtimestamp(instant, self.zone)
        if any(first <= shown.date() <= last for first, last in self.excluded_dates):
            return True
        return any(matches(fields, shown) for fields in self.excluded)


def matches(fields: Fields, shown: datetime) -> bool:
    """Whether a wall clock agrees with every field."""
    if not 2000 <= shown.year <= 2100:
        return False
    return (
        shown.second in fields["second"]
        and shown.minute in fields["minute"]
        and shown.hour in fields["hour"]
        and shown.month in fields["month"]
        and shown.year in fields.get("year", (shown.year,))
        and _date_matches(fields["day_of_month"], shown)
        and _weekday_matches(fields["day_of_week"], shown)
    )


def _date_matches(values: tuple[int | str, ...], shown: datetime) -> bool:
    last = _last_date(shown.year, shown.month)
    for value in values:
        if isinstance(value, int):
            wanted = value
        elif value == "LW":
            wanted = max(d for d in range(1, last + 1) if date(shown.year, shown.month, d).weekday() < 5)
        elif value.startswith("L"):
            wanted = last - int(value[2:] or 0)
        else:
            wanted = _nearest_working(shown.year, shown.month, int(value[:-1]))
        if wanted == shown.day:
            return True
    return False


def _nearest_working(year: int, month: int, wanted: int) -> int:
    if wanted > _last_date(year, month):
        return -1
    working = [d for d in range(1, _last_date(year, month) + 1) if date(year, month, d).weekday() < 5]
    return min(working, key=lambda d: (abs(d - wanted), d))


def _weekday_matches(values: tuple[int | str, ...], shown: datetime) -> bool:
    day = shown.isoweekday() % 7
    for value in values:
        if isinstance(value, int):
            if value == day:
                return True
        elif int(value[0]) == day:
            same = list(range(shown.day % 7 or 7, _last_date(shown.year, shown.month) + 1, 7))
            wanted = same[-1:] if value[1] == "L" else same[int(value[2]) - 1 : int(value[2])]
            if wanted == [shown.day]:
                return True
    return False


def _last_date(year: int, month: int) -> int:
    return (date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)).day


def offset(zone: ZoneInfo, instant: int) -> int:
    shown = datetime.fromtimestamp(instant, zone).utcoffset()
    assert shown is not None
    return round(shown.total_seconds())


@lru_cache(maxsize=2_000)
def transitions(key: str, begin_year: int = 2000, end_year: int = 2040) -> tuple[int, ...]:
    """When the offset of a zone changes, found by asking every third day and halving."""
    zone = ZoneInfo(key)
    begin, end = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (begin_year, end_year))
    return tuple(_changes(zone, begin, end, 3 * 86_400))


def _changes(zone: ZoneInfo, begin: int, end: int, stride: int) -> list[int]:
    found: list[int] = []
    before = offset(zone, begin)
    for probe in range(begin + stride, end + stride, stride):
        after = offset(zone, probe)
        if after != before:
            low, high = probe - stride, probe
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(zone, middle) == before else (low, middle)
            found.append(high)
        before = after
    return found


def gaps(zone: ZoneInfo, begin: int, end: int) -> list[tuple[datetime, int, int]]:
    """The wall clock where each gap begins, its length, and the first instant after it."""
    found: list[tuple[datetime, int, int]] = []
    for instant in _changes(zone, begin, end, 6 * 3_600):
        length = offset(zone, instant) - offset(zone, instant - 1)
        if length > 0:
            wall = datetime(1970, 1, 1) + timedelta(seconds=instant + offset(zone, instant - 1))  # noqa: DTZ001 - a wall clock
            found.append((wall, length, instant))
    return found
