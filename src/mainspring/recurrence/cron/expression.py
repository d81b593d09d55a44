"""Cron expressions in one of four dialects."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

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
            raise InvalidInput(f"time: {when!r} is no datetime")
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
            raise InvalidInput(f"timezone: {timezone!r} is no name of a time zone")
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
        fault = Fault(f"{dialect!r} is no dialect", "dialect", hint=f"there are {', '.join(DIALECTS)}")
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
