"""Steps in figures: how often they fail, how many attempts they need and how long they take."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.store.verbs.manage import StepTime

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
    made = [_figures(name, kind, calls) for (name, kind), calls in found.items()]
    return sorted(made, key=lambda each: (-each.p95, each.name))


def _figures(name: str, kind: str, calls: list[StepTime]) -> StepFigures:
    took = sorted(max(0, each.micros) / SECOND for each in calls)
    failed = sum(each.failed for each in calls)
    attempts = sum(each.attempts for each in calls) / len(calls)
    p50, p95 = (took[max(0, ceil(part * len(took)) - 1)] for part in (0.5, 0.95))
    return StepFigures(name, kind, len(calls), failed, failed / len(calls), attempts, p50, p95)
