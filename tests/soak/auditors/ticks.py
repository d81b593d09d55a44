"""Every nominal time of every schedule has one outcome, and at most one run.

The times are computed here: multiples of the interval since 1970, and full minutes of crontab entries.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND
from mainspring.model.schedules import TickOutcome, TickSource
from mainspring.recurrence.durations import parse_duration
from tests.soak.functions.jobs import SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.schedules import Schedule, Tick
    from tests.soak.evidence import Evidence

_BEAT = 2
_MINUTE = 60
_SHOWN = 3
_KEYED = frozenset({"keyed_minute"})
"""Schedules whose jobs have a key: a tick may change the job of the one before it, which has not begun yet."""


def audit(evidence: Evidence) -> Iterator[str]:
    for schedule in SCHEDULES:
        if schedule not in evidence.schedules:
            yield f"schedule {schedule} is not there"
    for row in evidence.schedules.values():
        for finding in _of_schedule(evidence, row, evidence.ticks[row.id]):
            yield f"schedule {row.id}: {finding}"


def _of_schedule(evidence: Evidence, row: Schedule, ticks: list[Tick]) -> Iterator[str]:
    if row.fault is not None:
        yield f"cannot be planned: {row.fault}"
    yield from _times(row, ticks)
    yield from _one_run_each(ticks, shared=row.id in _KEYED)
    yield from _counters(row, ticks)
    for tick in ticks:
        if tick.outcome.waiting:
            yield f"the tick of {tick.nominal} is still {tick.outcome}"
        elif tick.outcome.started and tick.run not in evidence.runs:
            yield f"the tick of {tick.nominal} has {tick.outcome}, and its run {tick.run} is not there"
    known = {tick.run for tick in ticks}
    replaced = {tick.request for tick in ticks if tick.run is None}  # cancelled before it began, and the tick says why
    for run in evidence.runs.values():
        request = json.loads(run.tick)["request"] if run.tick else ""
        if run.schedule == row.id and run.id not in known and not (request in replaced and run.started is None):
            yield f"run {run.id} belongs to no tick"


def _interval(row: Schedule) -> int:
    if row.id in SCHEDULES:
        return int(parse_duration(SCHEDULES[row.id][1].intervals[0].every).total_seconds())
    return _MINUTE if row.app == "crontab" else _BEAT


def _times(row: Schedule, ticks: list[Tick]) -> Iterator[str]:
    """Times between the schedule's creation and its cursor that have no tick."""
    step = _interval(row) * SECOND
    spans = sorted((tick.nominal, tick.until or tick.nominal) for tick in ticks if not tick.source.manual)
    single = {low for low, high in spans if low == high}
    longer = [span for span in spans if span[0] != span[1]]
    missing = [
        time
        for time in range((row.created // step + 1) * step, row.cursor + 1, step)
        if time not in single and not any(low <= time <= high for low, high in longer)
    ]
    if missing:
        yield f"{len(missing)} times have no tick: {missing[:_SHOWN]}"
    strange = sorted(time for time in single if time % step)
    if strange:
        yield f"{len(strange)} ticks are at times that are none of its: {strange[:_SHOWN]}"


def _one_run_each(ticks: list[Tick], *, shared: bool) -> Iterator[str]:
    runs = Counter(tick.run for tick in ticks if tick.run is not None)
    times = Counter(tick.nominal for tick in ticks if tick.run is not None and tick.source is not TickSource.TRIGGER)
    requests = Counter(tick.request for tick in ticks if tick.source is TickSource.TRIGGER)
    yield from (f"run {run} is of {count} ticks" for run, count in runs.items() if count > 1 and not shared)
    yield from (f"time {time} has {count} runs" for time, count in times.items() if count > 1)
    yield from (f"trigger {request} has {count} ticks" for request, count in requests.items() if count > 1)


def _counters(row: Schedule, ticks: list[Tick]) -> Iterator[str]:
    outcomes = Counter[TickOutcome]()
    for tick in ticks:
        outcomes[tick.outcome] += tick.count
    counted = {
        "starts": outcomes[TickOutcome.FIRED] + outcomes[TickOutcome.LATE],
        "missed": outcomes[TickOutcome.MISSED],
        "skipped": outcomes[TickOutcome.SKIPPED_OVERLAP],
        "dropped": outcomes[TickOutcome.DROPPED],
    }
    for name, count in counted.items():
        if getattr(row, name) != count:
            yield f"its counter {name} says {getattr(row, name)}, and there are {count} ticks"
