"""Records of schedules in a store: the data of a plan, the plan, and filters of lists.

The row of a schedule is the mutex of everything that concerns the schedule: a transaction that plans the schedule holds the lock until the
plan is committed. Runs that a schedule started do not lock its row when they end. Such a run is stored with `end_unprocessed` set, and a
schedule with an ended run of that kind is due. So a plan never misses an end that overlaps with it, and a run that ends waits for no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.runs import NewRun
    from mainspring.model.schedules import Backfill, Hook, Schedule, ScheduleRun, Tick, TickOutcome

Refusal: TypeAlias = "tuple[TickOutcome, str]"
"""What becomes of a tick whose run cannot start: the outcome and the reason."""
MOST_TAKEN = 500
"""The most nominal times with a tick that are looked up at once for each backfill."""


class Situation(Struct):
    """The data that a plan of a schedule is made from."""

    schedule: Schedule
    runs: list[ScheduleRun] = field(default_factory=list["ScheduleRun"])
    """Runs of the schedule that have not ended or whose end has not been processed, oldest first."""
    unprocessed: dict[str, str] = field(default_factory=dict[str, str])
    """The uids of these runs by id, with those whose rows cannot be read."""
    waiting: list[Tick] = field(default_factory=list["Tick"])
    """Ticks that are pending or buffered, in the order in which they wait."""
    backfills: list[Backfill] = field(default_factory=list["Backfill"])
    """Backfills that are not completed, in the order of their requests."""
    made: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """By backfill: the first nominal times after its cursor that have a run or wait for one; at most MOST_TAKEN."""
    ahead: dict[int, str] = field(default_factory=dict[int, str])
    """Nominal times between the schedule's cursor and now for which a backfill has started or buffered a run, with the backfill."""
    listed: bool = True
    """Whether a live worker lists the schedule, if it is an entry of a crontab."""
    hooks: list[Hook] = field(default_factory=list["Hook"])
    """Functions that receive alerts."""
    refused: dict[str, Refusal] = field(default_factory=dict[str, "Refusal"])
    """By id: the runs that an earlier attempt at this plan wanted to start, and what becomes of their ticks instead."""


class Beginning(Struct):
    """A run that a tick starts. `tick` is the description of the tick that the run can read."""

    run: NewRun
    tick: str


class Plan(Struct):
    """The changes to make to a schedule: all are applied, or none."""

    schedule: Schedule
    ticks: list[Tick] = field(default_factory=list["Tick"])
    """Ticks that are new or have changed."""
    starts: list[Beginning] = field(default_factory=list["Beginning"])
    releases: list[Beginning] = field(default_factory=list[Beginning])
    """Runs that were stored without a due time to wait for their turn, and that may start now."""
    cancels: dict[str, str] = field(default_factory=dict[str, str])
    """Runs to cancel, each with the reason."""
    terminates: dict[str, str] = field(default_factory=dict[str, str])
    """Runs to end at once, each with the reason."""
    processed: list[str] = field(default_factory=list[str])
    """Ended runs whose end the plan has processed."""
    backfills: list[Backfill] = field(default_factory=list["Backfill"])
    """Backfills that are new or have changed."""
    alerts: list[NewRun] = field(default_factory=list["NewRun"])
    """Runs of the functions that receive alerts; each id once."""
    moved: bool = False
    """Whether the schedule's state has changed: cursor, due, counters, pause."""
    learned: bool = False
    """Whether the schedule's memory of its runs has changed."""
    redefined: bool = False
    """Whether the schedule's definition has changed."""
    deleted: bool = False
    nominal: int = 0
    """The nominal time to skip, if this is the plan of a skip."""
    unfinished: bool = False
    """Whether more ticks were due than one plan handles. The next plan handles requests beyond that."""

    @property
    def empty(self) -> bool:
        return not (
            self.ticks
            or self.starts
            or self.releases
            or self.cancels
            or self.terminates
            or self.processed
            or self.backfills
            or self.moved
            or self.learned
            or self.redefined
            or self.deleted
        )


Decide: TypeAlias = "Callable[[Situation], Plan]"
SetAside: TypeAlias = "Callable[[Situation, Exception], Plan]"
"""Plans a schedule again whose plan the database refused."""


class Passed(Struct, frozen=True):
    """The result of a pass over due schedules. `next_due` is the time of the next pass; `more` says that more schedules are due now."""

    planned: int
    next_due: int | None
    more: bool
    owned: frozenset[str] = frozenset()
    """Runs that were stored as owned by this worker."""
    plans: Sequence[Plan] = ()
    """The committed plans."""


class Revision(Struct, frozen=True):
    """The columns by which two definitions of a schedule differ."""

    workflow: str
    created: int
    revision: int
    paused: bool


class ScheduleFilter(Struct, frozen=True):
    """Which schedules to list, by id. `after` is the last id of the previous page. Of several texts one must match."""

    id_prefix: Sequence[str] = ()
    paused: bool | None = None
    workflow: Sequence[str] = ()
    failing: bool | None = None
    """Whether the run that ended last has failed."""
    attributes: str | None = None
    """A JSON object. A schedule matches if its attributes have all pairs of it."""
    due_before: int | None = None
    app: str | None = None
    after: str | None = None
    limit: int = 50


class TickFilter(Struct, frozen=True):
    """Which ticks to list, latest nominal time first."""

    schedule: str
    since: int | None = None
    until: int | None = None
    outcomes: Sequence[str] = ()
    request: str | None = None
    runs_only: bool = False
    before: tuple[int, str] | None = None
    """Nominal time and request of the last tick of the previous page."""
    limit: int = 50
