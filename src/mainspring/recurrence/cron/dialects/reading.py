"""The result of parsing a cron expression in any dialect, and the split of an expression into fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from mainspring.errors import Fault
from mainspring.recurrence.cron.fields import FieldValues
from mainspring.recurrence.search.days import ALL_DATES, ALL_MONTHS, ALL_WEEKDAYS, ALL_YEARS, day_set
from mainspring.recurrence.search.patterns import ALL_SIXTY, Pattern

if TYPE_CHECKING:
    from mainspring.recurrence.search.search import Cycle

LONGEST = 1_000
"""The maximum length of an expression. Longer ones are refused unparsed."""
_WORD = re.compile(r"\S+")


class Values(NamedTuple):
    """The values of all fields of a calendar, as bit sets. All fields must match."""

    second: FieldValues = FieldValues(1)
    minute: FieldValues = FieldValues(1)
    hour: FieldValues = FieldValues(1)
    date: FieldValues = FieldValues(ALL_DATES)
    month: FieldValues = FieldValues(ALL_MONTHS)
    weekday: FieldValues = FieldValues(ALL_WEEKDAYS)
    year: FieldValues = FieldValues(ALL_YEARS)

    def pattern(self) -> Pattern:
        """Return the pattern that the search uses."""
        days = day_set(self.year.mask, self.month.mask, tuple(self.date), tuple(self.weekday))
        return Pattern(days, self.hour.mask, self.minute.mask, self.second.mask)

    def whole_minutes(self) -> Values:
        """Return the values with every second of the minute matching."""
        return self._replace(second=FieldValues(ALL_SIXTY))


class Reading(NamedTuple):
    """A parsed expression: calendars of which any may match, or a cycle, with an optional zone and comment."""

    calendars: tuple[Values, ...] = ()
    cycle: Cycle | None = None
    timezone: str | None = None
    comment: str = ""
    to_the_second: bool = False
    """Whether the expression has a field for seconds."""


class Word(NamedTuple):
    """A part of an expression with its first column, counted from 1."""

    text: str
    column: int


def words(text: str) -> list[Word]:
    return [Word(found[0], found.start() + 1) for found in _WORD.finditer(text)]


def count_fault(count: int, expected: str, hint: str | None = None) -> Fault:
    what = "nothing" if count == 0 else "1 field" if count == 1 else f"{count} fields"
    return Fault(f"has {what} where {expected} belong", hint=hint)
