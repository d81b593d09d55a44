"""A run in this process's memory: what it has recorded, where it stands, and whether it may go on."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from mainspring.engine.context import Quota
from mainspring.engine.delivery import Delivery
from mainspring.engine.recording import MARK
from mainspring.engine.signals import Stopped
from mainspring.engine.unused import UNUSED, own
from mainspring.errors import NonDeterminism
from mainspring.model.ids import LONGEST_ID
from mainspring.model.records import Step
from mainspring.store.ops import FAR, Write

if TYPE_CHECKING:
    import asyncio

    from mainspring.engine.ahead import Ahead
    from mainspring.engine.engine import Engine
    from mainspring.engine.registry import Function
    from mainspring.engine.signals import Halt
    from mainspring.engine.timers import Timer
    from mainspring.model.records import Run
    from mainspring.store.messages import Heard


class Wait:
    """Something a run waits for: a time, the end of another run, something that is said, or whichever comes first."""

    __slots__ = ("_execution", "child", "future", "hears", "timer", "until")

    def __init__(self, execution: Execution, until: int | None, child: str | None, hears: Heard | None) -> None:
        self._execution = execution
        self.until = until
        self.child = child
        self.hears = hears
        self.timer: Timer | None = None
        self.future: asyncio.Future[Any] = execution.engine.loop.create_future()

    def register(self) -> None:
        """Count among what the run waits for; if the run was halted meanwhile, the wait is over at once."""
        if self._execution.halted is None:
            self._execution.waits[self] = None
        elif not self.future.done():
            self.future.set_exception(self._execution.halted)
            self.future.exception()

    def resolve(self, value: Any = None) -> None:
        """It has happened. While the run is being parked this has to wait for how that ends."""
        if self._execution.parking is not None:
            self._execution.parking.append((self, value))
        elif not self.future.done():
            self._execution.woken(self)
            self.future.set_result(value)


class Execution:
    """One run, from a claim to its end or until it is let go.

    What is mostly empty is a dictionary or a tuple, never a set or a list: as long as they are empty the garbage collector does not
    have to visit them, and there may be thousands of runs.
    """

    __slots__ = (
        "_seqs",
        "active",
        "ahead",
        "complaints",
        "deadline",
        "delivery",
        "disagreement",
        "dry",
        "engine",
        "epoch",
        "function",
        "halted",
        "id",
        "interruptible",
        "invoking",
        "journal",
        "last_time",
        "let_go",
        "outcome",
        "outstanding",
        "over",
        "parking",
        "patches",
        "quota",
        "reserved",
        "rest_due",
        "resting",
        "root",
        "run",
        "scopes",
        "servants",
        "settled",
        "tasks",
        "undoable",
        "unwinding",
        "unwound",
        "waits",
    )

    def __init__(  # noqa: PLR0915  (what there is to know of a run, one line each)
        self, engine: Engine, run: Run, function: Function, steps: list[Step]
    ) -> None:
        self.engine = engine
        self.run = run
        self.id = run.id
        self.epoch = run.epoch
        self.function = function
        self.journal = {step.position: step for step in steps} if steps else UNUSED
        self.delivery = Delivery(engine.loop, *_recorded(steps)) if steps else Delivery(engine.loop)
        self._seqs = itertools.count(self.delivery.recorded)
        begun = run.since if run.attempts > 1 and run.since is not None else run.started
        self.last_time = begun if begun is not None else run.created
        self.halted: Halt | None = None
        """It was taken from its code: no operation acts from now on. Set by any thread, through `Stopping.halt`."""
        self.undoable = bool(steps) and any(step.kind == "undo" for step in steps)
        """It has entered a scope, so there may be something to undo when it is stopped."""
        self.scopes = 0
        """Scopes that it is in."""
        self.unwinding: Stopped | None = Stopped(run.stopping or None) if run.stopping is not None else None
        """It was stopped, and is executed only to undo what it did."""
        self.unwound = False
        """An operation was stopped for that."""
        self.dry = False
        """It is only compared with its record: nothing is undone."""
        self.outcome: tuple[Any, BaseException | None] = (None, None)
        """What came out of its code."""
        self.settled = False
        """Its schedule has taken note of its end."""
        self.complaints: tuple[str, ...] = ()
        """What could not be undone."""
        self.ahead: Ahead | None = None
        """The commit of an outcome that the code has had already; no operation begins before it is over."""
        self.patches: dict[str, bool] = UNUSED
        """Which patches the run's code has asked for, and what it was told."""
        self.disagreement: NonDeterminism | None = None
        self.quota = Quota()
        """What the workflow's body has scheduled."""
        self.active = 0
        """Operations that are doing something, not waiting."""
        self.invoking = 0
        """Steps whose function is being executed."""
        self.interruptible: dict[asyncio.Task[Any], None] = UNUSED
        """Those of them that may be cut off in the middle."""
        self.outstanding = 0
        """Operations that were called and are not over."""
        self.over = False
        """The function has come to its end; what is left to do is the library's own and must not be cut off."""
        self.waits: dict[Wait, None] = {}
        self.tasks: dict[asyncio.Future[Any], str] = UNUSED
        """Tasks that the workflow created, with the place that did."""
        self.servants: dict[asyncio.Future[Any], str] = UNUSED
        """Those of them that answer questions for as long as the run lasts, with where their operations stand."""
        self.root: asyncio.Task[Any] | None = None
        self.resting = False
        """Recorded as waiting in the store."""
        self.rest_due = FAR
        """When it is to be woken: as the store was asked last, or as it was when the run was halted."""
        self.parking: list[tuple[Wait, Any]] | None = None
        """While a request to park is under way: what has happened since."""
        self.reserved: dict[int, None] = UNUSED
        """Messages that a branch is about to receive: no other one may."""
        self.let_go = 0
        """How often one of them was received, or given up."""
        self.deadline: Timer | None = None

    @property
    def alone(self) -> bool:
        """Whether there is one line of control and one operation: then nothing can race it."""
        return self.outstanding <= 1 and not self.tasks

    # -- the record ----------------------------------------------------------------------------------------------------
    def recall(self, position: str, kind: str, name: str) -> Step | None:
        """What is recorded at a position; a `NonDeterminism` if that was something else."""
        if self.halted is not None:
            raise self.halted
        if self.disagreement is not None:
            raise self.disagreement
        step = self.journal.pop(position, None)
        if step is not None and (step.kind, step.name) != (kind, name):
            raise self.disagree(
                f"at position {position} the record has {_operation(step.kind, step.name)}, "
                f"but the code now asks for {_operation(kind, name)}"
            )
        return step

    def patched(self, name: str) -> bool:
        """Whether the run is to take the path of a patch: a new one does, one that has been past here without it does not."""
        if self.halted is not None:
            raise self.halted
        told = self.patches.get(name)
        if told is None:
            self.patches = own(self.patches)
            told = self.patches[name] = self._take_patch(name)
        return told

    def _take_patch(self, name: str) -> bool:
        position = f"p:{name}"
        if self.mark(position):
            return True
        if self.delivery.replaying or any(
            not step.position.startswith(("p:", "c:", MARK)) for step in self.journal.values()
        ):
            return False
        if self.unwinding is None:
            write = Write(self.engine.worker_id, self.new_mark(position, value=True, kind="patch", name=name))
            if self.function.is_async:  # it is stored before whatever this run writes next; nobody has to wait for it
                stored = self.engine.committer.commit(write)
                stored.add_done_callback(lambda done: done.cancelled() or done.exception())
            else:
                self.engine.committer.commit_sync(write)
        return True

    def mark(self, position: str) -> Any:
        """What was noted beside the operations, at a place of its own; None if nothing was."""
        step = self.journal.pop(position, None)
        return None if step is None else json.loads(step.output or "null")

    def new_mark(self, position: str, value: Any, kind: str = "mark", name: str = "mark") -> Step:
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

    def take_seq(self) -> int:
        """The number of the next outcome. From any thread of the run's own."""
        return next(self._seqs)

    def unused(self) -> Step | None:
        """A recorded outcome that the code never asked for, the first of them."""
        if not self.delivery.replaying:
            return None
        serving = tuple(
            at for at in self.servants.values() if at
        )  # a question that came at the very end may be left without an answer
        left = [
            step
            for step in self.journal.values()
            if step.seq is not None and not step.interrupted and not step.position.startswith((MARK, *serving))
        ]
        return min(left, key=lambda step: step.seq or 0, default=None)

    # -- waiting -------------------------------------------------------------------------------------------------------
    def wait(self, until: int | None = None, child: str | None = None, hears: Heard | None = None) -> Wait:
        """Register a wait in memory, before it is recorded, so that nothing can slip through between the two."""
        wait = Wait(self, until, child, hears)
        self.engine.waits.watch(wait)
        return wait

    def next_due(self) -> int:
        """The first time at which one of the waits is over by itself."""
        return min((wait.until for wait in self.waits if wait.until is not None), default=FAR)

    def woken(self, wait: Wait) -> None:
        self.waits.pop(wait, None)
        self.engine.waits.unwatch(wait)

    def set_resting(self, *, resting: bool) -> None:
        """Note whether the store has this run as waiting."""
        if self.resting != resting:
            self.resting = resting
            self.engine.parking.count(1 if resting else -1)
            if resting:
                self.engine.changed(self, "run.waiting")

    def adopt(self, task: asyncio.Future[Any], site: str) -> None:
        """A task that the workflow created at `site` is part of the run until it is done."""
        self.tasks = own(self.tasks)
        self.tasks[task] = site
        task.add_done_callback(self._disown)

    def serves(self, task: asyncio.Future[Any], at: str) -> None:
        """A task of the run answers questions; its operations stand at `at`, once it has begun."""
        self.servants = own(self.servants)
        self.servants[task] = at

    def _disown(self, task: asyncio.Future[Any]) -> None:
        self.tasks.pop(task, None)

    # -- ending --------------------------------------------------------------------------------------------------------
    def end_waits(self, signal: Halt) -> None:
        """The run was halted: every wait ends with the signal."""
        self.rest_due = self.next_due()
        self.delivery.fail(signal)
        for task in self.interruptible:
            task.cancel()
        for wait in list(self.waits):
            self.woken(wait)
            if not wait.future.done():
                wait.future.set_exception(signal)
                wait.future.exception()  # whoever waits gets it; if nobody does any more, that is fine


def _recorded(steps: list[Step]) -> tuple[int, set[int]]:
    """How many outcomes there are, and the numbers of those that no code waits for."""
    seen = {
        step.seq
        for step in steps
        if step.seq is not None and not step.interrupted and not step.position.startswith(MARK)
    }
    recorded = max((step.seq for step in steps if step.seq is not None), default=-1) + 1
    return recorded, set(range(recorded)) - seen


def _operation(kind: str, name: str) -> str:
    return kind if kind == name else f"{kind} {name!r}"
