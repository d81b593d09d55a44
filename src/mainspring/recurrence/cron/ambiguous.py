"""Find cron patterns that dialects parse differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mainspring.recurrence.cron.dialects import DIALECTS, READERS, Dialect

if TYPE_CHECKING:
    from mainspring.errors import Fault

_SECONDS_FIRST: Final[frozenset[Dialect]] = frozenset(("dbos", "vixie"))
"""The dialects whose six fields are seconds and then the usual five."""


class AmbiguousCron(UserWarning):
    """A pattern without a dialect that the dialects parse differently."""


def other_readings(text: str, dialect: Dialect) -> list[Dialect]:
    """Return the dialects that accept `text`, but with other times than `dialect`.

    Six fields begin with seconds in `dbos` and `vixie`, and end with a year in `temporal`. A pattern of six fields in a dialect with
    seconds is compared with the other dialect that has seconds, and not with `temporal`.
    """
    if not _may_differ(text):
        return []
    meant = _meaning(text, dialect)
    others: list[Dialect] = [other for other in DIALECTS if other != dialect]
    if dialect in _SECONDS_FIRST and len(text.split()) == 6:
        others = [other for other in others if other in _SECONDS_FIRST]
    return [other for other in others if _meaning(text, other) not in {None, meant}]


def ambiguity(text: str, dialect: Dialect) -> str | None:
    """Return a warning for a pattern that was written without a dialect. None if all dialects agree."""
    others = other_readings(text, dialect)
    if not others:
        return None
    return (
        f"cron {text!r} is read as dialect {dialect!r} here; {' and '.join(others)} would read other times out of it. "
        f"Write Cron({text!r}, dialect={dialect!r}) if this is what you mean"
    )


def _may_differ(text: str) -> bool:
    """Whether dialects may differ: only steps, two restricted days and six fields cause differences. A quick filter."""
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
