"""Parse zone files (TZif, RFC 8536) to the instants at which a zone's offset changes."""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from typing import NamedTuple

from mainspring.recurrence.search.days import YEAR_START, YEARS, day_number, days_in_month, weekday

_HEADER = struct.Struct(">4sc15x6I")
_LARGEST = 1 << 20
"""The maximum size of a zone file. Real ones have a few kilobytes."""


class Transitions(NamedTuple):
    """The changes of an offset: `offsets[i]` holds before `instants[i]`, `offsets[i + 1]` from it on."""

    instants: tuple[int, ...]
    offsets: tuple[int, ...]


class _Block(NamedTuple):
    version: int
    instants: tuple[int, ...]
    kinds: bytes
    types: list[tuple[int, int]]
    """Offset, and whether it is daylight saving time."""
    end: int


def parse_tzif(data: bytes) -> Transitions:
    """Return the transitions of a zone file up to 2101, including those of its closing rule. Raises `ValueError` for a wrong file."""
    if len(data) > _LARGEST:
        raise ValueError(f"{len(data)} bytes are not a zone file")
    block = _read_block(data, 0, wide=False)
    rule: PosixRule | None = None
    if block.version >= 2:
        block = _read_block(data, block.end, wide=True)
        footer = data[block.end :]
        if not footer.startswith(b"\n") or b"\n" not in footer[1:]:
            raise ValueError("the rule at its end is missing")
        text = footer[1 : footer.index(b"\n", 1)]
        rule = parse_posix_rule(text.decode("ascii", "replace")) if text else None
    return _merge(block, rule)


def _read_block(data: bytes, start: int, *, wide: bool) -> _Block:
    try:
        magic, version, utc_count, std_count, leap_count, time_count, type_count, char_count = _HEADER.unpack_from(
            data, start
        )
    except struct.error:
        raise ValueError("it is cut off") from None
    if magic != b"TZif":
        raise ValueError("it does not begin with 'TZif'")
    width = 8 if wide else 4
    at = start + _HEADER.size
    end = at + time_count * (width + 1) + type_count * 6 + char_count + leap_count * (width + 4) + std_count + utc_count
    if end > len(data):
        raise ValueError("it is cut off")
    if type_count == 0 or char_count == 0:
        raise ValueError("it names no type of local time")
    instants = struct.unpack_from(f">{time_count}{'q' if wide else 'i'}", data, at)
    at += time_count * width
    kinds = data[at : at + time_count]
    at += time_count
    types = [struct.unpack_from(">ib", data, at + 6 * index) for index in range(type_count)]
    if kinds and max(kinds) >= type_count:
        raise ValueError("a transition leads to a type that it does not name")
    if any(later <= earlier for earlier, later in pairwise(instants)):
        raise ValueError("its transitions are not in order")
    if any(abs(offset) >= 86_400 for offset, _ in types):
        raise ValueError("it has an offset of a day or more")
    number = int(version) if version.isdigit() else 1
    return _Block(number, instants, kinds, [(offset, daylight) for offset, daylight in types], end)


def _merge(block: _Block, rule: PosixRule | None) -> Transitions:
    # Before the first transition the first type of standard time holds, as in the standard library.
    before = next((offset for offset, daylight in block.types if not daylight), block.types[0][0])
    changes = [(instant, block.types[kind][0]) for instant, kind in zip(block.instants, block.kinds, strict=True)]
    last = changes[-1][0] if changes else None
    if rule is not None:
        if not changes:
            before = rule.standard
        changes.extend((at, to) for at, to in rule.transitions(range(YEARS)) if last is None or at > last)
    instants: list[int] = []
    offsets = [before]
    for instant, offset in changes:
        if offset != offsets[-1]:
            instants.append(instant)
            offsets.append(offset)
    return Transitions(tuple(instants), tuple(offsets))


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
