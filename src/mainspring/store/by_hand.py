"""What an operator may do to runs that nobody has in hand: end them, or change when they begin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.model.states import State

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
_MOVE = "UPDATE runs SET state = :state, due = :due, priority = :priority, attempts = :attempts WHERE id = :id"


class Move(Struct, frozen=True):
    """When a run that has not begun is to begin. What is None stays as it is."""

    due: int | None = None
    priority: int | None = None
    attempts: int | None = None


def complete(desk: Desk, run: Run, output: Callable[[str], str], reason: str, now: int) -> bool:
    """End a run as if it had succeeded, with what `output` says for its function."""
    if run.state.ended or run.owner is not None:
        return False
    values = {"state": str(State.SUCCEEDED), "output": output(run.workflow), "reason": reason}
    desk.rows(_COMPLETE, id=run.id, now=now, yes=True, no=False, **values)
    desk.ended(run.id)
    return True


def fail(desk: Desk, run: Run, reason: str, now: int) -> bool:
    """End a run as failed; `retry` gives it another life."""
    if run.state.ended or run.owner is not None:
        return False
    error = json.dumps({"type": "mainspring.errors:RunEnded", "message": reason, "args": [reason]})
    desk.rows(_FAIL, id=run.id, state=str(State.FAILED), reason=reason, error=error, now=now, yes=True, no=False)
    desk.ended(run.id)
    return True


def reschedule(desk: Desk, run: Run, move: Move, now: int) -> bool:
    """Change when a run that waits to begin, or to be tried again, does so."""
    if run.state not in {State.SCHEDULED, State.QUEUED} or run.since is not None or run.owner is not None:
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
