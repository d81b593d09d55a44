"""Parse the arguments of a spec. All faults are collected, none is raised."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple, TypeVar, cast
from zoneinfo import ZoneInfo

from mainspring.errors import Fault, InvalidCron, InvalidInput, InvalidSpec
from mainspring.model.user_line import warn_at_user_line
from mainspring.recurrence.calendars import Calendar
from mainspring.recurrence.cron.expression import AmbiguousCron, Cron, ambiguity
from mainspring.recurrence.durations import parse_duration
from mainspring.recurrence.faults import build
from mainspring.recurrence.instants import Instant, as_datetime, parse_instant
from mainspring.recurrence.intervals import Interval, interval_from_dict

CronInput = str | Cron
IntervalInput = Interval | timedelta | float | str
ExcludeInput = Calendar | Cron | str | date | tuple[date, date]
T = TypeVar("T")

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class DateRange(NamedTuple):
    """Whole days, from the first to the last."""

    first: date
    last: date

    def to_json(self) -> str | list[str]:
        first, last = self.first.isoformat(), self.last.isoformat()
        return first if first == last else [first, last]


Exclusion = Calendar | Cron | DateRange


class SpecReader:
    """Parses the parts of a spec. `faults` has the faults of all parts."""

    __slots__ = ("faults", "only_cron")

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.only_cron = True
        """Whether all faults so far are in cron expressions."""

    def each(self, name: str, given: object, read: Callable[[Any], T], single: tuple[type, ...]) -> tuple[T, ...]:
        """Parse every item of a list. A single item counts as a list of one."""
        if given is None:
            return ()
        if isinstance(given, single) or not isinstance(given, Iterable):
            given = [given]
        found: list[T] = []
        for index, item in enumerate(cast("Iterable[Any]", given)):
            known = len(self.faults)
            value = self.one(f"{name}[{index}]", item, read)
            if len(self.faults) == known:
                found.append(cast("T", value))
        return tuple(found)

    def one(self, name: str, given: Any, read: Callable[[Any], T]) -> T | None:
        """Parse one value. Collects its faults and returns None if there are any."""
        try:
            return read(given)
        except InvalidSpec as error:
            self.only_cron &= isinstance(error, InvalidCron)
            for fault in error.faults:
                field = f"{name}.{fault.field}" if fault.field else name
                self.faults.append(Fault(fault.message, field, fault.column, fault.line, fault.hint))
        except InvalidInput as error:
            self.only_cron = False
            self.faults.append(Fault(re.sub(r"^(time|duration|interval): ", "", str(error)), name))
        return None

    def fault(self, field: str, message: str, hint: str | None = None) -> None:
        self.only_cron = False
        self.faults.append(Fault(message, field, hint=hint))


def read_cron(given: object) -> Cron:
    """Return a `Cron` as it is, and a string in dialect `temporal`. Warns if its meaning is ambiguous."""
    if isinstance(given, Cron):
        return given
    if isinstance(given, Mapping):
        keys = dict(cast("Mapping[str, Any]", given))
        unknown = sorted(str(key) for key in keys if key not in {"cron", "dialect"})
        faults = [Fault("is not a key of a cron", key, hint="there are cron, dialect") for key in unknown]
        faults += [] if "cron" in keys else [Fault("is missing", "cron")]
        text, dialect = keys.get("cron", "* * * * *"), keys.get("dialect", "temporal")
        return build("cron", faults, lambda: Cron(text, dialect), InvalidCron)
    if not isinstance(given, str):
        raise InvalidCron("cron", [Fault(f"{given!r} is a {type(given).__name__}", hint="write text or a Cron")])
    fields = given.partition("#")[0].split()
    if fields and fields[0].startswith(("TZ=", "CRON_TZ=")):
        del fields[0]
    if len(fields) == 6 and fields[-1] == "*":
        fault = Fault(
            "six fields that end with a star: seconds first, or year last?",
            hint='for seconds name a dialect: Cron(…, dialect=\'vixie\'), in JSON {"cron": …, "dialect": "vixie"}; else leave the year out',
        )
        raise InvalidCron(f"cron {given!r}", [fault])
    cron = Cron(given, "temporal")
    if warning := ambiguity(given, "temporal"):
        warn_at_user_line(warning, AmbiguousCron)
    return cron


def plain_cron(item: Any) -> Any:
    """Return a string of a stored spec that is an expression as a `Cron`, and everything else as it is."""
    return Cron(item, "temporal") if isinstance(item, str) and not _DATE.fullmatch(item) else item


def read_interval(given: Any) -> Interval:
    if isinstance(given, Interval):
        return given
    return interval_from_dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else Interval(given)


def read_calendar(given: Any) -> Calendar:
    if isinstance(given, Calendar):
        return given
    if isinstance(given, Mapping):
        return Calendar.from_dict(cast("Mapping[str, Any]", given))
    raise InvalidInput(f"{given!r} is a {type(given).__name__}; write a Calendar")


def read_exclusion(given: Any) -> Exclusion:
    if isinstance(given, Calendar | DateRange):
        return given
    if isinstance(given, str) and _DATE.fullmatch(given):
        return DateRange(_date(given), _date(given))
    if isinstance(given, datetime):
        raise InvalidInput(f"{given.isoformat()} is a time; exclude a date, or a Calendar")
    if isinstance(given, date):
        return DateRange(given, given)
    if isinstance(given, list | tuple):
        ends = [_date(end) for end in cast("Iterable[Any]", given)]
        if len(ends) != 2 or ends[1] < ends[0]:
            raise InvalidInput(f"{given!r} is not a range of dates; write the first and the last day")
        return DateRange(ends[0], ends[1])
    if isinstance(given, Mapping) and "cron" not in given:
        return Calendar.from_dict(cast("Mapping[str, Any]", given))
    if isinstance(given, Cron | str | Mapping):
        cron = read_cron(cast("Any", given))
        if cron.reading.cycle is not None:
            raise InvalidCron(
                f"cron {cron.text!r}", [Fault("an interval cannot be excluded", hint="exclude calendars or dates")]
            )
        return cron
    raise InvalidInput(f"{given!r} is a {type(given).__name__}; exclude a Calendar, a Cron, a date or two dates")


def _date(given: Any) -> date:
    if isinstance(given, str) and _DATE.fullmatch(given):
        try:
            return date.fromisoformat(given)
        except ValueError:
            raise InvalidInput(f"{given!r} is not a day of any calendar") from None
    if isinstance(given, date) and not isinstance(given, datetime):
        return given
    raise InvalidInput(f"{given!r} is not a date; write it like 2027-01-31")


def read_instant(given: Instant | str) -> datetime:
    return parse_instant(given) if isinstance(given, str) else as_datetime(given)


def read_jitter(given: timedelta | float | str) -> timedelta:
    return parse_duration(given)


def read_zone_name(given: Any) -> str:
    if isinstance(given, ZoneInfo) and given.key:
        return given.key
    if isinstance(given, str):
        return given
    raise InvalidInput(f"{given!r} is not the name of a zone; write one like 'Europe/Paris'")


def read_zone_data(given: Any) -> bytes:
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        try:
            return base64.b64decode(given, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput("is not base64") from None
    raise InvalidInput(f"is a {type(given).__name__}; give the bytes of a zone file")
