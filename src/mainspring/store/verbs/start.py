"""Start runs.

A run whose id is taken is not stored. The unique index on keys is the mutex of a key: the first insert gets the key, the second one finds
the holder, locks it and decides. If the holder has ended in between, the insert is retried.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.model.keys import Holder, KeyDecision, KeyMode, decide, due_after_update
from mainspring.model.states import State
from mainspring.store.sql.records import run_values
from mainspring.store.sql.runs import (
    CANCEL_STARTED,
    DROP_KEY,
    INSERT_RUNS,
    INSERT_SCHEDULED_RUNS,
    KEY_HOLDER,
    LONG_AGO,
    REPLACE_REQUEST,
    REQUESTED_COLUMNS,
    SKIP_LOCKED,
    START_OVER,
    STARTED_RUNS,
)
from mainspring.store.transaction import Blocked
from mainspring.store.writes import Started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.runs import NewRun, Run
    from mainspring.store.transaction import Script, Transaction
    from mainspring.store.writes import Start

STOPPED = (State.CANCELLING, State.CANCELLED)
WITH_ITS_STARTER = "the run that started it was cancelled"
"""The reason of runs that a cancelled run starts: they are cancelled from the beginning."""
_ONCE = '{"attempts": 1}'


def start(tx: Transaction, ops: Sequence[Start]) -> Script[list[Started]]:
    """Store new runs. Runs that a step of a cancelled run starts are cancelled from the beginning."""
    askers = sorted({op.asker for op in ops if op.asker is not None})
    asking = (yield from tx.lock_runs(askers, share=True)) if askers else {}
    stopped = {run for run, row in asking.items() if row[3] in STOPPED}
    yield from tx.limit_waiting()
    made = yield from _insert(ops)
    met: dict[str, Started] = {}
    for op in ops:
        if op.run.key is not None and op.run.uid not in made:
            met |= yield from _resolve_key(tx, op, made)
    there: dict[str, tuple[Any, ...]] = {}
    while left := [op for op in ops if not {op.run.uid} & (made | met.keys()) and op.run.id not in there]:
        rows = yield from tx.execute(STARTED_RUNS, ids=[op.run.id for op in left])
        there |= {row[0]: row for row in rows}
        if gone := [op for op in left if op.run.id not in there]:  # deleted since the insert found it
            made |= yield from _insert(gone)
    tx.started += [op.run.id for op in ops if op.run.uid in made]
    cancelled = {op.run.uid for op in ops if op.run.uid in made and op.asker in stopped}
    if cancelled:
        yield from cancel_started(tx, [op.run.id for op in ops if op.run.uid in cancelled])
    tx.changes.ready = tx.changes.ready or bool(met)
    claimable = [op.run for op in ops if _claimable(op, made, there, cancelled)]
    tx.changes.start(claimable, tx.now)
    tx.changes.overdue = tx.changes.overdue or (tx.users and bool(claimable))  # a user may commit at any time
    return [met.get(op.run.uid) or _started(op, made, there, cancelled) for op in ops]


def cancel_started(tx: Transaction, ids: list[str]) -> Script[None]:
    """Cancel the runs that this transaction has started, because their starter is being stopped."""
    yield from tx.execute(CANCEL_STARTED, ids=ids, now=tx.now, reason=WITH_ITS_STARTER)


def insert_scheduled(tx: Transaction, starts: Sequence[tuple[NewRun, str, str]]) -> Script[set[str]]:
    """Store new runs without keys for schedules, each with its schedule and tick. Return the uids of those whose id was free.

    A bulk fast path: hundreds of schedules may be due at once.
    """
    yield from tx.limit_waiting()
    rows = INSERT_SCHEDULED_RUNS.rows((*run_values(run), schedule, tick, True) for run, schedule, tick in starts)
    return {row[0] for row in (yield from tx.execute(INSERT_SCHEDULED_RUNS, rows=rows))}


def is_last_attempt(run: Run) -> bool:
    """Whether a run has lost its key to another one. Then no attempt follows the present one."""
    return run.key is None and run.retry is not None and json.loads(run.retry) == json.loads(_ONCE)


def start_over(tx: Transaction, run: str) -> Script[None]:
    """Delete what a run recorded and received before its present generation. Its id and what it published stay."""
    for statement in START_OVER:
        yield from tx.execute(statement, run=run, now=tx.now, long_ago=tx.now - LONG_AGO)


def _insert(ops: Sequence[Start]) -> Script[set[str]]:
    """Insert runs. Return the uids of the inserted ones."""
    rows = yield INSERT_RUNS, {"rows": INSERT_RUNS.rows(run_values(op.run) for op in ops)}
    return {row[0] for row in rows}


def _claimable(op: Start, made: set[str], there: dict[str, tuple[Any, ...]], cancelled: set[str]) -> bool:
    """Whether workers must be notified of the run. After a lost acknowledgement the run is already stored."""
    run = op.run
    mine = run.uid in made or (run.id in there and there[run.id][1] == run.uid)
    return mine and run.owner is None and run.uid not in cancelled


def _started(op: Start, made: set[str], there: dict[str, tuple[Any, ...]], cancelled: set[str]) -> Started:
    run = op.run
    if run.uid in made:
        state = State.CANCELLED if run.uid in cancelled else run.state
        return Started(created=True, workflow=run.workflow, state=state)
    _, uid, workflow, state = there[run.id]
    return Started(created=uid == run.uid, workflow=workflow, state=State(state))


# -- keys ----------------------------------------------------------------------------------------------------------------
def _resolve_key(tx: Transaction, op: Start, made: set[str]) -> Script[dict[str, Started]]:
    """Return what became of a run whose key is taken; empty if its id is taken, or if the key is free by now."""
    while True:
        if (yield from tx.execute(STARTED_RUNS, ids=[op.run.id])):
            return {}
        met = yield from _decide_by_holder(tx, op.run)
        if met is not None:
            return {op.run.uid: met}
        made |= yield from _insert([op])
        if op.run.uid in made:
            return {}


def _decide_by_holder(tx: Transaction, run: NewRun) -> Script[Started | None]:
    """Decide what becomes of a run whose key is taken. None: the key is free by now."""
    skips = tx.dialect.locks and not tx.waits
    rows = yield from tx.execute(f"{KEY_HOLDER}{SKIP_LOCKED}" if skips else KEY_HOLDER, key=run.key)
    if not rows:
        locked = (yield from tx.execute(KEY_HOLDER.partition("FOR NO KEY")[0], key=run.key)) if skips else []
        if locked:
            raise Blocked([locked[0][0]])
        return None
    holder_id, workflow, state, due, begun, attempts, debounce_until, last_request, claimed = rows[0]
    holder = Holder(
        holder_id, workflow, state, due, bool(begun), attempts, debounce_until, last_request, claimed=bool(claimed)
    )
    decision = decide(run.key_mode, holder, run.uid, tx.now)
    if decision is KeyDecision.BESIDE:
        once = None if run.key_mode == KeyMode.DEBOUNCE else _ONCE
        yield from tx.execute(DROP_KEY, id=holder.id, retry=once)
        return None
    if decision is KeyDecision.UPDATE:
        due = yield from _replace_request(tx, run, holder)
        return Started(created=False, workflow=run.workflow, state=_state(due, tx.now), id=holder.id)
    refused = decision is KeyDecision.REFUSED
    return Started(created=False, workflow=holder.workflow, state=State(holder.state), id=holder.id, refused=refused)


def _replace_request(tx: Transaction, run: NewRun, holder: Holder) -> Script[int | None]:
    """Give the holder of a key the new request. Return its due time. Records of earlier attempts belong to the old request."""
    due = due_after_update(run.key_mode, holder, run.due)
    values = {column: getattr(run, column) for column in REQUESTED_COLUMNS}
    values |= {"id": holder.id, "last_request": run.uid, "due": due, "state": str(_state(due, tx.now))}
    yield from tx.execute(REPLACE_REQUEST, **values)
    if holder.claimed:
        yield from start_over(tx, holder.id)
    return due


def _state(due: int | None, now: int) -> State:
    return State.SCHEDULED if due is None or due > now else State.QUEUED
