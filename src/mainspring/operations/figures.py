"""Statistics of runs, functions, queues and steps: how often they fail, how long they take, and how late they begin.

Those of runs, by state, workflow, queue …, take a short time however long the history is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (a run that asks for figures records them, and reads them back by their annotations)
from math import ceil
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND, to_datetime
from mainspring.operations.filters import texts
from mainspring.operations.runs.lists import recent
from mainspring.store.verbs.dashboard import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    from mainspring.model.runs import RunFilter
    from mainspring.operations.runs.lists import RunSummary
    from mainspring.store.protocol import Store
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


def function_figures_of(totals: Iterable[Amount]) -> dict[str, FunctionFigures]:
    """Return the statistics by function, of all runs that were counted since the tables were created."""
    found: dict[str, list[Amount]] = {}
    for each in totals:
        found.setdefault(each.workflow, []).append(each)
    return {name: _function_figures(name, amounts) for name, amounts in sorted(found.items()) if name}


def _function_figures(name: str, amounts: list[Amount]) -> FunctionFigures:
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


# -- runs ----------------------------------------------------------------------------------------------------------------
GROUPS = ("state", "workflow", "kind", "queue", "version", "schedule", "reason")
"""The fields that figures can be grouped by."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Statistics of a group of runs. Times are seconds. None: no run of the group has got that far."""

    group: dict[str, str | None]
    """The common values of the group."""
    since: datetime | None
    """The start of the interval in which the runs were created, if intervals were requested."""
    count: int
    longest_wait: float | None
    """The longest time between ready and started."""
    average_time: float | None
    """From start to end."""
    longest_time: float | None
    newest: int | None = None
    """The figures are those of the newest runs, which are at least so many. None: of all runs that match."""


def run_figures(store: Store, wanted: RunFilter, by: str | Sequence[str], bucket: timedelta | None) -> list[Figures]:
    """Return statistics of runs. Raises `InvalidInput` for an unknown field, or an interval below a second."""
    by = texts("by", by)
    unknown = [name for name in by if name not in GROUPS]
    if unknown:
        raise InvalidInput(f"runs cannot be grouped by {', '.join(unknown)}; group by {', '.join(GROUPS)}")
    span = None if bucket is None else int(bucket.total_seconds() * SECOND)
    if span is not None and span < SECOND:
        raise InvalidInput(f"a span of time is at least a second, not {bucket}")
    wanted, newest, most = recent(store.dashboard, wanted)
    found = store.dashboard.aggregate(wanted, by, span, most)
    if most is not None and sum(row[-4] for row in found) >= most:
        newest = most
    return [_figures(row, by, newest, spans=span is not None) for row in found]


def _figures(row: Sequence[Any], by: Sequence[str], newest: int | None, *, spans: bool) -> Figures:
    *keys, count, wait, average, longest = row
    group = dict(zip(by, keys, strict=False))
    since = to_datetime(keys[-1]) if spans else None
    return Figures(group, since, count, _in_seconds(wait), _in_seconds(average), _in_seconds(longest), newest)


def _in_seconds(micros: float | None) -> float | None:
    """Convert to seconds, at least 0: a run may begin before the transaction that creates it has read the clock."""
    return None if micros is None else max(0, micros) / SECOND
