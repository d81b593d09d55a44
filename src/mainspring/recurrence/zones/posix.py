"""Parse the rule at the end of a zone file, such as `CET-1CEST,M3.5.0,M10.5.0/3`: the transitions of future years."""

from __future__ import annotations

import re
from typing import NamedTuple

from mainspring.recurrence.search.days import YEAR_START, day_number, days_in_month, weekday

_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+\-]+>)"
_TIME = r"[+-]?[0-9]{1,3}(?::[0-9]{1,2}){0,2}"
_RULE = re.compile(rf"{_NAME}({_TIME})(?:{_NAME}({_TIME})?,([^,]+),([^,]+))?")
_DATE = re.compile(rf"(?:M([0-9]{{1,2}})\.([1-5])\.([0-6])|J([0-9]{{1,3}})|([0-9]{{1,3}}))(?:/({_TIME}))?")


class YearlyDate(NamedTuple):
    """A day of the year and a local time on it, which may lie outside that day."""

    month: int = 0
    week: int = 0
    weekday: int = 0
    julian: int = 0
    """1 to 365, 29 February not counted."""
    ordinal: int = 0
    """0 to 365, 29 February counted; used when neither month nor julian is given."""
    seconds: int = 7_200

    def local(self, year_index: int) -> int:
        """Return the second of local time in the year 2000 + year_index."""
        year, start = 2_000 + year_index, YEAR_START[year_index]
        if self.month:
            first = day_number(year, self.month, 1)
            day = first + (self.weekday - weekday(first)) % 7 + 7 * (self.week - 1)
            if day >= first + days_in_month(year, self.month):
                day -= 7
        elif self.julian:
            leap = YEAR_START[year_index + 1] - start == 366
            day = start + self.julian - 1 + (1 if leap and self.julian >= 60 else 0)
        else:
            day = start + self.ordinal
        return day * 86_400 + self.seconds


class PosixRule(NamedTuple):
    """Standard time, with optional daylight saving time between two dates of each year. Offsets are east of UTC."""

    standard: int
    daylight: int | None = None
    begin: YearlyDate | None = None
    end: YearlyDate | None = None

    def transitions(self, years: range) -> list[tuple[int, int]]:
        """Return instants with the offsets that hold from them on, for years counted from 2000, ascending."""
        if self.daylight is None or self.begin is None or self.end is None:
            return []
        found: list[tuple[int, int]] = []
        for index in years:
            found.append((self.begin.local(index) - self.standard, self.daylight))
            found.append((self.end.local(index) - self.daylight, self.standard))
        return sorted(found)


def parse_posix_rule(text: str) -> PosixRule:
    """Parse the rule. Raises `ValueError` for one that cannot be parsed."""
    matched = _RULE.fullmatch(text)
    if matched is None:
        raise ValueError(f"the rule {text!r} cannot be read")
    standard, daylight, begin, end = matched.groups()
    offset = -_seconds(standard)
    if begin is None:
        return PosixRule(offset)
    return PosixRule(offset, offset + 3_600 if daylight is None else -_seconds(daylight), _date(begin), _date(end))


def _date(text: str) -> YearlyDate:
    matched = _DATE.fullmatch(text)
    if matched is None:
        raise ValueError(f"the date {text!r} in the rule cannot be read")
    month, week, day, julian, ordinal, time = matched.groups()
    seconds = 7_200 if time is None else _seconds(time)
    if month is not None:
        if not 1 <= int(month) <= 12:
            raise ValueError(f"the month {month} in the rule is not between 1 and 12")
        return YearlyDate(month=int(month), week=int(week), weekday=int(day), seconds=seconds)
    if julian is not None:
        if not 1 <= int(julian) <= 365:
            raise ValueError(f"the day J{julian} in the rule is not between 1 and 365")
        return YearlyDate(julian=int(julian), seconds=seconds)
    if int(ordinal) > 365:
        raise ValueError(f"the day {ordinal} in the rule is not between 0 and 365")
    return YearlyDate(ordinal=int(ordinal), seconds=seconds)


def _seconds(text: str) -> int:
    sign = -1 if text[0] == "-" else 1
    hours, minutes, seconds = ([int(part) for part in text.lstrip("+-").split(":")] + [0, 0])[:3]
    if hours > 167 or minutes > 59 or seconds > 59:
        raise ValueError(f"the time {text!r} in the rule is out of range")
    return sign * (hours * 3_600 + minutes * 60 + seconds)
