"""Convert instants that users give to whole seconds since 1970 and back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import tzinfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 253_402_300_800
"""The first second of the year 10000, which a datetime cannot express."""

Instant = datetime | int | float
"""An aware datetime, or seconds since 1970."""


def floor_second(when: Instant, name: str = "time") -> int:
    """Return the whole second of `when`. Raises `InvalidInput` for a naive datetime or a value that is not an instant."""
    if isinstance(when, datetime):
        try:
            since = when - EPOCH
        except TypeError:
            raise InvalidInput(
                f"{name}: {when.isoformat()} has no time zone; give an aware datetime{_naive_hint(when)}"
            ) from None
        return since.days * 86_400 + since.seconds
    return math.floor(_seconds(when, name))


def ceil_second(when: Instant) -> int:
    """Return the first whole second that is not before `when`."""
    if isinstance(when, datetime):
        return floor_second(when) + (1 if when.microsecond else 0)
    return math.ceil(_seconds(when))


def is_whole(when: Instant) -> bool:
    return not when.microsecond if isinstance(when, datetime) else float(when).is_integer()


def as_datetime(when: Instant) -> datetime:
    """Return `when` as an aware datetime. Seconds since 1970 become UTC."""
    if isinstance(when, datetime):
        floor_second(when)
        return when
    return EPOCH + timedelta(seconds=_seconds(when))


def parse_instant(text: str, name: str = "time", zone: tzinfo | None = None) -> datetime:
    """Parse RFC 3339 / ISO 8601 text to an aware datetime.

    With a `zone`, a time without an offset is in that zone, and a date is its midnight there. Without a `zone`, both
    raise `InvalidInput`.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        example = (
            "2027-01-31T09:00:00Z" if zone is None else "2027-01-31, 2027-01-31T09:00 or 2027-01-31T09:00:00+01:00"
        )
        raise InvalidInput(f"{name}: {text!r} is not a time; write it like {example}") from None
    if zone is not None and when.tzinfo is None:
        return when.replace(tzinfo=zone)
    if len(text) <= 10:
        raise InvalidInput(f"{name}: {text!r} is a date; write a time with its zone, like 2027-01-31T09:00:00Z")
    floor_second(when, name)
    return when


def _seconds(when: object, name: str = "time") -> int | float:
    if isinstance(when, bool) or not isinstance(when, int | float):
        kind = "date" if isinstance(when, date) else type(when).__name__
        raise InvalidInput(f"{name}: {when!r} is a {kind}; give an aware datetime or seconds since 1970")
    if not math.isfinite(when) or not -_LATEST < when < _LATEST:
        raise InvalidInput(f"{name}: {when!r} is not a second of any year from 1 to 9999")
    if when < -62_135_596_800:
        raise InvalidInput(f"{name}: {when!r} is before the year 1")
    return when


def _naive_hint(when: datetime) -> str:
    return f", e.g. {when.replace(microsecond=0).isoformat()}+00:00"
