"""Schedules as pictures: what became of each day's ticks, and which days are to come."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from mainspring.errors import NotFound
from mainspring.model.clock import SECOND, to_datetime
from mainspring.operations.schedule_infos import ScheduleInfo, TickInfo, schedule_values, tick_info, upcoming
from mainspring.schedules.elapsed import Times, spec_of
from mainspring.store.schedules import TickFilter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.model.clock import Clock
    from mainspring.model.schedules import Schedule
    from mainspring.recurrence.spec import Spec
    from mainspring.store.protocol import Store

MONTH = 30
HALF_A_YEAR = 183
MOST_IN_A_DAY = 5
"""Coming times of one day are counted up to here."""
_MOST_UNHAPPY = 2_000
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Day:
    """A day of a schedule, in its own zone."""

    day: date
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    """Ticks of that day by outcome. Those that simply started their run are not counted: 1 says that there are some."""
    coming: int = 0
    """Times to come, counted up to `MOST_IN_A_DAY`."""
    first: datetime | None = None
    """The first of them."""
    clocks: int = 0
    """By how many seconds the clocks move on that day: 3600 forward, -3600 back."""


@dataclass(frozen=True, slots=True)
class ScheduleCard:
    """A schedule at a glance."""

    info: ScheduleInfo
    timezone: str
    upcoming: list[datetime]
    last: TickInfo | None
    days: list[Day]
    """The last thirty days, oldest first."""


class Pictures:
    """The verbs. All of them block."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def cards(self, schedules: Iterable[str]) -> list[ScheduleCard]:
        """Schedules at a glance; one that is gone meanwhile is left out."""
        rows = [self._store.schedules.get(schedule) for schedule in schedules]
        return [self._card(row) for row in rows if row is not None]

    def _card(self, row: Schedule) -> ScheduleCard:
        spec, now = spec_of(row.spec), self._clock.now()
        last = self._store.schedules.ticks(TickFilter(row.id, limit=1))
        today = _day_of(now, spec)
        return ScheduleCard(
            ScheduleInfo(**schedule_values(row)),
            spec.timezone,
            upcoming(row, now, 5),
            tick_info(last[0]) if last else None,
            self._days(row, spec, today - timedelta(days=MONTH - 1), MONTH, coming=False),
        )

    def year(self, schedule: str) -> list[Day]:
        """Half a year of what was and half a year of what is to come."""
        row = self._store.schedules.get(schedule)
        if row is None:
            raise NotFound(f"there is no schedule {schedule!r}, or no longer")
        spec = spec_of(row.spec)
        first = _day_of(self._clock.now(), spec) - timedelta(days=HALF_A_YEAR - 1)
        first -= timedelta(days=first.weekday())
        return self._days(row, spec, first, 53 * 7, coming=True)

    def _days(self, row: Schedule, spec: Spec, first: date, count: int, *, coming: bool) -> list[Day]:
        now = self._clock.now()
        edges = [_midnight(first + timedelta(days=number), spec) for number in range(count + 1)]
        past = [(start, end) for start, end in pairwise(edges) if start <= now]
        outcomes = self._outcomes(row.id, past)
        active = coming and not row.paused and row.stopped is None
        skips = set(json.loads(row.skips))
        times = Times(spec, row.id)
        days: list[Day] = []
        for number, (start, end) in enumerate(pairwise(edges)):
            ahead = _times(times, max(start, now), end, skips) if active and end > now else []
            zone = spec.zone
            days.append(
                Day(
                    first + timedelta(days=number),
                    outcomes.get(start, {}),
                    len(ahead),
                    to_datetime(ahead[0]) if ahead else None,
                    zone.offset(end // SECOND) - zone.offset(start // SECOND),
                )
            )
        return days

    def _outcomes(self, schedule: str, spans: list[tuple[int, int]]) -> dict[int, dict[str, int]]:
        """What became of the ticks within each span, by its start."""
        if not spans:
            return {}
        watching = self._store.watching
        found: dict[int, dict[str, int]] = {start: {"fired": 1} for start in watching.started_in(schedule, spans)}
        for nominal, until, outcome, count in watching.unhappy(schedule, spans[0][0], _MOST_UNHAPPY):
            for start, end in spans:
                if nominal < end and (until or nominal) >= start:
                    there = found.setdefault(start, {})
                    there[outcome] = there.get(outcome, 0) + count
        return found


def _times(times: Times, start: int, end: int, skips: set[int]) -> list[int]:
    found: list[int] = []
    nominal = times.next(start - SECOND)
    while nominal is not None and nominal < end and len(found) < MOST_IN_A_DAY:
        if nominal not in skips and nominal >= start:
            found.append(nominal)
        nominal = times.next(nominal)
    return found


def _day_of(micros: int, spec: Spec) -> date:
    local = micros // SECOND + spec.zone.offset(micros // SECOND)
    return _EPOCH + timedelta(days=local // 86_400)


def _midnight(day: date, spec: Spec) -> int:
    """The first instant of a day in the spec's zone."""
    return spec.zone.instant((day - _EPOCH).days * 86_400) * SECOND
