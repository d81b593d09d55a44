"""The small writes that go through the committer, and what each comes back with.

Many of them share one database transaction. Each carries the fence it stands behind (run, owner, epoch) and learns on its
own whether it lost; none fails its neighbours.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeGuard

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.model.runs import Ending, NewRun, Step
    from mainspring.model.states import State
    from mainspring.store.messages import Say

FAR = 2**62
"""Due at no time: what waits for something else than a time."""
NONE: Mapping[str, str] = MappingProxyType({})
"""Of the answers to ten thousand writes hardly one has anything to put here, and making an empty dictionary for each takes a while."""


class Verdict(Enum):
    """What became of a write that stands behind a fence."""

    DONE = "done"
    FENCED = "fenced"
    """The run is no longer this owner's in this epoch. Nothing was written."""
    STOPPING = "stopping"
    """The run was asked to stop, so nothing new begins. Nothing was written."""
    NOTIFIED = "notified"
    """Something happened to the run that its owner has not looked at yet. Nothing was written."""
    HELD = "held"
    """Another transaction locks what it concerns for longer than a moment. Nothing was written; the committer retries it."""
    LAST = "last"
    """The run is not to be tried again, since another one has taken its key. Nothing was written."""
    UNKNOWN = "unknown"
    """The receiver of a message does not exist. Nothing was written."""
    TAKEN = "taken"
    """A run that was to be started has the id of another workflow's run. Nothing was written."""


class Start(Struct, gc=False):
    """Store a new run, unless its id is taken."""

    run: NewRun
    asker: str | None = None
    """The run whose step asks for it, if any: once that is cancelled, what it starts is cancelled from the beginning."""


class Started(Struct, frozen=True, gc=False):
    """What `Start` found: `created` says whether this very request made the run."""

    created: bool
    workflow: str
    state: State
    id: str = ""
    """The run that it is, if that is another one than was asked for: the one that has its key."""
    refused: bool = False
    """That run has the key, and so nothing was done."""


class RecordStep(Struct, gc=False):
    """Record the beginning or the outcome of an operation of a run, and with it what the operation brings about.

    `starts` are runs that begin if, and only if, this is recorded. `mood` is the state that the run itself goes into
    (running or waiting). When a waiting run is to be woken is derived from its open steps; `due` can only make that
    earlier. A step already completed is never changed.
    """

    owner: str
    step: Step
    starts: Sequence[NewRun] = ()
    mood: State | None = None
    due: int = FAR
    watch: str | None = None
    """Tell, with the result, how the run of this id has ended, if it has."""
    unless_stopping: bool = False
    """Refused as STOPPING when the run is being cancelled; other outcomes are recorded then."""


class Complete(RecordStep):
    """A write with which the run itself succeeds: the outcome of its only operation, which is a transaction.

    For the transaction itself to make, not for the committer. Refused by `StoppedFirst` when the run was asked to stop before, unless `kept`.
    """

    kept: bool = False
    """What it did is committed already, in another database: then it is recorded, and the run is stopped."""


class StoppedFirst(Exception):
    """The run was asked to stop before its transaction could commit: nothing of it is to stay."""


class RecordAndSend(RecordStep):
    """A write with which a run says something, or receives a message: both happen if, and only if, this is recorded."""

    says: Sequence[Say] = ()
    takes: int | None = None
    """The number of the message that this operation receives."""


class Send(Struct):
    """Say something that is not the outcome of an operation: from outside runs, or in the middle of a step.

    With an `owner`, only if that worker still owns the run, in that epoch. All of it is sent, or nothing.
    """

    run: str
    says: list[Say]
    owner: str | None = None
    epoch: int = 0


class Recorded(Struct, gc=False):
    """What `RecordStep` came to. `taken` lists started runs whose id was there before, with the workflow they are of."""

    verdict: Verdict = Verdict.DONE
    taken: Mapping[str, str] = NONE
    unknown: Sequence[str] = ()
    """Receivers that do not exist."""
    became: Mapping[str, str] = NONE
    """Started runs that are other ones than were asked for: the ones that had their keys."""
    refused: Mapping[str, str] = NONE
    """Runs that were not started because of their keys, with the runs that have these."""
    ending: Ending | None = None
    missing: bool = False
    """There is no run of the id that was to be watched."""
    stopping: bool = False
    """It is recorded, but the run was asked to stop: nothing more is to begin."""


class DiscardOutcome(Struct):
    """Mark a completed operation as interrupted by the workflow's own code: its outcome was recorded but never seen."""

    owner: str
    run: str
    epoch: int
    position: str


class Suspend(Struct):
    """All branches of a run wait: record it as waiting. With `park`, its owner releases it as well.

    When it is to be woken is derived from its open steps; `no_later_than` can only make that earlier. Refused as NOTIFIED when
    something has happened meanwhile that the run waits for, or when it waits for nothing that is recorded.
    """

    owner: str
    run: str
    epoch: int
    park: bool
    no_later_than: int = FAR


class Release(Struct):
    """Hand a run back, so that any worker may take it: an orderly stop, or a replay this version cannot follow.

    A run that is recorded as waiting stays so, as long as an open step can wake it; any other is queued. One that is being
    cancelled is queued to make its compensations, if it may have any, and refused as STOPPING otherwise.
    """

    owner: str
    run: str
    epoch: int
    blocked: str | None = None
    unbegun: str | None = None
    """Its uid, if nothing of it was executed under this claim: then it is as if never claimed, and the claim's number is free again."""


class ContinueAs(Release):
    """Hand a run back to begin anew with another input: what it has recorded is forgotten, its id and its messages stay."""

    input: str = "{}"


class Compensate(Release):
    """Hand a run back that was stopped, and has yet to undo what it did. `undo_reason` is why it was."""

    undo_reason: str = ""


class Finish(Struct, gc=False):
    """Record how a run ended. Refused as STOPPING when it is being cancelled and this is another end than that."""

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
    """Set by a store that has had the schedule take note of it already."""
    after: str | None = None
    """Set by a store: where the outcome stands that goes before it in the same batch, and has to be there."""


class RetryLater(Struct):
    """An attempt of a run has failed, and it is to be tried again when it is due: from what it has achieved.

    The recorded exception that ended the attempt is forgotten, with what was recorded after it. Refused as STOPPING when the run is
    being cancelled, as LAST when it has lost its key meanwhile.
    """

    owner: str
    run: str
    epoch: int
    due: int
    error: str


Op = RetryLater | Start | RecordStep | Send | DiscardOutcome | Suspend | Release | Finish


def is_checkpoint(op: Op) -> TypeGuard[RecordStep]:
    """Whether it is the most frequent write of all: a step's outcome and nothing else."""
    return type(op) is RecordStep and op.mood is None and op.watch is None and not op.starts


def run_of(op: Op) -> str:
    """The run that a write is about: writes about one run keep their order."""
    if isinstance(op, Start):
        return op.run.id
    return op.step.run if isinstance(op, RecordStep) else op.run


Result = Started | Recorded | Verdict
