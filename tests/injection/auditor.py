"""Whether a case kept every promise: judged by the database, the ledger of effects, and what the caller was told.

Each finding is one line that begins with a word for its kind, so that findings can be counted by kind.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from mainspring.codec import decode_exception
from mainspring.model.states import State
from mainspring.operations.inspection import inspect
from tests.injection.faults import FORKED
from tests.injection.probes import PREFIX
from tests.injection.seams import all_runs, describe, is_inner_signal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.runs import Run, Step
    from tests.injection.databases import Database
    from tests.injection.record import Record
    from tests.injection.scene import Entry

_LATE = 45.0
"""Virtual seconds: a lease, two polls and a heartbeat, and then some. What takes longer was found by chance."""
_LEFT_OPEN = {"question"}
"""Operations that may be open when their run has ended: a servant waits for the next question until then."""
_EXPECTED_LOGS = ("was declared dead by another worker", "is still executing after the grace", "could not be undone")


def audit(record: Record, database: Database, now: int) -> list[str]:
    """What is wrong, one line each."""
    with database.reading() as store:
        runs = {run.id: run for run in all_runs(store) if not run.id.startswith(PREFIX)}
        steps = {run_id: store.steps(run_id) for run_id in runs}
        defects = inspect(store, now, thorough=True)
    interrupted = _interrupted(record, runs)
    found: list[str] = []
    for run in runs.values():
        found += _of_run(record, run, steps[run.id], interrupted, now)
    found += _missing(record, runs)
    found += _effects(record, interrupted)
    found += _compensations(record, runs, steps)
    found += _callers(record, runs)
    if record.shape.judge is not None:
        found += record.shape.judge(record, runs, steps)
    found += [f"doctor: {each.what}: {each.which}" for each in defects]
    found += [f"log: {line}" for line in record.logs if not any(known in line for known in _EXPECTED_LOGS)]
    return [*found, *_late(record)]


# -- runs --------------------------------------------------------------------------------------------------------------
def _of_run(record: Record, run: Run, steps: list[Step], interrupted: set[str], now: int) -> Iterator[str]:
    if not run.state.ended:
        if run.id.startswith(FORKED) and run.state is State.WAITING and (run.due is None or _waits_for_messages(steps)):
            return  # the original has received the messages for which its fork waits
        yield f"lost: {run.id} is {describe(run, steps, now)}"
        return
    if is_inner_signal(run.reason):
        yield f"signal: {run.id} ended {run.state} with the reason {run.reason!r}"
    still = [f"{step.kind} {step.name}" for step in steps if step.completed is None and step.kind not in _LEFT_OPEN]
    if still and run.state is State.SUCCEEDED and (run.id not in record.operated or run.id in record.resumed):
        yield f"open: {run.id} has succeeded, and its record has open steps: {still}"
    if run.id in record.shape.expected and not _as_expected(record, run, interrupted):
        yield f"result: {run.id} ended {_outcome(run)!r}, and should have ended {record.shape.expected[run.id]!r}"


def _waits_for_messages(steps: list[Step]) -> bool:
    return all(step.kind == "receive" and step.due is None for step in steps if step.completed is None)


def _as_expected(record: Record, run: Run, interrupted: set[str]) -> bool:
    shape = record.shape
    revived = run.id in record.resumed or (run.id in shape.revived and run.state is State.SUCCEEDED)
    if run.id in record.operated and not revived:
        return run.state is record.operated[run.id] and run.reason == "asked"
    if record.stopped.get(run.id) and run.id not in record.resumed:
        return run.state is State.CANCELLED
    if record.ended_early and run.state is not State.SUCCEEDED and run.id not in record.resumed:
        return True  # others depend on the one that was cancelled
    if run.id in interrupted:
        return True
    outcome = _outcome(run)
    if shape.check is not None and run.state is State.SUCCEEDED:
        return bool(shape.check({run.id: outcome}))
    depends = record.ended_early or (bool(record.forked) and run.id not in record.forked)
    return bool(outcome == shape.expected[run.id]) or (depends and run.state is State.SUCCEEDED)


def _interrupted(record: Record, runs: dict[str, Run]) -> set[str]:
    """Runs that were right to fail as interrupted.

    A process that dies, or is declared dead, in the middle: then what may not begin twice fails, unless it was recorded, and so does
    the run that called it.
    """
    if not record.injection.has & {"kill", "takeover"} and not record.resumed:
        return set()
    failed = {run_id for run_id in record.shape.interrupted if run_id in runs and runs[run_id].reason == "interrupted"}
    found = {run_id for run_id in failed if not record.at_death.get(run_id, False)}
    return found | {run_id for run_id in failed if any(runs[child].parent == run_id for child in found)}


def _outcome(run: Run) -> Any:
    if run.state is State.SUCCEEDED:
        return json.loads(run.output or "null")
    if run.state is State.FAILED:
        name = type(decode_exception(run.error)).__name__ if run.error else "?"
        return f"failed: {name}: {run.reason}" if name != "Expected" else "failed: Expected"
    return f"{run.state}: {run.reason}"


def _missing(record: Record, runs: dict[str, Run]) -> Iterator[str]:
    for run_id in record.shape.expected:
        given_up = {f"start {run_id}", *record.shape.needs} & {*record.dropped}
        # whoever deletes a run deletes its children with it
        excused = run_id in record.shape.optional or record.ended_early or bool(record.deleted) or given_up
        if run_id not in runs and not excused:
            yield f"missing: {run_id} was never stored"


# -- effects -----------------------------------------------------------------------------------------------------------
def _effects(record: Record, interrupted: set[str]) -> Iterator[str]:
    yield from _repeated(record)
    entries, has = record.ledger.entries, record.injection.has
    if not has & {"kill", "takeover", "terminate"}:
        for (run_id, label), times in _count(entries, "cut").items():
            if label not in record.shape.optional:
                yield f"cut: {label} of {run_id} was cut off {times} times"
    if not record.ended_early and not record.dropped and not interrupted:
        carried_out = {entry.label for entry in entries if entry.what == "end"}
        cut_off = record.shape.once if has & {"kill", "takeover"} else frozenset[str]()
        for label in sorted(_labels(record) - carried_out - record.shape.optional - cut_off):
            yield f"skipped: {label} was never carried out"
    for note in record.ledger.notes:
        # A worker that has lost a run may not know that it has, and go on with it beside the next one of its queue.
        if not note.startswith("queue") or not has & {"kill", "takeover", "terminate"}:
            yield note


def _repeated(record: Record) -> Iterator[str]:
    """Effects that were begun although they were recorded, or more often than there was a reason to."""
    shape, has = record.shape, record.injection.has
    for entry in record.ledger.entries:
        if entry.recorded and entry.what == "begin" and not entry.zombie:
            yield f"repeated: {entry.label} of {entry.run} was begun in life {entry.life} although it was recorded"
    for (run_id, label), times in _count(record.ledger.entries, "begin").items():
        begun = 2 if record.forked else 1  # some effects are noted for the run that their input names
        wanted = begun * shape.tries.get(label, 1)
        if (
            label in shape.once and times > begun and run_id not in record.resumed
        ):  # who resumes a run wants it executed
            yield f"once: {label} of {run_id} was begun {times} times"
        elif not has & {"kill", "takeover"} and not record.resumed and times > wanted:
            yield f"repeated: {label} of {run_id} was begun {times} times, {wanted} are enough"


def _labels(record: Record) -> set[str]:
    return REFERENCE.get(record.shape.name, set())


REFERENCE: dict[str, set[str]] = {}
"""The effects of each shape, as an undisturbed case had them."""


def _count(entries: list[Entry], what: str) -> Counter[tuple[str, str]]:
    return Counter((entry.run, entry.label) for entry in entries if entry.what == what)


def _compensations(record: Record, runs: dict[str, Run], steps: dict[str, list[Step]]) -> Iterator[str]:
    """What a cancelled run had done, and what undoes it."""
    for done, owed in record.shape.undoes.items():
        for run in runs.values():
            recorded = [step.output or "" for step in steps[run.id] if step.completed is not None]
            if run.state is not State.CANCELLED or not any(f'"{done}"' in output for output in recorded):
                continue
            if "terminate" in record.injection.has or record.ledger.count("well")[run.id, "undo"]:
                continue
            times = sum(f'"{owed}"' in output for output in recorded)
            if times != 1:
                yield f"undo: {run.id} was cancelled after {done}, and {owed} was made {times} times"


# -- callers -----------------------------------------------------------------------------------------------------------
def _callers(record: Record, runs: dict[str, Run]) -> Iterator[str]:
    """What those who waited for a run were told must be what is stored."""
    for run_id, result in record.results.items():
        run = runs.get(run_id)
        if run is None or not run.state.ended or run_id in record.operated:
            continue
        if isinstance(result, BaseException):
            if run.state is State.SUCCEEDED and not record.resumed:  # what was told before it went on was true then
                yield f"caller: {run_id} has succeeded, and who waited for it was told {result!r}"
        elif run.state is not State.SUCCEEDED or json.loads(run.output or "null") != result:
            yield f"caller: {run_id} ended {_outcome(run)!r}, and who waited for it was told {result!r}"


def _late(record: Record) -> Iterator[str]:
    normal = NORMAL.get(record.shape.name)
    if (
        normal is not None
        and record.ended_at > normal + _LATE
        and not record.problems
        and not record.ended_early
        and not record.forked
    ):
        yield f"late: it took {record.ended_at:.0f} s until all had ended, and undisturbed {normal:.0f} s"


NORMAL: dict[str, float] = {}
"""When all runs of each shape have ended, undisturbed."""
