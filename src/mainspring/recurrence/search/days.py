"""The days of 2000 to 2100 that a calendar matches, as one bit set per year.

There are only fourteen kinds of year: leap or not, times the weekday of 1 January. So the months, days and weekdays of a calendar are
fourteen integers of 366 bits, computed when first needed. The next matching day is the lowest bit of a shifted integer: a leap day
is found as fast as tomorrow.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FIRST_YEAR, LAST_YEAR = 2000, 2100
YEARS = LAST_YEAR - FIRST_YEAR + 1
DAY = 86_400
NEVER = 1 << 62
"""Later than every time. An integer, so that `min` and `<` need no special case."""

ALL_YEARS = (1 << YEARS) - 1
ALL_MONTHS = 0b1_1111_1111_1110
ALL_DATES = 0xFFFF_FFFE
ALL_WEEKDAYS = 0b111_1111


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if _is_leap(year) else 28
    return 30 if month in {4, 6, 9, 11} else 31


FIRST_DAY = 10_957
"""2000-01-01, in days since 1970-01-01."""


def _year_starts() -> tuple[int, ...]:
    starts = [FIRST_DAY]
    for year in range(FIRST_YEAR, LAST_YEAR + 1):
        starts.append(starts[-1] + (366 if _is_leap(year) else 365))
    return tuple(starts)


YEAR_START = _year_starts()
"""The day on which each year begins, and as the last item the first day after 2100."""
LAST_DAY = YEAR_START[-1] - 1
FIRST_SECOND, END_SECOND = FIRST_DAY * DAY, (LAST_DAY + 1) * DAY
"""Bounds of local time: the first second of 2000, and the first second after 2100."""
YEAR_OF = b"".join(bytes([index]) * (YEAR_START[index + 1] - start) for index, start in enumerate(YEAR_START[:-1]))
"""The index of the year of each day since FIRST_DAY: a lookup instead of a division with leap years."""


def weekday(day: int) -> int:
    """Return 0 for Sunday to 6 for Saturday."""
    return (day + 4) % 7


def year_month_day(day: int) -> tuple[int, int, int]:
    """Return year, month and date of a day between 2000 and 2100."""
    index = YEAR_OF[day - FIRST_DAY]
    year, rest = FIRST_YEAR + index, day - YEAR_START[index]
    month = 1
    while rest >= (length := days_in_month(year, month)):
        rest -= length
        month += 1
    return year, month, rest + 1


def day_number(year: int, month: int, date: int) -> int:
    """Return the day of a year, month and date. The inverse of `year_month_day`."""
    return YEAR_START[year - FIRST_YEAR] + sum(days_in_month(year, m) for m in range(1, month)) + date - 1


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Shape:
    """One of the fourteen kinds of year: where its months begin, and the days of each date and weekday."""

    def __init__(self, leap: bool, first_weekday: int) -> None:  # noqa: FBT001 - private, and always called in this order
        year = 2000 if leap else 2001
        self.lengths = [0] + [days_in_month(year, month) for month in range(1, 13)]
        self.starts = [0] * 13
        for month in range(2, 13):
            self.starts[month] = self.starts[month - 1] + self.lengths[month - 1]
        self.size = 366 if leap else 365
        self.every_day = (1 << self.size) - 1
        self.first_weekday = first_weekday
        self.of_month = [((1 << n) - 1) << start for n, start in zip(self.lengths, self.starts, strict=True)]
        self.of_date = [0] + [
            sum(1 << (self.starts[month] + date - 1) for month in range(1, 13) if date <= self.lengths[month])
            for date in range(1, 32)
        ]
        self.of_weekday = [
            sum(1 << day for day in range((wanted - first_weekday) % 7, self.size, 7)) for wanted in range(7)
        ]

    def weekday(self, month: int, date: int) -> int:
        return (self.first_weekday + self.starts[month] + date - 1) % 7

    def date_rule(self, rule: str, month: int) -> int:
        """Return the bit of the date of a rule like `L-2`, `15W` or `LW` in a month, or 0."""
        last = self.lengths[month]
        if rule == "LW":
            date = self._nearest_working_day(month, last)
        elif rule[0] == "L":
            date = last - int(rule[2:] or 0)
        else:
            wanted = int(rule[:-1])
            date = self._nearest_working_day(month, wanted) if wanted <= last else 0
        return 1 << (self.starts[month] + date - 1) if date >= 1 else 0

    def weekday_rule(self, rule: str, month: int) -> int:
        """Return the bit of the day of a rule like `5#2` or `5L` in a month, or 0."""
        first = 1 + (int(rule[0]) - self.weekday(month, 1)) % 7
        last = self.lengths[month]
        date = first + 7 * ((last - first) // 7) if rule[1] == "L" else first + 7 * (int(rule[2:]) - 1)
        return 1 << (self.starts[month] + date - 1) if date <= last else 0

    def _nearest_working_day(self, month: int, date: int) -> int:
        day = self.weekday(month, date)
        if day == 6:
            return date - 1 if date > 1 else date + 2
        if day == 0:
            return date + 1 if date < self.lengths[month] else date - 2
        return date


@lru_cache(maxsize=14)
def _shape(leap: bool, first_weekday: int) -> _Shape:  # noqa: FBT001 - private, and always called in this order
    return _Shape(leap, first_weekday)


class DaySet:
    """The days that match a set of years, a set of months, and dates and weekdays with their rules. All of them must match."""

    __slots__ = ("_by_shape", "_dates", "_live", "_months", "_weekdays", "masks")

    def __init__(
        self,
        years: int = ALL_YEARS,
        months: int = ALL_MONTHS,
        dates: tuple[int, tuple[str, ...]] = (ALL_DATES, ()),
        weekdays: tuple[int, tuple[str, ...]] = (ALL_WEEKDAYS, ()),
    ) -> None:
        self._months, self._dates, self._weekdays = months, dates, weekdays
        self._by_shape: dict[tuple[bool, int], int] = {}
        self._live = -1
        self.masks = [-1 if years >> index & 1 else 0 for index in range(YEARS)]
        """One bit per day of each year, -1 for a year that is not computed yet. Read them through `mask`."""

    @classmethod
    def of_ranges(cls, ranges: Iterable[tuple[int, int]]) -> DaySet:
        """Return the days of ranges, each from its first to its last day."""
        days = cls(years=0)
        for first, last in ranges:
            first, last = max(first, FIRST_DAY), min(last, LAST_DAY)  # noqa: PLW2901 - clipped to the years there are
            for index in range(YEAR_OF[first - FIRST_DAY], YEAR_OF[last - FIRST_DAY] + 1) if first <= last else ():
                start, end = max(first, YEAR_START[index]), min(last + 1, YEAR_START[index + 1])
                days.masks[index] |= ((1 << (end - start)) - 1) << (start - YEAR_START[index])
        return days

    def mask(self, index: int) -> int:
        """Return the days of the year FIRST_YEAR + index, with 1 January as bit 0."""
        mask = self.masks[index]
        if mask < 0:
            leap, first_weekday = _is_leap(FIRST_YEAR + index), weekday(YEAR_START[index])
            shape = (leap, first_weekday)
            mask = self._by_shape.get(shape, -1)
            if mask < 0:
                mask = self._by_shape[shape] = self._compute(_shape(leap, first_weekday))
            self.masks[index] = mask
        return mask

    def __contains__(self, day: int) -> bool:
        if not FIRST_DAY <= day <= LAST_DAY:
            return False
        index = YEAR_OF[day - FIRST_DAY]
        return bool(self.mask(index) >> (day - YEAR_START[index]) & 1)

    def at_or_after(self, day: int) -> int:
        """Return the first matching day that is not before `day`, or NEVER."""
        if day < FIRST_DAY:
            day = FIRST_DAY
        elif day > LAST_DAY:
            return NEVER
        index = YEAR_OF[day - FIRST_DAY]
        mask = self.masks[index]
        if mask < 0:
            mask = self.mask(index)
        rest = mask >> (day - YEAR_START[index])
        if rest & 1:
            return day
        if rest:
            return day + (rest & -rest).bit_length() - 1
        years = self.live >> (index + 1)
        if not years:
            return NEVER
        index += (years & -years).bit_length()
        mask = self.mask(index)
        return YEAR_START[index] + (mask & -mask).bit_length() - 1

    @property
    def live(self) -> int:
        """The years with a matching day, one bit each."""
        if self._live < 0:
            self._live = sum(1 << index for index in range(YEARS) if self.mask(index))
        return self._live

    def _compute(self, shape: _Shape) -> int:
        mask = shape.every_day
        if self._months != ALL_MONTHS:
            mask &= sum(shape.of_month[month] for month in bits(self._months))
        dates, date_rules = self._dates
        if dates != ALL_DATES or date_rules:
            allowed = sum(shape.of_date[date] for date in bits(dates))
            for rule in date_rules:
                for month in bits(self._months):
                    allowed |= shape.date_rule(rule, month)
            mask &= allowed
        weekdays, weekday_rules = self._weekdays
        if weekdays != ALL_WEEKDAYS or weekday_rules:
            allowed = sum(shape.of_weekday[day] for day in bits(weekdays))
            for rule in weekday_rules:
                for month in bits(self._months):
                    allowed |= shape.weekday_rule(rule, month)
            mask &= allowed
        return mask


@lru_cache(maxsize=4_096)
def day_set(
    years: int, months: int, dates: tuple[int, tuple[str, ...]], weekdays: tuple[int, tuple[str, ...]]
) -> DaySet:
    """Return a shared `DaySet`: thousands of schedules use a few dozen different sets of days."""
    return DaySet(years, months, dates, weekdays)
