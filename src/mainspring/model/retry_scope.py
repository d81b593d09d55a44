"""What a retry or a resume forgets.

Positions say which branch recorded what: `t0.t1.3` is the fourth operation of the second task that the first task of the run created, and
its line is `t0.t1.`. What a retry forgets follows from the exception that ended the attempt: the exception itself, and what its branch and
the branches above it recorded after they had it, with the tasks that they created after that. What other branches recorded successfully
stays: a committed transaction of a sibling is never executed again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.model.runs import Step

BORN = "b:"
"""How the positions of notes begin that say when the last exception before a branch was created came. Without a note there was none."""
MADE = "x:"
"""The same for notes that say in which epoch a run forgot a transaction that had committed."""
UNDO = "u:"
"""How the positions of compensations begin."""
_BESIDE = (BORN, MADE, UNDO, "p:", "c:")
_REVEALED = ("step", "transaction")
"""Kinds whose outcome stays recorded when the workflow's own code cancels them at that moment."""


class Forgetting(Struct):
    """What is to be done with what a run has recorded, before it goes on."""

    forget: list[Step] = field(default_factory=list["Step"])
    reveal: list[Step] = field(default_factory=list["Step"])
    """Outcomes that the code has never seen, because the exception had it cancel the operation first: the next attempt sees them."""


def forgotten_by_retry(steps: Sequence[Step], error: str | None) -> Forgetting:
    """What another attempt forgets of a run that ended with `error`. Nothing, if no recorded exception ended it."""
    failed = _ended_by(steps, error)
    gone = _undone(steps)
    if failed is None:
        return Forgetting(list(gone.values()))
    if failed.position not in gone:
        gone |= _after(steps, failed)
    _forget_compensations(steps, gone)
    found = Forgetting()
    for step in sorted((step for step in steps if _is_later(step, failed)), key=_begun, reverse=True):
        # A branch that went on after its own exception, or after it had cancelled something, has to find that again.
        if step.position in gone or (step.error is None and not step.interrupted) or _went_on(step, steps, gone):
            continue
        if step.interrupted and step.kind in _REVEALED and step.output is not None:
            found.reveal.append(step)
        else:
            gone[step.position] = step
    found.forget = list(gone.values())
    return found


def forgotten_by_resume(steps: Sequence[Step]) -> list[Step]:
    """What a run forgets that was stopped and goes on: what its compensations have undone is executed again."""
    return list(_undone(steps).values())


def forgotten_from(steps: Sequence[Step], error: str | None) -> int | None:
    """The seq of the first outcome that a fork makes anew if it begins where the original failed. None: no recorded exception ended it."""
    scopes = _undone_scopes(steps)
    if scopes:
        return min(scope.seq for scope in scopes if scope.seq is not None)
    failed = _ended_by(steps, error)
    return failed.seq if failed is not None else None


def last_recorded(steps: Sequence[Step]) -> int | None:
    """The seq of the last outcome, if there is one."""
    return max((step.seq for step in steps if step.seq is not None), default=None)


def line_of(position: str) -> str:
    """The line of control that an operation is part of."""
    return position[: position.rfind(".") + 1]


def _ended_by(steps: Sequence[Step], error: str | None) -> Step | None:
    """The recorded exception that ended a run; None: no recorded one did.

    That is the last one that says what the run's own exception says. A run that made another exception of it (`raise … from`)
    ended with the last outcome it recorded, if that is an exception. One that was caught, and after which the run went on
    and failed by itself, stays: to forget it would not help.
    """
    recorded = sorted(
        (step for step in steps if step.seq is not None and not step.position.startswith(UNDO)),
        key=lambda step: step.seq or 0,
    )
    failed = [step for step in recorded if step.error is not None]
    cause = _type_and_message(error)
    alike = [step for step in failed if cause is not None and _type_and_message(step.error) == cause]
    if alike:
        return alike[-1]
    seen = [step for step in recorded if not step.interrupted]
    return failed[-1] if failed and failed[-1] is seen[-1] else None


def _undone_scopes(steps: Sequence[Step]) -> list[Step]:
    """The scopes whose compensations were made: what was done in them is not there any more."""
    scopes = {scope for step in steps if not _leaves(step) and (scope := _scope(step))}
    return [step for step in steps if step.position in scopes and step.seq is not None]


def _undone(steps: Sequence[Step]) -> dict[str, Step]:
    """The scopes that were undone, with all that came after them in their branches and those above. By position."""
    gone: dict[str, Step] = {}
    for scope in _undone_scopes(steps):
        gone |= _after(steps, scope)
    _forget_compensations(steps, gone)
    return gone


def _forget_compensations(steps: Iterable[Step], gone: dict[str, Step]) -> None:
    for step in steps:
        if _scope(step) in gone:
            gone[step.position] = step


def _after(steps: Sequence[Step], first: Step) -> dict[str, Step]:
    """An outcome, and what its branch and those above it recorded or began after they had it, with the branches created after it."""
    born = {step.position.removeprefix(BORN): int(step.output or 0) for step in steps if step.position.startswith(BORN)}
    line, at = line_of(first.position), first.completed or 0
    gone = {first.position: first}
    for step in steps:
        if step.position.startswith(BORN):
            place = step.position.removeprefix(BORN)
        elif _leaves(step):
            if line.startswith(line_of(_scope(step))) and (step.seq or 0) > (first.seq or 0):
                gone[step.position] = step
            continue
        elif step.position.startswith(_BESIDE):
            continue
        else:
            place = step.position
        branch = _branch_off(line, place)
        if branch is not None:
            within_scope = first.error is None and branch.startswith(line)
            if born.get(branch, -1) >= at or (within_scope and _is_later(step, first)):
                gone[step.position] = step
        elif _is_later(step, first) and _begun(step) > at:
            gone[step.position] = step
    return gone


def _scope(step: Step) -> str:
    """The position of the scope that a compensation, or the good end of a scope, belongs to."""
    return step.position.removeprefix(UNDO).rpartition(".")[0] if step.position.startswith(UNDO) else ""


def _leaves(step: Step) -> bool:
    """Whether it says that a scope was left in good order: nothing of it was undone."""
    return step.kind == "undo" and step.position.startswith(UNDO)


def _branch_off(line: str, position: str) -> str | None:
    """Where the line of a position leaves that of another: the first task that is not the other's. None: it is the same, or above."""
    shared = ""
    for part in line_of(position).split(".")[:-1]:
        below = f"{shared}{part}."
        if not line.startswith(below):
            return below
        shared = below
    return None


def _is_later(step: Step, first: Step) -> bool:
    """Whether it was recorded after an outcome. What has no number was begun, or given up, after it."""
    if step.position.startswith(_BESIDE):
        return False
    if step.seq is not None:
        return step.seq > (first.seq or 0)
    return step.completed is None or step.completed >= (first.completed or 0)


def _went_on(step: Step, steps: Iterable[Step], gone: dict[str, Step]) -> bool:
    """Whether the branch of an operation, or one below it, has achieved something since, which stays."""
    line = line_of(step.position)
    return any(
        other.position.startswith(line)
        and not other.position.startswith(_BESIDE)
        and other.position not in gone
        and not other.interrupted
        and other.error is None
        and _begun(other) > (step.completed or 0)
        for other in steps
    )


def _begun(step: Step) -> int:
    return step.started or 0


def _type_and_message(error: str | None) -> tuple[str, str] | None:
    """Type and message of a recorded exception."""
    if error is None:
        return None
    record = json.loads(error)
    return record.get("type", ""), record.get("message", "")
