"""What every dialect reads an expression into, and how an expression is cut into fields."""

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
"""An expression of more characters is refused unread."""
_WORD = re.compile(r"\S+")


class Values(NamedTuple):
    """The values of all fields of a calendar, as bit sets; they must all agree."""

    second: FieldValues = FieldValues(1)
    minute: FieldValues = FieldValues(1)
    hour: FieldValues = FieldValues(1)
    date: FieldValues = FieldValues(ALL_DATES)
    month: FieldValues = FieldValues(ALL_MONTHS)
    weekday: FieldValues = FieldValues(ALL_WEEKDAYS)
    year: FieldValues = FieldValues(ALL_YEARS)

    def pattern(self) -> Pattern:
        days = day_set(self.year.mask, self.month.mask, tuple(self.date), tuple(self.weekday))
        return Pattern(days, self.hour.mask, self.minute.mask, self.second.mask)

    def whole_minutes(self) -> Values:
        return self._replace(second=FieldValues(ALL_SIXTY))


class Reading(NamedTuple):
    """What an expression says: calendars of which any may match, or a cycle; perhaps a zone and a comment."""

    calendars: tuple[Values, ...] = ()
    cycle: Cycle | None = None
    timezone: str | None = None
    comment: str = ""
    to_the_second: bool = False
    """Whether the expression has a field for seconds."""


class Word(NamedTuple):
    """A piece of an expression and the column where it begins, counted from 1."""

    text: str
    column: int


def words(text: str) -> list[Word]:
    return [Word(found[0], found.start() + 1) for found in _WORD.finditer(text)]


def count_fault(count: int, expected: str, hint: str | None = None) -> Fault:
    what = "nothing" if count == 0 else "1 field" if count == 1 else f"{count} fields"
    return Fault(f"has {what} where {expected} belong", hint=hint)
