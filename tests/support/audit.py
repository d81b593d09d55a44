"""The auditor: whether the ledger and the database together prove that nothing was lost and nothing recorded was repeated.

A workflow to be audited returns, for each of its branches, the outcomes of its steps in order; each outcome is unlike any other,
and each step is given the outcome of the one before it and writes both down (`tests/fleet/apps.py` has such chains).
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainspring.model.runs import RunFilter
from mainspring.model.states import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mainspring.model.runs import Run
    from mainspring.store.protocol import Store
    from tests.support.ledger import Entry, Ledger


@dataclass
class Findings:
    """Figures, and whatever is wrong."""

    runs: int = 0
    steps: int = 0
    executions: int = 0
    recoveries: int = 0
    faults: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        again = self.executions - self.steps
        text = f"{self.runs} runs, {self.steps} steps, {again} executed again because cut off, {self.recoveries} recoveries"
        return "\n".join([text, *self.faults])


def all_runs(store: Store) -> Iterator[Run]:
    before: str | None = None
    while page := store.runs(RunFilter(before=before, limit=500)):
        yield from page
        before = page[-1].uid


def unfinished(store: Store) -> int:
    return sum(count for state, count in store.counts().items() if not State(state).ended)


def audit(ledger: Ledger, store: Store, acknowledged: Collection[str], zombies: Collection[int] = ()) -> Findings:
    """Check every run. `zombies` are processes that were frozen: they may execute a step late, but not record it."""
    found = Findings()
    by_run: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in ledger.entries():
        by_run[entry.run].append(entry)
        found.executions += 1
    runs = {run.id: run for run in all_runs(store)}
    found.faults += [f"acknowledged and lost: {run_id}" for run_id in acknowledged if run_id not in runs]
    for run in runs.values():
        found.runs += 1
        found.recoveries += run.recoveries
        if run.state is not State.SUCCEEDED or run.output is None:
            found.faults.append(f"{run.id} ({run.workflow}) ended {run.state}: {run.reason}")
            continue
        branches: dict[str, list[str]] = json.loads(run.output)
        for branch, outcomes in branches.items():
            found.steps += len(outcomes)
            found.faults += _of_branch(run.id, branch, outcomes, by_run[run.id], zombies)
    return found


def _of_branch(
    run: str, branch: str, outcomes: list[str], entries: list[Entry], zombies: Collection[int]
) -> Iterator[str]:
    """What is wrong with the executions of one sequence of steps, given how they came out."""
    numbers = {f"{branch}.{number}": number for number in range(len(outcomes))}
    reached = -1
    seen: set[str] = set()
    for entry in entries:
        if entry.step not in numbers:
            continue
        number = numbers[entry.step]
        token, before = entry.remark.split(" ")
        seen.add(token)
        if number < reached and entry.pid not in zombies:
            yield f"{run}: {entry.step} was executed after step {reached} had begun, so after it was recorded"
        reached = max(reached, number)
        expected = outcomes[number - 1] if number else "start"
        if before != expected:
            yield f"{run}: {entry.step} was given {before}, but the step before it came out as {expected}"
    for number, token in enumerate(outcomes):
        if token not in seen:
            yield f"{run}: step {branch}.{number} has an outcome that no execution had"
