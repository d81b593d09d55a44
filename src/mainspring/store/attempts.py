"""An attempt of a run has failed, and there is another one: what is kept, what is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.keyed import is_last
from mainspring.store.ops import Verdict
from mainspring.store.reviving import forget_attempt

if TYPE_CHECKING:
    from mainspring.store.desk import Desk
    from mainspring.store.ops import Again

_AGAIN = """
  UPDATE runs SET state = :state, due = :due, error = {error}, since = NULL, owner = NULL, poked = :no,
    stranded = NULL
  WHERE id = :id
"""


def try_again(desk: Desk, op: Again, now: int, error: str = ":error") -> Verdict:
    """Put a run that is still in its worker's hand back, to be claimed when it is due. `error` is how its record is written.

    LAST where another run has taken its key since it was claimed.
    """
    run = sql.to_run(desk.rows(sql.RUN, id=op.run)[0])
    if is_last(run):
        return Verdict.LAST
    forget_attempt(desk, run, op.error, now)
    state = State.SCHEDULED if op.due > now else State.QUEUED
    desk.rows(_AGAIN.format(error=error), id=run.id, state=str(state), due=op.due, error=op.error, no=False)
    desk.ready()
    return Verdict.DONE
