"""What must be so of schedules whatever was done to them. It looks at what is stored, and at what operators remember."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainspring.model.clock import to_datetime
from mainspring.model.schedules import Schedule, TickOutcome, TickSource
from mainspring.schedules.actions import stamp
from mainspring.schedules.definition import declared_json, overridden, same_declaration
from mainspring.schedules.due_ticks import Times, spec_of
from mainspring.store.schedules import ScheduleFilter, TickFilter
from tests.schedules.operated import app, written

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring.model.schedules import Tick
    from mainspring.operations.connect import Operations
    from mainspring.store.protocol import Store

DEFINITION = ("spec", "workflow", "input", "action", "policy", "attributes", "note")
_MOST = 1_000_000
_SHOWN = 5


@dataclass
class Acts:
    """What operators did and were told, from all their threads."""

    done: Counter[str] = field(default_factory=Counter[str])
    specs: list[tuple[str, int, int, int, str]] = field(default_factory=list[tuple[str, int, int, int, str]])
    """Definitions: schedule, when it was made, revision, the cursor from which on that holds, and the spec."""
    triggers: list[tuple[str, str, str | None]] = field(default_factory=list[tuple[str, str, str | None]])
    """Schedule, request, and the run that was promised."""
    committed: list[str] = field(default_factory=list[str])
    rolled_back: list[str] = field(default_factory=list[str])
    """Runs of triggers in transactions."""
    faults: list[str] = field(default_factory=list[str])


def audit(operations: Operations, store: Store, acts: Acts, folder: Path) -> tuple[Counter[str], list[str]]:
    """How much there was to look at, and what is not as it must be. Nothing is at work any more."""
    found, faults = Counter[str](), list(acts.faults)
    declared = [(Schedule(**before), Schedule(**after)) for before, after in written(folder)]
    acts.specs += [(row.id, row.created, row.revision, row.cursor, row.spec) for _, row in declared]
    faults += _declarations(operations, store, declared)
    found["declarations"] = len(declared)
    for row in store.schedules.page(ScheduleFilter(limit=1_000)):
        ticks = store.schedules.ticks(TickFilter(row.id, limit=_MOST))
        again = {each.id for each in store.schedules.backfills(row.id) if each.again}
        found.update(
            schedules=1, ticks=sum(tick.count for tick in ticks), runs=sum(tick.run is not None for tick in ticks)
        )
        faults += [
            f"{row.id}: {fault}" for fault in (*_times(row, ticks, acts), *_runs(ticks, again), *_counters(row, ticks))
        ]
        if row.fault is not None:
            faults.append(f"{row.id}: cannot be planned: {row.fault}")
    faults += _promises(operations, store, acts)
    return found, faults


def _declarations(operations: Operations, store: Store, declared: list[tuple[Schedule, Schedule]]) -> list[str]:
    """Operators' changes that were undone though the declaration was the same, or without a word; and what is declared last."""
    faults: list[str] = []
    overriding = Counter[str]()
    for before, after in declared:
        assert after.declared is not None
        changed = [name for name in DEFINITION if getattr(before, name) != getattr(after, name)]
        if same_declaration(before.declared, after.declared):
            faults += [f"{after.id}: {name} was undone at revision {after.revision}" for name in changed]
        elif overridden(before, json.loads(after.declared)):
            overriding[after.id] += 1
    entries = [entry for entry in operations.audit.list(limit=100_000).entries if entry.action == "schedules.declare"]
    for name, count in overriding.items():
        told = [entry.outcome for entry in entries if entry.subject == [name]]
        done, unknown = told.count(True), told.count(None)  # a worker was killed before it could write what came of it
        if not done <= count <= done + unknown:
            faults.append(
                f"{name}: {count} changes were overridden, and the audit log tells of {done}, perhaps {unknown} more"
            )
    for definition in app._runtime.declarations:  # of the older version, whose workers are the only ones that are left
        row = store.schedules.get(definition.id)
        assert row is not None
        if (row.version, row.stopped) != (app.version, None):
            faults.append(f"{row.id} is of version {row.version}, {row.stopped}")
        if not same_declaration(row.declared, declared_json(definition.columns())):
            faults.append(f"{row.id} is declared as {row.declared}")
    gone = store.schedules.get("d3")
    if gone is None or gone.stopped is None:
        faults.append("d3 is not stopped, though no version declares it")
    return faults


def _times(row: Schedule, ticks: list[Tick], acts: Acts) -> list[str]:
    """Nominal times up to the cursor that have no tick, by the specs that were in force."""
    changes = sorted(each[2:] for each in acts.specs if each[:2] == (row.id, row.created))
    segments = [(since, spec) for _, since, spec in changes]
    spans = sorted((tick.nominal, tick.until or tick.nominal) for tick in ticks if not tick.source.manual)
    missing: list[int] = []
    ends = [since for since, _ in segments[1:]] + [row.cursor]
    for (since, spec), end in zip(segments, ends, strict=True):
        times = Times(spec_of(spec), row.id)
        nominal = times.next(since)
        while nominal is not None and nominal <= end:
            if not any(low <= nominal <= high for low, high in spans):
                missing.append(nominal)
            nominal = times.next(nominal)
    return [f"{len(missing)} times without a tick, such as {stamp(missing[0])}"] if missing else []


def _runs(ticks: list[Tick], again: set[str]) -> list[str]:
    """Nominal times with several runs, and runs of several ticks."""
    taken = Counter(
        tick.nominal
        for tick in ticks
        if tick.run is not None and tick.source is not TickSource.TRIGGER and tick.request not in again
    )
    runs = Counter(tick.run for tick in ticks if tick.run is not None)
    requests = Counter(tick.request for tick in ticks if tick.source is TickSource.TRIGGER)
    return [
        *(f"{to_datetime(nominal)} has {count} runs" for nominal, count in taken.items() if count > 1),
        *(f"run {run} is of {count} ticks" for run, count in runs.items() if count > 1),
        *(f"trigger {request} has {count} ticks" for request, count in requests.items() if count > 1),
    ][:_SHOWN]


def _counters(row: Schedule, ticks: list[Tick]) -> list[str]:
    """Counters that are not the number of their ticks."""
    outcomes = Counter[TickOutcome]()
    for tick in ticks:
        outcomes[tick.outcome] += tick.count
    counted = {
        "starts": outcomes[TickOutcome.FIRED] + outcomes[TickOutcome.LATE],
        "missed": outcomes[TickOutcome.MISSED],
        "skipped": outcomes[TickOutcome.SKIPPED_OVERLAP],
        "dropped": outcomes[TickOutcome.DROPPED],
    }
    return [
        f"{name} is {getattr(row, name)}, and there are {count} ticks"
        for name, count in counted.items()
        if getattr(row, name) != count
    ]


def _promises(operations: Operations, store: Store, acts: Acts) -> list[str]:
    """Runs that were acknowledged and have not ended, and such as should not be there."""
    live = operations.runs.list(state=["scheduled", "queued", "running", "waiting", "cancelling"], limit=100).runs
    faults = [f"run {run.id} of {run.schedule} is {run.state}, due {run.due}" for run in live]
    kept = [run for _, _, run in acts.triggers if run is not None] + acts.committed
    faults += [f"run {run} was promised and is not there" for run in kept if store.run(run) is None]
    faults += [f"run {run} was rolled back and is there" for run in acts.rolled_back if store.run(run) is not None]
    return faults[: 2 * _SHOWN]
