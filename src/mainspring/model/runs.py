"""Runs, steps and workers as the store keeps them. Times are integer microseconds UTC, values are JSON text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from mainspring.model.states import State  # noqa: TC001  (records are also read back from JSON)

if TYPE_CHECKING:
    from collections.abc import Sequence

USER = "user"
"""The attribute that names the user for whom a run is executed."""


def user_of(attributes: str) -> str | None:
    """Return the user of a run with these attributes, or None."""
    found = json.loads(attributes).get(USER) if f'"{USER}"' in attributes else None
    return found if isinstance(found, str) else None


def error_record(kind: str, message: str) -> str:
    """The stored exception of a run that the library itself ends. `kind` is the name of a class in `mainspring.errors`."""
    return json.dumps({"type": f"mainspring.errors:{kind}", "message": message, "args": [message]})


class NewRun(Struct, gc=False, omit_defaults=True):
    """A run as requested. With an `owner`, the run begins owned by that worker, without a claim."""

    id: str
    uid: str
    workflow: str
    kind: str
    input: str
    state: State
    due: int | None
    """None: promised by its schedule, which releases it."""
    created: int
    timeout: int | None = None
    deadline: int | None = None
    owner: str | None = None
    version: str | None = None
    fingerprint: str = ""
    parent: str | None = None
    scheduled_by: str | None = None
    attributes: str = "{}"
    scheduled_time: int | None = None
    """The time that the caller requested with `run_after` or `run_at`."""
    queue: str | None = None
    priority: int = 0
    partition: str = ""
    key: str | None = None
    retry: str | None = None
    debounce_until: int | None = None
    key_mode: str | None = None
    """What to do about an unfinished run with the same key. Not stored."""


class Run(Struct, gc=False):
    """A run as stored."""

    id: str
    uid: str
    workflow: str
    kind: str
    state: State
    reason: str | None
    input: str
    output: str | None
    error: str | None
    due: int | None
    """None: no time wakes it, but a message, another run, its schedule or an operator."""
    created: int
    started: int | None
    completed: int | None
    timeout: int | None
    deadline: int | None
    owner: str | None
    epoch: int
    recoveries: int
    version: str | None
    fingerprint: str
    parent: str | None
    scheduled_by: str | None
    attributes: str
    blocked: str | None
    schedule: str | None = None
    tick: str | None = None
    queue: str | None = None
    priority: int = 0
    partition: str = ""
    key: str | None = None
    attempts: int = 0
    retry: str | None = None
    attempt_started: int | None = None
    debounce_until: int | None = None
    scheduled_time: int | None = None
    forked_from: str | None = None
    forked_at: str | None = None
    generation: int = 0
    undo_reason: str | None = None
    began_epoch: int = 1
    """The epoch in which the present attempt began. Later epochs continue that attempt."""

    @property
    def is_continuation(self) -> bool:
        """Whether this claim continues an attempt that an earlier claim began."""
        return self.epoch > self.began_epoch


StepKind = Literal[
    "step",
    "transaction",
    "sleep",
    "start",
    "call",
    "result",
    "ended",
    "send",
    "receive",
    "set_event",
    "event",
    "write_stream",
    "close_stream",
    "stream",
    "question",
    "answer",
    "undo",
    "patch",
    "mark",
]
"""The kinds of operations of a run. The tables accept no others."""


class Step(Struct, gc=False):
    """An operation of a run. Without `completed` it is unfinished: a wait, or a step between two attempts.

    A `discarded` operation was cancelled by the workflow's code while its outcome was being recorded. The output of a step or
    transaction is kept, for an attempt that does not cancel it; nothing else is.
    """

    run: str
    position: str
    kind: StepKind
    name: str
    seq: int | None = None
    output: str | None = None
    error: str | None = None
    started: int | None = None
    completed: int | None = None
    attempts: int = 0
    epoch: int = 0
    child: str | None = None
    due: int | None = None
    trail: str | None = None
    discarded: bool = False

    @property
    def interrupted(self) -> bool:
        """Whether the workflow's code cancelled the operation before it received an outcome. A replay waits for that cancellation.

        A wait that the code cancelled has neither output nor error; an outcome that the code did not receive is discarded.
        """
        return self.discarded or (self.completed is not None and self.output is None and self.error is None)


class Ending(Struct, frozen=True, gc=False):
    """The end of a run: enough to return its result or raise its exception."""

    id: str
    state: State
    reason: str | None
    output: str | None
    error: str | None


class Worker(Struct, frozen=True):
    """A process that executes runs. `beat` grows with each heartbeat."""

    id: str
    host: str
    boot: str
    pid: int
    pid_start: int
    version: str
    functions: str
    started: int
    beat: int
    seen: int
    crontab: str = "{}"
    """The crontab entries that the worker lists, with their patterns."""
    instances: str = "{}"
    """The methods that the worker executes, each with the names of its registered instances."""


class Claim(Struct, frozen=True, gc=False):
    """A run that a worker claimed, with all its recorded operations."""

    run: Run
    steps: Sequence[Step] = ()


class RunFilter(Struct, frozen=True):
    """Which runs to list, newest first. `before` is the uid of the last one of the page before.

    Times are microseconds; each span begins with its first and ends before its second. Of several texts one has to fit.
    """

    states: Sequence[str] = ()
    workflow: Sequence[str] = ()
    id_prefix: Sequence[str] = ()
    parent: Sequence[str] = ()
    stranded: bool | None = None
    before: str | None = None
    limit: int = 50
    ids: Sequence[str] = ()
    kind: Sequence[str] = ()
    queue: Sequence[str] = ()
    key: Sequence[str] = ()
    schedule: Sequence[str] = ()
    version: Sequence[str] = ()
    forked_from: Sequence[str] = ()
    attributes: str | None = None
    """A JSON object: runs that have all of these."""
    created: tuple[int | None, int | None] = (None, None)
    started: tuple[int | None, int | None] = (None, None)
    completed: tuple[int | None, int | None] = (None, None)
    due: tuple[int | None, int | None] = (None, None)
    few_by: Literal["", "states", "workflow", "prefix", "completed"] = ""
    """There are few runs in these states (none of them an end), of these workflows, or with these prefixes: to find them by that is quicker
    than to go through all."""
    since: str | None = None
    """The uid of the oldest run that comes into question."""
