"""The recorded operations that a retry or a resume forgets.

A position names its branch: `t0.t1.3` is the fourth operation of the second task that the first task of the run created, and its branch
is `t0.t1.`. A retry forgets the exception that ended the attempt, with the operations that its branch and the branches above recorded
after they received the exception, and the tasks that they created after it. Successful operations of other branches stay: a committed
transaction of a sibling is never executed again. A note says which outcomes stayed although earlier ones are forgotten: the code may ask for
them in another order, or not at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.model.runs import Step

BRANCH_CREATED = "b:"
"""Prefix of the notes on when a branch was created: the time of the last exception before that. Without a note there was no exception."""
FORGOTTEN = "x:"
"""Prefix of the notes on operations that a run forgot: ids and keys that are made from their positions are used (`Edition`)."""
UNDO = "u:"
"""Prefix of the positions of compensations."""
KEPT = "k:"
"""The position of the note on outcomes that stayed while earlier ones were forgotten: the first `seq` of them, and the one after the last."""
ONCE = "o:"
"""Prefix of forgotten `at_most_once` steps: the same call receives their outcome, and is not executed again."""
OUTCOME_OF = "of"
"""Part of the trail of an `at_most_once` step: the position of the forgotten one whose outcome it received."""
_BESIDE = (BRANCH_CREATED, FORGOTTEN, UNDO, KEPT, ONCE, "p:", "c:")
_REVEALED = ("step", "transaction")
"""Kinds whose outcome stays recorded when the workflow's code cancels the operation at that moment."""


class Kept(Struct, frozen=True):
    """Outcomes that stay although earlier ones are forgotten."""

    first: int
    end: int
    """The `seq` after the last of them."""
    at: int
    """The time of the first of them. A fork that copies it copies the note, too."""


class Edition(Struct, frozen=True, array_like=True):
    """What a run forgot at a position. The ids and keys of the next operation there depend on it.

    An operation that had succeeded is executed once more, or another one stands at its position: what it starts, sends and does outside must
    not be taken for what was started, sent and done before. An operation that had failed is repeated with its ids and keys.
    """

    succeeded: int = 0
    """The epoch in which the run last forgot a success. 0: never."""
    name: str | None = None
    """The operation that failed last, since then. None: none did."""
    failed: int = 0
    """The epoch in which the run forgot that."""
    had: int = 0
    """The number that this operation had."""
    asked: bool = False
    """Whether an operator has asked for its repetition."""

    @classmethod
    def decode(cls, text: str | None) -> Edition:
        """Read a note. None: nothing was forgotten."""
        return cls() if text is None else msgspec.json.decode(text, type=cls)

    @property
    def latest(self) -> int:
        """The epoch in which the run last forgot an operation. 0: never."""
        return max(self.succeeded, self.failed)

    def number(self, name: str) -> int:
        """The number that distinguishes an operation from those that the run forgot at its position; 0 if it need not."""
        if self.name is None:
            return self.succeeded
        return self.had if name == self.name else self.failed

    def after(self, step: Step, epoch: int, *, asked: bool) -> Edition:
        """Return what is known when the next operation at this position is forgotten, too."""
        if step.output is not None and step.completed is not None:
            return Edition(epoch)
        _, own, number = (step.child or "").rpartition(f"/{step.position}~")
        had = int(number) if own and number.isdigit() else self.number(step.name)
        return Edition(self.succeeded, step.name, epoch, had, asked)


class Forgotten(Struct):
    """What changes in the recorded operations of a run before it continues."""

    forget: list[Step] = field(default_factory=list["Step"])
    reveal: list[Step] = field(default_factory=list["Step"])
    """Recorded outcomes that the code never received, because an exception made it cancel the operation.

    The next attempt receives them.
    """

    undone: set[str] = field(default_factory=set[str])
    """Positions of operations whose effects were undone."""

    def kept(self, steps: Sequence[Step]) -> Kept | None:
        """Return the outcomes that stay although earlier ones are forgotten, now or by a retry before. None: there are none."""
        gone = {step.position for step in self.forget}
        firsts = [step.seq for step in self.forget if step.seq is not None]
        firsts += [json.loads(step.output or "[0]")[0] for step in steps if step.position == KEPT]
        first = min(firsts, default=None)
        if first is None:
            return None
        stay = {step.seq: step.completed or 0 for step in steps if step.seq is not None and step.position not in gone}
        later = [seq for seq in stay if seq >= first]
        return Kept(min(later), max(later) + 1, min(stay[seq] for seq in later)) if later else None


def forgotten_by_retry(steps: Sequence[Step], error: str | None) -> Forgotten:
    """Return what another attempt forgets of a run that ended with `error`: nothing, if no recorded exception ended the run."""
    failed = _ended_by(steps, error)
    gone = _undone(steps, _undone_scopes(steps))
    undone = _positions_undone(steps, steps)
    if failed is None:
        return Forgotten(list(gone.values()), undone=undone)
    if failed.position not in gone:
        gone |= _after(steps, failed)
    _forget_compensations(steps, gone)
    found = Forgotten(undone=undone)
    for step in sorted((step for step in steps if _is_later(step, failed)), key=_started, reverse=True):
        if step.position in gone or (step.error is None and not step.interrupted):
            continue
        # A branch that continued after its own exception must find that again. A cancelled operation is asked for again: what cancelled it may
        # have been the exception that is forgotten, and then nothing would ever end it.
        if not step.interrupted and _has_continued(step, steps, gone):
            continue
        if step.interrupted and step.kind in _REVEALED and step.output is not None:
            found.reveal.append(step)
        else:
            gone[step.position] = step
    found.forget = list(gone.values())
    return found


def forgotten_by_resume(steps: Sequence[Step]) -> Forgotten:
    """Return the operations that a stopped run forgets when it resumes: those that its compensations have undone are executed again.

    A scope stays that an exception had left before, if its branch has continued: what was undone then is undone for good, and operations of
    other branches may depend on it.
    """
    owed = [step for step in steps if not _was_caught(step, steps)]
    return Forgotten(list(_undone(steps, _undone_scopes(owed)).values()), undone=_positions_undone(owed, steps))


def forgotten_from(steps: Sequence[Step], error: str | None) -> int | None:
    """Return the seq of the first outcome that a fork from the failure executes again. None if no recorded exception ended the run."""
    scopes = _undone_scopes(steps)
    if scopes:
        return min(scope.seq for scope in scopes if scope.seq is not None)
    failed = _ended_by(steps, error)
    return failed.seq if failed is not None else None


def last_recorded(steps: Sequence[Step]) -> int | None:
    """Return the seq of the last outcome, or None."""
    return max((step.seq for step in steps if step.seq is not None), default=None)


def branch_of(position: str) -> str:
    """Return the branch of an operation, as the prefix of its position."""
    return position[: position.rfind(".") + 1]


def _ended_by(steps: Sequence[Step], error: str | None) -> Step | None:
    """Return the recorded exception that ended a run, or None.

    It is the last one with the type and message of the run's own exception, or else of one that is part of it, in a group or as its cause
    (`raise … from`): of several the first, because those after it are forgotten with it. Otherwise it is the last recorded outcome, if that is
    an exception. A caught exception, after which the run continued and failed by itself, stays recorded: forgetting it would not help.
    """
    recorded = sorted(
        (step for step in steps if step.seq is not None and not step.position.startswith(UNDO)),
        key=lambda step: step.seq or 0,
    )
    failed = [step for step in recorded if step.error is not None]
    last = {_type_and_message(json.loads(step.error or "{}")): step for step in failed}
    own, *parts = _with_parts(json.loads(error)) if error is not None else [None]
    if own in last:
        return last[own]
    alike = [last[part] for part in parts if part in last]
    if alike:
        return min(alike, key=lambda step: step.seq or 0)
    seen = [step for step in recorded if not step.interrupted]
    return failed[-1] if failed and failed[-1] is seen[-1] else None


def _undone_scopes(steps: Sequence[Step]) -> list[Step]:
    """Return the scopes whose compensations were executed. The effects of their steps are undone."""
    scopes = {scope for step in steps if not _is_scope_end(step) and (scope := _scope(step))}
    return [step for step in steps if step.position in scopes and step.seq is not None]


def _was_caught(compensation: Step, steps: Sequence[Step]) -> bool:
    """Whether a compensation was made because of an exception that the code has caught: its branch has later operations."""
    scope = _scope(compensation)
    return bool(scope) and any(
        branch_of(step.position) == branch_of(scope)
        and not step.position.startswith(_BESIDE)
        and step.seq is not None
        and step.seq > (compensation.seq or 0)
        for step in steps
    )


def _undone(steps: Sequence[Step], scopes: Sequence[Step]) -> dict[str, Step]:
    """Return undone scopes, with all later operations of their branches and the branches above, by position."""
    gone: dict[str, Step] = {}
    for scope in scopes:
        gone |= _after(steps, scope)
    _forget_compensations(steps, gone)
    return gone


def _positions_undone(compensations: Sequence[Step], steps: Sequence[Step]) -> set[str]:
    """Return the operations of undone scopes that came before the first compensation, and the compensations.

    Later ones are not undone by it, nor is a scope none of whose compensations succeeded.
    """
    found: set[str] = set()
    for scope in _undone_scopes(compensations):
        made = [step for step in compensations if _scope(step) == scope.position and not _is_scope_end(step)]
        first = min((step.seq for step in made if step.seq is not None and step.output is not None), default=None)
        if first is None:
            continue
        found |= {step.position for step in made}
        found |= {step.position for step in _inside(steps, scope) if step.seq is not None and step.seq < first}
    return found


def _inside(steps: Sequence[Step], scope: Step) -> Iterable[Step]:
    """Return the operations of a scope: those of its branch, and those of the branches whose first one began in it."""
    line = branch_of(scope.position)
    branches: dict[str, list[Step]] = {}
    for step in steps:
        if step.position.startswith(line) and not step.position.startswith(_BESIDE):
            branches.setdefault(_first_other_branch(line, step.position) or line, []).append(step)
    for branch, made in branches.items():
        if branch == line or min(map(_started, made)) > (scope.completed or 0):
            yield from (step for step in made if _is_later(step, scope))


def is_once(step: Step) -> bool:
    """Whether an operation is an `at_most_once` step of a workflow: it is recorded with a hash of its input."""
    return step.kind == "step" and step.trail is not None and input_of(step) is not None


def input_of(step: Step) -> str | None:
    """Return the hash of the input of an `at_most_once` step."""
    return _note_of(step).get("input")


def outcome_of(step: Step) -> str | None:
    """Return the position of the forgotten step whose outcome an `at_most_once` step received. None: it was executed."""
    return _note_of(step).get(OUTCOME_OF)


def _note_of(step: Step) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(step.trail or "[{}]")[0])


def is_compensation(step: Step) -> bool:
    """Whether an operation, forgotten or not, is a compensation."""
    return step.position.removeprefix(ONCE).startswith(UNDO)


def once_forgotten(steps: Sequence[Step]) -> list[Step]:
    """Return the forgotten `at_most_once` steps whose outcome no later call has received, in the order in which they began."""
    forgotten = [step for step in steps if step.position.startswith(ONCE)]
    if not forgotten:
        return forgotten
    given = {outcome_of(step) for step in steps if is_once(step) and not step.position.startswith(ONCE)}
    return sorted(
        (step for step in forgotten if step.position not in given), key=lambda step: (_started(step), step.position)
    )


def _forget_compensations(steps: Iterable[Step], gone: dict[str, Step]) -> None:
    for step in steps:
        if _scope(step) in gone:
            gone[step.position] = step


def _after(steps: Sequence[Step], first: Step) -> dict[str, Step]:
    """Return an outcome with all that its branch and those above recorded or began after it, and the branches created after it."""
    born = {
        step.position.removeprefix(BRANCH_CREATED): int(step.output or 0)
        for step in steps
        if step.position.startswith(BRANCH_CREATED)
    }
    line, at = branch_of(first.position), first.completed or 0
    gone = {first.position: first}
    for step in steps:
        if step.position.startswith(BRANCH_CREATED):
            place = step.position.removeprefix(BRANCH_CREATED)
        elif _is_scope_end(step):
            if line.startswith(branch_of(_scope(step))) and (step.seq or 0) > (first.seq or 0):
                gone[step.position] = step
            continue
        elif step.position.startswith(_BESIDE):
            continue
        else:
            place = step.position
        branch = _first_other_branch(line, place)
        if branch is not None:
            within_scope = first.error is None and branch.startswith(line)
            if born.get(branch, -1) >= at or (within_scope and _is_later(step, first)):
                gone[step.position] = step
        elif _is_later(step, first) and _started(step) > at:
            gone[step.position] = step
    return gone


def _scope(step: Step) -> str:
    """Return the position of the scope that a compensation or the successful end of a scope belongs to."""
    return step.position.removeprefix(UNDO).rpartition(".")[0] if step.position.startswith(UNDO) else ""


def _is_scope_end(step: Step) -> bool:
    """Whether the operation records the successful end of a scope: nothing of the scope was undone."""
    return step.kind == "undo" and step.position.startswith(UNDO)


def _first_other_branch(line: str, position: str) -> str | None:
    """Return where the branch of a position leaves `line`: the first task that is not part of `line`.

    None if the branch is `line` or above.
    """
    shared = ""
    for part in branch_of(position).split(".")[:-1]:
        below = f"{shared}{part}."
        if not line.startswith(below):
            return below
        shared = below
    return None


def _is_later(step: Step, first: Step) -> bool:
    """Whether an operation was recorded after `first`. One without a seq began, or was given up, after it."""
    if step.position.startswith(_BESIDE):
        return False
    if step.seq is not None:
        return step.seq > (first.seq or 0)
    return step.completed is None or step.completed >= (first.completed or 0)


def _has_continued(step: Step, steps: Iterable[Step], gone: dict[str, Step]) -> bool:
    """Whether the branch of an operation, or one below it, has later successful operations, which stay."""
    line = branch_of(step.position)
    return any(
        other.position.startswith(line)
        and not other.position.startswith(_BESIDE)
        and other.position not in gone
        and not other.interrupted
        and other.error is None
        and _started(other) > (step.completed or 0)
        for other in steps
    )


def _started(step: Step) -> int:
    return step.started or 0


def _type_and_message(record: dict[str, Any]) -> tuple[str, str]:
    """Return the type and message of a recorded exception."""
    return record.get("type", ""), record.get("message", "")


def _with_parts(record: dict[str, Any]) -> list[tuple[str, str] | None]:
    """Return the type and message of a recorded exception, and those of its cause and of the exceptions of a group, at any depth."""
    found: list[tuple[str, str] | None] = [_type_and_message(record)]
    grouped = _items(_items(record.get("args"))[1:2])
    members = [_fields(member).get("value") for group in grouped for member in _items(group)]
    for part in map(_fields, [record.get("cause"), *members]):
        if part:
            found += _with_parts(part)
    return found


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []  # type: ignore[redundant-cast]


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
