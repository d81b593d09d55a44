"""A run in this process's memory: what it has recorded, where it stands, and whether it may go on."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mainspring.engine.replay.delivery import Delivery
from mainspring.engine.replay.empty import UNUSED, own
from mainspring.engine.replay.signals import Halt, Lost, Parked, Stopped
from mainspring.engine.residency.phases import IN_CODE, LEGAL, STORED_AS_WAITING, Phase
from mainspring.errors import NonDeterminism
from mainspring.model.ids import LONGEST_ID
from mainspring.model.retry_scope import BORN, MADE, UNDO
from mainspring.model.runs import Step
from mainspring.store.writes import FAR, RecordStep

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import CodeType

    from mainspring.engine.host import Host, PipelinedCommit
    from mainspring.engine.registry import Function
    from mainspring.engine.residency.timers import Timer
    from mainspring.model.runs import Run, StepKind
    from mainspring.store.messages import Awaited


class Quota(Struct, gc=False):
    """What one execution has scheduled so far: how many functions, with how much of arguments."""

    functions: int = 0
    size: int = 0


_MOST_WATCHED = 50
"""Tasks of one run that are looked at between two outcomes."""


class Wait:
    """Something a run waits for: a time, the end of another run, a message, or whichever comes first."""

    __slots__ = ("_execution", "awaits", "child", "future", "timer", "until")

    def __init__(self, execution: Execution, until: int | None, child: str | None, awaits: Awaited | None) -> None:
        self._execution = execution
        self.until = until
        self.child = child
        self.awaits = awaits
        self.timer: Timer | None = None
        self.future: asyncio.Future[Any] = execution.engine.loop.create_future()

    def register(self) -> None:
        """Count among what the run waits for; if the run was halted meanwhile, the wait is over at once."""
        if self._execution.signal is None:
            self._execution.waits[self] = None
        elif not self.future.done():
            self.future.set_exception(self._execution.signal)
            self.future.exception()

    def resolve(self, value: Any = None) -> None:
        """It has happened. While the store is asked to suspend the run, this is held until it has answered."""
        if self._execution.held_wakes is not None:
            self._execution.held_wakes.append((self, value))
        elif not self.future.done():
            self._execution.woken(self)
            self.future.set_result(value)


class Execution:
    """One run in memory, from a claim to its end or until it is released.

    `phase` says what it is doing, and changes only by `move`. What is mostly empty is a dictionary or a tuple, never a set or a
    list: as long as they are empty the garbage collector does not have to visit them, and there may be thousands of runs.
    """

    __slots__ = (
        "_answered",
        "_quiet",
        "_seqs",
        "acting",
        "ahead",
        "branches",
        "complaints",
        "deadline",
        "delivery",
        "disagreement",
        "dry",
        "end_processed",
        "ended_with",
        "engine",
        "epoch",
        "failed_at",
        "function",
        "held_back",
        "held_wakes",
        "id",
        "interruptible",
        "invoking",
        "journal",
        "landmark",
        "last_time",
        "let_go",
        "open_records",
        "outcome",
        "outstanding",
        "park_timer",
        "patches",
        "phase",
        "process_timers",
        "quota",
        "recalled",
        "reserved",
        "root",
        "run",
        "scopes",
        "servants",
        "signal",
        "tasks",
        "unawaited",
        "unconfirmed",
        "undoable",
        "undoing",
        "unreached",
        "unwound",
        "waits",
    )

    def __init__(self, engine: Host, run: Run, function: Function, steps: list[Step]) -> None:  # noqa: PLR0915
        self.engine = engine
        self.run = run
        self.id = run.id
        self.epoch = run.epoch
        self.function = function
        self.journal = {step.position: step for step in steps} if steps else UNUSED
        self.unreached = {step.position: step for step in steps if step.completed is None} if steps else UNUSED
        """Operations that are recorded as begun, and that this replay has not come to yet. They are in the journal, too."""
        self.delivery = Delivery(engine.loop, *_recorded(steps)) if steps else Delivery(engine.loop)
        self._seqs = itertools.count(self.delivery.recorded)
        begun = run.attempt_started if run.attempts > 1 and run.attempt_started is not None else run.started
        self.last_time = begun if begun is not None else run.created
        self.failed_at: int | None = None
        """When the exception came that its code had last."""
        self.landmark = 0
        """When the last outcome came that a retry or resume may begin anew from. What begins later says a later time."""
        # -- what it is doing
        self.phase = Phase.RUNNING
        self.signal: Halt | None = None
        """Why it was taken from its code."""
        self.acting = 0
        """Operations that are doing something, not waiting."""
        self.invoking = 0
        """Steps whose function is being executed."""
        self.outstanding = 0
        """Operations that were called and are not over."""
        self.unawaited: dict[str, tuple[str, CodeType, int]] = {}
        """By position: calls whose coroutine was made and not awaited yet, with the name of the function and the user's line."""
        self.waits: dict[Wait, None] = {}
        self.held_wakes: list[tuple[Wait, Any]] | None = None
        """While the store is asked to suspend or park it: what has happened since."""
        self._answered: tuple[asyncio.Future[None], ...] = ()
        """Operations that begin once it has answered."""
        self.held_back: dict[asyncio.Future[None], None] = UNUSED
        """Operations that do not begin, because the worker stops."""
        self._quiet: tuple[asyncio.Future[None], ...] = ()
        """Branches that a signal is to pass through once no step is cut off by that."""
        self.park_timer: Timer | None = None
        self.deadline: Timer | None = None
        self.process_timers: dict[asyncio.TimerHandle, None] = UNUSED
        """Timers that its code has set on the event loop. They are not durable."""
        self.root: asyncio.Task[Any] | None = None
        self.tasks: dict[asyncio.Future[Any], str] = UNUSED
        """Tasks that the workflow created, with the place that did."""
        self.branches: dict[asyncio.Future[Any], None] = UNUSED
        """Those of them that are more than one operation."""
        self.open_records: dict[str, Step] = UNUSED
        """By position: operations under way that the record has as begun, but for waits, which see to that themselves."""
        self.recalled = ""
        """The position of the operation that has asked last what is recorded of it."""
        self.servants: dict[asyncio.Future[Any], str] = UNUSED
        """Those of them that answer questions for as long as the run lasts, with where their operations stand."""
        self.interruptible: dict[asyncio.Task[Any], None] = UNUSED
        """Steps that may be cut off in the middle."""
        # -- what it has recorded, and is to record
        self.ahead: PipelinedCommit | None = None
        """The commit of an outcome that the code has had already; no operation begins before it is over."""
        self.unconfirmed: asyncio.Future[Any] | None = None
        """The last write that nothing waits for. A transaction, which does not go through the committer, has to."""
        self.patches: dict[str, bool] = UNUSED
        """Which patches the run's code has asked for, and the answers."""
        self.reserved: dict[int, None] = UNUSED
        """Messages that a branch is about to receive: no other one may."""
        self.let_go = 0
        """How often one of them was received, or given up."""
        self.quota = Quota()
        """What the workflow's body has scheduled."""
        self.disagreement: NonDeterminism | None = None
        self.dry = False
        """It is only compared with its record: nothing is undone."""
        # -- undoing
        self.undoable = bool(steps) and any(step.kind == "undo" for step in steps)
        """It has entered a scope, so there may be something to undo when it is stopped."""
        self.scopes = 0
        """Scopes that it is in."""
        self.undoing: Stopped | None = Stopped(run.undo_reason or None) if run.undo_reason is not None else None
        """It was stopped, and is executed only to undo what it did."""
        self.unwound = False
        """An operation was stopped for that."""
        self.complaints: tuple[str, ...] = ()
        """What could not be undone."""
        # -- its end
        self.outcome: tuple[Any, BaseException | None] = (None, None)
        """What came out of its code."""
        self.ended_with: str | None = None
        """The result with which it has succeeded, in the commit of its only operation."""
        self.end_processed = False
        """Its schedule has taken note of its end."""

    # -- what it is doing ----------------------------------------------------------------------------------------------
    def move(self, phase: Phase) -> bool:
        """Go into another phase; False, and no change, if that does not follow the one it is in. From any thread of the run's own."""
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
        """It is no longer in memory, whatever it was doing."""
        with self.engine.moving:
            if self.phase in STORED_AS_WAITING:
                self.engine.residency.count(-1)
            self.phase = Phase.LEFT
        self.delivery.close()

    def take_away(self, signal: Halt) -> bool:
        """Take the run from its code, unless it is over already or was taken by a stronger signal. From any thread.

        `Halting` then tells the code; a caller inside an operation of the run raises the signal.
        """
        with self.engine.moving:
            if self.phase not in IN_CODE and self.phase is not Phase.HALTED:
                return False
            if self.undoing is not None and isinstance(signal, Stopped):
                return False  # it is being stopped
            if self.signal is not None and signal.rank <= self.signal.rank:
                return False
            self.signal = signal
            if self.phase is not Phase.HALTED:
                self._move(Phase.HALTED)
            return True

    def request_answered(self) -> asyncio.Future[None]:
        """What to await before an operation may begin, while the store is asked to suspend or park the run."""
        future = self.engine.loop.create_future()
        self._answered += (future,)
        return future

    def release_wakes(self) -> list[tuple[Wait, Any]]:
        """The store has answered. What has happened meanwhile; operations that waited for the answer begin."""
        happened, self.held_wakes = self.held_wakes or [], None
        waiting, self._answered = self._answered, ()
        for future in waiting:
            if not future.done():
                future.set_result(None)
        return happened

    @property
    def in_code(self) -> bool:
        """Whether its code has a say in what happens next."""
        return self.phase in IN_CODE

    @property
    def stored_as_waiting(self) -> bool:
        """Whether the store has it as waiting, so that its next write has to say that it goes on."""
        return self.phase in STORED_AS_WAITING

    @property
    def suspended(self) -> bool:
        """Whether it waits in memory, and nothing of it is at work."""
        return self.phase is Phase.WAITING and self.acting == 0

    @property
    def must_finish(self) -> int:
        """Steps that are being executed and must not be cut off."""
        return self.invoking - len(self.interruptible)

    @property
    def alone(self) -> bool:
        """Whether there is one line of control and one operation: then nothing can race it."""
        return self.outstanding <= 1 and not self.tasks

    # -- the record ----------------------------------------------------------------------------------------------------
    def recall(self, position: str, kind: StepKind, name: str) -> Step | None:
        """What is recorded at a position; a `NonDeterminism` if that was something else."""
        if self.signal is not None:
            raise self.signal
        if self.disagreement is not None:
            raise self.disagreement
        self.recalled = position
        self.unawaited.pop(position, None)
        step = self.journal.pop(position, None)
        if step is None:
            return None
        if step.completed is None:
            self.unreached.pop(position, None)
            self.note_open(step)
        if (step.kind, step.name) != (kind, name):
            raise self.disagree(
                f"at position {position} the record has {_operation(step.kind, step.name)}, "
                f"but the code now asks for {_operation(kind, name)}"
            )
        return step

    def note_open(self, record: Step) -> None:
        """An operation is under way that the record has as begun: if the code gives it up, that has to be recorded."""
        self.open_records = own(self.open_records)
        self.open_records[record.position] = record

    def take_unreached(self, given_up: Callable[[str], bool] | None = None) -> list[Step]:
        """Take from the record what was begun and is not come to any more: at positions that the code has given up, or all."""
        left = [step for step in self.unreached.values() if given_up is None or given_up(step.position)]
        for step in left:
            del self.unreached[step.position], self.journal[step.position]
        return left

    def patched(self, name: str) -> bool:
        """Whether the run is to take the path of a patch: a new one does, one that has been past here without it does not.

        A run that is taken from its code gets an answer, too, and nothing is recorded: raising here, where nothing can be awaited, would cut
        off the steps of other branches.
        """
        answer = self.patches.get(name)
        if answer is None:
            self.patches = own(self.patches)
            answer = self.patches[name] = self._take_patch(name)
        return answer

    def _take_patch(self, name: str) -> bool:
        position = f"p:{name}"
        if self.mark(position):
            return True
        if self.delivery.replaying or any(
            not step.position.startswith(("p:", "c:", BORN, MADE, UNDO)) for step in self.journal.values()
        ):
            return False
        if self.undoing is None and self.signal is None:
            write = RecordStep(self.engine.worker_id, self.new_mark(position, value=True, kind="patch", name=name))
            if self.function.on_loop:
                self.write_unconfirmed(write)
            else:
                self.engine.committer.commit_sync(write)
        return True

    def write_unconfirmed(self, write: RecordStep) -> None:
        """Record something that nothing waits for: the committer stores it before whatever this run writes next."""
        written = self.engine.committer.commit(write)
        written.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.unconfirmed = written

    def mark(self, position: str) -> Any:
        """What was noted beside the operations, at a place of its own; None if nothing was."""
        step = self.journal.pop(position, None)
        return None if step is None else json.loads(step.output or "null")

    def new_mark(self, position: str, value: Any, kind: StepKind = "mark", name: str = "mark") -> Step:
        """A note beside the operations: no outcome that code waits for, so it has no place in their order."""
        now = self.engine.clock.now()
        text = json.dumps(value)
        return Step(self.id, position, kind, name, output=text, started=now, completed=now, epoch=self.epoch)

    def disagree(self, finding: str) -> NonDeterminism:
        """Note that code and record do not agree. From now on the run's own code has no say in how it ends."""
        self.disagreement = NonDeterminism(
            f"run {self.id} of {self.function.name}: {finding}. A workflow must do the same operations in the same order when it "
            "is replayed: keep chance, time, and the outside world in steps, or guard a change with run.patched()."
        )
        return self.disagreement

    def child_id(self, place: str, *, detached: bool = False) -> str:
        """The id of a run that is started at a place of this one.

        What is no child of it may outlive it: the id of this one may be used again meanwhile, its uid is not. In a chain of
        children, each started by the one before, ids would grow for ever: from some length on they begin with the uid, too.
        """
        found = f"{self.id}/{place}"
        return f"{self.run.uid}/{place}" if detached or len(found) > LONGEST_ID else found

    def begins(self) -> int:
        """The time at which an operation begins: later than what may have led to it, so that a retry can tell the two apart."""
        now = self.engine.clock.now()
        return now if now > self.landmark else self.landmark + 1

    def note_branch(self, prefix: str) -> None:
        """Its code creates a branch after it had an exception: a retry that forgets the exception has to know."""
        position = f"{BORN}{prefix}"
        if self.journal.pop(position, None) is None and self.undoing is None and self.signal is None:
            self.write_unconfirmed(RecordStep(self.engine.worker_id, self.new_mark(position, value=self.failed_at)))

    def take_seq(self) -> int:
        """The number of the next outcome. From any thread of the run's own."""
        return next(self._seqs)

    def unused(self) -> Step | None:
        """A recorded outcome that the code never asked for, the first of them."""
        if not self.delivery.replaying:
            return None
        # A question that came at the very end may be left without an answer, also by a servant that has not begun yet.
        asked = (step.position for step in self.journal.values() if step.kind == "question")
        serving = (*(at for at in self.servants.values() if at), *(f"{at.rpartition('.')[0]}." for at in asked))
        left = [
            step
            for step in self.journal.values()
            if step.seq is not None and not step.interrupted and not step.position.startswith((UNDO, *serving))
        ]
        return min(left, key=lambda step: step.seq or 0, default=None)

    # -- waiting -------------------------------------------------------------------------------------------------------
    def wait(self, until: int | None = None, child: str | None = None, awaits: Awaited | None = None) -> Wait:
        """Register a wait in memory, before it is recorded, so that nothing can slip through between the two."""
        wait = Wait(self, until, child, awaits)
        self.engine.waits.watch(wait)
        return wait

    def next_due(self) -> int:
        """The first time at which one of the waits is over by itself."""
        return min((wait.until for wait in self.waits if wait.until is not None), default=FAR)

    def woken(self, wait: Wait) -> None:
        self.waits.pop(wait, None)
        self.engine.waits.unwatch(wait)

    def is_busy(self) -> bool | None:
        """Whether one of its tasks is about to go on; None: there are too many of them to look."""
        if len(self.branches) > _MOST_WATCHED:
            return None
        return _is_ready(self.root) or any(map(_is_ready, self.branches))

    def adopt(self, task: asyncio.Future[Any], site: str, *, branch: bool = False) -> None:
        """A task that the workflow created at `site` is part of the run until it is done. A `branch` executes code of the workflow's."""
        self.tasks = own(self.tasks)
        self.tasks[task] = site
        if branch:
            self.branches = own(self.branches)
            self.branches[task] = None
        task.add_done_callback(self._disown)

    def serves(self, task: asyncio.Future[Any], at: str) -> None:
        """A task of the run answers questions; its operations stand at `at`, once it has begun."""
        self.servants = own(self.servants)
        self.servants[task] = at

    def _disown(self, task: asyncio.Future[Any]) -> None:
        self.tasks.pop(task, None)
        self.branches.pop(task, None)
        if isinstance(getattr(task, "_exception", None), Halt) or (self.signal is not None and not task.cancelled()):
            # That the run was taken from its code is no news to anyone, whether or not the code awaits the task; and what comes out
            # of the code after that does not count. With the database gone, that may be an error of the store.
            task.exception()

    # -- process time --------------------------------------------------------------------------------------------------
    def watch_timer(self, timer: asyncio.TimerHandle) -> None:
        """The run's code has set a timer on the event loop."""
        self.process_timers = own(self.process_timers)
        self.process_timers[timer] = None

    def process_time(self) -> float | None:
        """Seconds until the first timer that the run's code has set on the event loop; None: there is none."""
        if not self.process_timers:
            return None
        now = self.engine.loop.time()
        for timer in [timer for timer in self.process_timers if timer.cancelled() or timer.when() <= now]:
            del self.process_timers[timer]
        return min((timer.when() - now for timer in self.process_timers), default=None)

    # -- being taken from its code -------------------------------------------------------------------------------------
    def interrupt(self) -> None:
        """Tell the code of a run that was taken away: every wait ends with the signal. On the loop."""
        signal = self.signal
        assert signal is not None  # noqa: S101
        self.delivery.fail(signal)
        for task in self.interruptible:
            task.cancel()
        for wait in list(self.waits):
            self.woken(wait)
            if not wait.future.done():
                wait.future.set_exception(signal)
                wait.future.exception()  # an operation gets it; if none waits any more, that is fine
        for held in list(self.held_back):
            if not held.done():
                held.set_exception(signal)
        if isinstance(signal, Lost):
            self._release_quiet()

    def invoked(self) -> None:
        """The function of a step is over."""
        self.invoking -= 1
        if self._quiet and self.must_finish == 0:
            self._release_quiet()

    def quiet(self) -> asyncio.Future[None] | None:
        """What to await before the signal may pass through a branch: no step of another branch is cut off by it. None: nothing."""
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

    def hold_back(self) -> asyncio.Future[None]:
        """What an operation awaits that is not to begin: the signal."""
        future = self.engine.loop.create_future()
        self.held_back = own(self.held_back)
        self.held_back[future] = None
        future.add_done_callback(lambda done: self.held_back.pop(done, None))
        return future


def _is_ready(task: Any) -> bool:
    """Whether a task is about to go on: it waits for nothing, or for something that is done."""
    if task is None or task.done():
        return False
    waits_for = getattr(task, "_fut_waiter", task)
    return waits_for is None or (waits_for is not task and waits_for.done())


def _recorded(steps: list[Step]) -> tuple[int, set[int]]:
    """How many outcomes there are, and the numbers of those that no code waits for."""
    seen = {
        step.seq
        for step in steps
        if step.seq is not None and not step.interrupted and not step.position.startswith(UNDO)
    }
    recorded = max((step.seq for step in steps if step.seq is not None), default=-1) + 1
    return recorded, set(range(recorded)) - seen


def _operation(kind: str, name: str) -> str:
    return kind if kind == name else f"{kind} {name!r}"
