"""Audit the ticks of a schedule: classify every nominal time of a span."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (a run that asks records the answer, and reads it back by its annotations)
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.schedules import TickOutcome, TickSource
from mainspring.operations.schedules.info import TickInfo, tick_info
from mainspring.schedules.due_ticks import Times, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.model.schedules import Schedule, Tick

MOST_EXAMINED = 200_000
"""The maximum number of nominal times that one audit compares with ticks."""
_MOST_SHOWN = 100

ON_TIME, LATE, DELAYED, OVERDUE = "on_time", "late", "delayed", "overdue"
_WELL = {ON_TIME, DELAYED, "skipped_overlap", "skipped_by_request", "paused", "replaced", "pending", "buffered"}
"""Classes that a policy or an operator decided. The others are problems."""


@dataclass(frozen=True, slots=True)
class ScheduleAudit:
    """The outcomes of all times of a schedule from `since` to `until`.

    The classes: `on_time`, `late` (started after a downtime), `delayed` (waited for a run to end), `overdue` (due, and
    no worker has acted), and otherwise the outcome of the tick. `manual` counts triggers and backfills.
    """

    schedule: str
    since: datetime
    until: datetime
    classes: dict[str, int]
    manual: int
    lateness: dict[str, float]
    """Seconds between the time to act and the start of the run: median, p99 and worst. Without delayed ticks."""
    unaccounted: list[datetime]
    """The first nominal times without a tick. There should be none."""
    unaccounted_count: int
    notable: list[TickInfo]
    """The latest ticks that were neither on time nor skipped by decision."""
    healthy: bool
    """Whether no tick was late, overdue, missed, dropped or unaccounted for, and no start failed."""


class Auditor:
    """Classifies ticks one after the other, latest first."""

    def __init__(self, schedule: Schedule, since: int, until: int, now: int) -> None:
        self._schedule = schedule
        self._since = since
        self._until = min(until, now)
        self._now = now
        self._classes: dict[str, int] = {}
        self._manual = 0
        self._lateness: list[int] = []
        self._notable: list[Tick] = []
        self._seen: list[tuple[int, int]] = []

    def look(self, ticks: Iterable[Tick]) -> None:
        for tick in ticks:
            if tick.source.manual:
                self._manual += 1
                continue
            self._seen.append((tick.nominal, tick.until or tick.nominal))
            fate = _class(tick)
            self._count(fate, tick.count)
            if fate not in _WELL:
                self._notable += [tick] if len(self._notable) < _MOST_SHOWN else []
            if tick.outcome.started and tick.acted is not None and fate != DELAYED:
                self._lateness.append(tick.acted - tick.due)

    def _count(self, fate: str, count: int = 1) -> None:
        self._classes[fate] = self._classes.get(fate, 0) + count

    def verdict(self, oldest: int | None) -> ScheduleAudit:
        """Return the result. `oldest` is the nominal time of the oldest kept tick."""
        missing = self._missing(oldest)
        return ScheduleAudit(
            schedule=self._schedule.id,
            since=to_datetime(self._since),
            until=to_datetime(self._until),
            classes=dict(sorted(self._classes.items())),
            manual=self._manual,
            lateness=_spread(self._lateness),
            unaccounted=[to_datetime(nominal) for nominal in missing[:_MOST_SHOWN]],
            unaccounted_count=len(missing),
            notable=[tick_info(tick) for tick in self._notable],
            healthy=not missing and set(self._classes) <= _WELL,
        )

    def _missing(self, oldest: int | None) -> list[int]:
        """Return nominal times without a tick, for the time in which the present definition was in force and ticks are kept."""
        schedule = self._schedule
        times = Times(spec_of(schedule.spec), schedule.id)
        known_since = max(self._since, schedule.updated + 1, schedule.created + 1)
        if oldest is not None:
            known_since = max(known_since, oldest)
        elif schedule.cursor > known_since:
            known_since = schedule.cursor  # all ticks have been pruned
        spans = iter(sorted(self._seen))
        span = next(spans, None)
        missing: list[int] = []
        nominal = times.next(known_since - SECOND)
        for _ in range(MOST_EXAMINED):
            if nominal is None or nominal > self._until:
                break
            while span is not None and span[1] < nominal:
                span = next(spans, None)
            if nominal > schedule.cursor:
                self._count(self._not_yet(times, nominal))
            elif nominal >= known_since and (span is None or span[0] > nominal):
                missing.append(nominal)
            nominal = times.next(nominal)
        return missing

    def _not_yet(self, times: Times, nominal: int) -> str:
        """Return the class of a nominal time that the schedule has not reached."""
        schedule = self._schedule
        if schedule.paused or schedule.stopped is not None or schedule.remaining == 0:
            return "paused"
        return OVERDUE if times.act(nominal) < self._now - SECOND else "pending"


def _class(tick: Tick) -> str:
    if tick.outcome is TickOutcome.FIRED:
        return ON_TIME
    if tick.outcome is TickOutcome.LATE:
        return LATE if tick.source is TickSource.CATCHUP else DELAYED
    return tick.outcome.value


def _spread(lateness: list[int]) -> dict[str, float]:
    if not lateness:
        return {}
    ordered = sorted(lateness)
    last = len(ordered) - 1
    places = {"median": last // 2, "p99": round(last * 0.99), "worst": last}
    return {name: ordered[place] / SECOND for name, place in places.items()}
