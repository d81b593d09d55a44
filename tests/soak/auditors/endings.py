"""Every run that was promised is there, and every run that is there has ended as it must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.codec import decode_exception
from mainspring.model.states import State
from tests.soak.functions.programs import PROGRAMS
from tests.soak.functions.trips import TRIPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.runs import Run
    from tests.soak.evidence import Evidence

_ONCE = frozenset({"once", "once_blocking", "once_flow"})
_STOPPED_BY_OTHERS = frozenset({"cancel-other", "terminate-other"})
_NEVER = 99


def audit(evidence: Evidence) -> Iterator[str]:
    for lost in evidence.promised.keys() - evidence.runs.keys():
        yield f"run {lost} was promised and is not there\n{evidence.promised[lost]}"
    for run in evidence.runs.values():
        if not run.state.ended:
            yield f"run {run.id} of {run.workflow} is {run.state}, due {run.due}, owner {run.owner}: {run.blocked}"
        elif run.state not in _allowed(evidence, run):
            yield f"run {run.id} of {run.workflow} ended {run.state}: {run.reason} {_error(run)}\n{evidence.story(run.id)}"


def _allowed(evidence: Evidence, run: Run) -> set[State]:
    """The ends that a run may have."""
    allowed = {State.SUCCEEDED}
    if evidence.stopped(run) or evidence.timed(run) or _in_a_race(evidence, run):
        allowed.add(State.CANCELLED)
    if run.workflow in PROGRAMS:
        allowed |= _of_program(evidence, run)
    elif run.workflow in TRIPS and '"fail"' in run.input:
        allowed |= {State.FAILED}
        if not evidence.stopped(run):
            allowed.discard(State.SUCCEEDED)
    elif run.workflow in _ONCE and "interrupted" in f"{run.reason} {_error(run)}".lower():
        allowed.add(State.FAILED)
    elif run.schedule in _STOPPED_BY_OTHERS:
        allowed.add(State.CANCELLED)
    elif run.schedule == "failing":
        allowed.add(State.FAILED)
    return allowed


def _of_program(evidence: Evidence, run: Run) -> set[State]:
    operations = evidence.operations(run)
    error = _error(run)
    if any(operation[0] == "fail" and operation[2] == _NEVER for operation in operations):
        return {State.FAILED}
    if "imeout" in error and "act_timed" in run.input:  # attempts that were to succeed took too long as well
        return {State.FAILED}
    return set()


def _in_a_race(evidence: Evidence, run: Run) -> bool:
    """Children of branches that the parent's own code gives up are cancelled."""
    parent = evidence.runs.get(run.parent or "")
    while parent is not None:
        if any(f'"{kind}"' in parent.input for kind in ("first", "timeout", "group", "gather")):
            return True
        parent = evidence.runs.get(parent.parent or "")
    return False


def _error(run: Run) -> str:
    if run.error is None:
        return ""
    error: Any = decode_exception(run.error)
    return f"{type(error).__name__}: {error}"
