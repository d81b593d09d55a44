"""Record the beginning or the outcome of an operation of a run, with its effects, and the end of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store.sql.messages import RETURN_MESSAGE
from mainspring.store.sql.records import RECORDED_COLUMNS, step_values, to_ending
from mainspring.store.sql.runs import FINISH, SET_WAITING, STARTED_RUNS
from mainspring.store.sql.steps import DISCARD_STEP, RECORD_STEP, RENAME_STARTED, STEP_OUTPUT, STEP_WRITTEN
from mainspring.store.verbs.messages import publish, receive, recipients
from mainspring.store.verbs.revive import revive_child
from mainspring.store.verbs.start import STOPPED, cancel_started, start
from mainspring.store.writes import (
    Complete,
    RecordAndRevive,
    RecordAndSend,
    Recorded,
    Start,
    StoppedFirst,
    Verdict,
    ended_in,
    fence,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.model.runs import Step
    from mainspring.store.transaction import Script, Transaction
    from mainspring.store.writes import DiscardOutcome, Finish, LockedRun, RecordStep


class Taken(Exception):
    """Raised when a run to start is another workflow's, or has a taken key. The whole write is rolled back."""

    def __init__(self, answer: Recorded) -> None:
        super().__init__()
        self.answer = Recorded(Verdict.TAKEN, taken=answer.taken, refused=answer.refused)


def record(tx: Transaction, op: RecordStep) -> Script[Recorded]:
    """Record a step, start its runs, send its messages, and set the state of its run. Raises `Taken`."""
    step = op.step
    messages = op.outgoing if isinstance(op, RecordAndSend) else ()
    concerned = [step.run, *([] if op.watch is None else [op.watch]), *recipients(messages)]
    changes_runs = op.run_state is not None or isinstance(op, (RecordAndSend, RecordAndRevive))
    rows = yield from tx.lock_runs(concerned, share=not changes_runs)
    unknown = [run for run in recipients(messages) if run not in rows]
    if unknown:
        return Recorded(Verdict.UNKNOWN, unknown=unknown)
    verdict = fence(rows.get(step.run), op.owner, step.epoch)
    if verdict is Verdict.FENCED:
        written = ended_in(rows.get(step.run), step.epoch) and (yield from _written_before(tx, op))
        return Recorded(Verdict.DONE if written else Verdict.FENCED)
    stopping = verdict is Verdict.STOPPING
    if stopping and (yield from _is_too_late(tx, op)):
        return Recorded(Verdict.STOPPING)
    revival = op if isinstance(op, RecordAndRevive) and not (yield from _written_before(tx, op)) else None
    if (yield from tx.execute(RECORD_STEP, **dict(zip(RECORDED_COLUMNS, step_values(step), strict=True)))):
        if isinstance(op, RecordAndSend):
            if op.takes is not None:
                yield from receive(tx, step.run, op.takes, step.position)
            yield from publish(tx, op.outgoing)
        if revival is not None and (yield from revive_child(tx, step.run, op.watch, asked=revival.asked)):
            rows = yield from tx.lock_runs(concerned)
    elif not (yield from _written_before(tx, op)):
        return Recorded(Verdict.FENCED)
    elif isinstance(op, RecordAndSend):
        yield from publish(tx, (), again=op.outgoing)  # waiting runs may not have been woken
    return (yield from _apply_effects(tx, op, rows, Recorded(stopping=stopping)))


def _is_too_late(tx: Transaction, op: RecordStep) -> Script[bool]:
    """Whether a run is being stopped and must not record this write, because it is not a repetition."""
    if op.unless_stopping and not (yield from _written_before(tx, op)):
        return True
    return bool(op.starts) and not (yield from _started_before(tx, op))


def _written_before(tx: Transaction, op: RecordStep) -> Script[bool]:
    """Whether this write is a repetition after a lost acknowledgement."""
    step = op.step
    rows = yield from tx.execute(STEP_WRITTEN, run=step.run, position=step.position)
    return bool(rows) and rows[0][0] == step.epoch and (step.completed is None or rows[0][1] == step.seq)


def _started_before(tx: Transaction, op: RecordStep) -> Script[bool]:
    """Whether this write is a repetition: the runs that it starts exist, with the same uids."""
    rows = yield from tx.execute(STARTED_RUNS, ids=[run.id for run in op.starts])
    return {row[1] for row in rows} == {run.uid for run in op.starts}


def _apply_effects(
    tx: Transaction, op: RecordStep, rows: Mapping[str, LockedRun], answer: Recorded
) -> Script[Recorded]:
    """Apply the effects of a recorded step: start its runs, look up the run that it waits for, set the state of its run."""
    if op.starts:
        yield from _start(tx, op, answer)
    if answer.became:
        yield from tx.execute(RENAME_STARTED, **_renamed(op.step, answer.became))
    if op.watch is not None:
        row = rows.get(op.watch)
        if row is None:  # it may have been started just now
            row = (yield from tx.lock_runs([op.watch], share=True)).get(op.watch)
        answer.missing = row is None
        answer.ending = to_ending((row[0], *row[3:7])) if row else None
    if op.run_state is not None and answer.ending is None:
        yield from tx.execute(SET_WAITING, run=op.step.run, state=op.run_state, due=op.due)
    return answer


def _start(tx: Transaction, op: RecordStep, answer: Recorded) -> Script[None]:
    """Start the runs of a write, and add to its answer which run each became."""
    recorded = yield from _recorded_starts(tx, op)
    if recorded is not None:
        answer.became = dict(zip(json.loads(op.step.output or "[]"), recorded, strict=True))
        return
    taken, became = dict[str, str](), dict[str, str]()
    answer.taken, answer.became = taken, became
    for run in op.starts:
        (started,) = yield from start(tx, [Start(run)])
        if started.refused:
            answer.refused = {run.id: started.id}
        elif started.id:
            became[run.id] = started.id
        elif not started.created:
            taken[run.id] = started.workflow
        if started.refused or started.workflow != run.workflow:
            raise Taken(answer)


def _recorded_starts(tx: Transaction, op: RecordStep) -> Script[list[str] | None]:
    """The runs that the step has recorded, if they differ from the requested ones. Then this write is a repetition."""
    if op.step.output is None or all(run.key is None for run in op.starts):
        return None
    recorded = (yield from tx.execute(STEP_OUTPUT, run=op.step.run, position=op.step.position))[0][0]
    if recorded is None or json.loads(recorded) == json.loads(op.step.output):
        return None
    found: list[str] = json.loads(recorded)
    return found


def _renamed(step: Step, became: Mapping[str, str]) -> dict[str, Any]:
    """The values of a step that started runs, with the ids of the runs that they became."""
    ids: list[str] = json.loads(step.output or "[]")
    child = became.get(step.child, step.child) if step.child is not None else None
    output = json.dumps([became.get(each, each) for each in ids])
    return {"run": step.run, "position": step.position, "output": output, "child": child}


def discard_outcome(tx: Transaction, op: DiscardOutcome) -> Script[Verdict]:
    """Mark a completed operation as interrupted: its outcome was recorded, but the workflow's code never received it."""
    rows = yield from tx.lock_runs([op.run], share=True)
    if fence(rows.get(op.run), op.owner, op.epoch) is Verdict.FENCED:
        return Verdict.FENCED
    yield from tx.execute(RETURN_MESSAGE, run=op.run, position=op.position)
    done = yield from tx.execute(DISCARD_STEP, run=op.run, position=op.position)
    return Verdict.DONE if done else Verdict.FENCED


# -- ends ----------------------------------------------------------------------------------------------------------------
def finish(tx: Transaction, op: Finish) -> Script[Verdict]:
    """End a run. STOPPING if the run is being cancelled and this is not that end."""
    row = (yield from tx.lock_runs([op.run])).get(op.run)
    verdict = fence(row, op.owner, op.epoch)
    if verdict is Verdict.STOPPING and op.state is State.CANCELLED:
        verdict = Verdict.DONE
    if verdict is Verdict.DONE:
        values = {"reason": op.reason, "output": op.output, "error": op.error, "completed": op.completed}
        yield from tx.execute(FINISH, run=op.run, state=op.state, **values)
    elif row is not None and (row[2], row[3], row[7]) == (op.epoch, op.state, op.completed):
        verdict = Verdict.DONE  # a repetition after a lost acknowledgement
    if verdict is Verdict.DONE:
        tx.changes.ended.add(op.run)
        tx.informed.add(op.owner)
    return verdict


# -- users' transactions -------------------------------------------------------------------------------------------------
def record_outcome(tx: Transaction, write: RecordStep, started: Sequence[str]) -> Script[State | None]:
    """Record the outcome of the user's transaction that this is part of. Return the state of its run.

    `started` are runs that the transaction has started. None: the worker does not own the run in this epoch, or the outcome is recorded
    already. A run that is being cancelled keeps what its transaction wrote, and the runs that it started are cancelled.
    """
    step = write.step
    row = (yield from tx.lock_runs([step.run], share=True)).get(step.run)
    if fence(row, write.owner, step.epoch) is Verdict.FENCED or row is None:
        return None
    if not (yield from tx.execute(RECORD_STEP, **dict(zip(RECORDED_COLUMNS, step_values(step), strict=True)))):
        return None
    state = State(row[3])
    if isinstance(write, Complete):
        if state not in STOPPED:
            return (yield from _complete(tx, step))
        if not write.kept:
            raise StoppedFirst
    if started and state in STOPPED:
        yield from cancel_started(tx, list(started))
    if write.run_state is not None:
        yield from tx.execute(SET_WAITING, run=step.run, state=write.run_state, due=write.due)
    return state


def _complete(tx: Transaction, step: Step) -> Script[State]:
    """End a run with the outcome of its only operation."""
    values = {"run": step.run, "output": step.output, "completed": step.completed}
    yield from tx.execute(FINISH, state=State.SUCCEEDED, reason=None, error=None, **values)
    tx.changes.end([step.run])
    return State.SUCCEEDED
