"""Suspend and release runs: a run that waits, a worker that stops, another attempt, another generation, compensations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.states import State
from mainspring.store.sql.records import to_run
from mainspring.store.sql.runs import COMPENSATE, CONTINUE_AS, GET_RUN, RELEASE, RETRY_LATER, SUSPEND
from mainspring.store.verbs.revive import forget_attempt
from mainspring.store.verbs.start import is_last_attempt, start_over
from mainspring.store.writes import Verdict, fence, released_in

if TYPE_CHECKING:
    from mainspring.store.transaction import Script, Transaction
    from mainspring.store.writes import Compensate, ContinueAs, LockedRun, Release, RetryLater, Suspend


def suspend(tx: Transaction, op: Suspend) -> Script[Verdict]:
    """Record that all branches of a run wait. With `park`, its owner also releases the run."""
    row = (yield from tx.lock_runs([op.run])).get(op.run)
    verdict = fence(row, op.owner, op.epoch)
    if verdict is Verdict.FENCED and op.park:
        return _released(tx, row, op.epoch)
    if verdict is not Verdict.DONE:
        return verdict
    # A statement of its own, after the lock: see `Transaction.close`.
    values = {"run": op.run, "no_later_than": op.no_later_than, "park": op.park, "now": tx.now}
    if not (yield from tx.execute(SUSPEND, **values)):
        return Verdict.NOTIFIED
    tx.changes.ready = tx.changes.ready or op.park
    return Verdict.DONE


def release(tx: Transaction, op: Release) -> Script[Verdict]:
    """Release a run, so that any worker may claim it."""
    row = (yield from tx.lock_runs([op.run])).get(op.run)
    verdict = fence(row, op.owner, op.epoch)
    if verdict is Verdict.FENCED:
        return _released(tx, row, op.epoch)
    values = {"run": op.run, "blocked": op.blocked, "unbegun": op.unbegun, "now": tx.now}
    if not (yield from tx.execute(RELEASE, **values)):
        return verdict
    tx.changes.ready = True
    return Verdict.DONE


def retry_later(tx: Transaction, op: RetryLater) -> Script[Verdict]:
    """Release a run whose attempt failed, to be claimed when it is due. LAST if another run has taken its key."""
    row = (yield from tx.lock_runs([op.run])).get(op.run)
    verdict = fence(row, op.owner, op.epoch)
    if verdict is Verdict.FENCED:
        return _released(tx, row, op.epoch)
    if verdict is not Verdict.DONE:
        return verdict
    yield from tx.limit_waiting()
    run = to_run((yield from tx.execute(GET_RUN, id=op.run))[0])
    if is_last_attempt(run):
        return Verdict.LAST
    yield from forget_attempt(tx, run, op.error)
    state = State.SCHEDULED if op.due > tx.now else State.QUEUED
    yield from tx.execute(RETRY_LATER, id=run.id, state=str(state), due=op.due, error=op.error)
    tx.changes.ready = True
    return Verdict.DONE


def continue_as(tx: Transaction, op: ContinueAs) -> Script[Verdict]:
    """Release a run to start over with another input. Its records are deleted. Its id and what it published stay."""
    verdict = yield from _may_restart(tx, op)
    if verdict is None:
        yield from tx.execute(CONTINUE_AS, run=op.run, now=tx.now, input=op.input)
        yield from start_over(tx, op.run)
    return verdict or Verdict.DONE


def compensate(tx: Transaction, op: Compensate) -> Script[Verdict]:
    """Release a stopped run that must execute its compensations."""
    verdict = yield from _may_restart(tx, op, stopping=True)
    if verdict is None:
        yield from tx.execute(COMPENSATE, run=op.run, now=tx.now, undo_reason=op.undo_reason)
    return verdict or Verdict.DONE


def _may_restart(tx: Transaction, op: Release, *, stopping: bool = False) -> Script[Verdict | None]:
    """None if an owned run may be released to start over; else the answer. `stopping`: a run that is being cancelled may, too."""
    row = (yield from tx.lock_runs([op.run])).get(op.run)
    verdict = fence(row, op.owner, op.epoch)
    if verdict is Verdict.FENCED:
        return _released(tx, row, op.epoch)
    if verdict is Verdict.STOPPING and not stopping:
        return verdict
    tx.changes.ready = True
    return None


def _released(tx: Transaction, row: LockedRun | None, epoch: int) -> Verdict:
    """DONE if the release is a repetition after a lost acknowledgement."""
    if not released_in(row, epoch):
        return Verdict.FENCED
    tx.changes.ready = True
    return Verdict.DONE
