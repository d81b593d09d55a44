"""A run in the memory of this process: its phase, its open waits, its history and its tasks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from mainspring.engine.replay.empty import UNUSED, own
from mainspring.engine.replay.history import History
from mainspring.engine.replay.signals import Halt, Lost, Parked, Stopped
from mainspring.engine.replay.tasks import Tasks
from mainspring.engine.residency.phases import IN_CODE, LEGAL, STORED_AS_WAITING, Phase
from mainspring.errors import NonDeterminism
from mainspring.model.ids import LONGEST_ID
from mainspring.model.retry_scope import BRANCH_CREATED
from mainspring.model.runs import Step
from mainspring.store.writes import RecordStep

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from types import CodeType

    from mainspring.engine.host import Host, PipelinedCommit
    from mainspring.engine.registry import Function
    from mainspring.engine.residency.timers import Timer
    from mainspring.model.runs import Run, StepKind
    from mainspring.store.messages import Awaited
    from mainspring.store.writes import DiscardOutcome


class Quota(Struct, gc=False):
    """The number of functions that one execution has scheduled, and the size of their arguments."""

    functions: int = 0
    size: int = 0


_NO_TIME = 2**62
"""Later than any time, to compare with."""


class Wait:
    """A wait of a run: for a time, the end of another run or a message, or for the first of them.

    A context manager: the wait is over when the block is left, also if the workflow's code cancels the operation in it.
    """

    __slots__ = ("_execution", "awaits", "child", "future", "timer", "until")

    def __init__(self, execution: Execution, until: int | None, child: str | None, awaits: Awaited | None) -> None:
        self._execution = execution
        self.until = until
        self.child = child
        self.awaits = awaits
        self.timer: Timer | None = None
        self.future: asyncio.Future[Any] = execution.engine.loop.create_future()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._execution.woken(self)

    def register(self) -> None:
        """Add the wait to its run. In a halted run the wait ends at once with the signal."""
        if self._execution.signal is None:
            self._execution.waits = own(self._execution.waits)
            self._execution.waits[self] = None
        elif not self.future.done():
            self.future.set_exception(self._execution.signal)
            self.future.exception()

    def resolve(self, value: Any = None) -> None:
        """Resolve the wait. While a suspend of the run is being committed, the wake-up is held until that is answered."""
        if self._execution.held_wakes is not None:
            self._execution.held_wakes.append((self, value))
        elif not self.future.done():
            self._execution.woken(self)
            self.future.set_result(value)


class Execution:
    """One run in memory, from its claim to its end or release.

    `phase` is its state, and changes only by `move`. Attributes that are mostly empty are dictionaries or tuples, never sets or
    lists: the garbage collector does not visit empty ones, and there may be thousands of runs.
    """

    __slots__ = (
        "_answered",
        "_compensated",
        "_quiet",
        "_steps",
        "acting",
        "ahead",
        "closed_streams",
        "compensating",
        "complaints",
        "deadline",
        "disagreement",
        "dry",
        "end_processed",
        "ended_with",
        "engine",
        "epoch",
        "function",
        "held_back",
        "held_wakes",
        "history",
        "id",
        "invoking",
        "outcome",
        "output",
        "outstanding",
        "park_timer",
        "patches",
        "phase",
        "quota",
        "replays",
        "reserved",
        "run",
        "scopes",
        "signal",
        "tasks",
        "unawaited",
        "unconfirmed",
        "undoable",
        "undoing",
        "unreserved",
        "unwound",
        "waits",
    )

    history: History
    """What the run has recorded."""

    def __init__(  # noqa: PLR0915
        self, engine: Host, run: Run, function: Function, steps: Sequence[Step], undoing: Stopped | None = None
    ) -> None:
        """`undoing`: the stop whose compensations are made, if the run's row does not have it yet."""
        self.engine = engine
        self.run = run
        self.id = run.id
        self.epoch = run.epoch
        self.function = function
        self.undoing = undoing or (Stopped(run.undo_reason or None) if run.undo_reason is not None else None)
        """The stop whose compensations this execution makes. None: an ordinary execution."""
        self.replays = bool(steps)
        """Whether the run had a record when it was claimed."""
        self._steps: Sequence[Step] | None = steps
        """The record, until `history` is made of it."""
        # -- its phase and what it executes
        self.phase = Phase.RUNNING
        self.signal: Halt | None = None
        """Why the run was halted."""
        self.acting = 0
        """The number of operations that execute or commit, and do not wait."""
        self.invoking = 0
        """The number of steps whose function is executing."""
        self.outstanding = 0
        """The number of operations that were called and have not returned."""
        self.unawaited: dict[str, tuple[str, CodeType, int]] = UNUSED
        """By position: calls whose coroutine was not awaited yet, with what is called and the user's line."""
        self.waits: dict[Wait, None] = UNUSED
        self.held_wakes: list[tuple[Wait, Any]] | None = None
        """While a suspend or park is being committed: the wake-ups since then."""
        self._answered: tuple[asyncio.Future[None], ...] = ()
        """Operations that begin when that commit is answered."""
        self.held_back: dict[asyncio.Future[None], None] = UNUSED
        """Operations that must not begin, because the worker stops."""
        self._quiet: tuple[asyncio.Future[None], ...] = ()
        """Branches that the signal unwinds when no step of another branch executes any more."""
        self.park_timer: Timer | None = None
        self.deadline: Timer | None = None
        self.tasks = Tasks()
        # -- its record and its writes
        self.ahead: PipelinedCommit | None = None
        """The commit of an outcome that was delivered before it is stored. No operation begins before this commit is answered."""
        self.unconfirmed: asyncio.Future[Any] | None = None
        """The last write that no caller awaits. A transaction awaits it, because it does not go through the committer."""
        self.patches: dict[str, bool] = UNUSED
        """By patch: the answer that the workflow's code has got."""
        self.closed_streams: dict[str, None] = UNUSED
        """The streams that the workflow has closed."""
        self.reserved: dict[int, None] = UNUSED
        """Numbers of the messages that a branch is about to receive."""
        self.unreserved = 0
        """How often a reservation of a message ended, with or without the message being received."""
        self.quota = Quota()
        """The functions that the workflow's body has scheduled."""
        self.disagreement: NonDeterminism | None = None
        self.dry = False
        """Whether the run is only compared with its record (`mainspring replay`). Nothing is undone then."""
        # -- compensations
        self.undoable = self.replays and any(step.kind == "undo" for step in steps)
        """Whether the run has entered a `run.undo` block, so that a stop may owe compensations."""
        self.scopes = 0
        """The number of `run.undo` blocks that are open."""
        self.compensating = 0
        """The number of `run.undo` blocks that make their compensations."""
        self._compensated: tuple[asyncio.Future[None], ...] = ()
        """Who waits until no block does."""
        self.unwound = False
        """Whether an operation without a record has been reached and stopped, so that the blocks unwind."""
        self.complaints: tuple[str, ...] = ()
        """Compensations that failed."""
        # -- its end
        self.outcome: tuple[Any, BaseException | None] = (None, None)
        """The value or exception of the workflow's code."""
        self.output: str | None = None
        """The encoded result of a run that is one step, if the step has succeeded here."""
        self.ended_with: str | None = None
        """The result of a run that succeeded in the commit of its only operation."""
        self.end_processed = False
        """Whether the schedule has processed the end of this run."""

    def __getattr__(self, name: str) -> Any:
        """Make the history when it is first asked for: jobs that are one call of their function have none."""
        if name != "history" or self._steps is None:
            raise AttributeError(name)
        run, steps, self._steps = self.run, self._steps, None
        begun = run.attempt_started if run.attempts > 1 and run.attempt_started is not None else run.started
        unwinds = self.undoing is not None
        self.history = History(self.engine.loop, steps, run.created if begun is None else begun, unwinds=unwinds)
        return self.history

    # -- its phase -------------------------------------------------------------------------------------------------------
    def move(self, phase: Phase) -> bool:
        """Change the phase. Return False, and change nothing, if the change is not legal. From any thread of the run."""
        with self.engine.moving:
            return self._move(phase)

    def _move(self, phase: Phase) -> bool:
        if phase not in LEGAL[self.phase]:
            return False
        before, self.phase = self.phase, phase
        if (before in STORED_AS_WAITING) is not (phase in STORED_AS_WAITING):
            self.engine.residency.count(1 if phase in STORED_AS_WAITING else -1)
        return True

    def leave(self) -> None:
        """Leave the memory of this worker, from any phase."""
        with self.engine.moving:
            if self.phase in STORED_AS_WAITING:
                self.engine.residency.count(-1)
            self.phase = Phase.LEFT
        if self._steps is None:
            self.history.delivery.close()
            if self.history.watch is not None:
                self.history.watch.cancel()

    def begin_halt(self, signal: Halt) -> bool:
        """Halt the run, unless it has ended or was halted by a stronger signal. Return True if it was halted. Thread-safe.

        `Halting` then interrupts the code. A caller inside an operation of the run raises the signal.
        """
        with self.engine.moving:
            if self.phase not in IN_CODE and self.phase is not Phase.HALTED:
                return False
            if self.undoing is not None and isinstance(signal, Stopped):
                return False  # this execution makes the compensations of a stop
            if self.signal is not None and signal.rank <= self.signal.rank:
                return False
            self.signal = signal
            if self.phase is not Phase.HALTED:
                self._move(Phase.HALTED)
            return True

    def request_answered(self) -> asyncio.Future[None]:
        """Return a future to await before an operation begins, while a suspend or park is being committed."""
        future = self.engine.loop.create_future()
        self._answered += (future,)
        return future

    def release_wakes(self) -> list[tuple[Wait, Any]]:
        """Return the wake-ups that were held while a suspend or park was committed, and let held operations begin."""
        happened, self.held_wakes = self.held_wakes or [], None
        waiting, self._answered = self._answered, ()
        for future in waiting:
            if not future.done():
                future.set_result(None)
        return happened

    @property
    def in_code(self) -> bool:
        """Whether the workflow's code can still act."""
        return self.phase in IN_CODE

    @property
    def stored_as_waiting(self) -> bool:
        """Whether the run is stored as waiting, so that its next write sets it back to running."""
        return self.phase in STORED_AS_WAITING

    @property
    def suspended(self) -> bool:
        """Whether the run is stored as waiting, and no operation of it acts."""
        return self.phase is Phase.WAITING and self.acting == 0

    @property
    def must_finish(self) -> int:
        """The number of executing steps that must not be interrupted."""
        return self.invoking - len(self.tasks.interruptible)

    @property
    def alone(self) -> bool:
        """Whether the run has one branch and one operation, so that nothing can race it."""
        return self.outstanding <= 1 and not self.tasks.unfinished

    # -- the record ----------------------------------------------------------------------------------------------------
    def recall(self, position: str, kind: StepKind, name: str) -> Step | None:
        """Look up a position in the record. Raises `NonDeterminism` if another operation is recorded there."""
        if self.signal is not None:
            raise self.signal
        if self.disagreement is not None:
            raise self.disagreement
        self.unawaited.pop(position, None)
        step = self.history.take(position)
        if step is None:
            return None
        if (step.kind, step.name) != (kind, name):
            raise self.disagree(
                f"at position {position} the record has {_operation(step.kind, step.name)}, "
                f"but the code now requests {_operation(kind, name)}"
            )
        return step

    def patched(self, name: str) -> bool:
        """Whether the run takes the path of a patch. A run that was past this point before the patch does not.

        A halted run gets an answer, too, and nothing is recorded: raising here, where the code awaits nothing, would cut off the
        steps of other branches.
        """
        answer = self.patches.get(name)
        if answer is None:
            self.patches = own(self.patches)
            answer = self.patches[name] = self._take_patch(name)
        return answer

    def _take_patch(self, name: str) -> bool:
        position = f"p:{name}"
        if self.history.mark(position):
            return True
        if self.history.goes_on:
            return False
        if self.undoing is None and self.signal is None:
            write = RecordStep(self.engine.worker_id, self.new_mark(position, value=True, kind="patch", name=name))
            if self.function.on_loop:
                self.write_unconfirmed(write)
            else:
                self.engine.committer.commit_sync(write)
        return True

    def write_unconfirmed(self, write: RecordStep | DiscardOutcome) -> None:
        """Hand over a write that no caller awaits. The committer stores it before the next write of this run."""
        written = self.engine.committer.commit(write)
        written.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.unconfirmed = written

    def new_mark(self, position: str, value: Any, kind: StepKind = "mark", name: str = "mark") -> Step:
        """Make a mark: a record beside the operations, without a place in the order of outcomes."""
        now = self.engine.clock.now()
        text = json.dumps(value)
        return Step(self.id, position, kind, name, output=text, started=now, completed=now, epoch=self.epoch)

    def disagree(self, finding: str) -> NonDeterminism:
        """Note that the code does not agree with the record. From now on the outcome of the code does not count."""
        self.disagreement = NonDeterminism(
            f"run {self.id} of {self.function.name}: {finding}. A workflow must do the same operations in the same order when it "
            "is replayed: keep chance, time, and the outside world in steps, or guard a change with run.patched()."
        )
        self.engine.here(self.engine.halting.end_disagreeing, self)
        return self.disagreement

    def child_id(self, place: str, *, detached: bool = False) -> str:
        """The id of a run that this run starts at a place.

        A detached run may outlive this one, whose id may then be used again, so its id begins with the uid of this run. So do the
        ids in a long chain of children, which would grow without limit otherwise.
        """
        found = f"{self.id}/{place}"
        return f"{self.run.uid}/{place}" if detached or len(found) > LONGEST_ID else found

    def begins(self) -> int:
        """The time at which an operation begins: later than the last landmark, so that a retry can tell the two apart."""
        now = self.engine.clock.now()
        return now if now > self.history.landmark else self.history.landmark + 1

    def note_branch(self, prefix: str) -> None:
        """Record that the code created a branch after an exception: a retry that forgets the exception forgets the branch, too."""
        position = f"{BRANCH_CREATED}{prefix}"
        if self.history.journal.pop(position, None) is None and self.undoing is None and self.signal is None:
            mark = self.new_mark(position, value=self.history.failed_at)
            self.write_unconfirmed(RecordStep(self.engine.worker_id, mark))

    # -- waiting -------------------------------------------------------------------------------------------------------
    def wait(self, until: int | None = None, child: str | None = None, awaits: Awaited | None = None) -> Wait:
        """Register a wait in memory before it is recorded, so that no wake-up is lost between the two."""
        wait = Wait(self, until, child, awaits)
        self.engine.waits.watch(wait)
        return wait

    def next_due(self) -> int:
        """The first time at which one of the waits ends by itself."""
        return min((wait.until for wait in self.waits if wait.until is not None), default=_NO_TIME)

    def woken(self, wait: Wait) -> None:
        self.waits.pop(wait, None)
        self.engine.waits.unwatch(wait)

    def adopt(self, task: asyncio.Future[Any], site: str, *, branch: bool = False) -> None:
        """Make a task that the workflow created at `site` part of the run until it is done. `branch`: it executes workflow code."""
        self.tasks.add(task, site, branch=branch)
        task.add_done_callback(self._disown)

    def _disown(self, task: asyncio.Future[Any]) -> None:
        self.tasks.remove(task)
        if isinstance(getattr(task, "_exception", None), Halt) or (self.signal is not None and not task.cancelled()):
            # Retrieve the exception, so that asyncio does not log it: after a halt no outcome of the code counts. It may also be an
            # error of the store, when the database is unavailable.
            task.exception()

    # -- halting -------------------------------------------------------------------------------------------------------
    def interrupt(self) -> None:
        """Interrupt the code of a halted run: every wait ends with the signal. On the loop."""
        signal = self.signal
        assert signal is not None  # noqa: S101
        self.history.delivery.fail(signal)
        for task in self.tasks.interruptible:
            task.cancel()
        for wait in list(self.waits):
            self.woken(wait)
            if not wait.future.done():
                wait.future.set_exception(signal)
                wait.future.exception()  # retrieved here, in case no operation awaits it any more
        for held in list(self.held_back):
            if not held.done():
                held.set_exception(signal)
        if isinstance(signal, Lost):
            self._release_quiet()

    def enter_batch(self) -> None:
        """Note that a step waits for the outcome of its batch, which is executed outside of the run."""
        self.engine.clock.busy()
        self.invoking += 1

    def leave_batch(self) -> None:
        """Note that a step has the outcome of its batch, or waits for it no longer."""
        self.invoked()
        self.engine.clock.idle()

    def invoked(self) -> None:
        """Note that the function of a step has returned or raised."""
        self.invoking -= 1
        if self._quiet and self.must_finish == 0:
            self._release_quiet()

    def quiet(self) -> asyncio.Future[None] | None:
        """Return a future to await before the signal unwinds a branch, while a step of another branch executes; else None."""
        if self.must_finish == 0 or isinstance(self.signal, (Lost, Parked)):
            return None
        future = self.engine.loop.create_future()
        self._quiet += (future,)
        return future

    def _release_quiet(self) -> None:
        waiting, self._quiet = self._quiet, ()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def compensated(self) -> asyncio.Future[None] | None:
        """Return a future to await until no `run.undo` block makes its compensations; None if none does."""
        if not self.compensating:
            return None
        future = self.engine.loop.create_future()
        self._compensated += (future,)
        return future

    def end_compensating(self) -> None:
        """Note that a `run.undo` block has made its compensations."""
        self.compensating -= 1
        if not self.compensating:
            waiting, self._compensated = self._compensated, ()
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def hold_back(self) -> asyncio.Future[None]:
        """Return the future that an operation awaits which must not begin. It ends with the signal."""
        future = self.engine.loop.create_future()
        self.held_back = own(self.held_back)
        self.held_back[future] = None
        future.add_done_callback(lambda done: self.held_back.pop(done, None))
        return future


def _operation(kind: str, name: str) -> str:
    return kind if kind == name else f"{kind} {name!r}"
