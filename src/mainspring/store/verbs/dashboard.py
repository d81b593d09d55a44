"""Figures of runs and schedules, for the dashboard and the metrics. The same statements in every store.

No query counts through history: unfinished runs are counted through indexes and up to a limit, ended runs were added up in `activity` by
the workers as they ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mainspring.model.clock import SECOND
from mainspring.model.states import LIVE, State
from mainspring.store.sql.conditions import LATER, OWNED, READY, RESUMES, WAITS
from mainspring.store.sql.dialect import distinct, per_database
from mainspring.store.sql.queues import QUEUED_RUNS
from mainspring.store.sql.retention import ENDED_NAMES
from mainspring.store.sql.run_filters import aggregate
from mainspring.store.sql.schedules import WILL_ACT
from mainspring.store.sql.steps import LATEST_STEPS
from mainspring.store.verbs.lists import RunLists, TickLists
from mainspring.store.verbs.unreported_ends import UNREPORTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.model.runs import RunFilter
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import Transactor

MOST = 10_000
"""The largest count. Beyond it, a count says that there are more."""
LATE = 10_000_000
"""A run that has been ready for longer than this is late."""
MINUTE = 60_000_000
_MOST_STEPS = 100_000
WAITS_SEEN = 10_000
"""The most open waits that a query for runs that wait for a message reads."""

CLASSES = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1_800.0,
    3_600.0,
    21_600.0,
    86_400.0,
)
"""The classes of durations, each by its upper bound in seconds. Longer durations are in one more class."""

_OWNED = f"""
  SELECT state, count(*) FROM (SELECT state FROM runs WHERE {OWNED} LIMIT :most) x GROUP BY state
"""
_READY = [
    f"""
  SELECT count(*), coalesce(sum(CASE WHEN due < :before THEN 1 ELSE 0 END), 0), min(due)
  FROM (SELECT due FROM runs WHERE {condition} LIMIT :most) x
"""
    for condition in (READY, RESUMES)
]
"""One statement for each index of ready runs. Of runs of one priority the oldest come first."""
_OLDEST_READY = f"SELECT min(due) FROM {QUEUED_RUNS} WHERE blocked IS NULL"
_LATER = f"""
  SELECT state, count(*) FROM (
    SELECT state FROM runs WHERE {LATER} LIMIT :most) x
  GROUP BY state
"""
_DUE = f"""
  SELECT count(*) FROM (
    SELECT 1 FROM runs
    WHERE {LATER} AND due > :since AND due <= :until LIMIT :most) x
"""
_TICKS_DUE = f"""
  SELECT count(*) FROM (
    SELECT 1 FROM schedules WHERE upcoming <= :until AND {WILL_ACT} LIMIT :most) x
"""
_COMING = f"""
  SELECT id, workflow, upcoming FROM schedules
  WHERE upcoming IS NOT NULL AND {WILL_ACT} ORDER BY upcoming LIMIT :limit
"""
_LOST = """
  SELECT outcome, sum(count) FROM (
    SELECT outcome, count FROM ticks
    WHERE nominal >= :since AND outcome IN ('missed', 'skipped_overlap', 'dropped', 'start_failed') LIMIT :most) x
  GROUP BY outcome
"""
_LOADS = f"SELECT owner, count(*) FROM (SELECT owner FROM runs WHERE {OWNED} LIMIT :most) x GROUP BY owner"
_QUEUE_AGES = f"""{distinct("queue", WAITS)}
  SELECT name, (SELECT min(due) FROM (SELECT due FROM runs WHERE {WAITS} AND queue = names.name LIMIT :most) x)
  FROM names WHERE name IS NOT NULL
"""
_SCHEDULE_TOTALS = """
  SELECT coalesce(sum(starts), 0), coalesce(sum(missed), 0), coalesce(sum(skipped), 0), coalesce(sum(dropped), 0),
    coalesce(sum(CASE WHEN paused OR stopped IS NOT NULL THEN 0 ELSE 1 END), 0),
    coalesce(sum(CASE WHEN paused OR stopped IS NOT NULL THEN 1 ELSE 0 END), 0),
    coalesce(sum(CASE WHEN failures > 0 THEN 1 ELSE 0 END), 0)
  FROM schedules
"""

_AWAITED = """
  SELECT s.run, r.workflow, s.name, coalesce(s.started, r.created), s.due FROM (
    SELECT run, kind, name, started, due FROM steps
    WHERE completed IS NULL AND child IS NOT NULL AND child >= '' LIMIT :within) s
  JOIN runs r ON r.id = s.run
  WHERE s.kind = 'receive' AND r.completed IS NULL ORDER BY 4, s.run LIMIT :limit
"""
"""A comparison with `child` keeps the query to the index of waits: the index of all unfinished operations also has every sleeping run."""
_ACTIVITY = """
  SELECT measure, minute / :width * :width, state, CAST(sum(count) AS bigint), CAST(sum(micros) AS bigint) FROM activity
  WHERE minute >= :since GROUP BY 1, 2, 3 ORDER BY 2
"""
_TOTALS = "SELECT workflow, measure, state, bucket, count, micros FROM activity_totals"
_TOOK = "completed - coalesce(started, completed)"
_CLASS = " ".join(f"WHEN {_TOOK} <= {round(longest * SECOND)} THEN {number}" for number, longest in enumerate(CLASSES))
_UNREPORTED_MINUTES = per_database(
    f"""
  SELECT 'duration', completed / :width * :width, state, count(*), CAST(sum({_TOOK}) AS bigint)
  FROM {{unreported}} AND completed >= :since GROUP BY 2, 3
""",
    unreported=UNREPORTED,
)
_UNREPORTED_TOTALS = per_database(
    f"""
  SELECT workflow, 'duration', state, CASE {_CLASS} ELSE {len(CLASSES)} END, count(*), CAST(sum({_TOOK}) AS bigint)
  FROM {{unreported}} GROUP BY 1, 3, 4
""",
    unreported=UNREPORTED,
)
_ADD_TO_MINUTE = """
  INSERT INTO activity (minute, measure, state, count, micros) VALUES (:minute, :measure, :state, :count, :micros)
  ON CONFLICT (minute, measure, state)
  DO UPDATE SET count = activity.count + excluded.count, micros = activity.micros + excluded.micros
"""
_ADD_TO_TOTAL = """
  INSERT INTO activity_totals (workflow, measure, state, bucket, count, micros)
  VALUES (:workflow, :measure, :state, :bucket, :count, :micros)
  ON CONFLICT (workflow, measure, state, bucket)
  DO UPDATE SET count = activity_totals.count + excluded.count, micros = activity_totals.micros + excluded.micros
"""
_FORGET = "DELETE FROM activity WHERE minute < :before"


class Amount(Struct, frozen=True):
    """The number of runs of a workflow that ended in a state, and the sum of a measure of them, in one class of durations."""

    workflow: str
    measure: str
    state: str
    bucket: int
    count: int
    micros: int


class Minute(Struct, frozen=True):
    """The number of runs that ended in a state within a minute or a longer span, and the sum of a measure of them."""

    measure: str
    minute: int
    state: str
    count: int
    micros: int


class Awaited(Struct, frozen=True):
    """A run that waits for a message: its topic, since when, and until when."""

    run: str
    workflow: str
    topic: str
    since: int
    until: int | None


class Ready(Struct, frozen=True):
    """Runs that wait for a worker."""

    count: int
    late: int
    oldest: int | None


class ScheduleTotals(Struct, frozen=True):
    """Figures over all schedules."""

    started: int
    missed: int
    skipped: int
    dropped: int
    active: int
    paused: int
    failing: int


class StepTime(Struct, frozen=True):
    """One call of a step or transaction: its duration, its attempts, and whether it failed."""

    name: str
    kind: str
    micros: int
    attempts: int
    failed: bool


class Dashboard:
    """The queries of the dashboard and the metrics, and the tables that are kept for them."""

    def __init__(self, transactor: Transactor) -> None:
        self.runs = RunLists(transactor.read)
        self.ticks = TickLists(transactor.read)
        self._rows = transactor.read
        self._do = transactor.execute_many

    # -- unfinished runs and schedules ---------------------------------------------------------------------------------
    def live(self) -> dict[str, int]:
        """The number of runs in each unfinished state, each at most MOST."""
        found = dict.fromkeys(sorted(LIVE), 0)
        for state, count in (*self._rows(_OWNED, most=MOST), *self._rows(_LATER, most=MOST)):
            if State(state) in LIVE:
                found[State(state)] += count
        found[State.QUEUED] += self.ready(0).count
        return {str(state): min(count, MOST) for state, count in found.items()}

    def awaited(self, limit: int) -> list[Awaited]:
        """Runs that wait for a message, longest wait first."""
        return [Awaited(*row) for row in self._rows(_AWAITED, within=WAITS_SEEN, limit=limit)]

    def due(self, since: int, until: int) -> int:
        """The number of runs that become due in a span of time, at most MOST."""
        return self._one(_DUE, since=since, until=until)

    def ticks_due(self, until: int) -> int:
        """The number of schedules that are due before a time, at most MOST."""
        return self._one(_TICKS_DUE, until=until)

    def coming(self, limit: int) -> list[tuple[str, str, int]]:
        """The schedules that are due next, with their workflows and nominal times, first due first."""
        return [(each, workflow, when) for each, workflow, when in self._rows(_COMING, limit=limit)]

    def ready(self, now: int) -> Ready:
        """The number of runs that wait for a worker, the number of late ones, each at most MOST, and since when the first waits."""
        count, late, oldest = 0, 0, None
        for statement in _READY:
            some, some_late, first = self._rows(statement, most=MOST, before=now - LATE)[0]
            count, late = count + some, late + int(some_late)
            oldest = first if oldest is None or (first is not None and first < oldest) else oldest
        return Ready(min(count, MOST), min(late, MOST), oldest)

    def oldest_ready(self) -> int | None:
        """Since when the run that has waited longest for a worker is ready; None: no run waits."""
        found: int | None = self._rows(_OLDEST_READY)[0][0]
        return found

    def lost(self, since: int) -> dict[str, int]:
        """Ticks since a time that started no run and perhaps should have, by outcome."""
        return {outcome: int(count) for outcome, count in self._rows(_LOST, since=since, most=MOST)}

    def loads(self) -> dict[str, int]:
        """The number of runs that each worker owns."""
        return dict(self._rows(_LOADS, most=10 * MOST))

    def queue_ages(self) -> dict[str, int]:
        """By queue: since when the run that has waited longest is ready."""
        return dict(self._rows(_QUEUE_AGES, most=MOST))

    def schedule_totals(self) -> ScheduleTotals:
        return ScheduleTotals(*(int(value) for value in self._rows(_SCHEDULE_TOTALS)[0]))

    # -- ended runs ----------------------------------------------------------------------------------------------------
    def add(self, minutes: Mapping[int, Sequence[Amount]]) -> None:
        """Count ended runs, by minute for all of them, and in total by workflow and class of duration."""
        by_minute: dict[tuple[Any, ...], tuple[int, int]] = {}
        totals: dict[tuple[Any, ...], tuple[int, int]] = {}
        for minute, amounts in minutes.items():
            for one in amounts:
                _add(by_minute, (minute, one.measure, one.state), one.count, one.micros)
                _add(totals, (one.workflow, one.measure, one.state, one.bucket), one.count, one.micros)
        self._do(
            (_ADD_TO_MINUTE, _rows(("minute", "measure", "state"), by_minute)),
            (_ADD_TO_TOTAL, _rows(("workflow", "measure", "state", "bucket"), totals)),
        )

    def forget(self, before: int) -> None:
        """Delete the minutes before a time. The totals stay."""
        self._do((_FORGET, [{"before": before}]))

    def minutes(self, since: int, width: int = MINUTE) -> list[Minute]:
        """The runs that ended since a time, by spans of so many microseconds."""
        found = self._summed((_ACTIVITY, _UNREPORTED_MINUTES), since=since, width=width)
        return [Minute(*row) for row in sorted(found, key=lambda row: row[1])]

    def totals(self) -> list[Amount]:
        found = self._summed((_TOTALS, _UNREPORTED_TOTALS))
        return [Amount(*row) for row in found]

    def step_times(self, workflow: str, runs: int) -> list[StepTime]:
        """The calls of steps and transactions in the runs of a function that ended last, at most so many runs."""
        rows = self._rows(LATEST_STEPS, workflow=workflow, runs=runs, most=_MOST_STEPS)
        return [StepTime(name, kind, took, attempts, bool(failed)) for name, kind, took, attempts, failed in rows]

    def ended_functions(self) -> list[str]:
        """The functions with ended runs, by name."""
        return sorted(name for (name,) in self._rows(ENDED_NAMES) if name is not None)

    def aggregate(
        self, wanted: RunFilter, by: Sequence[str], bucket: int | None, most: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Figures of runs by columns, and by spans of `bucket` microseconds of their creation time. Of the newest ones, up to `most`.

        Each row: the keys, the number of runs, the longest wait before the first claim, the average and the longest time from there to the
        end. Times are in microseconds.
        """
        statement, values = aggregate(wanted, by, bucket, most)
        return self._rows(statement, **values)

    def _summed(self, statements: Sequence[Sql], **values: Any) -> list[tuple[Any, ...]]:
        """The rows of statements, with the sums of their last two columns for all rows that are otherwise alike."""
        found: dict[tuple[Any, ...], tuple[int, int]] = {}
        for statement in statements:
            for *key, count, micros in self._rows(statement, **values):
                _add(found, tuple(key), count, micros)
        return [(*key, *amounts) for key, amounts in found.items()]

    def _one(self, statement: str, **values: Any) -> int:
        found: int = self._rows(statement, most=MOST, **values)[0][0]
        return found


def _add(sums: dict[tuple[Any, ...], tuple[int, int]], key: tuple[Any, ...], count: int, micros: int) -> None:
    before = sums.get(key, (0, 0))
    sums[key] = before[0] + count, before[1] + micros


def _rows(columns: tuple[str, ...], sums: dict[tuple[Any, ...], tuple[int, int]]) -> list[dict[str, Any]]:
    """The values to add to each row, in one order everywhere, so that two transactions cannot deadlock."""
    names = (*columns, "count", "micros")
    return [dict(zip(names, (*key, *sums[key]), strict=True)) for key in sorted(sums)]
