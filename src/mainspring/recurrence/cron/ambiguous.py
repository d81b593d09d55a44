"""Patterns that mean one thing in one dialect and another in the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mainspring.recurrence.cron.dialects import DIALECTS, READERS, Dialect

if TYPE_CHECKING:
    from mainspring.errors import Fault

_SECONDS_FIRST: Final[frozenset[Dialect]] = frozenset(("dbos", "vixie"))
"""The dialects whose six fields are those of five with seconds in front."""


class AmbiguousCron(UserWarning):
    """A pattern, given without its dialect, that the dialects read differently."""


def other_readings(text: str, dialect: Dialect) -> list[Dialect]:
    """The dialects that read `text` too, but as other times than `dialect` does.

    Six fields begin with seconds in `dbos` and `vixie`, and end with a year in `temporal` alone. A pattern of six fields in a dialect with
    seconds is compared with the other one that has seconds, and not with `temporal`.
    """
    if not _may_differ(text):
        return []
    meant = _meaning(text, dialect)
    others: list[Dialect] = [other for other in DIALECTS if other != dialect]
    if dialect in _SECONDS_FIRST and len(text.split()) == 6:
        others = [other for other in others if other in _SECONDS_FIRST]
    return [other for other in others if _meaning(text, other) not in {None, meant}]


def ambiguity(text: str, dialect: Dialect) -> str | None:
    """What to tell someone who wrote `text` without saying in which dialect; None where all agree."""
    others = other_readings(text, dialect)
    if not others:
        return None
    return (
        f"cron {text!r} is read as dialect {dialect!r} here; {' and '.join(others)} would read other times out of it. "
        f"Write Cron({text!r}, dialect={dialect!r}) if this is what you mean"
    )


def _may_differ(text: str) -> bool:
    """A quick no for nearly all patterns: differences come from steps, from two restricted days and from six fields."""
    fields = text.split()
    if len(fields) != 5:
        return True
    minute, hour, date, month, weekday = fields
    plain_steps = all("/" not in field or (field.startswith("*/") and "," not in field) for field in (minute, hour))
    return not plain_steps or any("/" in field for field in (date, month, weekday)) or "*" not in {date, weekday}


def _meaning(text: str, dialect: Dialect) -> object:
    faults: list[Fault] = []
    reading = READERS[dialect](text, faults)
    return None if faults else (frozenset(reading.calendars), reading.cycle)
