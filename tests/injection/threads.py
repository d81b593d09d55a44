"""Threads that take turns: one runs, the others stand still, and who is next depends on nothing but what they did.

While a `Turns` is installed, the threads, locks, queues and sleeps that Python code makes are its own. A thread runs until it waits; then
the next one in line runs. Time is virtual: it passes only when every thread waits, and then jumps to the first moment at which one
of them waits no more. So a case with threads is repeated exactly, a pause of a minute costs nothing, and when all threads wait for each
other that is known at once.

Real input and output (a database's) happens while its thread runs: it is a moment of no length. Threads that wait for a
descriptor, as those do that listen, are looked after when nobody else has anything to do.
"""

from __future__ import annotations

import _thread
import contextlib
import importlib
import queue
import selectors
import sys
import threading
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Generator

_real_lock = _thread.allocate_lock
_real_start = _thread.start_new_thread
_real_monotonic = time.monotonic
_real_sleep = time.sleep
_RealThread = threading.Thread
_RealSelector = selectors.DefaultSelector
_RealSimpleQueue = queue.SimpleQueue

_SECOND = 1_000_000
"""Ticks."""
_RESTLESS = 0.1
"""How likely it is that a thread is interrupted at an operation, where that is left to chance."""
_SPINNING = 100_000
"""Operations in one moment after which threads are taken for such that keep each other busy for ever."""
_SOON = 5.0
"""Virtual seconds. Who waits for a descriptor no longer than this expects an answer, not news."""
_ANSWER_SECONDS = 1.0
"""Real seconds that such an answer may take."""


class Abandoned(BaseException):
    """The case is over: the thread that gets this is to end."""


class Deadlock(Exception):
    """Every thread waits, and none of them for a time. The message has all of their stacks."""


class Runner:
    """One thread, and whether it may run."""

    __slots__ = (
        "baton",
        "deadline",
        "ended",
        "expects",
        "ident",
        "joiners",
        "lazy",
        "name",
        "order",
        "selector",
        "woken",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.baton = _real_lock()
        self.baton.acquire()
        self.ident = 0
        self.deadline: int | None = None
        self.order = 0
        self.woken = False
        self.lazy = False
        """It polls for what others may do, so time does not stop for it alone."""
        self.expects = False
        self.selector: Any = None
        """Where it waits for descriptors, if it does."""
        self.ended = False
        self.joiners: list[Runner] = []


class Turns:
    """Decides which thread runs. Everything here is called by the one that does."""

    def __init__(
        self,
        *,
        lazy: Callable[[str], bool] = lambda _name: False,
        expects: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        """Threads by name: `lazy` ones poll, so time does not stop for them alone; some expect answers of a real server."""
        self.ticks = 0
        """Virtual time, in millionths of a second: what is meant for one moment happens at one moment."""
        self.operations = 0
        """Locks, queues and sleeps that were used so far: the points at which another thread can be let run."""
        self.preempt_at: int | None = None
        """The operation at which the thread that makes it stands back until all others wait."""
        self.chance: random.Random | None = None
        """Who is next is drawn by lot, and any operation may be one at which others are let run."""
        self.on_preempt: Callable[[], None] = lambda: None
        self.horizon = float("inf")
        """The time at which everything has taken too long: the main thread gets a `Deadlock` then."""
        self._lazy = lazy
        self._expects = expects
        self._runners: dict[int, Runner] = {}
        self._ready: deque[Runner] = deque()
        self._sleeping: set[Runner] = set()
        self._count = 0
        self._since = 0
        """The operation at which time has passed last."""
        self._aborted = False
        self._main: Runner | None = None
        self._problem: Deadlock | None = None

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.ticks / _SECOND

    def after(self, seconds: float) -> int:
        """The tick so many seconds from now."""
        return self.ticks + max(round(seconds * _SECOND), 0)

    # -- who runs ------------------------------------------------------------------------------------------------------
    def me(self) -> Runner | None:
        """The thread that runs, if it is one of those that take turns."""
        return self._runners.get(_thread.get_ident())

    def step(self) -> None:
        """An operation at which others may be let run."""
        self.operations += 1
        if self.operations - self._since > _SPINNING:
            self._since = self.operations
            self._complain(f"no time passes, and it never comes to rest\n{self.stacks()}")
        if self.operations == self.preempt_at:
            self.on_preempt()
            self.wait(None, self.ticks + 1)
        elif self.chance is not None and self.chance.random() < _RESTLESS:
            self.stand_back()

    def stand_back(self) -> None:
        """Let every other thread that can run do so first."""
        me = self.me()
        if me is not None and self._ready:
            self._ready.append(me)
            self._pass_on(me)

    def sleep(self, seconds: float) -> None:
        self.wait(None, self.after(seconds))

    def wait(self, line: list[Runner] | None, deadline: int | None, selector: Any = None) -> bool:
        """Stand still until woken, by whoever takes this thread out of `line`; False when the time came first."""
        me = self.me()
        assert me is not None
        self._refuse(me)
        self._count += 1
        me.deadline, me.woken, me.order, me.selector = deadline, False, self._count, selector
        if line is not None:
            line.append(me)
        if deadline is not None or selector is not None:
            self._sleeping.add(me)
        self._pass_on(me)
        if line is not None and me in line:
            line.remove(me)
        me.selector = None
        self._refuse(me)
        return me.woken

    def wake(self, runner: Runner) -> None:
        """Let a thread that waits run again."""
        if not runner.woken and runner not in self._ready and not runner.ended:
            runner.woken = True
            self._sleeping.discard(runner)
            self._ready.append(runner)

    def _refuse(self, me: Runner) -> None:
        if me is self._main:
            if self._problem is not None:
                problem, self._problem = self._problem, None
                raise problem
        elif self._aborted:
            raise Abandoned

    def _pass_on(self, me: Runner) -> None:
        following = self._next()
        if following is not me:
            following.baton.release()
            me.baton.acquire()

    def _next(self) -> Runner:
        while not self._ready:
            if not self._look_outside() and not self._let_time_pass():
                self._complain(f"all threads wait for each other\n{self.stacks()}")
        if self.chance is not None and len(self._ready) > 1:
            self._ready.rotate(-self.chance.randrange(len(self._ready)))
        return self._ready.popleft()

    def _let_time_pass(self) -> bool:
        timed = [runner for runner in self._sleeping if runner.deadline is not None]
        eager = [runner for runner in timed if not runner.lazy or runner.joiners]
        if not eager:
            return False
        self._since = self.operations
        self.ticks = max(self.ticks, min(runner.deadline or 0 for runner in eager))
        due = [runner for runner in timed if (runner.deadline or 0) <= self.ticks]
        for runner in sorted(due, key=lambda each: (each.deadline or 0, each.order)):
            self._sleeping.discard(runner)
            self._ready.append(runner)
        if self.now > self.horizon:
            self.horizon = float("inf")
            self._complain(f"the case has not come to its end by {self.now:.0f} s\n{self.stacks()}")
        return True

    def _look_outside(self) -> bool:
        """Wake those whose descriptors are ready; whether there were any."""
        found = False
        for runner in sorted(self._sleeping, key=lambda each: each.order):
            if runner.selector is None:
                continue
            if runner.selector.ready():
                self.wake(runner)
                found = True
        return found

    def _complain(self, what: str) -> None:
        """Let the main thread know, whatever it waits for."""
        assert self._main is not None
        self._problem = Deadlock(what)
        self._sleeping.discard(self._main)
        if self._main not in self._ready:
            self._ready.append(self._main)

    def stacks(self) -> str:
        """Where every thread stands, briefly."""
        frames = sys._current_frames()
        parts: list[str] = []
        for ident, runner in list(self._runners.items()):
            frame = frames.get(ident)
            if frame is None:
                continue
            places = [
                f"{place.filename.rsplit('/', 1)[-1]}:{place.lineno} {place.name}"
                for place in traceback.extract_stack(frame)
                if "/tests/injection/threads" not in place.filename and "/threading.py" not in place.filename
            ]
            parts.append(f"  {runner.name}: {' < '.join(reversed(places[-5:]))}")
        return "\n".join(parts)

    # -- threads -------------------------------------------------------------------------------------------------------
    def begin(self, thread: Thread, body: Callable[[], None]) -> Runner:
        """Start a thread. It runs when its turn comes."""
        runner = Runner(thread.name)
        runner.lazy, runner.expects = self._lazy(thread.name), self._expects(thread.name)

        def controlled() -> None:
            runner.baton.acquire()
            runner.ident = _thread.get_ident()
            self._runners[runner.ident] = runner
            active = cast("dict[int, Any]", vars(threading)["_active"])
            active[runner.ident] = thread
            try:
                if not self._aborted:
                    body()
            except (Abandoned, SystemExit):
                pass
            except BaseException:  # noqa: BLE001  (as a thread does that nobody joins)
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))
            finally:
                active.pop(runner.ident, None)
                self._end(runner)

        self._ready.append(runner)
        _real_start(controlled, ())
        return runner

    def _end(self, runner: Runner) -> None:
        runner.ended = True
        del self._runners[runner.ident]
        for joiner in runner.joiners:
            self.wake(joiner)
        self._next().baton.release()

    def left(self) -> list[str]:
        """Threads that have not ended."""
        return [runner.name for runner in self._runners.values() if runner is not self._main]

    @contextlib.contextmanager
    def installed(self) -> Generator[Turns]:
        """Make every thread, lock and sleep from here on take turns, until this is left."""
        global _turns  # noqa: PLW0603  (threads are the process's, and so is who schedules them)
        assert _turns is None
        self._main = main = Runner("main")
        main.ident = _thread.get_ident()
        self._runners[main.ident] = main
        _turns = self
        try:
            with patched():
                try:
                    yield self
                finally:
                    self._abandon_rest()
        finally:
            _turns = None

    def _abandon_rest(self) -> None:
        """End the threads that the case has left behind."""
        self._aborted, self._problem, self.horizon = True, None, float("inf")
        for _ in range(1_000):
            if len(self._runners) == 1 and not self._ready:
                return
            for runner in list(self._runners.values()):
                if runner is not self._main:
                    self.wake(runner)
            self.stand_back()


_turns: Turns | None = None


def stacks() -> str:
    """Where every thread stands that takes turns now."""
    return "no thread takes turns" if _turns is None else _turns.stacks()


def _here() -> Turns | None:
    """The turns that this thread takes, if it takes any."""
    return _turns if _turns is not None and _turns.me() is not None else None


# -- what threads use --------------------------------------------------------------------------------------------------
class Lock:
    """A lock. For threads that take no turns it is an ordinary one."""

    __slots__ = ("__weakref__", "_line", "_lock")

    def __init__(self) -> None:
        self._lock = _real_lock()
        self._line: list[Runner] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        turns = _here()
        if turns is None:
            return self._lock.acquire(blocking, timeout)
        turns.step()
        deadline = turns.after(timeout) if timeout >= 0 else None
        while not self._lock.acquire(blocking=False):
            if not blocking or (deadline is not None and turns.ticks >= deadline):
                return False
            turns.wait(self._line, deadline)
        return True

    def release(self) -> None:
        self._lock.release()
        turns = _here()
        if turns is not None:
            if self._line:
                turns.wake(self._line.pop(0))
            turns.step()

    def locked(self) -> bool:
        return self._lock.locked()

    def _at_fork_reinit(self) -> None:
        self._lock = _real_lock()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimpleQueue:
    """As `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._line: list[Runner] = []

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        del block, timeout
        self._items.append(item)
        turns = _here()
        if turns is not None:
            if self._line:
                turns.wake(self._line.pop(0))
            turns.step()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        turns = _here()
        if turns is not None:
            turns.step()
            deadline = None if timeout is None else turns.after(timeout)
            while not self._items and block and (deadline is None or turns.ticks < deadline):
                turns.wait(self._line, deadline)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)

    @classmethod
    def __class_getitem__(cls, _item: object) -> Any:
        return cls


class Thread(_RealThread):
    """A thread that waits for its turn. Started by one that takes none, it is an ordinary one."""

    _runner: Runner | None = None

    def start(self) -> None:
        turns = _here()
        if turns is None:
            super().start()
            return
        if self._runner is not None:
            raise RuntimeError("threads can only be started once")
        turns.step()
        turns.stand_back()  # whoever sees a thread that was made and not started has the chance to use it
        self._runner = turns.begin(self, self.run)
        self._started.set()  # type: ignore[attr-defined]

    def join(self, timeout: float | None = None) -> None:
        turns = _here()
        runner = self._runner
        if runner is None:
            super().join(timeout)
        elif turns is not None:
            deadline = None if timeout is None else turns.after(timeout)
            while not runner.ended and (deadline is None or turns.ticks < deadline):
                turns.wait(runner.joiners, deadline)

    def is_alive(self) -> bool:
        return super().is_alive() if self._runner is None else not self._runner.ended

    @property
    def ident(self) -> int | None:
        return super().ident if self._runner is None else self._runner.ident or None


class Selector(_RealSelector):
    """Waits for descriptors while others take their turns."""

    def ready(self) -> bool:
        """Whether something has come, looked at without a turn."""
        return bool(super().select(0))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        turns = _here()
        if turns is None:
            return super().select(timeout)
        me = turns.me()
        expects = me is not None and me.expects and timeout is not None and timeout <= _SOON
        found = super().select(_ANSWER_SECONDS if expects else 0)
        if not found and (timeout is None or timeout > 0):
            turns.wait(None, None if timeout is None else turns.after(timeout), selector=self)
            found = super().select(0)
        return found


def _monotonic() -> float:
    turns = _here()
    return _real_monotonic() if turns is None else turns.now


def _sleep(seconds: float) -> None:
    turns = _here()
    if turns is None:
        _real_sleep(seconds)
    else:
        turns.step()
        turns.sleep(seconds)


@contextlib.contextmanager
def patched() -> Generator[None]:
    """Put these in the place of Python's own, also where a module of the library has taken them by name.

    What is made here before turns are installed takes part in them later.
    """
    import concurrent.futures.thread as pools  # noqa: PLC0415

    for late in ("mainspring.store.committer", "mainspring.store.sqlite.database", "mainspring.app.worker"):
        importlib.import_module(late)  # a module that is imported while the parts are replaced would keep them
    places: list[tuple[Any, str, Any]] = [
        (threading, "Lock", Lock),
        (threading, "_allocate_lock", Lock),
        (threading, "_CRLock", None),
        (threading, "Thread", Thread),
        (threading, "_time", _monotonic),
        (queue, "SimpleQueue", SimpleQueue),
        (selectors, "DefaultSelector", Selector),
        (time, "monotonic", _monotonic),
        (time, "sleep", _sleep),
        (pools, "_global_shutdown_lock", Lock()),
    ]
    renamed = {_RealSimpleQueue: SimpleQueue, _real_lock: Lock, _RealThread: Thread, _RealSelector: Selector}
    for name, module in sys.modules.copy().items():  # a thread may import meanwhile; copying takes no step of Python
        if name.startswith("mainspring."):
            places += [
                (module, each, renamed[value])
                for each, value in list(vars(module).items())
                if value.__class__ in {type, type(_real_lock)} and value in renamed
            ]
    before = [(place, name, getattr(place, name)) for place, name, _ in places]
    for place, name, value in places:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in reversed(before):
            setattr(place, name, value)
