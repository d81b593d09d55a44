"""The dialect of DBOS for TypeScript: five fields, or six with seconds first. All must match.

A field is `*` or a list of numbers and ranges. `/n` at its end keeps the values of the whole list that are divisible by n.
"""

from __future__ import annotations

from mainspring.errors import Fault
from mainspring.recurrence.cron.dialects.reading import Reading, Values, Word, count_fault, words
from mainspring.recurrence.cron.fields import (
    DATE,
    HINTS,
    HOUR,
    MINUTE,
    MONTH,
    NOTHING,
    SECOND,
    WEEKDAY,
    Field,
    FieldValues,
    fold_sunday,
    is_number,
    stepped,
    wrapped_hint,
)

_FIELDS = (SECOND, MINUTE, HOUR, DATE, MONTH, WEEKDAY)


def read(text: str, faults: list[Fault]) -> Reading:
    found = words(text)
    if len(found) not in {5, 6}:
        faults.append(count_fault(len(found), "5 or 6", "[second] minute hour day-of-month month day-of-week"))
        return Reading()
    to_the_second = len(found) == 6
    if not to_the_second:
        found.insert(0, Word("0", 1))
    second, minute, hour, date, month, weekday = (
        _field(field, word, faults) for field, word in zip(_FIELDS, found, strict=True)
    )
    return Reading((Values(second, minute, hour, date, month, weekday),), to_the_second=to_the_second)


def _field(field: Field, word: Word, faults: list[Fault]) -> FieldValues:
    if word.text == "*":
        return FieldValues(field.full)
    known = len(faults)
    values, slash, divisor_text = word.text.partition("/")
    mask = field.full if values == "*" else _list(field, Word(values, word.column), faults)
    if slash:
        divisor = _divisor(field, Word(divisor_text, word.column + len(values) + 1), faults)
        mask &= stepped(0, field.high, divisor)
    if len(faults) > known:
        return NOTHING
    if not mask:
        faults.append(
            Fault(f"{word.text!r} leaves no value", field.name, word.column, hint="/n keeps what is divisible by n")
        )
    return FieldValues(fold_sunday(mask) if field is WEEKDAY else mask)


def _list(field: Field, word: Word, faults: list[Fault]) -> int:
    mask, column = 0, word.column
    for item in word.text.split(","):
        first_text, dash, last_text = item.partition("-")
        first = _value(field, Word(first_text, column), item, faults)
        last = _value(field, Word(last_text, column + len(first_text) + 1), item, faults) if dash else first
        if last == 0 and dash and field is WEEKDAY and not last_text.isdigit():
            last = 7
        if first is not None and last is not None:
            if last < first:
                hint = wrapped_hint(field, first, last)
                faults.append(Fault(f"{item} runs backwards", field.name, column, hint=hint))
            else:
                mask |= stepped(first, last, 1)
        column += len(item) + 1
    return mask


def _value(field: Field, word: Word, item: str, faults: list[Fault]) -> int | None:
    text, hint = word.text, None
    if is_number(text):
        if len(text) < 10 and field.low <= int(text) <= field.high:
            return int(text)
        faults.append(Fault(f"{text} is not between {field.low} and {field.high}", field.name, word.column))
        return None
    lowered = text.lower()
    for index, name in enumerate(field.names):
        if lowered in {name, name[:3]}:
            return field.low + index
    if not item:
        message = "an item of the list is empty"
    elif "*" in item:
        message, hint = f"{item!r} has a star among other things", "a star stands alone, or before a slash"
    else:
        message, hint = (
            f"{text!r} is not a valid {field.name}" if text else f"{item!r} lacks a value",
            HINTS.get(text.upper()),
        )
    faults.append(Fault(message, field.name, word.column, hint=hint))
    return None


def _divisor(field: Field, word: Word, faults: list[Fault]) -> int:
    if is_number(word.text) and len(word.text) < 10 and 2 <= int(word.text) <= field.high:
        return int(word.text)
    hint = "the divisor stands once, at the end of the whole field" if {",", "/"} & set(word.text) else None
    faults.append(
        Fault(f"the divisor {word.text!r} is not a number from 2 to {field.high}", field.name, word.column, hint=hint)
    )
    return 1
