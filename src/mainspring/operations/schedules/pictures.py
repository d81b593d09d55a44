"""The days of schedules, for the dashboard's calendars: the outcomes of past ticks, and the days to come."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack

from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.ids import id_at
from mainspring.model.runs import RunFilter
from mainspring.operations.filters import ScheduleFilters, schedule_filter
from mainspring.operations.records import appearance
from mainspring.operations.schedules.declared import is_readable
from mainspring.operations.schedules.info import ScheduleInfo, TickInfo, TickPage, schedule_info, tick_info, upcoming
from mainspring.operations.schedules.views import ScheduleViews, missing
from mainspring.schedules.due_ticks import Times, spec_of

if TYPE_CHECKING:
    from mainspring.model.clock import Clock
    from mainspring.model.schedules import Schedule
    from mainspring.recurrence.spec import Spec
    from mainspring.store.protocol import Store

MONTH = 30
HALF_A_YEAR = 183
MOST_IN_A_DAY = 5
"""The maximum count of coming times of one day."""
_MOST_NOT_FIRED = 2_000
_MOST_FAILED = 5_000
RUN_FAILED = "run_failed"
"""The outcome of a run, not of its tick, which only records that the run was started."""
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Day:
    """A day of a schedule, in the schedule's zone."""

    day: date
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    """Ticks of that day by outcome. Ticks that started their run are not counted: 1 means that there are some."""
    coming: int = 0
    """Number of coming times, up to `MOST_IN_A_DAY`."""
    first: datetime | None = None
    """The first coming time."""
    clocks: int = 0
    """Seconds by which the clocks move on that day: 3600 forward, -3600 back."""


@dataclass(frozen=True, slots=True)
class ScheduleCard:
    """A schedule with its recent days, for a list."""

    info: ScheduleInfo
    timezone: str
    upcoming: list[datetime]
    last: TickInfo | None
    days: list[Day]
    """The last thirty days, oldest first."""


@dataclass(frozen=True, slots=True)
class CardPage:
    """A page of schedules with their recent days. Pass `next` as `after` to get the following page. None: this is the last page."""

    cards: list[ScheduleCard]
    next: str | None


class Pictures:
    """The queries. All of them block."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def cards(self, *, after: str | None = None, limit: int = 20, **filters: Unpack[ScheduleFilters]) -> CardPage:
        """Return a page of schedules with their recent days, by id."""
        wanted = schedule_filter(filters, after=after, limit=limit)
        found, more = ScheduleViews(self._store, self._clock).rows(wanted)
        rows = [row for row in found if is_readable(row)]
        calendars = {row.id: _Calendar(row, self._clock.now(), MONTH) for row in rows}
        outcomes = self._outcomes(list(calendars.values()))
        last = self._last(list(calendars))
        cards = [
            self._card(row, last.get(row.id), calendars[row.id].days(outcomes[row.id], coming=False)) for row in rows
        ]
        return CardPage(cards, more)

    def _last(self, schedules: list[str]) -> dict[str, TickInfo]:
        found = [tick_info(tick) for tick in self._store.dashboard.ticks.last(schedules).values()]
        return {tick.schedule: tick for tick in self.with_states(found)}

    def _card(self, row: Schedule, last: TickInfo | None, days: list[Day]) -> ScheduleCard:
        return ScheduleCard(
            schedule_info(ScheduleInfo, row, self._clock.now()),
            spec_of(row.spec).timezone,
            upcoming(row, self._clock.now(), 5),
            last,
            days,
        )

    def year(self, schedule: str) -> list[Day]:
        """Return the days of the last and the next half year, in whole weeks."""
        row = self._store.schedules.get(schedule)
        if row is None:
            raise missing(schedule)
        calendar = _Calendar(row, self._clock.now(), HALF_A_YEAR, weeks=53)
        return calendar.days(self._outcomes([calendar])[row.id], coming=True)

    def _outcomes(self, calendars: list[_Calendar]) -> dict[str, dict[int, dict[str, int]]]:
        """Return the outcomes of the ticks of each schedule's days, by the start of the day."""
        ticks = self._store.dashboard.ticks
        found: dict[str, dict[int, dict[str, int]]] = {calendar.row.id: {} for calendar in calendars}
        spans = [(calendar.row.id, start, end) for calendar in calendars for start, end in calendar.past]
        for schedule, start in ticks.started_in(spans):
            found[schedule][start] = {"fired": 1}
        past = {calendar.row.id: calendar.past for calendar in calendars}
        since = [(schedule, days[0][0]) for schedule, days in past.items()]
        for schedule, nominal, until, outcome, count in ticks.not_fired(since, _MOST_NOT_FIRED):
            for start, end in past[schedule]:
                if nominal < end and (until or nominal) >= start:
                    there = found[schedule].setdefault(start, {})
                    there[outcome] = there.get(outcome, 0) + _share(nominal, until, count, (start, end))
        oldest = min((first for _, first in since), default=0)
        for schedule, nominal in ticks.failed(id_at(oldest), _MOST_FAILED):
            for start, end in past.get(schedule, ()):
                if start <= nominal < end:
                    there = found[schedule].setdefault(start, {})
                    there[RUN_FAILED] = there.get(RUN_FAILED, 0) + 1
        return found

    def ticks(self, schedule: str, **which: Any) -> TickPage:
        """Return a page of ticks as `ScheduleViews.ticks` does, each with the state of its run."""
        page = ScheduleViews(self._store, self._clock).ticks(schedule, **which)
        return TickPage(self.with_states(page.ticks), page.next)

    def with_states(self, ticks: list[TickInfo]) -> list[TickInfo]:
        """Return ticks with the states of their runs."""
        ids = [tick.run for tick in ticks if tick.run is not None]
        if not ids:
            return ticks
        found = self._store.dashboard.runs.page(RunFilter(ids=ids, limit=len(ids)))
        states = {run.id: appearance(run).state for run in found}
        return [replace(tick, run_state=states.get(tick.run or "")) for tick in ticks]


class _Calendar:
    """The days of a schedule, in its own zone: a number of days up to today, or whole weeks into the future."""

    def __init__(self, row: Schedule, now: int, back: int, weeks: int | None = None) -> None:
        self.row = row
        self._now = now
        self._spec = spec_of(row.spec)
        self._first = _day_of(now, self._spec) - timedelta(days=back - 1)
        if weeks is not None:
            self._first -= timedelta(days=self._first.weekday())
        count = back if weeks is None else 7 * weeks
        self._edges = [_midnight(self._first + timedelta(days=number), self._spec) for number in range(count + 1)]
        self.past = [(start, end) for start, end in pairwise(self._edges) if start <= now]

    def days(self, outcomes: dict[int, dict[str, int]], *, coming: bool) -> list[Day]:
        row, zone = self.row, self._spec.zone
        active = coming and not row.paused and row.stopped is None
        skips = set(json.loads(row.skips))
        times = Times(self._spec, row.id)
        days: list[Day] = []
        for number, (start, end) in enumerate(pairwise(self._edges)):
            ahead = _times(times, max(start, self._now), end, skips) if active and end > self._now else []
            days.append(
                Day(
                    self._first + timedelta(days=number),
                    outcomes.get(start, {}),
                    len(ahead),
                    to_datetime(ahead[0]) if ahead else None,
                    zone.offset(end // SECOND) - zone.offset(start // SECOND),
                )
            )
        return days


def _share(nominal: int, until: int | None, count: int, day: tuple[int, int]) -> int:
    """Return how many of the ticks of one row fall on a day, in proportion to the time."""
    if until is None:
        return count
    inside = min(until, day[1] - SECOND) - max(nominal, day[0])
    return max(1, round(1 + (count - 1) * inside / max(1, until - nominal)))


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
    """Return the first instant of a day in the spec's zone."""
    return spec.zone.instant((day - _EPOCH).days * 86_400) * SECOND
