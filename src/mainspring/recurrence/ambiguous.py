"""Patterns that mean one thing in one dialect and another in the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.recurrence.dialects import DIALECTS, READERS, Dialect

if TYPE_CHECKING:
    from mainspring.errors import Fault


class AmbiguousCron(UserWarning):
    """A pattern, given without its dialect, that the dialects read differently."""


def other_readings(text: str, dialect: Dialect) -> list[Dialect]:
    """The dialects that read `text` too, but as other times than `dialect` does."""
    if not _may_differ(text):
        return []
    meant = _meaning(text, dialect)
    return [other for other in DIALECTS if other != dialect and _meaning(text, other) not in {None, meant}]


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
