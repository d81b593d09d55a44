"""The spec of a schedule: all its times."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mainspring.errors import Fault, InvalidCron, InvalidInput, InvalidSpec
from mainspring.recurrence.cron.expression import Cron
from mainspring.recurrence.durations import format_duration
from mainspring.recurrence.faults import build
from mainspring.recurrence.input import (
    CronInput,
    DateRange,
    ExcludeInput,
    Exclusion,
    IntervalInput,
    SpecReader,
    plain_cron,
    read_calendar,
    read_cron,
    read_exclusion,
    read_instant,
    read_interval,
    read_jitter,
    read_zone_data,
    read_zone_name,
)
from mainspring.recurrence.instants import EPOCH, Instant, ceil_second, floor_second, is_whole
from mainspring.recurrence.search.days import NEVER
from mainspring.recurrence.search.patterns import ALL_HOURS
from mainspring.recurrence.search.search import FOLDS, GAPS, Fold, Gap
from mainspring.recurrence.search.timeline import EARLIEST, Sources, Timeline, build_timeline, jitter_microseconds
from mainspring.recurrence.spec_parts import SpecParts, pattern_of, plain_exclusions, resolve_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from zoneinfo import ZoneInfo

    from mainspring.recurrence.calendars import Calendar
    from mainspring.recurrence.cron.dialects.reading import Values
    from mainspring.recurrence.search.search import Cycle


class Spec(SpecParts):
    """The times of a schedule: cron expressions, intervals and calendars together, without the exclusions, from `start` to `end`.

    Strings in `cron` are in dialect `temporal`. An empty spec is legal and has no times. Specs with the same times are equal.
    Raises one `InvalidSpec` with all faults (`InvalidCron`, if only cron expressions are wrong).
    """

    __slots__ = ("_built",)

    _built: Timeline | None

    def __init__(
        self,
        *,
        cron: CronInput | Iterable[CronInput] = (),
        intervals: IntervalInput | Iterable[IntervalInput] = (),
        calendars: Calendar | Iterable[Calendar] = (),
        exclude: ExcludeInput | Iterable[ExcludeInput] = (),
        start: Instant | None = None,
        end: Instant | None = None,
        jitter: timedelta | float | str = 0,
        timezone: str | ZoneInfo | None = None,
        timezone_data: bytes | None = None,
        gap: Gap = "after",
        fold: Fold = "first",
    ) -> None:
        reader = SpecReader()
        crons = reader.each("cron", cron, read_cron, (str, Cron, dict))
        bounds = [
            None if given is None else reader.one(name, given, read_instant)
            for name, given in (("start", start), ("end", end))
        ]
        parts: dict[str, Any] = {
            "cron": crons,
            "intervals": reader.each("intervals", intervals, read_interval, (str, dict)),
            "calendars": reader.each("calendars", calendars, read_calendar, (dict,)),
            "exclude": reader.each("exclude", exclude, read_exclusion, (str, dict)),
            "start": bounds[0],
            "end": bounds[1],
            "jitter": reader.one("jitter", jitter, read_jitter),
            "timezone_data": None
            if timezone_data is None
            else reader.one("timezone_data", timezone_data, read_zone_data),
            "gap": gap,
            "fold": fold,
        }
        name = None if timezone is None else reader.one("timezone", timezone, read_zone_name)
        zone = resolve_zone(reader, crons, parts["exclude"], name, parts["timezone_data"])
        if gap not in GAPS:
            reader.fault("gap", f"{gap!r} is not a policy", f"there are {', '.join(GAPS)}")
        if fold not in FOLDS:
            reader.fault("fold", f"{fold!r} is not a policy", f"there are {', '.join(FOLDS)}")
        if bounds[0] is not None and bounds[1] is not None and bounds[1] < bounds[0]:
            reader.fault("end", f"{bounds[1].isoformat()} is before start {bounds[0].isoformat()}")
        if reader.faults or zone is None:
            raise (InvalidCron if reader.only_cron else InvalidSpec)("spec", reader.faults)
        self._fill(**parts, timezone=zone.key, zone=zone, _built=None)

    # ---- times ----

    def next(self, after: Instant, seed: str | None = None) -> datetime | None:
        """Return the first time strictly after `after`, or None if there is none until 2100.

        With a `seed` (the id of a schedule), return the jittered time of that first nominal time.
        """
        timeline, zone = self._built or self._timeline(), self.zone
        # A datetime of the spec's own zone needs no conversion of offsets, unless a transition is near.
        if timeline.next_wall_time and seed is None and isinstance(after, datetime) and after.tzinfo is zone.tzinfo:
            since = after - zone.local_epoch
            local = timeline.next_wall_time(since.days * 86_400 + since.seconds)
            if local > 0:
                return zone.local_epoch + timedelta(0, local)
        found = timeline.find(floor_second(after) + 1)
        if found == NEVER:
            return None
        nominal = datetime.fromtimestamp(found, zone.tzinfo)
        return nominal if seed is None else self.jittered(nominal, seed)

    def previous(self, before: Instant) -> datetime | None:
        """Return the last time strictly before `before`, or None."""
        found = self._timeline().before(ceil_second(before))
        return None if found is None else datetime.fromtimestamp(found, self.zone.tzinfo)

    def times(self, after: Instant) -> Iterator[datetime]:
        """Yield all times strictly after `after`."""
        find, tzinfo = self._timeline().find, self.zone.tzinfo
        found = find(floor_second(after) + 1)
        while found != NEVER:
            yield datetime.fromtimestamp(found, tzinfo)
            found = find(found + 1)

    def upcoming(self, after: Instant, n: int) -> list[datetime]:
        """Return the first `n` times strictly after `after`, or fewer if there are no more."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"upcoming: {n!r} is not a number of times")
        return [when for _, when in zip(range(n), self.times(after), strict=False)]

    def between(self, after: Instant, until: Instant) -> list[datetime]:
        """Return the times strictly after `after`, up to and including `until`."""
        last, tzinfo, find = floor_second(until), self.zone.tzinfo, self._timeline().find
        found = find(floor_second(after) + 1)
        times: list[datetime] = []
        while found <= last:
            times.append(datetime.fromtimestamp(found, tzinfo))
            found = find(found + 1)
        return times

    def matches(self, when: Instant) -> bool:
        """Whether `when` is exactly a time of this spec."""
        second = floor_second(when)
        return is_whole(when) and self._timeline().find(second) == second

    def jittered(self, nominal: Instant, seed: str) -> datetime:
        """Return the time at which the schedule acts on a nominal time. The result is the same for the same seed.

        It is later by less than the jitter, than the distance to the next time (exclusions not counted), and than the rest until a second
        after `end`.
        """
        second = floor_second(nominal)
        bound = self.jitter // timedelta(microseconds=1)
        if (following := self._timeline().unexcluded_after(second)) != NEVER:
            bound = min(bound, (following - second) * 1_000_000)
        if self.end is not None:
            bound = min(bound, (floor_second(self.end) - second + 1) * 1_000_000)
        moved = jitter_microseconds(seed, second, bound) if bound > 0 else 0
        return (EPOCH + timedelta(seconds=second, microseconds=moved)).astimezone(self.zone.tzinfo)

    # ---- forms ----

    def canonical(self) -> Spec:
        """Return the same times in one form: calendars written out, intervals counted from 1970, no cron."""
        calendars = [calendar.canonical() for calendar in self.calendars]
        calendars += [calendar for cron in self.cron for calendar in cron.calendars()]
        intervals = [*self.intervals, *(cron.interval for cron in self.cron if cron.interval is not None)]
        exclusions: dict[Exclusion, None] = {}
        for item in self.exclude:
            exclusions.update(dict.fromkeys(plain_exclusions(item)))
        start = None if self.start is None else datetime.fromtimestamp(ceil_second(self.start), UTC)
        end = None if self.end is None else datetime.fromtimestamp(floor_second(self.end), UTC)
        if start is not None and end is not None and end < start:  # within one second, so that there are no times
            start = end = end + timedelta(milliseconds=500)
        return Spec(
            calendars=list(dict.fromkeys(calendars)),
            intervals=list(dict.fromkeys(interval.canonical() for interval in intervals)),
            exclude=list(exclusions),
            start=start,
            end=end,
            jitter=self.jitter,
            timezone=self.timezone,
            timezone_data=self.timezone_data,
            gap=self.gap,
            fold=self.fold,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, as it was given. `Spec.from_dict` parses it."""
        return spec_to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Spec:
        """Return the spec of a JSON form, with keys in camelCase or snake_case. Raises `InvalidSpec` with all faults."""
        arguments, faults = spec_arguments(given)
        return build("spec", faults, lambda: cls(**arguments))

    def describe(self) -> str:
        """Return the spec in plain English."""
        from mainspring.recurrence.describe import describe  # noqa: PLC0415 - imported only when a description is shown

        return describe(self)

    def __eq__(self, other: object) -> bool:
        return self._meaning() == other._meaning() if isinstance(other, Spec) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._meaning())

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return stored_spec, (self.to_dict(),)

    def __repr__(self) -> str:
        return f"Spec.from_dict({self.to_dict()!r})"

    def _meaning(self) -> tuple[object, ...]:
        named, cycles = frozenset(self.named()), frozenset(self.cycles())
        local = bool(named or self.exclude)
        moved = any(values.hour.mask != ALL_HOURS for values in named)
        return (
            named,
            cycles,
            frozenset(plain for item in self.exclude for plain in plain_exclusions(item)),
            None if self.start is None else ceil_second(self.start),
            None if self.end is None else floor_second(self.end),
            self.jitter,
            (self.timezone, self.timezone_data) if local else None,
            (self.gap, self.fold) if moved else None,
        )

    def named(self) -> list[Values]:
        """Return the values of all calendars, including those of cron expressions."""
        return [calendar.values for calendar in self.calendars] + [
            v for cron in self.cron for v in cron.reading.calendars
        ]

    def cycles(self) -> list[Cycle]:
        """Return all intervals as cycles, including those of cron expressions."""
        cycles = [cron.reading.cycle for cron in self.cron if cron.reading.cycle is not None]
        return [interval.cycle for interval in self.intervals] + cycles

    def _timeline(self) -> Timeline:
        if self._built is not None:
            return self._built
        excluded = [pattern_of(plain) for item in self.exclude for plain in plain_exclusions(item)]
        start = EARLIEST if self.start is None else ceil_second(self.start)
        end = NEVER if self.end is None else floor_second(self.end)
        sources = Sources(self.named(), self.cycles(), excluded)
        built = build_timeline(sources, self.zone, self.gap, self.fold, (start, end))
        self._fill(_built=built)
        return built


_KEYS = (
    "cron",
    "intervals",
    "calendars",
    "exclude",
    "start",
    "end",
    "jitter",
    "timezone",
    "timezone_data",
    "gap",
    "fold",
)
_CAMEL = {"timezoneData": "timezone_data"}


def spec_arguments(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return the arguments of `Spec` in a JSON object and the faults of its keys. `Spec` itself checks the values."""
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - JSON may hold anything
        raise InvalidSpec("spec", [Fault(f"{given!r} is a {type(given).__name__}", hint="write a JSON object")])
    arguments: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, value in given.items():
        name = _CAMEL.get(key, key)
        if name not in _KEYS:
            known = ", ".join("timezoneData" if known == "timezone_data" else known for known in _KEYS)
            faults.append(Fault("is not a key of a spec", str(key), hint=f"there are {known}"))
        elif name in arguments:
            faults.append(Fault("is given twice", str(key)))
        elif value is not None:
            arguments[name] = value
    return arguments, faults


def stored_spec(written: Mapping[str, Any]) -> Spec:
    """Return the spec of a JSON form that `to_dict` wrote. Ambiguous patterns were warned of when it was given, and are not again."""
    read = {name: [plain_cron(item) for item in written.get(name, ())] for name in ("cron", "exclude")}
    return Spec.from_dict({**written, **read})


def spec_to_dict(spec: SpecParts) -> dict[str, Any]:
    written: dict[str, Any] = {
        "calendars": [calendar.to_dict() for calendar in spec.calendars],
        "intervals": [interval.to_dict() for interval in spec.intervals],
        "cron": [_cron(cron) for cron in spec.cron],
        "exclude": [_exclusion(item) for item in spec.exclude],
        "start": None if spec.start is None else spec.start.isoformat(),
        "end": None if spec.end is None else spec.end.isoformat(),
        "jitter": _jitter(spec.jitter),
        "timezoneData": None if spec.timezone_data is None else base64.b64encode(spec.timezone_data).decode(),
    }
    written = {key: value for key, value in written.items() if value}
    return written | {"timezone": spec.timezone, "gap": spec.gap, "fold": spec.fold}


def _cron(cron: Cron) -> str | dict[str, Any]:
    # A string is dialect temporal, but a six-field one that ends with a star is not accepted as a string.
    plain = cron.dialect == "temporal" and not cron.text.rstrip().endswith("*")
    return cron.text if plain or (cron.dialect == "temporal" and len(cron.text.split()) == 5) else cron.to_dict()


def _exclusion(item: Any) -> Any:
    if isinstance(item, DateRange):
        return item.to_json()
    written = item.to_dict()
    return written if "cron" not in written else _cron(item)


def _jitter(jitter: timedelta) -> str | float | None:
    if not jitter:
        return None
    return jitter.total_seconds() if jitter.microseconds else format_duration(jitter)
