"""Values without parts: numbers, text, times, enums, paths."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from mainspring.codec.shape import Misfit, short, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.codec.shape import Shape


class Scalar:
    """A type that msgspec carries by itself; a subclass of it is stored as what it is made of."""

    native = True
    open = False

    def __init__(self, runtime: type[Any], annotation: Any = None) -> None:
        self.runtime = runtime
        self.annotation = runtime if annotation is None else annotation
        self.name = "None" if runtime is type(None) else runtime.__name__

    def plain(self, value: Any) -> bool:
        return type(value) is self.runtime

    def lower(self, value: Any) -> Any:
        if type(value) is not self.runtime:
            value = self.reduce(value)
        return value

    def lift(self, raw: Any) -> Any:
        return convert(raw, self.annotation)

    def reduce(self, value: Any) -> Any:
        """An instance of a subclass as an equal instance of the type itself."""
        if not isinstance(value, self.runtime):
            raise self.wrong(value)
        return self.runtime(value)

    def wrong(self, value: Any) -> Misfit:
        return Misfit(f"{short(value)} is a {type_name(value)}, not a {self.name}")


def convert(raw: Any, annotation: Any) -> Any:
    """msgspec's strict reading of one piece of JSON data."""
    try:
        return msgspec.convert(raw, annotation)
    except msgspec.ValidationError as error:
        raise Misfit(str(error)) from None


class Integer(Scalar):
    """An int of any size. True and False are no numbers."""

    def reduce(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(value)
        return int(value)


class Text(Scalar):
    """Any text but lone surrogates, which UTF-8 cannot carry."""

    def lower(self, value: Any) -> str:
        text: str = super().lower(value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Misfit(f"{short(text)} has a lone surrogate at index {error.start}, which is no text") from None
        return text

    def reduce(self, value: Any) -> str:
        if isinstance(value, Enum):
            value = value.value
        if not isinstance(value, str):
            raise self.wrong(value)
        return str.__str__(value)


class Real(Scalar):
    """A float, or an int where one is asked for. JSON has no NaN and no infinity."""

    def plain(self, value: Any) -> bool:
        return (type(value) is float and isfinite(value)) or type(value) is int

    def lower(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (float, int)):
            raise self.wrong(value)
        try:
            number = float(value)
        except OverflowError:
            raise Misfit(f"{short(value)} is too large for a float") from None
        if not isfinite(number):
            raise Misfit(f"{number} has no form in JSON; store None or a str in its place")
        return int(value) if isinstance(value, int) else number


class Moment(Scalar):
    """A datetime. A named zone is kept in brackets behind the offset, as RFC 9557 writes it:
    `2026-07-01T09:00:00+02:00[Europe/Paris]`.
    """

    def plain(self, value: Any) -> bool:
        return type(value) is datetime and _msgspec_keeps(value)

    def lower(self, value: Any) -> Any:
        if not isinstance(value, datetime):
            raise self.wrong(value)
        if type(value) is datetime and _msgspec_keeps(value):
            return value
        text = datetime.isoformat(value)
        zone = getattr(value.tzinfo, "key", None)
        return f"{text}[{zone}]" if zone else text

    def lift(self, raw: Any) -> datetime:
        if type(raw) is not str:
            raise Misfit(f"{short(raw)} is stored where a datetime belongs")
        text, bracket, rest = raw.partition("[")
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise Misfit(f"{short(raw)} is stored where a datetime belongs") from None
        if not bracket:
            return moment
        try:
            zone = ZoneInfo(rest.removesuffix("]"))
        except (KeyError, ValueError, OSError):
            raise Misfit(f"the time zone of {short(raw)} is not known on this machine; install tzdata") from None
        return _in_zone(moment, zone)


def _msgspec_keeps(value: datetime) -> bool:
    """Without a zone, or with a fixed offset of whole minutes; msgspec drops seconds of an offset."""
    zone = value.tzinfo
    if zone is None or zone is timezone.utc:
        return True
    return type(zone) is timezone and not value.utcoffset() % timedelta(minutes=1)  # type: ignore[operator]


def _in_zone(moment: datetime, zone: ZoneInfo) -> datetime:
    """The same wall clock time in a zone, on that side of a fold which has the same offset. If the zone's rules have changed
    since, the instant is kept and the wall clock time is not."""
    for fold in (0, 1):
        local = moment.replace(tzinfo=zone, fold=fold)
        if local.utcoffset() == moment.utcoffset():
            return local
    return moment.astimezone(zone)


class Clock(Scalar):
    """A time of day. With a named zone it has no offset, so nothing that could be stored says when it is."""

    def plain(self, value: Any) -> bool:
        return type(value) is time and value.tzinfo is None

    def lower(self, value: Any) -> Any:
        if not isinstance(value, time):
            raise self.wrong(value)
        if value.tzinfo is not None and value.utcoffset() is None:
            raise Misfit(
                f"{short(value)} has a time zone but no date; store a datetime, or the time and the zone's name"
            )
        return time.isoformat(value)

    def lift(self, raw: Any) -> time:
        try:
            return time.fromisoformat(raw)
        except (TypeError, ValueError):
            raise Misfit(f"{short(raw)} is stored where a time belongs") from None


class Day(Scalar):
    """A date. A datetime is not one, although Python derives it from one."""

    def reduce(self, value: Any) -> date:
        if isinstance(value, datetime) or not isinstance(value, date):
            raise self.wrong(value)
        return date(value.year, value.month, value.day)


class Identifier(Scalar):
    """A UUID; drivers have subclasses of their own."""

    def reduce(self, value: Any) -> UUID:
        if not isinstance(value, UUID):
            raise self.wrong(value)
        return UUID(int=value.int)


class Span(Scalar):
    """A timedelta, as ISO 8601 writes it: `P1DT3600S`."""

    def reduce(self, value: Any) -> timedelta:
        if not isinstance(value, timedelta):
            raise self.wrong(value)
        return timedelta(value.days, value.seconds, value.microseconds)


class Choices(Scalar):
    """A Literal."""

    def __init__(self, annotation: Any, values: tuple[Any, ...]) -> None:
        super().__init__(object, annotation)
        self.values = {(type(value), value) for value in values}
        self.name = f"Literal[{', '.join(map(repr, values))}]"
        self.native = all(type(value) in {str, int, type(None)} for value in values)

    def plain(self, value: Any) -> bool:
        return (type(value), value) in self.values

    def lower(self, value: Any) -> Any:
        try:
            if (type(value), value) in self.values:
                return value
        except TypeError:
            pass
        raise Misfit(f"{short(value)} is none of {self.name}")

    def lift(self, raw: Any) -> Any:
        return self.lower(raw)


class Member(Scalar):
    """An enum member: by its value where all values are str or all are int, as msgspec does it, else by its name."""

    def __init__(self, runtime: type[Enum]) -> None:
        super().__init__(runtime)
        try:
            msgspec.json.Decoder(runtime)
        except TypeError:
            self.native = False

    def lower(self, value: Any) -> Any:
        if not isinstance(value, self.runtime):
            raise self.wrong(value)
        return value if self.native else value.name

    def lift(self, raw: Any) -> Any:
        if self.native:
            return convert(raw, self.runtime)
        try:
            return self.runtime[raw]
        except KeyError:
            raise Misfit(f"{short(raw)} is no member of {self.name}") from None


class Written(Scalar):
    """A type whose str() says all, and whose constructor reads it: paths, time zones."""

    def lower(self, value: Any) -> str:
        if not isinstance(value, self.runtime):
            raise self.wrong(value)
        text = str(value)
        if not text:
            raise Misfit(f"{short(value)} has no name to store")
        return Text(str).lower(text)

    def lift(self, raw: Any) -> Any:
        if type(raw) is str:
            try:
                return self.runtime(raw)
            except (ValueError, OSError, KeyError):
                pass
        raise Misfit(f"{short(raw)} is stored where a {self.name} belongs")

    def plain(self, value: Any) -> bool:  # noqa: ARG002, PLR6301 - the slow lane writes it
        return False


_SCALARS: dict[type[Any], Callable[[type[Any]], Scalar]] = {
    type(None): Scalar,
    bool: Scalar,
    int: Integer,
    float: Real,
    str: Text,
    bytes: Scalar,
    bytearray: Scalar,
    Decimal: Scalar,
    UUID: Identifier,
    datetime: Moment,
    date: Day,
    time: Clock,
    timedelta: Span,
}


def scalar(cls: type[Any]) -> Scalar | None:
    """The shape of a class without parts, or None if it has some, or cannot be carried at all."""
    if kind := _SCALARS.get(cls):
        return kind(cls)
    if issubclass(cls, Enum):
        return Member(cls)
    if issubclass(cls, (PurePath, ZoneInfo)):
        return Written(cls)
    return None


class Constrained:
    """A type with rules of msgspec (`Annotated[int, Meta(gt=0)]`): checked by msgspec, when written and when read."""

    def __init__(self, inner: Shape, annotation: Any) -> None:
        self.inner = inner
        self.annotation = annotation
        self.name = inner.name
        self.runtime = inner.runtime
        self.native = inner.native
        self.open = inner.open

    def plain(self, value: Any) -> bool:
        return self.inner.plain(value)

    def lower(self, value: Any) -> Any:
        return self._checked(self.inner.lower(value))

    def lift(self, raw: Any) -> Any:
        return self.inner.lift(self._checked(raw))

    def _checked(self, raw: Any) -> Any:
        if self.native:
            convert(msgspec.to_builtins(raw), self.annotation)
        return raw
