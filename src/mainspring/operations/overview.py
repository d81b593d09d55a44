"""The overview of the dashboard: live runs, due ticks, failures, and the last hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (pages are described by their annotations)
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND, to_datetime
from mainspring.operations.figures import FunctionFigures, function_figures_of
from mainspring.operations.records import moment
from mainspring.operations.workers import Workers
from mainspring.store.verbs.dashboard import MINUTE, MOST

if TYPE_CHECKING:
    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.dashboard import Minute

HOUR = 3_600 * SECOND
DAY = 24 * HOUR
BARS = 60


@dataclass(frozen=True, slots=True)
class Bar:
    """The ended runs of one interval."""

    start: datetime
    succeeded: int
    failed: int
    cancelled: int
    duration: float | None
    """Average duration of a run in seconds."""
    lateness: float | None
    """Average seconds between the due time of a run and its start."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """The state of all runs and schedules. Counts stop at `most`."""

    live: dict[str, int]
    """Unfinished runs by state."""
    due_soon: int
    """Runs that become due within the hour."""
    ticks_soon: int
    """Schedules with a tick within the hour."""
    late: int
    """Ready runs that have waited for a worker for more than ten seconds."""
    oldest_queued: datetime | None
    lost: dict[str, int]
    """Ticks of the last day that started no run, by outcome."""
    succeeded: int
    """Runs of the last hour, by how they ended."""
    failed: int
    cancelled: int
    workers: int
    """Workers with a heartbeat within the last minute."""
    bars: list[Bar]
    most: int


@dataclass(frozen=True, slots=True)
class Coming:
    """A schedule with a tick soon."""

    schedule: str
    workflow: str
    when: datetime


@dataclass(frozen=True, slots=True)
class AwaitedMessage:
    """A run that waits for a message, which an operator can send."""

    run: str
    workflow: str
    topic: str
    since: datetime
    until: datetime | None
    """When it gives up; None: never."""


class Watch:
    """The queries. All of them block."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def pulse(self, *, minutes: int = BARS) -> Pulse:
        """Return the state of all runs and schedules, and the ended runs of the last `minutes`."""
        dashboard, now = self._store.dashboard, self._clock.now()
        bars = self._bars(now, minutes)
        ready = dashboard.ready(now)
        workers = [worker for worker in Workers(self._store, self._clock).list() if worker.silent < 60]
        return Pulse(
            live=dashboard.live(),
            due_soon=dashboard.due(now, now + HOUR),
            ticks_soon=dashboard.ticks_due(now + HOUR),
            late=ready.late,
            oldest_queued=None if ready.oldest is None else to_datetime(ready.oldest),
            lost=dashboard.lost(now - DAY),
            succeeded=sum(bar.succeeded for bar in bars),
            failed=sum(bar.failed for bar in bars),
            cancelled=sum(bar.cancelled for bar in bars),
            workers=len(workers),
            bars=bars,
            most=MOST,
        )

    def _bars(self, now: int, minutes: int) -> list[Bar]:
        width = max(1, minutes // BARS) * MINUTE
        first = (now // width - min(minutes, BARS) + 1) * width
        found = _gathered(self._store.dashboard.minutes(first, width))
        return [
            _bar(start, found.get((start, "duration"), []), found.get((start, "lateness"), []))
            for start in range(first, first + min(minutes, BARS) * width, width)
        ]

    def awaited(self, limit: int) -> list[AwaitedMessage]:
        """Runs that wait for a message, those that have waited longest first."""
        return [
            AwaitedMessage(each.run, each.workflow, each.topic, to_datetime(each.since), moment(each.until))
            for each in self._store.dashboard.awaited(limit)
        ]

    def coming(self, limit: int = 8) -> list[Coming]:
        """Return the schedules with the next ticks."""
        found = self._store.dashboard.coming(limit)
        return [Coming(schedule, workflow, to_datetime(when)) for schedule, workflow, when in found]

    def function_figures(self) -> dict[str, FunctionFigures]:
        """Return the statistics of each function since the tables were created."""
        return function_figures_of(self._store.dashboard.totals())

    def loads(self) -> dict[str, int]:
        """Return how many runs each worker owns."""
        return self._store.dashboard.loads()

    def queue_ages(self) -> dict[str, int]:
        """Return since when the longest waiting run of each queue is ready, in microseconds."""
        return self._store.dashboard.queue_ages()


def _gathered(found: list[Minute]) -> dict[tuple[int, str], list[Minute]]:
    gathered: dict[tuple[int, str], list[Minute]] = {}
    for one in found:
        gathered.setdefault((one.minute, one.measure), []).append(one)
    return gathered


def _bar(start: int, durations: list[Minute], lateness: list[Minute]) -> Bar:
    counts: dict[str, int] = {"succeeded": 0, "failed": 0, "cancelled": 0}
    for one in durations:
        counts[one.state] = counts.get(one.state, 0) + one.count
    return Bar(
        to_datetime(start),
        counts["succeeded"],
        counts["failed"],
        counts["cancelled"],
        _average(durations),
        _average(lateness),
    )


def _average(found: list[Minute]) -> float | None:
    count = sum(one.count for one in found)
    return sum(one.micros for one in found) / count / SECOND if count else None
