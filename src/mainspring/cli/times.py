"""Parse times on the command line: in UTC, as commands print them, unless they have an offset."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

import click

from mainspring.errors import InvalidInput
from mainspring.model.clock import to_datetime
from mainspring.recurrence.durations import parse_duration
from mainspring.recurrence.instants import parse_instant

if TYPE_CHECKING:
    from datetime import datetime

    from mainspring.model.clock import Clock


_UNITS = ("s", "m", "h", "d", "w")
"""The last characters of durations, which begin with a digit. No time ends so."""


def time(text: str) -> datetime:
    """Parse the time of an option: 2026-01-31 (midnight), 2026-01-31T12:00, 2026-01-31T12:00+01:00."""
    try:
        return parse_instant(text, "time", UTC)
    except InvalidInput as error:
        raise click.BadParameter(str(error).removeprefix("time: ")) from None


def past(text: str, flag: str, clock: Clock) -> datetime:
    """Return a time, or that of a duration ago: 2h."""
    return _moment(text, flag, clock, -1)


def future(text: str, flag: str, clock: Clock) -> datetime:
    """Return a time, or that of a duration ahead: 2h."""
    return _moment(text, flag, clock, 1)


def _moment(text: str, flag: str, clock: Clock, sign: int) -> datetime:
    now = to_datetime(clock.now())
    if text == "now":
        return now
    if not text[:1].isdigit() or not text.endswith(_UNITS):
        return parse_instant(text, flag, UTC)
    try:
        return now + sign * parse_duration(text)
    except InvalidInput as error:
        raise InvalidInput(f"{flag}: {str(error).removeprefix('duration: ')}") from None
