"""Seeing, making and steering schedules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.model.clock import to_micros
from mainspring.model.schedules import Outcome, Overlap
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
from mainspring.schedules.control import Control
from mainspring.schedules.definition import check_note, check_schedule_id
from mainspring.schedules.policy import policy_of, read_overlap
from mainspring.store.schedules import ScheduleFilter, TickFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from mainspring.model.clock import Clock
    from mainspring.model.ids import IdMaker
    from mainspring.model.schedules import Schedule
    from mainspring.operations.schedule_infos import BackfillInfo, ScheduleDescription, TickInfo
    from mainspring.schedules.definition import Definition
    from mainspring.store.protocol import Store
    from mainspring.store.schedules import Decide, Plan

_AT_ONCE = 500
_SHORT = 10


class Schedules:
    """The verbs. All of them block. `origin` names the run and operation on whose behalf they are called, if any."""

    def __init__(self, store: Store, clock: Clock, ids: IdMaker, origin: str | None = None) -> None:
        self._store = store.schedules
        self._clock = clock
        self._ids = ids
        self._origin = origin

    # -- making --------------------------------------------------------------------------------------------------------
    def create(
        self,
        definition: Definition,
        *,
        paused: bool = False,
        trigger: bool = False,
        backfill: Sequence[tuple[datetime, datetime]] = (),
    ) -> ScheduleInfo:
        """Store a schedule; then trigger it and fill in stretches of the past, if that is asked for."""
        for start, end in backfill:
            _check_stretch(start, end)
        row = self._row(definition, paused=paused)
        self._insert([row])
        if trigger:
            self.trigger(definition.id)
        for start, end in backfill:
            self.backfill(definition.id, start, end)
        return ScheduleInfo(**schedule_values(self._get(definition.id)))

    def create_many(self, definitions: Sequence[Definition]) -> int:
        """Store many schedules, a few hundred to a transaction; how many."""
        rows = [self._row(definition) for definition in definitions]
        for first in range(0, len(rows), _AT_ONCE):
            self._insert(rows[first : first + _AT_ONCE])
        return len(rows)

    def _row(self, definition: Definition, *, paused: bool = False) -> Schedule:
        check_schedule_id(definition.id)
        check_note(definition.note)
        return definition.row(self._clock.now(), paused=paused, made_by=self._origin)

    def _insert(self, rows: list[Schedule]) -> None:
        taken = self._store.create(rows)
        if taken:
            raise Conflict(f"there is a schedule {taken[0]!r} already; update it, or delete it first")

    def update(self, schedule: str, changes: Mapping[str, Any], *, revision: int | None = None) -> ScheduleInfo:
        """Change the definition: `changes` are columns of the row. A stale revision is a `Conflict`."""
        values = dict(changes)
        plan = self._change(schedule, lambda control: control.update(values, revision))
        return ScheduleInfo(**schedule_values(plan.schedule))

    def apply(
        self, definitions: Sequence[Definition], *, prune: bool = False, group: str = "applied"
    ) -> dict[str, str]:
        """Make the schedules of a group exactly these; what became of each."""
        ids = [check_schedule_id(definition.id) for definition in definitions]
        if len(set(ids)) < len(ids):
            raise InvalidInput(f"two schedules are called {next(each for each in ids if ids.count(each) > 1)!r}")
        rows = [definition.row(self._clock.now(), made_by=self._origin) for definition in definitions]
        done: dict[str, str] = {}
        for first in range(0, len(rows), _AT_ONCE):
            batch = rows[first : first + _AT_ONCE]
            for row in batch:
                row.app = group
            there = set(self._store.create(batch))
            done |= {row.id: "created" for row in batch if row.id not in there}
        for definition in definitions:
            if definition.id not in done:
                values = {**definition.columns(), "app": group, "version": None}
                plan = self._change(definition.id, lambda control, values=values: control.update(values, None))  # type: ignore[misc]
                done[definition.id] = "updated" if plan.redefined else "unchanged"
        if prune:
            for gone in self._of_group(group, set(ids)):
                self.delete(gone)
                done[gone] = "deleted"
        return done

    def _of_group(self, group: str, kept: set[str]) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while page := self._store.page(ScheduleFilter(app=group, after=after, limit=_AT_ONCE)):
            found += [row.id for row in page if row.version is None and row.id not in kept]
            after = page[-1].id
        return found

    def delete(self, schedule: str) -> None:
        """Forget a schedule and its ticks. Runs that it has started go on."""
        self._change(schedule, lambda control: control.delete())

    # -- steering ------------------------------------------------------------------------------------------------------
    def pause(self, schedule: str, note: str | None = None, until: datetime | None = None) -> None:
        check_note(note)
        when = None if until is None else to_micros(until)
        if when is not None and when <= self._clock.now():
            raise InvalidInput(f"a pause until {until} would be over already")
        self._change(schedule, lambda control: control.pause(note, when))

    def resume(self, schedule: str, note: str | None = None) -> None:
        check_note(note)
        self._change(schedule, lambda control: control.resume(note))

    def trigger(self, schedule: str, overlap: Overlap | str | None = None) -> TickInfo:
        """Act now, whatever the clock says. The tick tells what came of it."""
        request = self._request()
        policy = None if overlap is None else read_overlap(overlap)
        made = self._store.ticks(TickFilter(schedule, request=request)) if self._origin else []
        if not made:
            plan = self._change(schedule, lambda control: control.trigger(request, policy))
            made = [tick for tick in plan.ticks if tick.request == request]
        return tick_info(made[0])

    def skip(self, schedule: str, when: datetime | None = None) -> datetime:
        """Leave out the next tick, or that of a given nominal time; which."""
        return self._skip(schedule, when, undo=False)

    def unskip(self, schedule: str, when: datetime | None = None) -> datetime:
        """Take back the first tick that is to be left out, or that of a given nominal time; which."""
        return self._skip(schedule, when, undo=True)

    def _skip(self, schedule: str, when: datetime | None, *, undo: bool) -> datetime:
        from mainspring.model.clock import to_datetime  # noqa: PLC0415

        before = set(json.loads(self._get(schedule).skips))
        moment = None if when is None else to_micros(when)
        if moment is not None and not undo and moment in before:
            return to_datetime(moment)
        plan = self._change(schedule, lambda control: control.skip(moment, undo=undo))
        changed = before ^ set(json.loads(plan.schedule.skips))
        return to_datetime(moment if moment is not None else (min if undo else max)(changed))

    # -- backfills -----------------------------------------------------------------------------------------------------
    def backfill(
        self,
        schedule: str,
        start: datetime,
        end: datetime,
        *,
        overlap: Overlap | str | None = None,
        again: bool = False,
    ) -> BackfillInfo:
        """Take all actions from `start` to `end`, both included, a few at a time."""
        _check_stretch(start, end)
        request = self._request()
        there = self._store.backfill(request)
        if there is None:
            how = self._backfill_overlap(schedule, overlap)
            since, until = to_micros(start), to_micros(end)
            plan = self._change(schedule, lambda control: control.backfill(request, since, until, how, again=again))
            there = next(each for each in plan.backfills if each.id == request)
        return backfill_info(there)

    def _backfill_overlap(self, schedule: str, overlap: Overlap | str | None) -> Overlap:
        if overlap is not None:
            return read_overlap(overlap)
        own = policy_of(self._get(schedule).policy).overlap
        return own if own is Overlap.ALLOW_ALL else Overlap.BUFFER_ALL

    def backfills(self, schedule: str) -> list[BackfillInfo]:
        """The backfills of a schedule, newest first."""
        self._get(schedule)
        return [backfill_info(each) for each in self._store.backfills(schedule)]

    def get_backfill(self, backfill: str) -> BackfillInfo:
        found = self._store.backfill(backfill)
        if found is None:
            raise NotFound(f"there is no backfill {backfill!r}")
        return backfill_info(found)

    def stop_backfill(self, backfill: str) -> BackfillInfo:
        """Make no more ticks for it, and drop those that wait. Runs it has started go on."""
        found = self.get_backfill(backfill)
        if found.state == "running":
            self._change(found.schedule, lambda control: control.stop_backfill(backfill))
        return self.get_backfill(backfill)

    # -- seeing --------------------------------------------------------------------------------------------------------
    def describe(self, schedule: str) -> ScheduleDescription:
        situation = self._store.situation(schedule)
        if situation is None:
            raise _missing(schedule)
        recent = self._store.ticks(TickFilter(schedule, limit=MOST_SHOWN))
        return describe(situation, recent, self._clock.now())

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
        if limit < 1:
            raise InvalidInput(f"a page has at least one schedule, not {limit}")
        found = self._store.page(
            ScheduleFilter(
                id_prefix=id_prefix,
                paused=paused,
                workflow=workflow,
                attributes=None if attributes is None else json.dumps(dict(attributes)),
                due_before=None if due_before is None else to_micros(due_before),
                after=after,
                limit=limit + 1,
            )
        )
        page = found[:limit]
        more = page[-1].id if len(found) > limit else None
        return SchedulePage([ScheduleInfo(**schedule_values(each)) for each in page], more)

    def tick(self, schedule: str, request: str) -> TickInfo:
        """The latest tick that a trigger or backfill asked for."""
        found = self._store.ticks(TickFilter(schedule, request=request, limit=1))
        if not found:
            raise NotFound(f"schedule {schedule!r} has no tick that {request!r} asked for")
        return tick_info(found[0])

    def ticks(
        self,
        schedule: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        outcome: Sequence[str] = (),
        after: str | None = None,
        limit: int = 50,
    ) -> TickPage:
        """A page of ticks, latest nominal time first."""
        unknown = [name for name in outcome if name not in {*Outcome}]
        if unknown:
            raise InvalidInput(f"there is no outcome {', '.join(unknown)}; there are {', '.join(Outcome)}")
        self._get(schedule)
        found = self._store.ticks(
            TickFilter(
                schedule,
                since=None if since is None else to_micros(since),
                until=None if until is None else to_micros(until),
                outcomes=tuple(outcome),
                before=_cursor(after),
                limit=limit + 1,
            )
        )
        page = found[:limit]
        more = f"{page[-1].nominal}:{page[-1].request}" if len(found) > limit else None
        return TickPage([tick_info(tick) for tick in page], more)

    # -- ways to the store ---------------------------------------------------------------------------------------------
    def _request(self) -> str:
        """A name for something that is asked for: the same when a run asks again because an answer was lost."""
        return self._origin.replace("/", "-") if self._origin else self._ids.new()[-_SHORT:]

    def _get(self, schedule: str) -> Schedule:
        found = self._store.get(schedule)
        if found is None:
            raise _missing(schedule)
        return found

    def _change(self, schedule: str, choose: Callable[[Control], Decide]) -> Plan:
        while True:
            now = self._clock.now()
            plan = self._store.change(schedule, choose(Control(now, self._ids.new)), now)
            if plan is None:
                raise _missing(schedule)
            if not plan.unfinished:
                return plan


def _missing(schedule: str) -> NotFound:
    return NotFound(f"there is no schedule {schedule!r}, or no longer")


def _check_stretch(start: datetime, end: datetime) -> None:
    for name, moment in (("start", start), ("end", end)):
        if moment.tzinfo is None:
            raise InvalidInput(f"backfill: {name} {moment.isoformat()} has no zone; write an aware datetime")
    if end < start:
        raise InvalidInput(f"backfill: the end {end.isoformat()} is before the start {start.isoformat()}")


def _cursor(after: str | None) -> tuple[int, str] | None:
    if after is None:
        return None
    nominal, _, request = after.partition(":")
    try:
        return int(nominal), request
    except ValueError:
        raise InvalidInput(f"{after!r} is not where a page of ticks goes on") from None
