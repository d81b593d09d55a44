"""Schedules, ticks and backfills as the store keeps them. Times are integer microseconds UTC, values are JSON text."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from mainspring.model.states import State


CRONTAB = "crontab"
"""The app of schedules that crontabs define. They belong to the workers that list them, not to a version of the code."""
UNLISTED = "no live worker lists it in its crontab"
"""Why a crontab schedule has no effect."""


class Overlap(StrEnum):
    """What a tick does while the schedule has as many unfinished runs as it may have."""

    SKIP = "skip"
    """The tick is skipped."""
    BUFFER_ONE = "buffer_one"
    """The tick waits, unless another tick waits already."""
    BUFFER_ALL = "buffer_all"
    """The tick waits behind those that wait already."""
    CANCEL_OTHER = "cancel_other"
    """The oldest run is cancelled. The tick starts when that run has ended."""
    TERMINATE_OTHER = "terminate_other"
    """The oldest run is terminated, and the tick starts at once."""
    ALLOW_ALL = "allow_all"
    """The tick starts beside the unfinished runs."""


class TickSource(StrEnum):
    """What caused a tick."""

    CLOCK = "clock"
    CATCHUP = "catchup"
    """The clock, more than ten seconds after the time to act."""
    TRIGGER = "trigger"
    BACKFILL = "backfill"

    @property
    def manual(self) -> bool:
        """Whether an operator or a program requested the tick. Neither a pause nor a limit holds it back."""
        return self in {TickSource.TRIGGER, TickSource.BACKFILL}


class TickOutcome(StrEnum):
    """What happened to a tick. `PENDING` and `BUFFERED` are not final."""

    PENDING = "pending"
    """The nominal time has passed, but not the time to start with jitter."""
    BUFFERED = "buffered"
    """The tick waits for a run to end."""
    FIRED = "fired"
    LATE = "late"
    """Fired more than ten seconds after its time."""
    SKIPPED_OVERLAP = "skipped_overlap"
    SKIPPED_BY_REQUEST = "skipped_by_request"
    MISSED = "missed"
    """No worker could act on the tick before its catch-up window closed."""
    PAUSED = "paused"
    """The schedule was paused, stopped or out of actions."""
    DROPPED = "dropped"
    """The buffer was full, or the tick's backfill or run was stopped while the tick waited."""
    REPLACED = "replaced"
    """A later tick replaced this one, or a backfill had already started the run of its time."""
    START_FAILED = "start_failed"

    @property
    def waiting(self) -> bool:
        """Whether the outcome is not final."""
        return self in {TickOutcome.PENDING, TickOutcome.BUFFERED}

    @property
    def started(self) -> bool:
        """Whether the tick started a run."""
        return self in {TickOutcome.FIRED, TickOutcome.LATE}


class Schedule(Struct):
    """A schedule as stored: its definition, its state and its progress."""

    id: str
    spec: str
    canonical: str
    workflow: str
    action: str
    input: str
    policy: str
    attributes: str
    created: int
    updated: int
    cursor: int
    """Nominal time up to which every time has a tick."""
    due: int | None
    """When a scheduler has to process the schedule; None: at no time."""
    upcoming: int | None = None
    """The next nominal time."""
    revision: int = 1
    paused: bool = False
    resume_at: int | None = None
    note: str | None = None
    pause_note: str | None = None
    """The note of the last pause or resume."""
    remaining: int | None = None
    stopped: str | None = None
    """Why the schedule no longer has an effect: its declaration was removed."""
    skips: str = "[]"
    app: str | None = None
    version: str | None = None
    declared: str | None = None
    """The last declaration by code or a crontab, as `schedules/definition.py` writes it. None: the schedule was made at run time."""
    made_by: str | None = None
    starts: int = 0
    missed: int = 0
    skipped: int = 0
    dropped: int = 0
    failures: int = 0
    """Consecutive failures."""
    last_result: str | None = None
    last_failure: str | None = None
    fault: str | None = None
    """Why the schedule could not be planned."""
    runs_since: str | None = ""
    """Uid of the oldest run that is unfinished or whose end is unprocessed. None: there is no such run. Empty: unknown."""


LEARNED_FIELDS = ("failures", "last_result", "last_failure")
"""The fields in which a schedule remembers its runs."""
PLANNED_FIELDS = (
    "revision",
    "cursor",
    "due",
    "upcoming",
    "paused",
    "resume_at",
    "pause_note",
    "remaining",
    "stopped",
    "skips",
    "starts",
    "missed",
    "skipped",
    "dropped",
    "fault",
    "runs_since",
)
"""The fields of a schedule that a pass of the scheduler reads and writes back."""


def is_crontab_entry(schedule: Schedule) -> bool:
    """Whether a crontab defines the schedule."""
    return schedule.app == CRONTAB and schedule.version is None


class Tick(Struct):
    """One nominal time of a schedule with its outcome. With `until`, all `count` times from `nominal` to `until`.

    `request` is empty for ticks of the clock, so that each nominal time has one such tick. Otherwise it names the request.
    """

    schedule: str
    nominal: int
    request: str
    source: TickSource
    due: int
    outcome: TickOutcome
    reason: str | None = None
    acted: int | None = None
    run: str | None = None
    overlap: Overlap | None = None
    until: int | None = None
    count: int = 1


class Backfill(Struct):
    """A request to start the runs of a span of time, and its progress."""

    id: str
    schedule: str
    since: int
    until: int
    """`since` and `until` are both part of the span."""
    overlap: Overlap
    again: bool
    created: int
    cursor: int
    """Nominal time up to which every time is processed."""
    completed: int | None = None
    stopped: bool = False
    started: int = 0
    skipped: int = 0
    """Times that already had a run, or that were left to the clock."""


class Hook(Struct, frozen=True):
    """A function of the app that receives the alerts of a schedule."""

    app: str
    event: str
    """`missed`, `late` or `paused_by_failure`."""
    function: str
    kind: str
    parameter: str
    """The parameter that takes the alert."""
    after: int
    """From how many microseconds on a tick is late."""
    version: str
    """The version of the code that declares it."""


class ScheduleRun(Struct, frozen=True):
    """A run of a schedule whose end the schedule has not processed: unfinished, or just ended."""

    id: str
    uid: str
    state: State
    reason: str | None = None
    completed: int | None = None
    output: str | None = None
    error: str | None = None
    request: str = ""
