"""What an operator may do to runs that no worker owns: end them, change when they begin, deal with those that have failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.model.states import State
from mainspring.store import reviving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.records import Run
    from mainspring.store.desk import Desk

_END = """
  UPDATE runs SET state = :state, reason = :reason, output = {output}, error = {error}, completed = :now, poked = :no, stranded = NULL,
    untold = :yes
  WHERE id = :id
"""
_COMPLETE = _END.format(output=":output", error="NULL")
_FAIL = _END.format(output="NULL", error=":error")
_MARK = "UPDATE runs SET reason = :reason WHERE id = :id"
_MOVE = "UPDATE runs SET state = :state, due = :due, priority = :priority, attempts = :attempts WHERE id = :id"
_ANEW = "UPDATE runs SET deadline = NULL WHERE id = :id"
"""Its time counts from when it begins."""


class Move(Struct, frozen=True):
    """When a run is to begin that has not begun, or has failed. What is None stays as it is."""

    due: int | None = None
    priority: int | None = None
    attempts: int | None = None


def complete(desk: Desk, run: Run, output: Callable[[str], str], reason: str, now: int) -> bool:
    """End a run as if it had succeeded, with what `output` says for its function; also one that has failed."""
    if run.owner is not None or (run.state.ended and run.state is not State.FAILED):
        return False
    values = {"state": str(State.SUCCEEDED), "output": output(run.workflow), "reason": reason}
    desk.rows(_COMPLETE, id=run.id, now=now, yes=True, no=False, **values)
    desk.ended(run.id)
    return True


def fail(desk: Desk, run: Run, reason: str, now: int) -> bool:
    """End a run as failed; `retry` gives it another life. One that has failed is marked with the reason, and keeps its error."""
    if run.owner is not None or (run.state.ended and run.state is not State.FAILED):
        return False
    if run.state is State.FAILED:
        desk.rows(_MARK, id=run.id, reason=reason)
        return True
    error = json.dumps({"type": "mainspring.errors:RunEnded", "message": reason, "args": [reason]})
    desk.rows(_FAIL, id=run.id, state=str(State.FAILED), reason=reason, error=error, now=now, yes=True, no=False)
    desk.ended(run.id)
    return True


def reschedule(desk: Desk, run: Run, move: Move, now: int) -> bool:
    """Change when a run that waits to begin, or to be tried again, does so. One that has failed is retried at that time."""
    if run.state is State.FAILED and run.owner is None:
        reviving.retry(desk, run, now)
        desk.rows(_ANEW, id=run.id)
        run.state, run.due, run.attempts = State.QUEUED, now, 0
    elif run.state not in {State.SCHEDULED, State.QUEUED} or run.since is not None or run.owner is not None:
        return False
    due = run.due if move.due is None else move.due
    values = {
        "state": str(State.SCHEDULED if due > now else State.QUEUED),
        "due": due,
        "priority": run.priority if move.priority is None else move.priority,
        "attempts": run.attempts if move.attempts is None else move.attempts,
    }
    desk.rows(_MOVE, id=run.id, **values)
    desk.ready()
    return True


def each(ids: Sequence[str], found: dict[str, Run], act: Callable[[Run], bool]) -> dict[str, bool]:
    """Do it to those that exist; False for the others."""
    return {run_id: run_id in found and act(found[run_id]) for run_id in ids}
