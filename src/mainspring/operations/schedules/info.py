"""Schedules, ticks and backfills for display: times are aware datetimes, values are plain JSON values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  (a run that asks records the answer, and reads it back by its annotations)
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import structs

from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.schedules import UNLISTED, Overlap, TickOutcome, TickSource
from mainspring.model.states import State  # noqa: TC001  (what is recorded is read back by its annotations)
from mainspring.operations.records import Page, moment, shown
from mainspring.schedules.actions import action_of
from mainspring.schedules.definition import differing
from mainspring.schedules.due_ticks import Times, spec_of
from mainspring.store.sealing.payloads import shown_input

if TYPE_CHECKING:
    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.store.schedules import Situation

S = TypeVar("S", bound="ScheduleInfo")
MOST_SHOWN = 10
ScheduleState: TypeAlias = Literal["active", "paused", "stopped", "exhausted", "failed"]
"""The state of a schedule: the first that applies of `failed`, `stopped` and `paused`, otherwise `exhausted` or `active`."""


@dataclass(frozen=True, slots=True)
class TickInfo:
    """One tick and its outcome. With `until`, all `count` ticks from `nominal` to `until`."""

    schedule: str
    nominal: datetime
    source: TickSource
    outcome: TickOutcome
    reason: str | None
    due: datetime
    """The time to act: the nominal time plus jitter."""
    acted: datetime | None
    """When a worker decided the outcome."""
    run: str | None
    request: str | None
    """The trigger or backfill that requested the tick."""
    overlap: Overlap | None
    until: datetime | None
    count: int
    run_state: State | None = None
    """The state of the tick's run, where it was looked up. None also if the run does not exist."""


@dataclass(frozen=True, slots=True)
class TickPage(Page[TickInfo]):
    """A page of ticks. Pass `next` as `after` to get the following page. None: this is the last page."""

    ticks: list[TickInfo]
    next: str | None

    @property
    def _items(self) -> list[TickInfo]:
        return self.ticks


@dataclass(frozen=True, slots=True)
class BackfillInfo:
    """The progress of a backfill."""

    id: str
    schedule: str
    start: datetime
    end: datetime
    overlap: Overlap
    again: bool
    state: str
    """`running`, `done` or `stopped`."""
    started: int
    """Ticks made so far."""
    skipped: int
    """Times that already had a run, or that were left to the clock."""
    reached: datetime
    """Nominal time up to which every time is processed."""
    created: datetime
    completed: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule: definition, state, counters."""

    id: str
    workflow: str
    description: str
    """The spec in English."""
    spec: dict[str, Any]
    """The spec as it was given."""
    canonical: dict[str, Any]
    """The same times in one form."""
    policy: dict[str, Any]
    """The policy, with effective values."""
    action: dict[str, Any]
    attributes: dict[str, Any]
    state: ScheduleState
    """`failed`: it cannot be planned, see `fault`. `stopped`: its declaration was removed. `paused`. `exhausted`: no time
    or no run is left. `active` otherwise."""
    paused: bool
    note: str | None
    """The schedule's note, or that of the last pause or resume."""
    resume_at: datetime | None
    remaining: int | None
    stopped: str | None
    fault: str | None
    declared_by: str | None
    """The version of the code that declares the schedule. None: it was created at run time."""
    revision: int
    created: datetime
    updated: datetime
    next: datetime | None
    """The next nominal time. While the schedule is paused, the next one if it were not."""
    starts: int
    missed: int
    skipped: int
    dropped: int
    failures: int
    """Consecutive failures."""
    last_result: Any
    last_failure: dict[str, Any] | None
    pause_note: str | None = None
    """The note of the last pause or resume: why it is paused."""
    differs: list[str] = field(default_factory=list[str])
    """The parts that an operator changed since the code or the crontab declared them. `reset` undoes the changes."""


@dataclass(frozen=True, slots=True)
class ScheduleDescription(ScheduleInfo):
    """A schedule with its latest ticks, unfinished runs and upcoming times."""

    running: list[str] = field(default_factory=list[str])
    """Ids of its unfinished runs."""
    buffered: int = 0
    recent: list[TickInfo] = field(default_factory=list[TickInfo])
    """The latest ticks, newest first."""
    recent_starts: list[TickInfo] = field(default_factory=list[TickInfo])
    """The latest ticks that started a run, newest first."""
    upcoming: list[datetime] = field(default_factory=list["datetime"])
    """The next nominal times, no more than it has actions left. While the schedule is paused, those after the pause."""
    skips: list[datetime] = field(default_factory=list["datetime"])
    backfills: list[BackfillInfo] = field(default_factory=list[BackfillInfo])
    unknown: str | None = None
    """A message if no live worker has the function, so that its runs wait. None otherwise."""


@dataclass(frozen=True, slots=True)
class SchedulePage(Page[ScheduleInfo]):
    """A page of schedules. Pass `next` as `after` to get the following page. None: this is the last page."""

    schedules: list[ScheduleInfo]
    next: str | None

    @property
    def _items(self) -> list[ScheduleInfo]:
        return self.schedules


def tick_info(tick: Tick) -> TickInfo:
    return shown(TickInfo, tick, request=tick.request or None, run_state=None)


def backfill_info(backfill: Backfill) -> BackfillInfo:
    state = "running" if backfill.completed is None else "stopped" if backfill.stopped else "done"
    return shown(
        BackfillInfo,
        backfill,
        start=to_datetime(backfill.since),
        end=to_datetime(backfill.until),
        state=state,
        reached=to_datetime(backfill.cursor),
    )


def schedule_info(kind: type[S], schedule: Schedule, now: int, **given: Any) -> S:
    """Make the record of a schedule from its row. `given` are the fields that its row does not have."""
    action = action_of(schedule.action)
    shown_action = structs.asdict(action) | {
        "input": shown_input(schedule.input),
        "timeout": None if action.timeout is None else action.timeout / SECOND,
    }
    return shown(
        kind,
        schedule,
        description=spec_of(schedule.spec).describe(),
        state=state_of(schedule),
        action=shown_action,
        note=schedule.note or schedule.pause_note,
        differs=differing(schedule),
        declared_by=schedule.version,
        next=_next(schedule, now),
        **given,
    )


def state_of(schedule: Schedule) -> ScheduleState:
    if schedule.fault is not None:
        return "failed"
    if schedule.stopped is not None:
        return "stopped"
    if schedule.paused:
        return "paused"
    return "exhausted" if schedule.upcoming is None or schedule.remaining == 0 else "active"


def _next(schedule: Schedule, now: int) -> datetime | None:
    """Return the next nominal time. Computed for a paused schedule, whose row does not have it."""
    if schedule.paused:
        return next(iter(upcoming(schedule, now, 1)), None)
    return moment(schedule.upcoming) if schedule.stopped is None and schedule.remaining != 0 else None


def upcoming(schedule: Schedule, now: int, most: int = MOST_SHOWN) -> list[datetime]:
    """Return the next nominal times of a schedule, or those after its pause."""
    if schedule.stopped is not None:
        return []
    if schedule.paused and schedule.resume_at is not None:
        now = max(now, schedule.resume_at - 1)
    if schedule.remaining is not None:
        most = min(most, schedule.remaining)
    skips = set(json.loads(schedule.skips))
    times = Times(spec_of(schedule.spec), schedule.id)
    found: list[datetime] = []
    jitter = round(times.spec.jitter.total_seconds()) * SECOND
    nominal = times.next(max(schedule.cursor, now - jitter - SECOND))
    while nominal is not None and len(found) < most:
        if nominal not in skips and times.act(nominal) > now:
            found.append(to_datetime(nominal))
        nominal = times.next(nominal)
    return found


def describe(
    situation: Situation, recent: list[Tick], starts: list[Tick], now: int, unknown: str | None
) -> ScheduleDescription:
    schedule = situation.schedule
    if not situation.listed:
        schedule = structs.replace(schedule, stopped=UNLISTED)
    promised = {tick.run for tick in situation.waiting}
    return schedule_info(
        ScheduleDescription,
        schedule,
        now,
        running=[run.id for run in situation.runs if not run.state.ended and run.id not in promised],
        buffered=sum(tick.outcome is TickOutcome.BUFFERED for tick in situation.waiting),
        recent=[tick_info(tick) for tick in recent],
        recent_starts=[tick_info(tick) for tick in starts],
        upcoming=upcoming(schedule, now),
        skips=[to_datetime(nominal) for nominal in sorted(json.loads(schedule.skips))],
        backfills=[backfill_info(backfill) for backfill in situation.backfills],
        unknown=unknown,
    )
