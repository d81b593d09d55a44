"""What a schedule and a tick are, as the store keeps them. Times are integer microseconds UTC, values are JSON text."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from mainspring.model.states import State


CRONTAB = "crontab"
"""The app of schedules that crontabs define: they belong to no version of the code, but to the workers that list them."""
UNLISTED = "no live worker lists it in its crontab"
"""Why such a schedule has no effect."""


class Overlap(StrEnum):
    """What happens when it is time to start while as many runs as may be are unfinished."""

    SKIP = "skip"
    """The tick is left out."""
    BUFFER_ONE = "buffer_one"
    """It waits, unless another one waits already."""
    BUFFER_ALL = "buffer_all"
    """It waits, behind those that wait already."""
    CANCEL_OTHER = "cancel_other"
    """The oldest run is cancelled; this one starts when that has ended."""
    TERMINATE_OTHER = "terminate_other"
    """The oldest run is ended at once, and this one starts."""
    ALLOW_ALL = "allow_all"
    """It starts beside the others."""


class TickSource(StrEnum):
    """Where a tick comes from."""

    CLOCK = "clock"
    CATCHUP = "catchup"
    """The clock as well, but made up for after its time."""
    TRIGGER = "trigger"
    BACKFILL = "backfill"

    @property
    def manual(self) -> bool:
        """Requested by an operator or a program: neither a pause nor a limit holds it up."""
        return self in {TickSource.TRIGGER, TickSource.BACKFILL}


class TickOutcome(StrEnum):
    """What became of a tick. The first two are not final."""

    PENDING = "pending"
    """Its nominal time has passed, the time to act (with jitter) has not come."""
    BUFFERED = "buffered"
    """It waits for a run to end."""
    FIRED = "fired"
    LATE = "late"
    """Fired, more than ten seconds after its time."""
    SKIPPED_OVERLAP = "skipped_overlap"
    SKIPPED_BY_REQUEST = "skipped_by_request"
    MISSED = "missed"
    """Nothing was there to act on it until its catch-up window had closed."""
    PAUSED = "paused"
    """The schedule was paused, stopped or out of actions."""
    DROPPED = "dropped"
    """The buffer was full, or its backfill or its run was stopped while it waited."""
    REPLACED = "replaced"
    """A later tick took its place, or a backfill had taken its time before."""
    START_FAILED = "start_failed"

    @property
    def waiting(self) -> bool:
        return self in {TickOutcome.PENDING, TickOutcome.BUFFERED}

    @property
    def started(self) -> bool:
        return self in {TickOutcome.FIRED, TickOutcome.LATE}


class Schedule(Struct):
    """A schedule as it stands in the store: its definition, its state, and how far it has come."""

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
    """Nominal time: everything up to here has a tick."""
    due: int
    """When a scheduler has to look at it."""
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
    """Why it has no effect any more: it is no longer declared."""
    skips: str = "[]"
    app: str | None = None
    version: str | None = None
    declared: str | None = None
    """What code or a crontab declared last, as `schedules/definition.py` writes it; None: it was made at run time."""
    made_by: str | None = None
    starts: int = 0
    missed: int = 0
    skipped: int = 0
    dropped: int = 0
    failures: int = 0
    """In a row."""
    last_result: str | None = None
    last_failure: str | None = None
    fault: str | None = None
    """Why it could not be planned."""


MOVED = (
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
)
"""The fields of a schedule that acting on it changes: what is planned for it, and what is written back."""


def is_crontab_entry(schedule: Schedule) -> bool:
    return schedule.app == CRONTAB and schedule.version is None


class Tick(Struct):
    """One nominal time of a schedule and what became of it; with `until`, all `count` times from `nominal` to there.

    `request` is empty for ticks of the clock, so that each nominal time has one; otherwise it names who asked.
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
    """A request to take all actions of a stretch of time, and how far that has come."""

    id: str
    schedule: str
    since: int
    until: int
    """Both ends belong to it."""
    overlap: Overlap
    again: bool
    created: int
    cursor: int
    """Nominal time: everything up to here is done with."""
    completed: int | None = None
    stopped: bool = False
    started: int = 0
    skipped: int = 0
    """Times that had a run already, or that were left to the clock."""


class Hook(Struct, frozen=True):
    """A function of the app that receives the alerts of a schedule."""

    app: str
    event: str
    """missed, late or paused_by_failure."""
    function: str
    kind: str
    parameter: str
    """That takes the alert."""
    after: int
    """How late is late."""
    version: str
    """The version of the code that declares it."""


class RunOf(Struct, frozen=True):
    """A run of a schedule that the schedule has not taken note of ending: it has not ended, or has just now."""

    id: str
    uid: str
    state: State
    reason: str | None = None
    completed: int | None = None
    output: str | None = None
    error: str | None = None
    request: str = ""
