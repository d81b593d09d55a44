"""Statistics of functions, queues and steps: how often they fail, how long they take, and how late they begin."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND
from mainspring.store.verbs.dashboard import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mainspring.operations.runs.lists import RunSummary
    from mainspring.store.verbs.dashboard import Amount, StepTime


@dataclass(frozen=True, slots=True)
class FunctionFigures:
    """Statistics of ended runs of a function, or of the latest runs of a queue. Times are seconds. None: no run has ended yet."""

    name: str
    succeeded: int
    failed: int
    cancelled: int
    failure_rate: float | None
    """The part that failed, of those that succeeded or failed: 0 to 1."""
    p50: float | None
    """Median of the durations."""
    p95: float | None
    """95th percentile of the durations."""
    late_p95: float | None
    """95th percentile of the time between due and start."""


def figures_of(totals: Iterable[Amount]) -> dict[str, FunctionFigures]:
    """Return the statistics by function, of all runs that were counted since the tables were created."""
    found: dict[str, list[Amount]] = {}
    for each in totals:
        found.setdefault(each.workflow, []).append(each)
    return {name: _figures(name, amounts) for name, amounts in sorted(found.items()) if name}


def _figures(name: str, amounts: list[Amount]) -> FunctionFigures:
    took = [each for each in amounts if each.measure == "duration"]
    ended = {
        state: sum(each.count for each in took if each.state == state) for state in ("succeeded", "failed", "cancelled")
    }
    judged = ended["succeeded"] + ended["failed"]
    times = _by_class(each for each in took if each.state != "cancelled")
    late = _by_class(each for each in amounts if each.measure == "lateness")
    rate = ended["failed"] / judged if judged else None
    return FunctionFigures(
        name,
        **ended,
        failure_rate=rate,
        p50=quantile(times, 0.5),
        p95=quantile(times, 0.95),
        late_p95=quantile(late, 0.95),
    )


def figures_of_runs(name: str, runs: Iterable[RunSummary]) -> FunctionFigures:
    """Return the statistics of some ended runs, from the runs themselves."""
    ended = {"succeeded": 0, "failed": 0, "cancelled": 0}
    took: list[float] = []
    late: list[float] = []
    for run in runs:
        ended[run.state] += 1
        if run.started is None or run.completed is None:
            continue
        if run.state != "cancelled":
            took.append((run.completed - run.started).total_seconds())
        ready = run.due if run.due is not None and run.created < run.due <= run.started else run.created
        late.append((run.started - ready).total_seconds())
    judged = ended["succeeded"] + ended["failed"]
    rate = ended["failed"] / judged if judged else None
    return FunctionFigures(
        name,
        **ended,
        failure_rate=rate,
        p50=_nearest(took, 0.5),
        p95=_nearest(took, 0.95),
        late_p95=_nearest(late, 0.95),
    )


def _nearest(values: list[float], part: float) -> float | None:
    """Return the smallest value that is not exceeded by this part of the values."""
    return sorted(values)[max(0, ceil(part * len(values)) - 1)] if values else None


def _by_class(amounts: Iterable[Amount]) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in amounts:
        found[each.bucket] = found.get(each.bucket, 0) + each.count
    return found


def quantile(counts: Mapping[int, int], part: float) -> float | None:
    """Return the time in seconds that this part of the runs did not exceed, interpolated within the histogram's buckets."""
    wanted = part * sum(counts.values())
    if not wanted:
        return None
    below = 0
    for number in sorted(counts):
        count = counts[number]
        if below + count >= wanted:
            low = CLASSES[number - 1] if number else 0.0
            high = CLASSES[number] if number < len(CLASSES) else CLASSES[-1]
            return low + (high - low) * (wanted - below) / count
        below += count
    return CLASSES[-1]


LATEST = 1_000
"""Of so many runs, the latest that ended, unless another number is asked for."""

MOST_RUNS = 10_000


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The calls of one step or transaction in the latest runs of a function. Times are seconds, from the first attempt to the outcome."""

    name: str
    kind: str
    """step or transaction"""
    count: int
    """How often it was called and has an outcome."""
    failed: int
    failure_rate: float
    """The part of the calls that failed, after all attempts: 0 to 1."""
    attempts: float
    """How many attempts a call needed, on average."""
    p50: float
    """Half of the calls took no longer."""
    p95: float
    """Nineteen of twenty took no longer."""


def step_figures_of(times: Iterable[StepTime]) -> list[StepFigures]:
    """The figures by name, those that take longest first."""
    found: dict[tuple[str, str], list[StepTime]] = {}
    for each in times:
        found.setdefault((each.name, each.kind), []).append(each)
    made = [_figures_of_step(name, kind, calls) for (name, kind), calls in found.items()]
    return sorted(made, key=lambda each: (-each.p95, each.name))


def _figures_of_step(name: str, kind: str, calls: list[StepTime]) -> StepFigures:
    took = sorted(max(0, each.micros) / SECOND for each in calls)
    failed = sum(each.failed for each in calls)
    attempts = sum(each.attempts for each in calls) / len(calls)
    p50, p95 = (took[max(0, ceil(part * len(took)) - 1)] for part in (0.5, 0.95))
    return StepFigures(name, kind, len(calls), failed, failed / len(calls), attempts, p50, p95)
