"""Stop runs from outside: cancel, terminate and expire them, and release the runs of a dead worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mainspring.model.runs import error_record
from mainspring.model.states import State
from mainspring.store.sql.runs import (
    CANCEL_OWNED,
    CANCEL_TO_COMPENSATE,
    CANCEL_UNOWNED,
    EXPIRE,
    EXPIRE_TO_COMPENSATE,
    FIND_OVERDUE,
    FIND_OWNED,
    RETIRE,
    TERMINATE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.store.transaction import Script, Transaction

_REMOVE_WORKER = "DELETE FROM workers WHERE id = :worker"
_UNLIMITED = 2**62
_EXHAUSTED = "its worker was lost more than {most} times while it ran; `mainspring runs resume` gives it another chance"


def cancel(tx: Transaction, ids: Sequence[str], reason: str | None) -> Script[dict[str, bool]]:
    """Cancel runs and their descendants; see `Store.cancel`."""
    tree = yield from tx.lock_tree(ids, with_deadline=reason == "timeout")
    owned = yield from tx.execute(CANCEL_OWNED, ids=tree, reason=reason)
    stopped = tx.changes.stopped(owned, State.CANCELLING, reason)
    compensating = {
        row[0] for row in (yield from tx.execute(CANCEL_TO_COMPENSATE, ids=tree, reason=reason, now=tx.now))
    }
    ended = {row[0] for row in (yield from tx.execute(CANCEL_UNOWNED, ids=tree, reason=reason, now=tx.now))}
    tx.changes.ready = tx.changes.ready or bool(compensating)
    tx.changes.end(ended)
    return {run: run in stopped or run in compensating or run in ended for run in ids}


def terminate(tx: Transaction, ids: Sequence[str], reason: str | None) -> Script[dict[str, bool]]:
    """End runs and their descendants at once; see `Store.terminate`."""
    tree = yield from tx.lock_tree(ids, with_deadline=reason == "timeout")
    rows = yield from tx.execute(TERMINATE, ids=tree, reason=reason, now=tx.now)
    tx.changes.stopped(rows, State.CANCELLED, reason)
    ended = {row[0] for row in rows}
    tx.changes.end(ended)
    return {run: run in ended for run in ids}


def expire(tx: Transaction) -> Script[int]:
    """Cancel unowned runs whose deadline has passed. Return their number."""
    found = yield from tx.lock_found(FIND_OVERDUE, free=True, now=tx.now)
    compensating = (yield from tx.execute(EXPIRE_TO_COMPENSATE, ids=found, now=tx.now)) if found else []
    ended = (yield from tx.execute(EXPIRE, ids=found, now=tx.now)) if found else []
    tx.changes.ready = tx.changes.ready or bool(compensating)
    tx.changes.end(row[0] for row in ended)
    return len(ended)


def retire(tx: Transaction, worker: str, max_recoveries: int | None, limits: Mapping[str, int] | None) -> Script[int]:
    """Release the runs of a dead worker, and delete the worker when it owns none. Return the number of runs; see `Store.retire`."""
    most = _UNLIMITED if max_recoveries is None else max_recoveries
    found = yield from tx.lock_found(FIND_OWNED, free=True, worker=worker)
    values = {
        "worker": worker,
        "most": most,
        "limits": json.dumps(dict(limits or {})),
        "exhausted": error_record("RunEnded", _EXHAUSTED.format(most=most)),
        "now": tx.now,
    }
    rows = (yield from tx.execute(RETIRE, ids=found, **values)) if found else []
    yield from tx.execute(_REMOVE_WORKER, worker=worker)
    tx.changes.ready = tx.changes.ready or bool(rows)
    tx.changes.end(run for run, state in rows if State(state).ended)
    return len(rows)
