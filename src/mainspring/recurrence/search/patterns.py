"""A calendar in the form that the search uses: its days, and the times of day on each. Local time only."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache

from mainspring.recurrence.search.days import (
    DAY,
    END_SECOND,
    FIRST_DAY,
    FIRST_SECOND,
    NEVER,
    YEAR_OF,
    YEAR_START,
    DaySet,
    bits,
)

ALL_HOURS = (1 << 24) - 1
ALL_SIXTY = (1 << 60) - 1
EVERY_SECOND = (1 << DAY) - 1


@lru_cache(maxsize=1_024)
def _minutes_of_day(hours: int, minutes: int) -> tuple[int, ...]:
    within = tuple(bits(minutes))
    return tuple(hour * 60 + minute for hour in bits(hours) for minute in within)


@lru_cache(maxsize=1_024)
def _times_of_day(hours: int, minutes: int, seconds: int) -> tuple[int, ...]:
    within = tuple(bits(seconds))
    return tuple(minute * 60 + second for minute in _minutes_of_day(hours, minutes) for second in within)


@lru_cache(maxsize=256)
def _seconds_of_day(hours: int, minutes: int, seconds: int) -> int:
    """Return one bit for each second of the day that matches."""
    in_hour = sum(seconds << (minute * 60) for minute in bits(minutes))
    return sum(in_hour << (hour * 3_600) for hour in bits(hours))


class Pattern:
    """Days and times of day that a local time matches. Local time is in seconds since 1970-01-01T00:00 on the wall clock."""

    __slots__ = ("_first", "_hours", "_minutes", "_minutes_of_day", "_seconds", "_seconds_of_minute", "days")

    def __init__(self, days: DaySet, hours: int, minutes: int, seconds: int) -> None:
        self.days = days
        self._hours, self._minutes, self._seconds = hours, minutes, seconds
        self._minutes_of_day = _minutes_of_day(hours, minutes)
        self._seconds_of_minute = tuple(bits(seconds))
        empty = not self._minutes_of_day or not self._seconds_of_minute
        self._first = NEVER if empty else self._minutes_of_day[0] * 60 + self._seconds_of_minute[0]

    @property
    def is_hourly(self) -> bool:
        """Whether the pattern matches all 24 hours, and so keeps real time across transitions."""
        return self._hours == ALL_HOURS

    @property
    def has_times(self) -> bool:
        """Whether the pattern matches any time of day. Whether it matches a day is slower to find out."""
        return self._first != NEVER

    def times_of_day(self, most: int) -> tuple[int, ...] | None:
        """Return the matching seconds of the day, ascending. None if there are none or more than `most`."""
        count = len(self._minutes_of_day) * len(self._seconds_of_minute)
        return _times_of_day(self._hours, self._minutes, self._seconds) if 0 < count <= most else None

    @property
    def is_whole_day(self) -> bool:
        return self._hours == ALL_HOURS and self._minutes == ALL_SIXTY and self._seconds == ALL_SIXTY

    @property
    def seconds_of_day(self) -> int:
        """One bit for each matching second of a matching day."""
        return EVERY_SECOND if self.is_whole_day else _seconds_of_day(self._hours, self._minutes, self._seconds)

    def covers(self, other: Pattern) -> bool:
        """Whether every time of day of `other` also matches this pattern."""
        return not (other._hours & ~self._hours or other._minutes & ~self._minutes or other._seconds & ~self._seconds)

    def matches(self, local: int) -> bool:
        day, rest = divmod(local, DAY)
        hour, rest = divmod(rest, 3_600)
        minute, second = divmod(rest, 60)
        return bool(self._hours >> hour & self._minutes >> minute & self._seconds >> second & 1) and day in self.days

    def at_or_after(self, local: int) -> int:
        """Return the first matching local time that is not before `local`, or NEVER."""
        if local < FIRST_SECOND:
            local = FIRST_SECOND
        elif local >= END_SECOND:
            return NEVER
        day, rest = divmod(local, DAY)
        days = self.days
        # `DaySet.at_or_after` inlined for its most common result: this day.
        index = YEAR_OF[day - FIRST_DAY]
        mask = days.masks[index]
        if mask < 0:
            mask = days.mask(index)
        if mask >> (day - YEAR_START[index]) & 1:
            minutes = self._minutes_of_day
            if self._seconds == 1:
                at = bisect_left(minutes, (rest + 59) // 60)
                if at < len(minutes):
                    return day * DAY + minutes[at] * 60
            else:
                found = self._time_at_or_after(rest)
                if found != NEVER:
                    return day * DAY + found
        day = days.at_or_after(day + 1)
        return NEVER if NEVER in {day, self._first} else day * DAY + self._first

    def _time_at_or_after(self, time: int) -> int:
        minute, second = divmod(time, 60)
        minutes, seconds = self._minutes_of_day, self._seconds_of_minute
        at = bisect_left(minutes, minute)
        if at < len(minutes) and minutes[at] == minute:
            within = bisect_left(seconds, second)
            if within < len(seconds):
                return minute * 60 + seconds[within]
            at += 1
        return minutes[at] * 60 + seconds[0] if at < len(minutes) and seconds else NEVER
