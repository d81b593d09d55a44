"""A whole spec in plain English."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mainspring.recurrence.calendars import Calendar
from mainspring.recurrence.phrases import MONTH_NAMES, calendar_phrase, counted, exclusion_phrase, listed
from mainspring.recurrence.spec_input import DateRange

if TYPE_CHECKING:
    from datetime import date

    from mainspring.recurrence.intervals import Interval
    from mainspring.recurrence.spec import Spec
    from mainspring.recurrence.spec_input import Exclusion

_UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def describe(spec: Spec) -> str:
    """For example: `Every weekday at 09:00 and 17:00, except 25 December, Europe/Paris`."""
    if spec.is_empty:
        return "No times of its own: it is started by hand only"
    clauses = [_commented(calendar_phrase(calendar.values), calendar.comment) for calendar in spec.calendars]
    for cron in spec.cron:
        phrases = [calendar_phrase(calendar.values) for calendar in cron.calendars()]
        if cron.interval is not None:
            phrases.append(_interval(cron.interval))
        clauses.append(_commented(", or ".join(phrases), cron.reading.comment))
    clauses += [_interval(interval) for interval in spec.intervals]
    parts = ["; ".join(clauses)]
    if spec.exclude:
        parts.append(f"except {listed([_exclusion(item) for item in spec.exclude])}")
    if spec.start is not None:
        parts.append(f"from {_moment(spec, spec.start)} on")
    if spec.end is not None:
        parts.append(f"until {_moment(spec, spec.end)}")
    if spec.jitter:
        parts.append(f"each up to {duration_words(spec.jitter)} later")
    parts += _transitions(spec)
    if spec.calendars or spec.exclude or any(cron.reading.cycle is None for cron in spec.cron):
        parts.append(spec.timezone)
    text = ", ".join(parts)
    return text[0].upper() + text[1:]


def duration_words(duration: timedelta) -> str:
    """`1 hour and 30 minutes`."""
    rest = int(duration.total_seconds())
    parts: list[str] = []
    for unit, size in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            parts.append(counted(number, unit))
    if duration.microseconds:
        parts.append(f"{duration.microseconds / 1_000:g} milliseconds")
    return listed(parts or ["0 seconds"])


def _interval(interval: Interval) -> str:
    every, phase = interval.cycle
    unit, size = next((unit, size) for unit, size in _UNITS if every % size == 0)
    what = f"every {unit}" if every == size else f"every {every // size} {unit}s"
    if interval.anchor is not None:
        origin = interval.anchor.astimezone(UTC) + interval.offset
        return f"{what}, counted from {_day(origin)} {_clock(origin.hour * 3_600 + origin.minute * 60 + origin.second)} UTC"
    if 86_400 % every == 0:
        return what if phase == 0 else f"{what} from {_clock(phase)} UTC"
    origin = datetime.fromtimestamp(phase, UTC)
    return f"{what}, counted from {_day(origin)} {_clock(phase % 86_400)} UTC"


def _exclusion(item: Exclusion) -> str:
    if isinstance(item, DateRange):
        if item.first == item.last:
            return _day(item.first)
        return f"{_day(item.first)} to {_day(item.last)}"
    if isinstance(item, Calendar):
        return _commented(exclusion_phrase(item.excluding().values), item.comment)
    reading = item.reading
    phrases = [exclusion_phrase(v if reading.to_the_second else v.whole_minutes()) for v in reading.calendars]
    return _commented(listed(phrases), reading.comment)


def _transitions(spec: Spec) -> list[str]:
    if not spec.zone.instants:
        return []
    said: list[str] = []
    if spec.gap == "skip":
        said.append("not at times that the clocks jump over")
    elif spec.gap == "shift":
        said.append("moved on with the clocks where they jump")
    if spec.fold == "both":
        said.append("twice where the clocks repeat a time")
    elif spec.fold == "second":
        said.append("the second time where the clocks repeat a time")
    return said


def _commented(text: str, comment: str) -> str:
    return f"{text} ({comment})" if comment else text


def _moment(spec: Spec, when: datetime) -> str:
    local = when.astimezone(spec.zone.tzinfo)
    return f"{_day(local)} {local:%H:%M}" + (f":{local:%S}" if local.second else "")


def _day(when: date) -> str:
    return f"{when.day} {MONTH_NAMES[when.month]} {when.year}"


def _clock(second: int) -> str:
    text = f"{second // 3_600:02}:{second // 60 % 60:02}"
    return f"{text}:{second % 60:02}" if second % 60 else text
