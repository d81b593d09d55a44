"""Cron expressions in one of four dialects, and patterns that the dialects parse differently."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from mainspring.errors import Fault, InvalidCron, InvalidInput
from mainspring.recurrence.calendars import Calendar, matches_wall_clock
from mainspring.recurrence.cron.dialects import DIALECTS, READERS, Dialect
from mainspring.recurrence.cron.dialects.reading import LONGEST, Reading
from mainspring.recurrence.frozen import Frozen
from mainspring.recurrence.instants import Instant, floor_second
from mainspring.recurrence.intervals import Interval
from mainspring.recurrence.search.days import NEVER
from mainspring.recurrence.search.timeline import Sources, build_timeline
from mainspring.recurrence.zones.zones import load_zone

if TYPE_CHECKING:
    from collections.abc import Callable
    from zoneinfo import ZoneInfo

    from mainspring.recurrence.search.search import Fold, Gap

    _Finder = tuple[Callable[[int], int], ZoneInfo]


class Cron(Frozen):
    """A cron expression: `Cron("0 12 * * sun")`, or `Cron("0 12 * * Sunday", dialect="dbos")`.

    The default dialect, `vixie`, is that of crontab(5). Raises one `InvalidCron` with all faults, by field and column.
    """

    __slots__ = ("_finders", "dialect", "reading", "text")

    text: str
    dialect: Dialect
    reading: Reading
    """The parsed expression, as bit sets."""
    _finders: dict[tuple[str | None, Gap, Fold], _Finder]

    def __init__(self, text: str, dialect: Dialect = "vixie") -> None:
        self._fill(text=text, dialect=dialect, reading=_read(text, dialect), _finders={})

    @property
    def timezone(self) -> str | None:
        """The zone in the expression itself, such as `TZ=Europe/Paris` in dialect `temporal`. None if there is none."""
        return self.reading.timezone

    @property
    def interval(self) -> Interval | None:
        """The interval of an `@every` expression. None for others."""
        return None if self.reading.cycle is None else Interval.from_cycle(self.reading.cycle)

    def calendars(self) -> tuple[Calendar, ...]:
        """Return the calendars of which any may match: one, two where either day may match, none for `@every`."""
        return tuple(Calendar.of(values, self.reading.comment) for values in self.reading.calendars)

    def calendar(self) -> Calendar:
        """Return the single calendar of the expression. Raises `InvalidCron` if there is none, or two."""
        calendars = self.calendars()
        if len(calendars) != 1:
            what = "an interval" if not calendars else "two calendars, since either day may match"
            raise InvalidCron(f"cron {self.text!r}", [Fault(f"is {what}", hint="use interval or calendars()")])
        return calendars[0]

    def matches(self, when: datetime) -> bool:
        """Whether the wall clock time of `when` (in the expression's zone, if it has one) matches the expression."""
        if not isinstance(when, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
            raise InvalidInput(f"time: {when!r} is not a datetime")
        if self.reading.cycle is not None:
            second = floor_second(when)
            return not when.microsecond and self.reading.cycle.at_or_after(second) == second
        if self.timezone is not None:
            floor_second(when)
            when = when.astimezone(load_zone(self.timezone).tzinfo)
        return matches_wall_clock(self.reading.calendars, when)

    def next(
        self, after: Instant, timezone: str | None = None, *, gap: Gap = "after", fold: Fold = "first"
    ) -> datetime | None:
        """Return the first time strictly after `after`, or None if there is none until 2100. In UTC unless a zone is given."""
        if timezone is not None and not isinstance(timezone, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"timezone: {timezone!r} is not the name of a time zone")
        find, tzinfo = self._finders.get((timezone, gap, fold)) or self._finder(timezone, gap, fold)
        found = find(floor_second(after) + 1)
        return None if found == NEVER else datetime.fromtimestamp(found, tzinfo)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, with text and dialect."""
        return {"cron": self.text, "dialect": self.dialect}

    def _finder(self, timezone: str | None, gap: Gap, fold: Fold) -> _Finder:
        try:
            zone = load_zone(timezone if timezone is not None else self.timezone or "UTC")
        except ValueError as error:
            raise InvalidInput(f"timezone: {error}") from None
        cycles = () if self.reading.cycle is None else (self.reading.cycle,)
        timeline = build_timeline(Sources(self.reading.calendars, cycles), zone, gap, fold)
        finder = self._finders[timezone, gap, fold] = (timeline.find, zone.tzinfo)
        return finder

    def _meaning(self) -> tuple[object, ...]:
        return frozenset(self.reading.calendars), self.reading.cycle, self.reading.timezone

    def __eq__(self, other: object) -> bool:
        """Whether two expressions have the same times, in any dialect."""
        return self._meaning() == other._meaning() if isinstance(other, Cron) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._meaning())

    def __reduce__(self) -> tuple[type[Cron], tuple[str, Dialect]]:
        return Cron, (self.text, self.dialect)

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, dialect={self.dialect!r})"


def _read(text: str, dialect: Dialect) -> Reading:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
        raise InvalidCron("cron", [Fault(f"{text!r} is a {type(text).__name__}, not text")])
    reader = READERS.get(dialect) if isinstance(cast("object", dialect), str) else None
    if reader is None:
        fault = Fault(f"{dialect!r} is not a dialect", "dialect", hint=f"there are {', '.join(DIALECTS)}")
        raise InvalidCron(f"cron {text!r}", [fault])
    if len(text) > LONGEST:
        raise InvalidCron("cron", [Fault(f"{len(text)} characters are too many", hint=f"at most {LONGEST}")])
    faults: list[Fault] = []
    reading = reader(text, faults)
    if reading.timezone is not None and not faults:
        try:
            load_zone(reading.timezone)
        except ValueError as error:
            faults.append(Fault(str(error), "timezone", text.index(reading.timezone) + 1))
    if faults:
        raise InvalidCron(f"cron {text!r}", faults)
    return reading


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
