"""Shapes of dates, times and durations.

A datetime with a named zone keeps the name in brackets behind the offset, as in RFC 9557:
`2026-07-01T09:00:00+02:00[Europe/Paris]`. So adding a day to a decoded datetime still keeps the wall clock time.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from mainspring.codec.type_codec import Misfit, Shape, short

_MINUTE = timedelta(minutes=1)
_NOTHING = timedelta()


class Moment(Shape):
    """A datetime with its offset, its named zone, or neither."""

    def __init__(self) -> None:
        super().__init__("datetime", datetime, (str,))

    def plain(self, value: Any) -> bool:
        if type(value) is not datetime:
            return False
        zone = value.tzinfo
        if zone is None or zone is UTC:
            return True
        # msgspec writes offsets in whole minutes
        return type(zone) is timezone and (zone.utcoffset(None) % _MINUTE) == _NOTHING

    def lower(self, value: Any) -> Any:
        if not isinstance(value, datetime):
            raise self.wrong(value)
        if self.plain(value):
            return value
        zone = getattr(value.tzinfo, "key", None)
        return f"{datetime.isoformat(value)}[{zone}]" if zone else datetime.isoformat(value)

    def lift(self, raw: Any) -> datetime:
        if type(raw) is not str:
            raise self.stored_wrong(raw)
        text, _, zone = raw.removesuffix("]").partition("[")
        try:
            moment = datetime.fromisoformat(text)
            return _in_zone(moment, ZoneInfo(zone)) if zone else moment
        except (KeyError, OSError):
            raise Misfit(f"the time zone of {raw!r} is not known on this machine; install tzdata") from None
        except ValueError:
            raise self.stored_wrong(raw) from None


def _in_zone(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return the same wall clock time in a zone, on the side of a fold that has the same offset.

    If the zone's rules have changed since, the instant stays and the wall clock time moves.
    """
    for fold in (0, 1):
        local = moment.replace(tzinfo=zone, fold=fold)
        if local.utcoffset() == moment.utcoffset():
            return local
    return moment.astimezone(zone)


class Clock(Shape):
    """A time of day. One with a named zone is refused: without a date it has no offset that could be stored."""

    def __init__(self) -> None:
        super().__init__("time", time, (str,))

    def plain(self, value: Any) -> bool:
        return type(value) is time and value.tzinfo is None

    def lower(self, value: Any) -> str:
        if not isinstance(value, time):
            raise self.wrong(value)
        if value.tzinfo is not None and value.utcoffset() is None:
            raise Misfit(
                f"{short(value)} has a time zone but no date; use a datetime, or the time and the name of its zone"
            )
        return time.isoformat(value)

    def lift(self, raw: Any) -> time:
        try:
            return time.fromisoformat(raw)
        except (TypeError, ValueError):
            raise self.stored_wrong(raw) from None


class Day(Shape):
    """A date. A datetime is refused, although Python derives it from date."""

    exact = frozenset({date})

    def __init__(self) -> None:
        super().__init__("date", date, (str,))

    def lower(self, value: Any) -> str:
        if isinstance(value, datetime) or not isinstance(value, date):
            raise self.wrong(value)
        return date.isoformat(value)

    def lift(self, raw: Any) -> date:
        try:
            return date.fromisoformat(raw)
        except (TypeError, ValueError):
            raise self.stored_wrong(raw) from None


class Span(Shape):
    """A timedelta, in ISO 8601: `P1DT3600S`."""

    exact = frozenset({timedelta})

    def __init__(self) -> None:
        super().__init__("timedelta", timedelta, (str,))

    def lower(self, value: Any) -> timedelta:
        if not isinstance(value, timedelta):
            raise self.wrong(value)
        return timedelta(value.days, value.seconds, value.microseconds)

    def lift(self, raw: Any) -> timedelta:
        if type(raw) is not str:
            raise self.stored_wrong(raw)
        try:
            return msgspec.convert(raw, timedelta)
        except msgspec.ValidationError:
            raise self.stored_wrong(raw) from None
