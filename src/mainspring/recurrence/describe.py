"""Describe a spec in plain English."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mainspring.recurrence.calendars import Calendar
from mainspring.recurrence.cron.fields import MONTHS, WEEKDAYS
from mainspring.recurrence.input import DateRange
from mainspring.recurrence.search.days import ALL_DATES, ALL_MONTHS, ALL_WEEKDAYS, ALL_YEARS, FIRST_YEAR, bits
from mainspring.recurrence.search.patterns import ALL_HOURS, ALL_SIXTY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from mainspring.recurrence.cron.dialects.reading import Values
    from mainspring.recurrence.input import Exclusion
    from mainspring.recurrence.intervals import Interval
    from mainspring.recurrence.spec_parts import SpecParts

_UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def describe(spec: SpecParts) -> str:
    """Return, for example, `Every weekday at 09:00 and 17:00, except 25 December, Europe/Paris`."""
    if spec.is_empty:
        return "No times of its own: it is started on request only"
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
    """Return, for example, `1 hour and 30 minutes`."""
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


def _transitions(spec: SpecParts) -> list[str]:
    if not spec.zone.instants:
        return []
    clauses: list[str] = []
    if spec.gap == "skip":
        clauses.append("not at times that the clocks jump over")
    elif spec.gap == "shift":
        clauses.append("moved on with the clocks where they jump")
    if spec.fold == "both":
        clauses.append("twice where the clocks repeat a time")
    elif spec.fold == "second":
        clauses.append("the second time where the clocks repeat a time")
    return clauses


def _commented(text: str, comment: str) -> str:
    return f"{text} ({comment})" if comment else text


def _moment(spec: SpecParts, when: datetime) -> str:
    local = when.astimezone(spec.zone.tzinfo)
    return f"{_day(local)} {local:%H:%M}" + (f":{local:%S}" if local.second else "")


def _day(when: date) -> str:
    return f"{when.day} {MONTH_NAMES[when.month]} {when.year}"


def _clock(second: int) -> str:
    text = f"{second // 3_600:02}:{second // 60 % 60:02}"
    return f"{text}:{second % 60:02}" if second % 60 else text


MONTH_NAMES = ["", *(name.capitalize() for name in MONTHS)]
WEEKDAY_NAMES = [name.capitalize() for name in WEEKDAYS]
_NTH = ["", "first", "second", "third", "fourth", "fifth"]
_MOST_TIMES = 6
"""The maximum number of times of a day that are listed one by one."""


def listed(items: Sequence[str], word: str = "and") -> str:
    """Return `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}" if items else "nothing"


def counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def ordinal(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def calendar_phrase(values: Values) -> str:
    """Return, for example, `every weekday at 09:00 and 17:00` or `every 5 minutes on Mondays`."""
    if not all(value.mask or value.rules for value in values):
        return "never"
    times, days = _times(values), days_phrase(values)
    if times.startswith("every") or " past " in times or " if it is " in days:
        return f"{times} {days}" if days else times
    if not days or days.startswith("in "):
        return f"every day {days} {times}" if days else f"every day {times}"
    return f"{_lead(values, days)} {times}"


def exclusion_phrase(values: Values) -> str:
    """Return, for example, `25 December`, `Mondays` or `every day from 12:00 to 14:59`."""
    days = days_phrase(values)
    if values.hour.mask == ALL_HOURS and values.minute.mask == ALL_SIXTY and values.second.mask == ALL_SIXTY:
        return days.removeprefix("on ") if days else "every day"
    if values.minute.mask == ALL_SIXTY and values.second.mask == ALL_SIXTY:
        times = listed([f"from {first:02}:00 to {last:02}:59" for first, last in runs(values.hour.mask)])
        return f"{times} {days}" if days else times
    if values.second.mask == ALL_SIXTY:
        values = values._replace(second=type(values)().second)
    return calendar_phrase(values)


def _lead(values: Values, days: str) -> str:
    weekdays_only = days.startswith("on ") and values.date == type(values)().date and not values.weekday.rules
    if not weekdays_only:
        return days
    names = _weekday_names(values.weekday.mask)
    rest = days.removeprefix(f"on {_plural(values.weekday.mask)}")
    return f"every {names}{rest}"


# ---- times of day ----


def _times(values: Values) -> str:
    hours, minutes, seconds = (
        list(bits(values.hour.mask)),
        list(bits(values.minute.mask)),
        list(bits(values.second.mask)),
    )
    if len(hours) * len(minutes) * len(seconds) <= _MOST_TIMES:
        clock = [_clock_time(hour, minute, second) for hour in hours for minute in minutes for second in seconds]
        return f"at {listed(clock)}"
    if seconds != [0]:
        return _with_seconds(hours, minutes, seconds)
    if step := _step(minutes, 60):
        return _within(f"every {counted(step, 'minute')}" if step > 1 else "every minute", hours, minutes)
    if len(minutes) == 1:
        return _hourly(hours, minutes[0])
    return f"at {listed([str(minute) for minute in minutes])} minutes past {_hours(hours)}"


def _with_seconds(hours: list[int], minutes: list[int], seconds: list[int]) -> str:
    step = _step(seconds, 60)
    if step and len(minutes) == 60:
        return _within("every second" if step == 1 else f"every {step} seconds", hours, minutes)
    which = "every second" if step == 1 else f"at {listed([str(second) for second in seconds])} seconds past"
    past = "every minute" if len(minutes) == 60 else f"minute {listed([str(minute) for minute in minutes])}"
    return f"{which} {'of ' if step == 1 else ''}{past} of {_hours(hours)}"


def _hourly(hours: list[int], minute: int) -> str:
    if len(hours) == 24:
        return "every hour" if minute == 0 else f"every hour at {counted(minute, 'minute')} past"
    if hours[-1] - hours[0] == len(hours) - 1:
        return f"every hour from {_clock_time(hours[0], minute)} to {_clock_time(hours[-1], minute)}"
    if step := _step(hours, 24):
        return (
            f"every {step} hours"
            if hours[0] == minute == 0
            else f"every {step} hours from {_clock_time(hours[0], minute)}"
        )
    return f"at {listed([_clock_time(hour, minute) for hour in hours])}"


def _within(what: str, hours: list[int], minutes: list[int]) -> str:
    since = f" from minute {minutes[0]}" if minutes[0] else ""
    if len(hours) == 24:
        return what + since
    if hours[-1] - hours[0] == len(hours) - 1:
        return f"{what} from {_clock_time(hours[0], minutes[0])} to {_clock_time(hours[-1], minutes[-1])}"
    return f"{what}{since} of {_hours(hours)}"


def _hours(hours: list[int]) -> str:
    if len(hours) == 24:
        return "every hour"
    if len(hours) == 1:
        return f"hour {hours[0]}"
    if len(hours) > 2 and hours[-1] - hours[0] == len(hours) - 1:
        return f"the hours {hours[0]} to {hours[-1]}"
    return f"the hours {listed([str(hour) for hour in hours])}"


def _step(values: list[int], size: int) -> int:
    """Return the distance of values that are evenly spread over a field, including the wrap around. 0 if they are not."""
    if len(values) < 2:
        return 0
    step = values[1] - values[0]
    even = values == list(range(values[0], size, step)) and size % step == 0 and values[0] < step
    return step if even else 0


def _clock_time(hour: int, minute: int, second: int = 0) -> str:
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"


# ---- days ----


def days_phrase(values: Values) -> str:
    """Return, for example, `on weekdays`, `on the 1st and 15th of every month` or `in January`. Empty for every day."""
    months = [MONTH_NAMES[month] for month in bits(values.month.mask)]
    some_months = values.month.mask != ALL_MONTHS
    dates, weekdays = _dates(values), _weekdays(values)
    if dates:
        day = f"{dates} of {listed(months) if some_months else 'every month'}"
        if len(months) == 1 and not values.date.rules:
            day = f"on {listed([str(date) for date in bits(values.date.mask)])} {listed(months)}"
        if weekdays:
            day += f" if it is {_article(values)}"
    elif weekdays:
        of_months = f" of {listed(months)}" if values.weekday.rules else f" in {listed(months)}"
        day = weekdays + (of_months if some_months else " of every month" if values.weekday.rules else "")
    else:
        day = f"in {listed(months)}" if some_months else ""
    if values.year.mask != ALL_YEARS:
        years = [
            f"{FIRST_YEAR + a}" if a == b else f"{FIRST_YEAR + a} to {FIRST_YEAR + b}"
            for a, b in runs(values.year.mask)
        ]
        one_day = dates and len(months) == 1 and not weekdays and len(years) == 1 and years[0].isdigit()
        day = f"{day} {years[0]}" if one_day else f"{day} in {listed(years)}".strip()
    return day


def _dates(values: Values) -> str:
    mask, rules = values.date
    if mask == ALL_DATES:
        return ""
    plain = [f"{ordinal(a)}" if a == b else f"{ordinal(a)} to {ordinal(b)}" for a, b in runs(mask)]
    return "on the " + listed(plain + [_date_rule(rule) for rule in rules])


def _date_rule(rule: str) -> str:
    if rule == "L":
        return "last day"
    if rule == "LW":
        return "last working day"
    if rule.startswith("L-"):
        return f"{ordinal(int(rule[2:]) + 1)} last day"
    return f"working day nearest the {ordinal(int(rule[:-1]))}"


def _weekdays(values: Values) -> str:
    mask, rules = values.weekday
    if mask == ALL_WEEKDAYS:
        return ""
    nth = [f"the {'last' if rule[1] == 'L' else _NTH[int(rule[2])]} {WEEKDAY_NAMES[int(rule[0])]}" for rule in rules]
    return "on " + listed([*([_plural(mask)] if mask else []), *nth])


def _plural(mask: int) -> str:
    if mask == 0b011_1110:
        return "weekdays"
    if (missing := _one_missing(mask)) is not None:
        return f"all days but {missing}s"
    return listed([f"{name}s" for name in _names(mask)])


def _weekday_names(mask: int) -> str:
    if (missing := _one_missing(mask)) is not None:
        return f"day but {missing}"
    return "weekday" if mask == 0b011_1110 else listed(_names(mask))


def _one_missing(mask: int) -> str | None:
    missing = _names(ALL_WEEKDAYS & ~mask)
    return missing[0] if len(missing) == 1 else None


def _names(mask: int) -> list[str]:
    # A week is listed from Monday on.
    return [WEEKDAY_NAMES[day % 7] for day in range(1, 8) if mask >> day % 7 & 1]


def _article(values: Values) -> str:
    mask, rules = values.weekday
    if mask == 0b011_1110 and not rules:
        return "a weekday"
    nth = [f"the {'last' if rule[1] == 'L' else _NTH[int(rule[2])]} {WEEKDAY_NAMES[int(rule[0])]}" for rule in rules]
    return listed([*(f"a {name}" for name in _names(mask)), *nth], "or")


def runs(mask: int) -> list[tuple[int, int]]:
    """Return the first and last of each run of neighbouring bits. A run of two is returned as two runs of one."""
    found: list[tuple[int, int]] = []
    for bit in bits(mask):
        if found and found[-1][1] == bit - 1:
            found[-1] = (found[-1][0], bit)
        else:
            found.append((bit, bit))
    return [part for a, b in found for part in ([(a, a), (b, b)] if b == a + 1 else [(a, b)])]
