"""What a store promises about schedules. Like `protocol.py`, this is the specification.

The locked row of a schedule is the mutex of everything that concerns it: a transaction that plans holds it until the plan is
committed. The runs that a schedule started do not touch it when they end. Such a run is stored with `end_unprocessed` set, and while an ended run
is, its schedule is due. So a plan and an end that overlap never miss each other, and a run that ends waits for no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.runs import NewRun
    from mainspring.model.schedules import Backfill, Hook, Schedule, ScheduleRun, Tick

MOST_TAKEN = 500
"""How many nominal times with a tick are looked up for each backfill at once."""


class Situation(Struct):
    """All there is to know of a schedule when it is planned."""

    schedule: Schedule
    runs: list[ScheduleRun] = field(default_factory=list["ScheduleRun"])
    """Its runs that have not ended, or whose end it has not taken note of; oldest first."""
    waiting: list[Tick] = field(default_factory=list["Tick"])
    """Ticks that are pending or buffered, in the order in which they wait."""
    backfills: list[Backfill] = field(default_factory=list["Backfill"])
    """Those not completed, in the order in which they were asked for."""
    made: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """For each backfill, the first nominal times after its cursor that have a run or wait for one; at most MOST_TAKEN."""
    ahead: dict[int, str] = field(default_factory=dict[int, str])
    """Nominal times after the schedule's cursor, up to now, that have a run of a backfill or wait for one; with the backfill."""
    listed: bool = True
    """Whether a live worker lists it, if it is an entry of a crontab."""
    hooks: list[Hook] = field(default_factory=list["Hook"])
    """Functions that are started when something goes wrong."""
    taken: frozenset[str] = frozenset()
    """Ids that an earlier attempt at this plan wanted for runs, and that belong to other runs."""


class Beginning(Struct):
    """A run that a tick starts. `tick` is what the run itself gets to know of it."""

    run: NewRun
    tick: str


class Plan(Struct):
    """What is to become of a schedule, all of it or nothing."""

    schedule: Schedule
    ticks: list[Tick] = field(default_factory=list["Tick"])
    """Ticks that are new or have changed."""
    starts: list[Beginning] = field(default_factory=list["Beginning"])
    releases: list[Beginning] = field(default_factory=list[Beginning])
    """Runs that were made to wait, due at no time, and whose time has come."""
    cancels: dict[str, str] = field(default_factory=dict[str, str])
    """Runs to cancel, each with the reason."""
    terminates: dict[str, str] = field(default_factory=dict[str, str])
    """Runs to end at once, each with the reason."""
    processed: list[str] = field(default_factory=list[str])
    """Ended runs that have been taken note of."""
    backfills: list[Backfill] = field(default_factory=list["Backfill"])
    """Backfills that are new or have changed."""
    alerts: list[NewRun] = field(default_factory=list["NewRun"])
    """Runs of those functions; each id once."""
    moved: bool = False
    """The schedule's state has changed: cursor, due, counters, pause."""
    learned: bool = False
    """So has what it remembers of its runs."""
    redefined: bool = False
    """So has its definition."""
    deleted: bool = False
    nominal: int = 0
    """The nominal time that a skip is about, if it is a plan of one."""
    unfinished: bool = False
    """More ticks had come up than one plan decides on: what was requested beyond that is left for the next."""

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
    """What a pass over due schedules came to. `next_due` is when to look again; `more` says that there is more to do now."""

    planned: int
    next_due: int | None
    more: bool
    owned: frozenset[str] = frozenset()
    """The runs that were stored as being in a worker's hand already."""
    plans: Sequence[Plan] = ()
    """What was committed."""


class Revision(Struct, frozen=True):
    """What tells one definition of a schedule from another."""

    workflow: str
    created: int
    revision: int
    paused: bool


class ScheduleFilter(Struct, frozen=True):
    """Which schedules to list, by id. `after` is the last id of the page before. Of several texts one has to fit."""

    id_prefix: Sequence[str] = ()
    paused: bool | None = None
    workflow: Sequence[str] = ()
    failing: bool | None = None
    """Whether the last run that ended has failed."""
    attributes: str | None = None
    """A JSON object of which all pairs must be there."""
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
    """Nominal time and request of the last one of the page before."""
    limit: int = 50


class ScheduleStore(Protocol):
    """The schedules, ticks and backfills of a store."""

    def create(
        self, schedules: Sequence[Schedule], ticks: Sequence[Tick] = (), backfills: Sequence[Backfill] = ()
    ) -> list[str]:
        """Store new schedules in one transaction; the ids that were taken, whose schedules were left as they are.

        What is given with them of ticks and backfills is stored for those that are new.

        One that the same run made at the same operation counts as created: it was, and the acknowledgement was lost.
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
        """What a plan would be made from, without locking anything."""
        ...

    def change(self, schedule: str, decide: Decide, now: int) -> Plan | None:
        """Lock one schedule, have it planned, and apply the plan, in one transaction. None if there is no such schedule.

        What `decide` raises is raised, and nothing happens.
        """
        ...

    def revisions(self) -> dict[str, Revision]:
        """All schedules by id, to compare with what was there before."""
        ...

    def fire(
        self, now: int, limit: int, decide: Decide, expect: Callable[[Sequence[str]], None] | None = None
    ) -> Passed:
        """Plan the schedules that are due, about `limit` of them, and apply the plans, in one transaction.

        Before it begins, `expect` is given the functions of the schedules that are to be planned.

        Due is one whose `due` has come, and one with a run whose end it has not taken note of. One that another transaction
        holds is left out; where only such are due, `next_due` is a moment from now, so that the caller does not spin.
        """
        ...

    def ticks(self, wanted: TickFilter) -> list[Tick]:
        """A page of ticks, latest first."""
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
        """What each worker executes, as JSON objects by name."""
        ...

    def first_seen(self, versions: Sequence[str]) -> dict[str, int]:
        """When versions of the app were first seen."""
        ...

    def oldest_tick(self, schedule: str) -> int | None:
        """The nominal time of the clock's oldest tick that is kept, if there is one."""
        ...

    def hooks(self) -> list[Hook]:
        """Functions that are started when something goes wrong with schedules."""
        ...

    def keep_hooks(self, app: str, hooks: Sequence[Hook], forget: Sequence[str]) -> None:
        """Store hooks of an app, and forget those of it that versions among `forget` declared and that are not among them."""
        ...

    def rewind(self, now: int) -> list[str]:
        """Set schedules back that went by a clock which was ahead, and have acted on times that are yet to come; which."""
        ...

    def prune(self, before: int, limit: int) -> int:
        """Forget ticks with an outcome that is older than a time, at most so many; how many were forgotten."""
        ...
