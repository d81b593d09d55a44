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
    try:
        length = parse_duration(text)
    except InvalidInput:
        return parse_instant(text, flag, UTC)
    try:
        return now + sign * length
    except OverflowError:
        raise InvalidInput(f"{flag}: {text} from now there is no year that could be written") from None
