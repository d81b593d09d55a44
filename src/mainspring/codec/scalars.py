"""Shapes of values without parts: dates and times, numbers, text, enums, paths.

A datetime with a named zone keeps the name in brackets behind the offset, as in RFC 9557:
`2026-07-01T09:00:00+02:00[Europe/Paris]`. So adding a day to a decoded datetime still keeps the wall clock time.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID
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


_NONE = type(None)


def convert(raw: Any, annotation: Any) -> Any:
    """Convert one value with msgspec, strictly."""
    try:
        return msgspec.convert(raw, annotation)
    except msgspec.ValidationError as error:
        raise Misfit(str(error)) from None


class Scalar(Shape):
    """A type that msgspec encodes and decodes by itself. A subclass is stored as the base type."""

    def __init__(self, runtime: type[Any], kind: type[Any]) -> None:
        super().__init__("None" if runtime is _NONE else runtime.__name__, runtime, (kind,))
        self.exact = frozenset({runtime})

    def lower(self, value: Any) -> Any:
        return value if type(value) is self.runtime else self.reduce(value)

    def lift(self, raw: Any) -> Any:
        if type(raw) not in self.kinds:
            raise self.stored_wrong(raw)
        return convert(raw, self.runtime)

    def reduce(self, value: Any) -> Any:
        """Return an instance of a subclass as an equal instance of the type itself."""
        if not isinstance(value, self.runtime):
            raise self.wrong(value)
        return UUID(int=value.int) if self.runtime is UUID else self.runtime(value)


class Integer(Scalar):
    """An int of any size. True and False are 1 and 0, as for type checkers."""

    def lift(self, raw: Any) -> int:
        if type(raw) is not int:
            raise self.stored_wrong(raw)
        return raw


class Text(Scalar):
    """Text without lone surrogates, which UTF-8 cannot encode."""

    def lower(self, value: Any) -> str:
        text: str = super().lower(value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Misfit(f"{short(text)} has a lone surrogate at index {error.start}, which is not text") from None
        return text

    def reduce(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self.wrong(value)
        return "".join(value)  # the characters, whatever the subclass returns from __str__


class Real(Scalar):
    """A float, or an int where a float is annotated. JSON has no NaN and no infinity."""

    def __init__(self) -> None:
        super().__init__(float, float)
        self.kinds = frozenset({float, int})
        self.exact = frozenset()

    def plain(self, value: Any) -> bool:
        return type(value) is float and isfinite(value)

    def lower(self, value: Any) -> float:
        if not isinstance(value, (float, int)):
            raise self.wrong(value)
        try:
            number = float(value)
        except OverflowError:
            raise Misfit(f"{short(value)} is too large for a float") from None
        if not isfinite(number):
            raise Misfit(f"{number} has no form in JSON; use None or a str in its place")
        return number

    def lift(self, raw: Any) -> float:
        if type(raw) is not float and type(raw) is not int:
            raise self.stored_wrong(raw)
        return float(raw)


class Choices(Shape):
    """A Literal."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        super().__init__(f"Literal[{', '.join(map(repr, values))}]", object, map(type, values))
        self.values: set[tuple[type[Any], Any]] = {(type(value), value) for value in values}
        self.native = bool not in self.kinds

    def plain(self, value: Any) -> bool:
        return (type(value), value) in self.values

    def lower(self, value: Any) -> Any:
        if type(value) not in self.kinds or (type(value), value) not in self.values:
            raise Misfit(f"{short(value)} is none of {self.name}")
        return value

    def lift(self, raw: Any) -> Any:
        return self.lower(raw)


class Member(Shape):
    """An enum member: stored by its value if all values are str or all are int, as msgspec does, otherwise by its name."""

    def __init__(self, runtime: type[Enum]) -> None:
        values: set[type[Any]] = {type(member.value) for member in runtime}
        self.native = values in ({int}, {str})
        self.members = runtime.__members__
        super().__init__(runtime.__name__, runtime, values if self.native else (str,))
        self.exact = frozenset({runtime})

    def lower(self, value: Any) -> Any:
        if not isinstance(value, self.runtime):
            raise self.wrong(value)
        return value.value if self.native else value.name

    def lift(self, raw: Any) -> Any:
        if self.native:
            return convert(raw, self.runtime)
        try:
            return self.members[raw]
        except KeyError:
            raise Misfit(f"{short(raw)} is not a member of {self.name}") from None


class Textual(Shape):
    """A type whose `str()` is complete and can be parsed by its constructor: paths and time zones."""

    def __init__(self, runtime: type[Any]) -> None:
        super().__init__(runtime.__name__, runtime, (str,))

    def plain(self, value: Any) -> bool:
        return isinstance(value, self.runtime) and str(value) != ""

    def lower(self, value: Any) -> str:
        if not isinstance(value, self.runtime):
            raise self.wrong(value)
        if not str(value):
            raise Misfit(f"{short(value)} has no name")
        return TEXT.lower(str(value))

    def lift(self, raw: Any) -> Any:
        try:
            return self.runtime(TEXT.lift(raw))
        except (ValueError, OSError, KeyError):
            raise self.stored_wrong(raw) from None


class Constrained(Shape):
    """A type with msgspec constraints, as in `Annotated[int, Meta(gt=0)]`. They are checked when encoding and when decoding."""

    def __init__(self, inner: Shape, annotation: Any) -> None:
        super().__init__(inner.name, inner.runtime, inner.kinds)
        self.inner = inner
        self.annotation = annotation

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.inner,)

    def plain(self, value: Any) -> bool:  # noqa: ARG002 - the slow path checks the constraints
        return False

    def lower(self, value: Any) -> Any:
        lowered = self.inner.lower(value)
        convert(value, self.annotation)
        return lowered

    def lift(self, raw: Any) -> Any:
        value = self.inner.lift(raw)
        convert(value, self.annotation)
        return value


TEXT = Text(str, str)
INTEGER = Integer(int, int)

_SCALARS: dict[type[Any], Shape] = {
    _NONE: Scalar(_NONE, _NONE),
    bool: Scalar(bool, bool),
    int: INTEGER,
    float: Real(),
    str: TEXT,
    bytes: Scalar(bytes, str),
    bytearray: Scalar(bytearray, str),
    Decimal: Scalar(Decimal, str),
    UUID: Scalar(UUID, str),
    datetime: Moment(),
    date: Day(),
    time: Clock(),
    timedelta: Span(),
}


def scalar(cls: type[Any]) -> Shape | None:
    """Return the shape of a class without parts. None if the class has parts or is not supported."""
    if cls in _SCALARS:
        return _SCALARS[cls]
    if issubclass(cls, Enum):
        return Member(cls)
    if issubclass(cls, (PurePath, ZoneInfo)):
        return Textual(cls)
    return None
