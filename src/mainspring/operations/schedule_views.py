"""Seeing schedules, their ticks and backfills."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from mainspring.codec.attributes import attributes_json
from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import to_datetime, to_micros
from mainspring.model.ids import storable
from mainspring.model.schedules import UNLISTED, Outcome, is_crontab_entry
from mainspring.operations.schedule_audit import Auditor
from mainspring.operations.schedule_infos import (
    MOST_SHOWN,
    ScheduleInfo,
    SchedulePage,
    TickPage,
    backfill_info,
    describe,
    schedule_values,
    tick_info,
)
from mainspring.store.schedules import ScheduleFilter, TickFilter
from mainspring.store.unreadable import read, readable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from mainspring.model.clock import Clock
    from mainspring.model.schedules import Backfill, Schedule
    from mainspring.operations.schedule_audit import ScheduleAudit
    from mainspring.operations.schedule_infos import BackfillInfo, ScheduleDescription, TickInfo
    from mainspring.store.schedules import ScheduleStore

_PAGE = 1_000


class HasSchedules(Protocol):
    """A store, or the part of it that works inside somebody's transaction."""

    @property
    def schedules(self) -> ScheduleStore: ...


class ScheduleViews:
    """The verbs that change nothing. All of them block."""

    def __init__(self, store: HasSchedules, clock: Clock) -> None:
        self._store = store.schedules
        self._clock = clock

    def describe(self, schedule: str) -> ScheduleDescription:
        situation = self._store.situation(wanted_id(schedule))
        if situation is None:
            raise missing(schedule)
        recent = self._store.ticks(TickFilter(schedule, limit=MOST_SHOWN))
        starts = self._store.ticks(TickFilter(schedule, outcomes=(Outcome.FIRED, Outcome.LATE), limit=MOST_SHOWN))
        unknown = self._unknown(situation.schedule.workflow)
        return read("schedules", schedule, lambda: describe(situation, recent, starts, self._clock.now(), unknown))

    def _unknown(self, workflow: str) -> str | None:
        """Why its runs will wait, if they will: workers are there, and none of them has the function."""
        fleet = self._store.functions()
        known = not fleet or any(workflow in names for names in readable("workers", fleet, json.loads, str))
        return None if known else f"no live worker knows {workflow!r}"

    def backfills(self, schedule: str) -> list[BackfillInfo]:
        """The backfills of a schedule, newest first."""
        self._get(schedule)
        return [backfill_info(each) for each in self._store.backfills(schedule)]

    def get_backfill(self, backfill: str) -> BackfillInfo:
        return backfill_info(self._backfill(backfill))

    def _backfill(self, backfill: str) -> Backfill:
        found = self._store.backfill(backfill)
        if found is None:
            raise NotFound(f"there is no backfill {backfill!r}")
        return found

    def audit(self, schedule: str, since: datetime, until: datetime | None = None) -> ScheduleAudit:
        """What became of all times of a schedule in a stretch of time, classified; and whether one is not accounted for."""
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
        """A page of schedules as the store has them, and where the next one begins."""
        if wanted.limit < 1:
            raise InvalidInput(f"a page has at least one schedule, not {wanted.limit}")
        found = self._store.page(replace(wanted, limit=wanted.limit + 1))
        page = self._stopped(found[: wanted.limit])
        return page, page[-1].id if len(found) > wanted.limit else None

    def _stopped(self, rows: list[Schedule]) -> list[Schedule]:
        """Rows that say of crontab entries whether they have an effect now: workers that go take no time to write that down."""
        entries = [row.id for row in rows if is_crontab_entry(row)]
        if not entries:
            return rows
        unlisted = set(entries) - self._store.listed(entries)
        return [replace(row, stopped=UNLISTED) if row.id in unlisted else row for row in rows]

    def list(
        self,
        *,
        id_prefix: str | None = None,
        paused: bool | None = None,
        workflow: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        due_before: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> SchedulePage:
        """A page of schedules, by id."""
        page, more = self.rows(
            ScheduleFilter(
                id_prefix=id_prefix,
                paused=paused,
                workflow=workflow,
                attributes=None if attributes is None else attributes_json(attributes, "attributes"),
                due_before=None if due_before is None else to_micros(due_before),
                after=after,
                limit=limit,
            )
        )
        now = self._clock.now()
        made = readable(
            "schedules", page, lambda each: ScheduleInfo(**schedule_values(each, now)), lambda each: each.id
        )
        return SchedulePage(made, more)

    def tick(self, schedule: str, request: str) -> TickInfo:
        """The latest tick that a trigger or backfill asked for."""
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
        outcome: str | Sequence[str] = (),
        after: str | None = None,
        limit: int = 50,
    ) -> TickPage:
        """A page of ticks, latest nominal time first."""
        if limit < 1:
            raise InvalidInput(f"a page has at least one tick, not {limit}")
        outcomes = (outcome,) if isinstance(outcome, str) else tuple(outcome)
        unknown = [name for name in outcomes if name not in {*Outcome}]
        if unknown:
            raise InvalidInput(f"there is no outcome {', '.join(unknown)}; there are {', '.join(Outcome)}")
        self._get(schedule)
        found = self._store.ticks(
            TickFilter(
                schedule,
                since=None if since is None else to_micros(since),
                until=None if until is None else to_micros(until),
                outcomes=outcomes,
                before=_cursor(after),
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
    """An id to look for. One that no database could keep is that of nothing."""
    if not isinstance(schedule, str):
        raise InvalidInput(f"a schedule id is a string, not {schedule!r}")
    if not storable(schedule):
        raise missing(schedule)
    return schedule


def missing(schedule: str) -> NotFound:
    return NotFound(f"there is no schedule {schedule!r}, or no longer")


def _cursor(after: str | None) -> tuple[int, str] | None:
    if after is None:
        return None
    nominal, _, request = after.partition(":")
    try:
        return int(nominal), request
    except ValueError:
        raise InvalidInput(f"{after!r} is not where a page of ticks goes on") from None
