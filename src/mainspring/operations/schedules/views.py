"""Queries of schedules, their ticks and backfills."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, Unpack, get_args

from msgspec.structs import replace

from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import to_datetime, to_micros
from mainspring.model.given import check_name
from mainspring.model.ids import is_storable
from mainspring.model.schedules import UNLISTED, TickOutcome, is_crontab_entry
from mainspring.operations.filters import ScheduleFilters, one_of, page_size, schedule_filter, time_cursor
from mainspring.operations.schedules.audit import Auditor
from mainspring.operations.schedules.info import (
    MOST_SHOWN,
    ScheduleInfo,
    SchedulePage,
    ScheduleState,
    TickPage,
    backfill_info,
    describe,
    schedule_info,
    state_of,
    tick_info,
)
from mainspring.schedules.due_ticks import spec_of
from mainspring.store.bad_rows import read, readable
from mainspring.store.schedules import ScheduleFilter, TickFilter

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator
    from datetime import datetime

    from mainspring.model.clock import Clock
    from mainspring.model.schedules import Backfill, Schedule
    from mainspring.operations.filters import Texts
    from mainspring.operations.schedules.audit import ScheduleAudit
    from mainspring.operations.schedules.info import BackfillInfo, ScheduleDescription, TickInfo
    from mainspring.store.verbs.schedules import Schedules as StoredSchedules

_PAGE = 1_000
AT_ONCE = 1_000
"""How many schedules are read at once."""


class HasSchedules(Protocol):
    """A store, or its part inside a user's transaction."""

    @property
    def schedules(self) -> StoredSchedules: ...


class ScheduleViews:
    """The queries of schedules. All of them block."""

    def __init__(self, store: HasSchedules, clock: Clock) -> None:
        self._store = store.schedules
        self._clock = clock

    def describe(self, schedule: str) -> ScheduleDescription:
        """Return a schedule with its latest ticks, unfinished runs and upcoming times. Raises `NotFound`."""
        situation = self._store.situation(wanted_id(schedule))
        if situation is None:
            raise missing(schedule)
        recent = self._store.ticks(TickFilter(schedule, limit=MOST_SHOWN))
        starts = self._store.ticks(
            TickFilter(schedule, outcomes=(TickOutcome.FIRED, TickOutcome.LATE), limit=MOST_SHOWN)
        )
        unknown = self._unknown(situation.schedule.workflow)
        return read("schedules", schedule, lambda: describe(situation, recent, starts, self._clock.now(), unknown))

    def _unknown(self, workflow: str) -> str | None:
        """Return a message if there are workers and none of them has the function, so that runs will wait. None otherwise."""
        fleet = self._store.functions()
        known = not fleet or any(workflow in names for names in readable("workers", fleet, json.loads, str))
        return None if known else f"no live worker knows {workflow!r}"

    def backfills(self, schedule: str) -> list[BackfillInfo]:
        """Return the backfills of a schedule, newest first. Raises `NotFound`."""
        self._get(schedule)
        return [backfill_info(each) for each in self._store.backfills(schedule)]

    def get_backfill(self, backfill: str) -> BackfillInfo:
        """Return one backfill. Raises `NotFound`."""
        return backfill_info(self._backfill(backfill))

    def _backfill(self, backfill: str) -> Backfill:
        found = self._store.backfill(check_name("the id of a backfill", backfill))
        if found is None:
            raise NotFound(f"there is no backfill {backfill!r}")
        return found

    def audit(self, schedule: str, since: datetime, until: datetime | None = None) -> ScheduleAudit:
        """Classify all times of a schedule in a span of time, and find times without a tick.

        Raises `NotFound`, and `InvalidInput` if the end is before the start.
        """
        row, now = self._get(schedule), self._clock.now()
        first, last = to_micros(since), now if until is None else to_micros(until)
        if last < first:
            raise InvalidInput(f"audit: the end {to_datetime(last)} is before the start {to_datetime(first)}")
        auditor = Auditor(row, first, last, now)
        before: tuple[int, str] | None = None
        while page := self._store.ticks(TickFilter(schedule, since=first, until=last, before=before, limit=_PAGE)):
            auditor.look(page)
            before = page[-1].nominal, page[-1].request
        return auditor.verdict(self._store.oldest_tick(schedule))

    def rows(self, wanted: ScheduleFilter) -> tuple[list[Schedule], str | None]:
        """Return a page of rows, and the start of the following page."""
        found = self._store.page(replace(wanted, limit=wanted.limit + 1))
        page = self._stopped(found[: wanted.limit])
        return page, page[-1].id if len(found) > wanted.limit else None

    def _stopped(self, rows: list[Schedule]) -> list[Schedule]:
        """Return rows in which crontab entries that no live worker lists are stopped. Workers do not store that when they stop."""
        entries = [row.id for row in rows if is_crontab_entry(row)]
        if not entries:
            return rows
        unlisted = set(entries) - self._store.listed(entries)
        return [replace(row, stopped=UNLISTED) if row.id in unlisted else row for row in rows]

    def list(self, *, after: str | None = None, limit: int = 50, **filters: Unpack[ScheduleFilters]) -> SchedulePage:
        """Return a page of schedules, by id."""
        page, more = self.rows(schedule_filter(filters, after=after, limit=limit))
        now = self._clock.now()
        made = readable("schedules", page, lambda each: schedule_info(ScheduleInfo, each, now), lambda each: each.id)
        return SchedulePage(made, more)

    def count(self, **filters: Unpack[ScheduleFilters]) -> dict[str, int]:
        """Return the number of schedules by state, and how many of all are failing: their last run failed."""
        found: dict[str, int] = dict.fromkeys((*get_args(ScheduleState), "failing"), 0)
        after: str | None = None
        while True:
            page, after = self.rows(schedule_filter(filters, after=after, limit=_PAGE))
            for row in page:
                found[state_of(row)] += 1
                found["failing"] += row.failures > 0
            if after is None:
                return found

    def times(
        self, schedule: str, first: datetime, last: datetime | None = None, most: int = 20
    ) -> builtins.list[datetime]:
        """Return the nominal times of a schedule between two times, at most `most`."""
        if last is not None and last < first:
            raise InvalidInput(f"times: the end {last.isoformat()} is before the start {first.isoformat()}")
        spec = spec_of(self._get(schedule).spec)
        found: list[datetime] = []
        moment = spec.next(first - timedelta(microseconds=1))
        while moment is not None and len(found) < most and (last is None or moment <= last):
            found.append(moment)
            moment = spec.next(moment)
        return found

    def tick(self, schedule: str, request: str) -> TickInfo:
        """Return the latest tick of a trigger or backfill. Raises `NotFound`."""
        check_name("the request of a tick", request)
        found = self._store.ticks(TickFilter(wanted_id(schedule), request=request, limit=1))
        if not found:
            raise NotFound(f"schedule {schedule!r} has no tick that {request!r} asked for")
        return tick_info(found[0])

    def ticks(
        self,
        schedule: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        outcome: Texts = (),
        after: str | None = None,
        limit: int = 50,
    ) -> TickPage:
        """Return a page of ticks, latest nominal time first. Raises `NotFound`."""
        limit = page_size(limit)
        outcomes = one_of("outcome", outcome, tuple(TickOutcome))
        self._get(schedule)
        found = self._store.ticks(
            TickFilter(
                schedule,
                since=None if since is None else to_micros(since),
                until=None if until is None else to_micros(until),
                outcomes=outcomes,
                before=time_cursor(after),
                limit=limit + 1,
            )
        )
        page = found[:limit]
        more = f"{page[-1].nominal}:{page[-1].request}" if len(found) > limit else None
        return TickPage([tick_info(tick) for tick in page], more)

    def _get(self, schedule: str) -> Schedule:
        found = self._store.get(wanted_id(schedule))
        if found is None:
            raise missing(schedule)
        return found


def wanted_id(schedule: object) -> str:
    """Return an id to look up. Raises `NotFound` for an id that no database can store."""
    if not isinstance(schedule, str):
        raise InvalidInput(f"a schedule id is a string, not {schedule!r}")
    if not is_storable(schedule):
        raise missing(schedule)
    return schedule


def missing(schedule: str) -> NotFound:
    return NotFound(f"schedule {schedule!r} not found")


def schedules_of(store: StoredSchedules, app: str) -> Iterator[Schedule]:
    """Yield all schedules of an app by id. They may be changed during the iteration."""
    after: str | None = None
    while page := store.page(ScheduleFilter(app=app, after=after, limit=AT_ONCE)):
        yield from page
        after = page[-1].id
