"""Record the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.states import State
from mainspring.store.sql.runs import FINISH
from mainspring.store.verbs.fence import fence
from mainspring.store.writes import Verdict

if TYPE_CHECKING:
    from mainspring.store.transaction import Script, Transaction
    from mainspring.store.writes import Finish


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
