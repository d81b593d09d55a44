"""The dialect of Graphile Worker: five fields of numbers, ranges, `*` and `*/n` (values divisible by n), in UTC.

When both days are restricted, either may match.
"""

from __future__ import annotations

import re

from mainspring.errors import Fault
from mainspring.recurrence.cron.dialects.reading import Reading, Values, Word, count_fault, words
from mainspring.recurrence.cron.fields import (
    DATE,
    HOUR,
    MINUTE,
    MONTH,
    WEEKDAY,
    Field,
    FieldValues,
    fold_sunday,
    is_number,
    stepped,
)

FIELDS = (MINUTE, HOUR, DATE, MONTH, WEEKDAY)
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")


def read(text: str, faults: list[Fault]) -> Reading:
    found = words(text)
    if len(found) != 5:
        hint = (
            "minute hour day-of-month month day-of-week"
            if not text.strip().startswith("@")
            else "macros are not known here"
        )
        faults.append(count_fault(len(found), "5", hint))
        return Reading()
    minute, hour, date, month, weekday = (
        read_field(field, word, faults) for field, word in zip(FIELDS, found, strict=True)
    )
    values = Values(minute=minute, hour=hour, date=date, month=month, weekday=weekday)
    return Reading(either_day(values, both=date.mask != DATE.full and weekday.mask != WEEKDAY.full))


def either_day(values: Values, *, both: bool) -> tuple[Values, ...]:
    """Return two calendars where either day may match, one where both must."""
    if not both:
        return (values,)
    every = Values()
    return (values._replace(weekday=every.weekday), values._replace(date=every.date))


def divisor_warnings(text: str) -> list[str]:
    """Return warnings about `*/n` in dates and months: it keeps values divisible by n, where other crons count from 1."""
    found: list[str] = []
    for field, word in zip(FIELDS, words(text), strict=False):
        if field not in {DATE, MONTH}:
            continue
        for item in word.text.split(","):
            if item.startswith("*/") and is_number(item[2:]) and int(item[2:11]) > 1:
                here, elsewhere = (_numbers(range(first, field.high + 1, int(item[2:11]))) for first in (0, 1))
                found.append(
                    f"{item} of the {field.name} is {here} here: what is divisible by {item[2:]}. Crons that count from 1 read "
                    f"{elsewhere}; write the list if that is what you mean"
                )
    return found


def _numbers(values: range) -> str:
    return ",".join(str(value) for value in values if value)


def read_field(field: Field, word: Word, faults: list[Fault]) -> FieldValues:
    mask, column, known = 0, word.column, len(faults)
    for item in word.text.split(","):
        if item == "*":
            mask |= field.full
        elif item.startswith("*/") and is_number(item[2:]):
            divisor = int(item[2:11])
            if divisor:
                mask |= field.full & stepped(0, field.high, divisor)
            else:
                faults.append(
                    Fault("nothing is divisible by 0", field.name, column, hint="write 1 or more after the slash")
                )
        elif is_number(item):
            mask |= _range(field, item, item, column, faults)
        elif matched := _RANGE.fullmatch(item):
            if int(matched[2][:9]) <= int(matched[1][:9]):
                faults.append(
                    Fault(f"{item} does not run forwards", field.name, column, hint="write the smaller number first")
                )
            else:
                mask |= _range(field, matched[1], matched[2], column, faults)
        else:
            message = f"{item!r} is not a number, range or wildcard" if item else "an item of the list is empty"
            faults.append(Fault(message, field.name, column, hint=_hint(item)))
        column += len(item) + 1
    if not mask and len(faults) == known:
        faults.append(
            Fault(f"{word.text!r} leaves no value", field.name, word.column, hint="*/n keeps what is divisible by n")
        )
    return FieldValues(fold_sunday(mask) if field is WEEKDAY else mask)


def _range(field: Field, first: str, last: str, column: int, faults: list[Fault]) -> int:
    for number in dict.fromkeys((first, last)):
        if len(number) > 9 or not field.low <= int(number) <= field.high:
            faults.append(Fault(f"{number} is not between {field.low} and {field.top}", field.name, column))
            return 0
    return stepped(int(first), int(last), 1)


def _hint(item: str) -> str | None:
    if "/" in item:
        return "a step follows a star only, as in */5"
    return "names are not known here; write numbers" if item.isalpha() else None
