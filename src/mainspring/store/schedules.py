"""The specification of schedules in a store, like `protocol.py`.

The row of a schedule is the mutex of everything that concerns the schedule: a transaction that plans the schedule holds the lock until the
plan is committed. Runs that a schedule started do not lock its row when they end. Such a run is stored with `end_unprocessed` set, and a
schedule with an ended run of that kind is due. So a plan never misses an end that overlaps with it, and a run that ends waits for no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

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


class ScheduleStore(Protocol):
    """The schedules, ticks and backfills of a store."""

    def create(
        self, schedules: Sequence[Schedule], ticks: Sequence[Tick] = (), backfills: Sequence[Backfill] = ()
    ) -> list[str]:
        """Store new schedules in one transaction. Return the ids that were taken, whose schedules stay as they are.

        Ticks and backfills are stored for the schedules that are new. A schedule that the same run created at the same operation counts as
        created: the write is being repeated after a lost acknowledgement.
        """
        ...

    def get(self, schedule: str) -> Schedule | None:
        """One schedule, or None."""
        ...

    def page(self, wanted: ScheduleFilter) -> list[Schedule]:
        """A page of schedules, by id."""
        ...

    def listed(self, entries: Sequence[str]) -> set[str]:
        """Those of these crontab entries that a live worker lists."""
        ...

    def situation(self, schedule: str) -> Situation | None:
        """The data that a plan would be made from, read without locks."""
        ...

    def change(self, schedule: str, decide: Decide, now: int) -> Plan | None:
        """Lock one schedule, call `decide` to plan it, and apply the plan, in one transaction. Return None if there is no such schedule.

        If `decide` raises, the transaction is rolled back and the exception is raised.
        """
        ...

    def revisions(self) -> dict[str, Revision]:
        """All schedules by id, to compare with an earlier call."""
        ...

    def fire(
        self, now: int, limit: int, decide: Decide, expect: Callable[[Sequence[str]], None] | None = None
    ) -> Passed:
        """Plan the schedules that are due, about `limit` of them, and apply the plans, in one transaction.

        Before planning, `expect` is called with the functions of the schedules to plan.

        A schedule is due if its `due` time has come, or if the end of one of its runs is unprocessed. Schedules that another transaction
        has locked are skipped. If all due schedules are locked, `next_due` is shortly after now, so that the caller does not spin.
        """
        ...

    def ticks(self, wanted: TickFilter) -> list[Tick]:
        """A page of ticks, latest nominal time first."""
        ...

    def backfill(self, backfill: str) -> Backfill | None:
        """One backfill, or None."""
        ...

    def backfills(self, schedule: str) -> list[Backfill]:
        """The backfills of a schedule, newest first."""
        ...

    def has_queue(self, name: str) -> bool:
        """Whether this queue exists."""
        ...

    def functions(self) -> list[str]:
        """The functions that each worker executes, as JSON objects by name."""
        ...

    def first_seen(self, versions: Sequence[str]) -> dict[str, int]:
        """The time at which each version of the app was first seen."""
        ...

    def oldest_tick(self, schedule: str) -> int | None:
        """The nominal time of the oldest stored tick of the clock, if there is one."""
        ...

    def hooks(self) -> list[Hook]:
        """Functions that receive alerts of schedules."""
        ...

    def keep_hooks(self, app: str, hooks: Sequence[Hook], forget: Sequence[str]) -> None:
        """Store the hooks of an app. Delete other hooks of the app that a version in `forget` declared."""
        ...

    def rewind(self, now: int) -> list[str]:
        """Set back schedules that a worker with a clock ahead has advanced into the future. Return their ids."""
        ...

    def prune(self, before: int, limit: int) -> int:
        """Delete at most so many ticks with an outcome older than a time. Return the number of deleted ticks."""
        ...
