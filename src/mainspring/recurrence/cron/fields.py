"""The fields of a calendar: their ranges and names, and the parser of lists like `1-5,10/15`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from mainspring.errors import Fault
from mainspring.recurrence.search.days import FIRST_YEAR, LAST_YEAR, bits

MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"]  # fmt: skip
WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]


class Field(NamedTuple):
    """One field: its name, its range of values, and the names of some values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    shortest: int = 3
    """The minimum length of an abbreviated name."""

    @property
    def origin(self) -> int:
        """The value of bit 0 in a bit set of this field."""
        return FIRST_YEAR if self.low == FIRST_YEAR else 0

    @property
    def full(self) -> int:
        return stepped(self.low - self.origin, self.top - self.origin, 1)

    @property
    def top(self) -> int:
        """The highest value: 7 is only another way to write Sunday."""
        return 6 if self is WEEKDAY else self.high

    def named(self, word: str) -> int | None:
        """Return the value of a name, in full or abbreviated, in any case. None if unknown."""
        lowered = word.lower()
        if len(lowered) >= self.shortest:
            for index, name in enumerate(self.names):
                if name.startswith(lowered):
                    return self.low + index
        return None


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DATE = Field("day of month", 1, 31)
MONTH = Field("month", 1, 12, tuple(MONTHS))
WEEKDAY = Field("day of week", 0, 7, tuple(WEEKDAYS), shortest=2)
YEAR = Field("year", FIRST_YEAR, LAST_YEAR)


HINTS = {
    "?": "write * for any value",
    "H": "to spread the load, give the schedule jitter",
    "L": "the last one is known in calendars and in dialect 'vixie'",
}
"""What to write instead of signs of other systems."""


class FieldValues(NamedTuple):
    """The values of a field as a bit set, and rules like `L` or `5#2` that depend on the month."""

    mask: int
    rules: tuple[str, ...] = ()


NOTHING = FieldValues(0)


@lru_cache(maxsize=4_096)
def stepped(first: int, last: int, step: int) -> int:
    """Return a bit set of first, first + step, … up to last."""
    if step == 1:
        return ((1 << (last - first + 1)) - 1) << first
    return sum(1 << value for value in range(first, last + 1, step))


def fold_sunday(mask: int) -> int:
    """Return the set with weekday 7 replaced by Sunday, which is 0."""
    return (mask | mask >> 7) & 0x7F


class Grammar:
    """Parser of the lists of a field. Parses one list at a time and collects all faults."""

    __slots__ = ("faults", "rules", "short_names")

    def __init__(self, faults: list[Fault], *, rules: bool = False, short_names: bool = False) -> None:
        self.faults = faults
        self.rules = rules
        """Whether `L`, `W` and `#` are allowed."""
        self.short_names = short_names
        """Whether names are exactly their first three letters, as in crontab(5)."""

    def read(self, field: Field, text: str, column: int | None = None) -> FieldValues:
        """Return the values of `text`, which begins at `column`."""
        if text == "*":
            return FieldValues(field.full)
        mask = 0
        rules: list[str] = []
        for item in text.split(","):
            rule = _rule(field, item) if self.rules else None
            if rule is None:
                mask |= self._item(field, item, column)
            elif isinstance(rule, Fault):
                self.fault(field, rule.message, column, rule.hint)
            elif rule not in rules:
                rules.append(rule)
            if column is not None:
                column += len(item) + 1
        return FieldValues(fold_sunday(mask) if field is WEEKDAY else mask, tuple(sorted(rules)))

    def fault(self, field: Field, message: str, column: int | None, hint: str | None = None) -> int:
        self.faults.append(Fault(message, field.name, column, hint=hint))
        return 0

    def _item(self, field: Field, item: str, column: int | None) -> int:
        span, slash, step_text = item.partition("/")
        step = self._step(field, step_text, column) if slash else 1
        if step is None:
            return 0
        if span == "*":
            return stepped(field.low - field.origin, field.high - field.origin, step)
        first_text, dash, last_text = span.partition("-")
        first = self.value(field, first_text, column, item)
        if dash:
            last = self.value(field, last_text, None if column is None else column + len(first_text) + 1, item)
            if last == 0 and self.short_names and field is WEEKDAY and not last_text.isdigit():
                last = 7  # a range of weekday names ends on Sunday
        else:
            last = field.high if slash else first
        if first is None or last is None:
            return 0
        if last < first:
            return self.fault(field, f"{span} runs backwards", column, wrapped_hint(field, first, last))
        return stepped(first - field.origin, last - field.origin, step)

    def _step(self, field: Field, text: str, column: int | None) -> int | None:
        if not is_number(text):
            self.fault(field, f"{text!r} is not a step", column, "write one number after one slash, as in */5")
            return None
        step = int(text[:9])
        if step < 1:
            self.fault(field, "a step of 0 leads nowhere", column, "write 1 or more after the slash")
            return None
        return step

    def value(self, field: Field, text: str, column: int | None, item: str) -> int | None:
        """Return the value of a number or name. None, and a fault, if it is neither."""
        if is_number(text):
            number = int(text) if len(text) < 10 else 10**9
            if field.low <= number <= field.high:
                return number
            self.fault(field, f"{text} is not between {field.low} and {field.high}", column)
            return None
        named = field.named(text)
        if named is not None and (not self.short_names or len(text) == 3):
            return named
        hint = HINTS.get(text.upper()) if named is None else f"write {field.names[named - field.low][:3]}"
        self.fault(field, _unreadable(field, text, item), column, hint)
        return None


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _unreadable(field: Field, text: str, item: str) -> str:
    if not item:
        return "an item of the list is empty"
    return f"{text!r} is not a valid {field.name}" if text else f"{item!r} lacks a value"


def wrapped_hint(field: Field, first: int, last: int) -> str:
    """Return how to write a range that wraps around the end of its field."""
    ends = [str(low) if low == high else f"{low}-{high}" for low, high in ((first, field.top), (field.low, last))]
    return f"a range does not wrap around; write {','.join(ends)}"


_LAST = re.compile(r"L(?:-([0-9]{1,2}))?", re.IGNORECASE)
_NEAREST = re.compile(r"([0-9]{1,2})W", re.IGNORECASE)
_NTH = re.compile(r"([0-9]|[A-Za-z]{2,9})(?:#([0-9]+)|L)", re.IGNORECASE)


def _rule(field: Field, item: str) -> str | Fault | None:
    """Return the rule of an item in its canonical spelling, a `Fault` if the rule is wrong, or None if the item is not a rule."""
    if field is DATE:
        return _date_rule(item)
    if field is WEEKDAY and (matched := _NTH.fullmatch(item)):
        word, number = matched.groups()
        day = int(word) % 7 if word.isdigit() and int(word) <= 7 else field.named(word)
        if day is None:
            return None
        if number is None:
            return f"{day}L"
        if not 1 <= int(number[:9]) <= 5:
            return Fault(f"{item!r}: a month has no {number}th of a weekday", hint="write #1 to #5, or L for the last")
        return f"{day}#{int(number)}"
    return None


def _date_rule(item: str) -> str | Fault | None:
    if item.upper() == "LW":
        return "LW"
    if matched := _LAST.fullmatch(item):
        back = int(matched[1] or 0)
        if back > 30:
            return Fault(f"{item!r}: no month is that long", hint="write L-1 to L-30")
        return f"L-{back}" if back else "L"
    if matched := _NEAREST.fullmatch(item):
        date = int(matched[1])
        if not 1 <= date <= 31:
            return Fault(f"{item!r}: {date} is not between 1 and 31")
        return f"{date}W"
    return None


def field_text(field: Field, values: FieldValues) -> str:
    """Return the shortest list that parses as `values`."""
    if values.mask == field.full and not values.rules:
        return "*"
    numbers = [bit + field.origin for bit in bits(values.mask)]
    return ",".join([*_runs(numbers), *values.rules])


def _runs(numbers: list[int]) -> list[str]:
    if (
        len(numbers) > 3
        and (step := numbers[1] - numbers[0]) > 1
        and numbers == list(range(numbers[0], numbers[-1] + 1, step))
    ):
        return [f"{numbers[0]}-{numbers[-1]}/{step}"]
    parts: list[str] = []
    at = 0
    while at < len(numbers):
        end = at
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        if end - at >= 2:
            parts.append(f"{numbers[at]}-{numbers[end]}")
        else:
            parts.extend(str(number) for number in numbers[at : end + 1])
        at = end + 1
    return parts
