"""One baton for real threads: only its holder runs, and at every switch point a policy decides who holds it next.

A controlled thread is an operating system thread that waits at a gate of its own until it is given the baton. It gives the baton
on at switch points: whenever it uses one of the primitives in `primitives.py`, calls the store, or, on request, reaches a
line of a chosen module. Between two switch points it runs alone, so the order of the decisions is the whole order of the program.

Time is virtual. A wait with a timeout ends early only if the policy chooses so, or if nothing else can run; then time jumps
to the earliest deadline. When nothing can run and no deadline lies before the horizon, the program has stopped for good: that is
a `Finding`, with the stack of every thread and task.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from types import FrameType

START = 1_000.0
"""The virtual monotonic time at which every schedule begins, in seconds."""
_POINTS = 200_000
_STUCK = 20.0
"""Real seconds after which a thread that reaches no switch point counts as blocked by something the scheduler does not know."""
_HERE = Path(__file__).parent


class Finding(Exception):
    """What a schedule has shown to be wrong."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


class Abort(BaseException):
    """Ends a controlled thread after the schedule is over."""


class Choice(NamedTuple):
    """One decision that was made, with what a search needs to know to decide differently next time."""

    options: int
    taken: int
    preempts: bool
    """Option 0 keeps the running thread; every other one takes the baton from a thread that could go on."""
    clock: bool
    """The last option lets time pass although a thread could run."""
    fault: bool
    """The options are not threads but what a test double does next (see `Scheduler.choose`)."""


class Policy(Protocol):
    """Decides. `threads` are the numbers of the threads that can run, in the order of the options."""

    def choose(self, number: int, choice: Choice, threads: list[int]) -> int: ...


class Carrier:
    """An operating system thread that lives one controlled thread after the other: making one takes longer than a short schedule."""

    def __init__(self, carriers: Carriers) -> None:
        self._carriers = carriers
        self._go = threading.Lock()
        self._go.acquire()
        self._over = threading.Event()
        self._life: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def carry(self, name: str, life: Callable[[], None]) -> None:
        self._thread.name = name
        self._life = life
        self._over.clear()
        self._go.release()

    def join(self, timeout: float) -> None:
        """Wait for the end of the controlled thread."""
        self._over.wait(timeout)

    def end(self) -> None:
        self._life = None
        self._go.release()
        self._thread.join()

    def _work(self) -> None:
        while True:
            self._go.acquire()
            if self._life is None:
                return
            contextvars.Context().run(self._life)  # as a new thread has it: empty
            self._over.set()
            self._carriers.idle.append(self)


class Carriers:
    """The threads of a search."""

    def __init__(self) -> None:
        self.idle: list[Carrier] = []

    def take(self) -> Carrier:
        return self.idle.pop() if self.idle else Carrier(self)

    def end(self) -> None:
        while self.idle:
            self.idle.pop().end()


class Controlled:
    """One controlled thread."""

    __slots__ = ("alive", "carrier", "deadline", "expired", "gate", "name", "number", "ready", "thing", "verb", "work")

    def __init__(self, number: int, name: str, work: Callable[[], object], carrier: Carrier) -> None:
        self.number = number
        self.name = name
        self.work = work
        self.gate = threading.Lock()
        self.gate.acquire()
        self.alive = True
        self.ready: Callable[[], bool] | None = None
        self.deadline: float | None = None
        self.expired = False
        self.verb: str = "starts"
        self.thing: object = ""
        self.carrier = carrier

    def __str__(self) -> str:
        return f"{self.name} ({self.number})"

    def forget(self) -> None:
        """Drop the program: a reference to the scheduler must not keep all that it ran."""
        self.work, self.ready, self.thing = _nothing, None, str(self.thing)

    @property
    def activity(self) -> str:
        return f"{self.verb} {self.thing}".rstrip()


def _nothing() -> None:
    pass


class _Here(threading.local):
    scheduler: Scheduler | None = None


_here = _Here()


def active() -> Scheduler | None:
    """The scheduler that controls the calling thread, if one does."""
    return _here.scheduler


class Scheduler:
    """Runs one schedule of one program, from its first switch point to its last."""

    def __init__(
        self,
        policy: Policy,
        carriers: Carriers,
        *,
        horizon: float = 600.0,
        lines: Iterable[str] = (),
        record: bool = False,
        calm: bool = False,
    ) -> None:
        """`lines` are the files whose every line is a switch point. `calm`: decide nothing until `exploring` is entered."""
        self._policy = policy
        self._carriers = carriers
        self._horizon = START + horizon
        self._files = frozenset(lines)
        self._record = record
        self._calm = calm
        self.time = START
        self.choices: list[Choice] = []
        self.points = 0
        self.early = 0
        """How often the policy let time pass although a thread could run."""
        self.trace: list[str] = []
        self.finding: Finding | None = None
        self.left: list[str] = []
        """Threads that neither ended nor could run when the main one had ended."""
        self.loops: list[asyncio.AbstractEventLoop] = []
        self._threads: list[Controlled] = []
        self._running: Controlled
        self._over = threading.Event()
        self._aborting = False

    # -- for the program -----------------------------------------------------------------------------------------------
    def point(self, verb: str, thing: object = "") -> None:
        """A switch point of an operation that never waits."""
        if _here.scheduler is not self or (self._aborting and self.points < 2 * _POINTS):
            self.points += 1
            return
        self._switch(verb, thing, None, None)

    def wait(self, verb: str, thing: object, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """A switch point of an operation that can only go on when `ready()`; False if its timeout came first."""
        if _here.scheduler is not self:
            if not ready():
                raise RuntimeError(f"a thread without a scheduler would wait for ever: {verb} {thing}")
            return True
        return self._switch(verb, thing, ready, None if timeout is None else self.time + max(timeout, 0.0))

    def choose(self, what: str, options: int) -> int:
        """Let the policy decide what a test double does next: 0, the usual, or one of the others. Costs no preemption."""
        if self._aborting or self._calm:
            return 0
        taken = self._decide(Choice(options, 0, preempts=False, clock=False, fault=True), [])
        if taken and self._record:
            self.trace.append(f"      {what}: option {taken}")
        return taken

    @property
    def me(self) -> Controlled:
        """The thread that runs."""
        return self._running

    def start(self, name: str, work: Callable[[], object]) -> Controlled:
        """Start a controlled thread. It begins when it is given the baton."""
        if self._aborting:
            raise Abort
        thread = Controlled(len(self._threads), name, work, self._carriers.take())
        thread.carrier.carry(name, lambda: self._live(thread))
        self._threads.append(thread)
        return thread

    @contextlib.contextmanager
    def exploring(self) -> Generator[None]:
        """Decide here. A scheduler that is `calm` keeps to the first option elsewhere, and counts nothing."""
        calm, self._calm = self._calm, False
        try:
            yield
        finally:
            self._calm = calm

    def fail(self, finding: Finding) -> None:
        """End the schedule with a finding; the first one counts."""
        if self.finding is None and not self._aborting:
            self.finding = finding
        self._aborting = True
        self._over.set()

    # -- for the explorer --------------------------------------------------------------------------------------------
    def run(self, main: Callable[[], object]) -> None:
        """Run `main` and whatever it starts to the end. `finding` says what went wrong."""
        first = self._running = self.start("main", main)
        first.gate.release()
        seen = -1
        while not self._over.wait(_STUCK):
            if seen == self.points:
                self._blocked_outside()
                return
            seen = self.points
        self._end_all()

    def _blocked_outside(self) -> None:
        stack = self._stack(self._running)
        self.finding = Finding("blocked outside", f"{self._running} blocks where the scheduler cannot see it:\n{stack}")
        self._aborting = True

    def _end_all(self) -> None:
        """End what is left, one thread after the other."""
        self._aborting = True
        for thread in [self._running, *self._threads]:
            if thread.alive:
                if thread is not self._running:
                    thread.gate.release()
                thread.carrier.join(_STUCK)
        for thread in self._threads:
            thread.forget()
        self.loops.clear()

    # -- switching -------------------------------------------------------------------------------------------------------
    def _switch(self, verb: str, thing: object, ready: Callable[[], bool] | None, deadline: float | None) -> bool:
        if self._aborting:
            raise Abort
        self.points += 1
        if self.points > _POINTS:
            self.fail(Finding("endless", f"no end after {_POINTS} switch points\n{self.stacks()}"))
            raise Abort
        me = self._running
        me.verb, me.thing, me.ready, me.deadline = verb, thing, ready, deadline
        chosen = self._pick(me)
        if chosen is not me:
            if chosen is None:
                raise Abort
            self._running = chosen
            chosen.gate.release()
            me.gate.acquire()
            if self._aborting:
                raise Abort
        me.ready = me.deadline = None
        if self._record and not self._calm and (verb != "line" or chosen is not me):
            self.trace.append(f"{me.name:>22}  {me.activity}{' (timed out)' if me.expired else ''}")
        return not me.expired

    def _pick(self, me: Controlled) -> Controlled | None:
        """The thread that goes on; None: the schedule is over."""
        enabled = [thread for thread in self._threads if thread.alive and self._enabled(thread)]
        if not enabled:
            return self._let_time_pass()
        stays = me in enabled
        if stays and len(enabled) > 1 and enabled[0] is not me:
            enabled.remove(me)
            enabled.insert(0, me)
        if self._calm:
            return enabled[0]
        clock = self._next_deadline() is not None
        options = len(enabled) + clock
        if options == 1:
            return enabled[0]
        choice = Choice(options, 0, preempts=stays, clock=clock, fault=False)
        taken = self._decide(choice, [thread.number for thread in enabled])
        if taken == len(enabled):
            before = self.time
            first = self._let_time_pass()
            self.early += 1
            self._horizon += self.time - before
            return first
        return enabled[taken]

    def _decide(self, choice: Choice, threads: list[int]) -> int:
        taken = self._policy.choose(len(self.choices), choice, threads)
        self.choices.append(choice._replace(taken=taken))
        return taken

    def _enabled(self, thread: Controlled) -> bool:
        if thread.ready is None or thread.ready():
            thread.expired = False
            return True
        thread.expired = thread.deadline is not None and thread.deadline <= self.time
        return thread.expired

    def _next_deadline(self) -> Controlled | None:
        """The thread whose wait ends first, among those that cannot run before that."""
        first: Controlled | None = None
        for thread in self._threads:
            if thread.alive and thread.deadline is not None and self.time < thread.deadline <= self._horizon:
                if thread.ready is not None and thread.ready():
                    continue
                if first is None or first.deadline is None or thread.deadline < first.deadline:
                    first = thread
        return first

    def _let_time_pass(self) -> Controlled | None:
        first = self._next_deadline()
        if first is not None and self._threads[0].alive:
            assert first.deadline is not None
            self.time = first.deadline
            first.expired = True
            return first
        if not self._threads[0].alive:
            self.left = [f"{thread}: {thread.activity}" for thread in self._threads if thread.alive]
            self._aborting = True
            self._over.set()
            return None
        later = any(thread.alive and thread.deadline is not None for thread in self._threads)
        kind = "stall" if later else "deadlock"
        why = "nothing can happen before the horizon but timeouts" if later else "no thread can run"
        self.fail(Finding(kind, f"{why}\n{self.stacks()}"))
        return None

    def _live(self, me: Controlled) -> None:
        """The life of a controlled thread."""
        me.gate.acquire()
        if not self._aborting:
            _here.scheduler = self
            if self._files:
                sys.settrace(self._trace_calls)
            try:
                me.work()
            except Abort:
                pass
            except BaseException as error:  # noqa: BLE001
                self.fail(error if isinstance(error, Finding) else _crash(me, error))
            finally:
                sys.settrace(None)
                _here.scheduler = None
        me.alive = False
        if self._aborting:
            return
        chosen = self._pick(me)
        if chosen is not None:
            self._running = chosen
            chosen.gate.release()

    # -- lines -----------------------------------------------------------------------------------------------------------
    def _trace_calls(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        return self._trace_lines if frame.f_code.co_filename in self._files else None

    def _trace_lines(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line" and not self._calm and not self._aborting:
            self._switch("line", _Line(frame.f_code.co_filename, frame.f_lineno), None, None)
        return self._trace_lines

    # -- looking ---------------------------------------------------------------------------------------------------------
    def stacks(self) -> str:
        """Where every thread and every task stands."""
        parts = [self._stack(thread) for thread in self._threads if thread.alive]
        parts += [_stack_of_task(task) for loop in self.loops for task in _tasks(loop)]
        return "\n".join(parts)

    def _stack(self, thread: Controlled) -> str:
        until = "" if thread.deadline is None else f", {thread.deadline - self.time:g} s left"
        head = f"thread {thread}: {thread.activity}{until}"
        frame = sys._current_frames().get(thread.carrier.ident or 0)
        return "\n".join([head, *(f"    {line}" for line in _lines_of(frame))])


class _Line(NamedTuple):
    file: str
    number: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number}"


def _crash(thread: Controlled, error: BaseException) -> Finding:
    text = "".join(traceback.format_exception(error))
    kind = "broken" if isinstance(error, AssertionError) else "crash"
    return Finding(kind, f"{type(error).__name__} in thread {thread}: {error}\n{text}")


def _lines_of(frame: FrameType | None) -> list[str]:
    """A stack without the scheduler's own frames, outermost first."""
    if frame is None:
        return []
    own = {str(_HERE / "scheduler.py"), str(_HERE / "primitives.py"), threading.__file__}
    found = traceback.extract_stack(frame)
    return [
        f"{Path(one.filename).name}:{one.lineno} {one.name}: {one.line}" for one in found if one.filename not in own
    ]


def _tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    return sorted((task for task in asyncio.all_tasks(loop) if not task.done()), key=lambda task: task.get_name())


def _stack_of_task(task: asyncio.Task[Any]) -> str:
    lines = [f"task {task.get_name()}"]
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = (
            getattr(waiting, "cr_frame", None)
            or getattr(waiting, "ag_frame", None)
            or getattr(waiting, "gi_frame", None)
        )
        if frame is None:
            lines.append(f"    {waiting!r:.150}")
            break
        lines.append(f"    {Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
        waiting = (
            getattr(waiting, "cr_await", None)
            or getattr(waiting, "ag_await", None)
            or getattr(waiting, "gi_yieldfrom", None)
        )
    return "\n".join(lines)
