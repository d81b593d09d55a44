"""Calendars: times whose fields all match, given as strings, numbers or lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from mainspring.errors import Fault, InvalidInput, InvalidSpec
from mainspring.recurrence.cron.dialects.reading import Values
from mainspring.recurrence.cron.fields import (
    DATE,
    HOUR,
    MINUTE,
    MONTH,
    NOTHING,
    SECOND,
    WEEKDAY,
    YEAR,
    Field,
    FieldValues,
    Grammar,
    field_text,
    stepped,
)
from mainspring.recurrence.faults import build
from mainspring.recurrence.frozen import Frozen
from mainspring.recurrence.search.days import DAY, bits

if TYPE_CHECKING:
    from datetime import datetime

FieldInput = str | int | Sequence[int | Mapping[str, int]]
"""`"1-5,10"`, `7`, or a list of numbers and `{"start", "end", "step"}`."""

_FIELDS: Final[dict[str, Field]] = {
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day_of_month": DATE,
    "month": MONTH,
    "day_of_week": WEEKDAY,
    "year": YEAR,
}
_CAMEL: Final = {"dayOfMonth": "day_of_month", "dayOfWeek": "day_of_week"}
_WRITTEN: Final = {snake: camel for camel, snake in _CAMEL.items()}
_TIMES: Final = ("second", "minute", "hour")
_LONGEST = 1_000


class Calendar(Frozen):
    """Times whose every field matches: `Calendar(month="Jan,Apr", day_of_month="L", hour="9-17", minute="*/15")`.

    Hour, minute and second are 0 unless given, the other fields match any value. Among the exclusions of a spec, hour, minute and second
    match any value too, so that a whole day is excluded. A field is a list of `*`, values and ranges, each with an optional `/step`
    (`x/y` runs from x to the end of the field). Names of months and weekdays can be abbreviated. Dates also support `L` (last),
    `L-3`, `15W` (the working day next to the 15th) and `LW`, weekdays `5#2` (second Friday) and `5L` (last).
    Raises `InvalidSpec` with every fault.
    """

    __slots__ = ("comment", "entered", "values")

    values: Values
    entered: tuple[tuple[str, FieldInput], ...]
    """The given fields, as they were given."""
    comment: str

    def __init__(
        self,
        *,
        year: FieldInput | None = None,
        month: FieldInput | None = None,
        day_of_month: FieldInput | None = None,
        day_of_week: FieldInput | None = None,
        hour: FieldInput | None = None,
        minute: FieldInput | None = None,
        second: FieldInput | None = None,
        comment: str = "",
    ) -> None:
        given = {
            "second": second,
            "minute": minute,
            "hour": hour,
            "day_of_month": day_of_month,
            "month": month,
            "day_of_week": day_of_week,
            "year": year,
        }
        faults: list[Fault] = []
        values = [
            default if given[name] is None else _read(field, given[name], faults)
            for (name, field), default in zip(_FIELDS.items(), Values(), strict=True)
        ]
        if not isinstance(comment, str):  # pyright: ignore[reportUnnecessaryIsInstance] - JSON may hold anything
            faults.append(Fault(f"{comment!r} is not a text", "comment"))
        if faults:
            raise InvalidSpec("calendar", faults)
        entered = tuple((name, _frozen(value)) for name, value in given.items() if value is not None)
        self._fill(values=Values(*values), entered=entered, comment=comment)

    @classmethod
    def of(cls, values: Values, comment: str = "") -> Calendar:
        """Return the calendar of parsed values. All of its fields count as given."""
        made = cls.__new__(cls)
        # An empty list, which matches nothing, is the only value without a text.
        entered = tuple(
            (name, field_text(field, value) or ()) for (name, field), value in zip(_FIELDS.items(), values, strict=True)
        )
        Frozen._fill(made, values=values, entered=entered, comment=comment)  # noqa: SLF001 - it is of this very class
        return made

    def excluding(self) -> Calendar:
        """Return this calendar as an exclusion: hour, minute and second match any value unless given."""
        names = {name for name, _ in self.entered}
        free = {name: FieldValues(_FIELDS[name].full) for name in _TIMES if name not in names}
        return Calendar.of(self.values._replace(**free), self.comment)

    def canonical(self) -> Calendar:
        """Return the same calendar with all fields written out, in one spelling."""
        return Calendar.of(self.values, self.comment)

    def fields(self) -> dict[str, tuple[int | str, ...]]:
        """Return the values of each field, sorted, with rules like `L` last as strings. The year is included only if restricted."""
        found: dict[str, tuple[int | str, ...]] = {}
        for (name, field), value in zip(_FIELDS.items(), self.values, strict=True):
            if field is not YEAR or value.mask != YEAR.full:
                found[name] = (*(bit + field.origin for bit in bits(value.mask)), *value.rules)
        return found

    def matches(self, when: datetime) -> bool:
        """Whether the wall clock time of `when` matches all fields. Raises `InvalidInput` for a naive datetime."""
        return matches_wall_clock([self.values], when)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: the given fields, as they were given."""
        written: dict[str, Any] = {_WRITTEN.get(name, name): _thawed(value) for name, value in self.entered}
        if self.comment:
            written["comment"] = self.comment
        return written

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Calendar:
        """Return the calendar of a JSON form, with keys in camelCase or snake_case. An empty text counts as not given."""
        named: dict[str, Any] = {}
        faults: list[Fault] = []
        for key, value in given.items():
            name = _CAMEL.get(key, key)
            if name not in _FIELDS and name != "comment":
                known = ", ".join([*(_WRITTEN.get(field, field) for field in _FIELDS), "comment"])
                faults.append(Fault("is not a field of a calendar", str(key), hint=f"there are {known}"))
            elif name in named:
                faults.append(Fault("is given twice", key))
            elif value != "" or name == "comment":  # other systems write a field that was not given as an empty text
                named[name] = value
        return build("calendar", faults, lambda: cls(**named))

    def __eq__(self, other: object) -> bool:
        """Whether two calendars match the same times. Comments do not count."""
        return self.values == other.values if isinstance(other, Calendar) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.values)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Calendar.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        fields = [f"{name}={value!r}" for name, value in self.entered]
        return f"Calendar({', '.join([*fields, *([f'comment={self.comment!r}'] if self.comment else [])])})"


def matches_wall_clock(calendars: Sequence[Values], when: datetime) -> bool:
    """Whether one of the calendars matches the wall clock time of `when`."""
    if when.utcoffset() is None:
        raise InvalidInput(f"time: {when.isoformat()} has no time zone; give an aware datetime")
    day = when.toordinal() - 719_163
    local = day * DAY + when.hour * 3_600 + when.minute * 60 + when.second
    return not when.microsecond and any(values.pattern().matches(local) for values in calendars)


def _read(field: Field, given: object, faults: list[Fault]) -> FieldValues:
    if isinstance(given, str):
        if len(given) > _LONGEST:
            faults.append(Fault(f"{len(given)} characters are too many", field.name))
            return NOTHING
        return Grammar(faults, rules=True).read(field, given.strip())
    if isinstance(given, int) and not isinstance(given, bool):
        return Grammar(faults).read(field, str(given))
    if isinstance(given, Sequence) and not isinstance(given, bytes | bytearray):
        items = cast("Sequence[object]", given)
        if not items and field is YEAR:
            return FieldValues(YEAR.full)
        mask = 0
        for item in items:
            mask |= _range(field, item, faults)
        return FieldValues(mask)
    faults.append(
        Fault(
            f"{given!r} is not a field",
            field.name,
            hint="write text like '1-5', a number, or a list of numbers and ranges",
        )
    )
    return NOTHING


def _range(field: Field, item: object, faults: list[Fault]) -> int:
    given = dict(cast("Mapping[object, object]", item)) if isinstance(item, Mapping) else {"start": item}
    known = len(faults)
    wrong = [f"{key!r} is not a part of a range" for key in given if key not in {"start", "end", "step"}]
    wrong += [] if "start" in given else [f"{item!r} has no start"]
    faults.extend(Fault(what, field.name, hint="a range is {start, end, step}") for what in wrong)
    # Other systems write 0 for an end or a step that was not given.
    start = given.get("start", field.low)
    end, step = given.get("end") or start, given.get("step") or 1
    for number in (start,) if end == start else (start, end):
        if not _is_whole(number):
            faults.append(Fault(f"{number!r} is not a whole number", field.name))
        elif not field.low <= number <= field.top:
            hint = "in lists Sunday is 0" if field is WEEKDAY and number == 7 else None
            faults.append(Fault(f"{number} is not between {field.low} and {field.top}", field.name, hint=hint))
    if not _is_whole(step):
        faults.append(Fault(f"{step!r} is not a whole number", field.name))
    if len(faults) > known:
        return 0
    first, last, by = cast("int", start), cast("int", end), cast("int", step)
    if last < first or by < 1:
        faults.append(
            Fault(f"{first} to {last} by {by} leads nowhere", field.name, hint="ranges run upwards and do not wrap")
        )
        return 0
    return stepped(first - field.origin, last - field.origin, by)


def _is_whole(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool)


def _frozen(value: FieldInput) -> FieldInput:
    if isinstance(value, str | int):
        return value
    return tuple(dict(item) if isinstance(item, Mapping) else item for item in value)


def _thawed(value: FieldInput) -> FieldInput:
    return (
        value if isinstance(value, str | int) else [dict(item) if isinstance(item, Mapping) else item for item in value]
    )
