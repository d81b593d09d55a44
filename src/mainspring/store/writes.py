"""The writes that go through the committer: their fences, the answer to each, and the order in which a batch applies them.

Many of them share one database transaction. Each carries its fence (run, owner, epoch) and is answered by itself; a write that is
refused does not affect the others.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec import Struct

from mainspring.model.states import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.model.runs import Ending, NewRun, Step
    from mainspring.store.messages import Outgoing

NONE: Mapping[str, str] = MappingProxyType({})
"""A shared empty mapping: hardly any answer has an entry, and a dictionary for each of ten thousand answers costs time."""


class Verdict(Enum):
    """The answer to a write with a fence."""

    DONE = "done"
    FENCED = "fenced"
    """This worker does not own the run in this epoch. Nothing was written."""
    STOPPING = "stopping"
    """The run was asked to stop, so nothing new begins. Nothing was written."""
    NOTIFIED = "notified"
    """The run has a notice that its owner has not read. Nothing was written."""
    HELD = "held"
    """Another transaction keeps the rows locked. Nothing was written; the committer retries the write."""
    LAST = "last"
    """The run has no further attempt, because another run has taken its key. Nothing was written."""
    UNKNOWN = "unknown"
    """The receiver of a message does not exist. Nothing was written."""
    TAKEN = "taken"
    """A run to be started has the id of a run of another workflow. Nothing was written."""


class Start(Struct, gc=False):
    """Store a new run, unless its id is taken."""

    run: NewRun
    asker: str | None = None
    """The run whose step starts it, if any. If that run was cancelled, the new run is stored as cancelled."""


class Started(Struct, frozen=True, gc=False):
    """The answer to `Start`. `created`: this request stored the run."""

    created: bool
    workflow: str
    state: State
    id: str = ""
    """The id of the run that has the key, if that is another run than the requested one."""
    refused: bool = False
    """Whether nothing was done because that run has the key."""


class RecordStep(Struct, gc=False):
    """Record the beginning or the outcome of an operation of a run, together with the effects of the operation.

    `starts` are runs that are stored in the same commit. `run_state` is the new state of the run itself (running or waiting). The time
    at which a waiting run wakes is derived from its open steps; `due` can only make it earlier. A completed step is never changed.
    """

    owner: str
    step: Step
    starts: Sequence[NewRun] = ()
    run_state: State | None = None
    due: int | None = None
    watch: str | None = None
    """The id of a run whose ending the answer includes, if that run has ended."""
    unless_stopping: bool = False
    """Whether the write is refused as STOPPING when the run is being cancelled. Other outcomes are recorded then."""


class Complete(RecordStep):
    """Record the outcome of a transaction that is the only operation of its run, and complete the run.

    Written by the transaction itself, not by the committer. Raises `StoppedFirst` if the run was asked to stop before, unless `kept`.
    """

    kept: bool = False
    """Whether the transaction has committed in another database. Then its outcome is recorded also in a run that was stopped."""


class StoppedFirst(Exception):
    """The run was asked to stop before its transaction could commit. The transaction is rolled back."""


class RecordAndSend(RecordStep):
    """Record an operation that sends, publishes or receives messages, in one commit with them."""

    outgoing: Sequence[Outgoing] = ()
    takes: int | None = None
    """The number of the message that this operation receives."""


class RecordAndRevive(RecordStep):
    """Record the beginning of a wait for a child, and let the child continue if it has failed or was cancelled.

    A retry of the run has forgotten how the child had ended. `watch` is the child; a run that is no child of this one is left alone.
    """

    asked: bool = False
    """Whether an operator has asked for the retry."""


class Send(Struct):
    """Send messages that are no outcome of an operation: from outside runs, or inside a step.

    With an `owner`, only if that worker owns the run in that epoch. All messages are sent, or none.
    """

    run: str
    outgoing: list[Outgoing]
    owner: str | None = None
    epoch: int = 0


class Recorded(Struct, gc=False):
    """The answer to `RecordStep`."""

    verdict: Verdict = Verdict.DONE
    taken: Mapping[str, str] = NONE
    """By id of a started run that existed before: its workflow."""
    unknown: Sequence[str] = ()
    """Receivers that do not exist."""
    became: Mapping[str, str] = NONE
    """By id of a run to be started: the id of the run that has its key, and that it became."""
    refused: Mapping[str, str] = NONE
    """By id of a run that was not started because of its key: the id of the run that has the key."""
    ending: Ending | None = None
    """How the watched run ended, if it has."""
    missing: bool = False
    """Whether the watched run does not exist."""
    stopping: bool = False
    """Whether the run was asked to stop. The operation is recorded, and no other may begin."""


class DiscardOutcome(Struct):
    """Mark a completed operation as interrupted: the workflow's code cancelled it before its outcome was delivered."""

    owner: str
    run: str
    epoch: int
    position: str


class Suspend(Struct):
    """Set a run whose branches all wait to waiting. With `park`, its owner releases it as well.

    The time at which the run wakes is derived from its open steps; `no_later_than` can only make it earlier. Refused as NOTIFIED
    when the run was woken before the commit, or when no open step is recorded that could wake it.
    """

    owner: str
    run: str
    epoch: int
    park: bool
    no_later_than: int | None = None


class Release(Struct):
    """Release a run, so that any worker may claim it: in an orderly stop, or after a replay that disagrees with the record.

    A waiting run stays waiting if an open step can wake it; any other run is queued. A run that is being cancelled is queued if it may
    owe compensations, and refused as STOPPING otherwise.
    """

    owner: str
    run: str
    epoch: int
    blocked: str | None = None
    unbegun: str | None = None
    """The uid of the run, if nothing of it was executed under this claim: the claim is undone, as if the run had not been claimed."""


class ContinueAs(Release):
    """Release a run to begin another generation with a new input. Its steps are deleted, its id and its messages stay."""

    input: str = "{}"


class Compensate(Release):
    """Release a stopped run that owes compensations. `undo_reason` is the reason of the stop."""

    undo_reason: str = ""


class Finish(Struct, gc=False):
    """End a run. Refused as STOPPING when the run is being cancelled and `state` is not cancelled."""

    owner: str
    run: str
    epoch: int
    state: State
    completed: int
    reason: str | None = None
    output: str | None = None
    error: str | None = None
    schedule: str | None = None
    """The schedule that started it."""
    end_processed: bool = False
    """Set by a store whose commit has also processed the end for the schedule."""
    after: str | None = None
    """Set by a store: the position of an outcome in the same batch that must be recorded before the end."""


class RetryLater(Struct):
    """Release a run whose attempt failed, to be retried when it is due.

    The recorded exception that ended the attempt is forgotten, and what followed from it. Refused as STOPPING when the run is being
    cancelled, as LAST when another run has taken its key.
    """

    owner: str
    run: str
    epoch: int
    due: int
    error: str


Op = RetryLater | Start | RecordStep | Send | DiscardOutcome | Suspend | Release | Finish


def is_checkpoint(op: Op) -> TypeGuard[RecordStep]:
    """Whether a write records the outcome of a step and nothing else: the most frequent write."""
    return type(op) is RecordStep and op.run_state is None and op.watch is None and not op.starts


def run_of(op: Op) -> str:
    """The id of the run that a write is about. Writes of one run keep their order."""
    if type(op) is Finish:  # the most frequent one
        return op.run
    if isinstance(op, Start):
        return op.run.id
    return op.step.run if isinstance(op, RecordStep) else op.run


Result = Started | Recorded | Verdict


class _Last(Struct, gc=False):
    """What was last written about a run: in which part, and at which positions."""

    layer: int = -1
    positions: dict[str, None] = {}
    checkpoints: bool = True
    """There was nothing but checkpoints in that part."""


def layers(ops: Sequence[Op]) -> list[list[Op]]:
    """Parts to be applied one after the other, so that no write in a part builds on another in the same part.

    Within a part a store may group writes by kind, the ends of runs last. Nearly always there is one part: a run has one
    write under way, or the outcomes of several branches at different positions, or its last outcome and its end.
    """
    if len({run_of(op) for op in ops}) == len(ops):
        return [list(ops)]
    found: list[list[Op]] = []
    runs: dict[str, _Last] = {}
    for op in ops:
        last = runs.setdefault(run_of(op), _Last())
        position = _position(op)
        if type(op) is Finish:
            follows = last.checkpoints and len(last.positions) == 1
        else:
            follows = bool(last.positions) and position is not None and position not in last.positions
        if not follows:
            last.layer, last.positions, last.checkpoints = last.layer + 1, {}, True
        if position is not None:
            last.positions[position] = None
        last.checkpoints = last.checkpoints and is_checkpoint(op)
        if last.layer == len(found):
            found.append([])
        found[last.layer].append(op)
    return found


def _position(op: Op) -> str | None:
    """Where a write stands in its run, if those at other positions do not matter to it. Messages keep their order anyway."""
    if isinstance(op, Send):
        return f"notify {id(op)}"
    return op.step.position if isinstance(op, RecordStep) and op.run_state is None else None


# -- fences --------------------------------------------------------------------------------------------------------------
LockedRun = tuple[Any, ...]
"""A locked row, as `LOCKED_COLUMNS`: id, owner, epoch, state, reason, output, error, completed."""


def fence(row: LockedRun | None, owner: str, epoch: int) -> Verdict:
    """DONE if the owner still owns the run in this epoch, STOPPING if the run is also being cancelled, FENCED if not."""
    if row is None or row[1:3] != (owner, epoch) or State(row[3]).ended:
        return Verdict.FENCED
    return Verdict.STOPPING if row[3] == State.CANCELLING else Verdict.DONE


def ended_in(row: LockedRun | None, epoch: int) -> bool:
    """Whether a run ended in this epoch. Then a write from before its end may be a repetition after a lost acknowledgement."""
    return row is not None and row[2] == epoch and State(row[3]).ended


def released_in(row: LockedRun | None, epoch: int) -> bool:
    """Whether no worker has owned a run since this epoch. Then a release is a repetition after a lost acknowledgement."""
    return row is not None and row[1] is None and row[2] == epoch and not State(row[3]).ended
