"""Warnings about a spec: times that never match, that transitions affect, or that surprise."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainspring.recurrence.describe import listed
from mainspring.recurrence.instants import ceil_second, floor_second
from mainspring.recurrence.search.days import ALL_MONTHS, DAY, FIRST_SECOND, bits, year_month_day
from mainspring.recurrence.search.patterns import ALL_HOURS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from mainspring.recurrence.cron.dialects.reading import Values
    from mainspring.recurrence.spec import Spec

_DECADE = 10 * 366 * DAY
_RULES_UNTIL = 2_208_988_800
"""2040-01-01. The decade before it shows the transitions that stay in the zone's rules. This module reads no clock."""
_SAMPLE = 64
_LONGEST_YEAR = 366 * DAY


@dataclass(frozen=True, slots=True)
class Advice:
    """One warning: a code for programs and a sentence for people."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def lint(spec: Spec, after: datetime | None = None) -> list[Advice]:
    """Return warnings about a spec, or an empty list. With `after`, examples are the first ones after that time."""
    if spec.is_empty:
        return []
    calendars = list(dict.fromkeys(spec.named()))
    found = list(_rarity(spec))
    found += [advice for values in calendars for advice in _short_months(values)]
    if not any(advice.code == "never" for advice in found):
        found += _transitions(spec, after)
        found += [advice for values in calendars for advice in _uneven(values)]
        found += _top_of_hour(spec, calendars)
    return list(dict.fromkeys(found))


def _rarity(spec: Spec) -> Iterator[Advice]:
    first = spec.next(FIRST_SECOND - DAY)
    if first is None:
        yield Advice("never", "no time matches, from 2000 to 2100: the dates do not exist, or everything is excluded")
        return
    if spec.intervals or any(values.year.mask != type(values)().year.mask for values in spec.named()):
        return
    times = [floor_second(when) for when in spec.upcoming(first, _SAMPLE)]
    longest = max((later - earlier for earlier, later in itertools.pairwise(times)), default=0)
    if longest > _LONGEST_YEAR:
        yield Advice("rare", f"it matches less than once a year: up to {longest // DAY:,} days lie between two times")


def _transitions(spec: Spec, after: datetime | None) -> Iterator[Advice]:
    """Yield warnings about times that a change of the clocks affects, by the permanent rules of the zone."""
    last = _RULES_UNTIL if after is None else max(_RULES_UNTIL, ceil_second(after) + _DECADE)
    until = min(last, last if spec.end is None else floor_second(spec.end))
    begin = until - _DECADE if after is None else ceil_second(after)
    since = max(begin, begin if spec.start is None else ceil_second(spec.start))
    patterns = [values.pattern() for values in spec.named() if values.hour.mask != ALL_HOURS]
    reported: set[str] = set()
    zone = spec.zone
    for at, old, new in zip(zone.instants, zone.offsets, zone.offsets[1:], strict=False):
        code = "gap" if new > old else "fold"
        if not since <= at <= until or code in reported:
            continue
        first, end = at + min(old, new), at + max(old, new)
        hit = min((pattern.at_or_after(first) for pattern in patterns), default=end)
        if hit < end:
            reported.add(code)
            yield Advice(code, _transition_words(spec, code, hit))


def _transition_words(spec: Spec, code: str, local: int) -> str:
    year, month, date = year_month_day(local // DAY)
    clock = f"{local % DAY // 3_600:02}:{local % 3_600 // 60:02}"
    example = f"{spec.timezone}, for example on {year}-{month:02}-{date:02}"
    if code == "gap":
        then = {
            "after": "it runs at the first moment after the gap",
            "skip": "it does not run that day",
            "shift": "it runs as much later as the gap is long",
        }[spec.gap]
        return f"the clocks jump over {clock} in {example}; {then} (gap={spec.gap!r})"
    then = {"first": "it runs the first time only", "second": "it runs the second time only", "both": "it runs twice"}[
        spec.fold
    ]
    return f"the clocks show {clock} twice in {example}; {then} (fold={spec.fold!r})"


def _short_months(values: Values) -> Iterator[Advice]:
    mask, rules = values.date
    dates = list(bits(mask))
    if rules or not dates or dates[0] < 29:
        return
    months = values.month.mask
    if months == 1 << 2 and dates[0] == 29:
        yield Advice("leap-day", "29 February exists every four years; for the end of February write L")
    elif months & 0b1010_0101_0100 or (months == ALL_MONTHS):
        yield Advice(
            "short-month",
            f"months without a day {listed([str(date) for date in dates], 'or')} are skipped; for the last day write L",
        )


def _uneven(values: Values) -> Iterator[Advice]:
    for name, size, mask in (
        ("second", 60, values.second.mask),
        ("minute", 60, values.minute.mask),
        ("hour", 24, values.hour.mask),
    ):
        numbers = list(bits(mask))
        if len(numbers) < 3:
            continue
        step = numbers[1] - numbers[0]
        if size % step and numbers == list(range(0, size, step)):
            left = size - numbers[-1]
            around = {"second": "minute", "minute": "hour", "hour": "day"}[name]
            yield Advice(
                "uneven",
                f"every {step} {name}s does not divide the {around}: the last step of each is {left}. "
                f"For an even distance use Interval('{step}{name[0]}')",
            )


def _top_of_hour(spec: Spec, calendars: list[Values]) -> Iterator[Advice]:
    if spec.jitter:
        return
    on_the_hour = [values for values in calendars if values.minute.mask == 1 and values.second.mask == 1]
    hourly = [cycle for cycle in spec.cycles() if cycle.every % 3_600 == 0 and cycle.phase % 3_600 == 0]
    if on_the_hour or hourly:
        yield Advice("top-of-hour", "most schedules run at this minute; choose another minute, or give it jitter")
