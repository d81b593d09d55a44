"""Real apps on a real SQLite file, as members of a fleet whose every thread and every call to the store the scheduler decides on.

This is the one place that knows of the library's inside: how to put a store of one's own behind an app, and where an engine
keeps its slots.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring import App, Event, Retry, Settings, Topic, Tx, run
from mainspring.app.runtime import Parts
from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.model.ids import IdMaker
from mainspring.store.open import open_store
from tests.interleavings import primitives
from tests.store.build import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from concurrent.futures import Future

    from mainspring import AsyncFn, Handle, SyncFn
    from tests.interleavings.scheduler import Scheduler

T = TypeVar("T")
NEVER = 1_000_000.0
"""Seconds, beyond every horizon: what only a poll would find is not found."""
HORIZON = 30.0
_NEWS = Topic("news", str)
_PROGRESS = Event("progress", str)
_FAULTS = ("none", "before", "after")


class WatchedStore:
    """A store whose every call is a switch point before and after, and which fails where a case allows it to."""

    def __init__(self, scheduler: Scheduler, store: Any, faults: Counter[str]) -> None:
        self._scheduler = scheduler
        self._store = store
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if found is None or name in {"url", "at_once", "listen", "open", "close"}:
            return found
        if not callable(found):  # a part of the store, with verbs of its own
            return WatchedStore(self._scheduler, found, self._faults)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._scheduler.point("call", f"store.{name}")
            fault = "none"
            if self._faults[name]:
                fault = _FAULTS[self._scheduler.choose(f"store.{name} fails", len(_FAULTS))]
                self._faults[name] -= fault != "none"
            if fault == "before":
                raise StoreUnavailable(f"{name}: the database did not receive this")
            answer = found(*args, **kwargs)
            self._scheduler.point("return from", f"store.{name}")
            if fault == "after":
                raise StoreUnavailable(f"{name}: the answer was lost")
            return answer

        return call


class _CrashingParts(Parts):
    def __init__(self, scheduler: Scheduler, faults: Counter[str]) -> None:
        self._scheduler = scheduler
        self._faults = faults

    def store(self, url: str, settings: Any) -> Any:
        return WatchedStore(self._scheduler, super().store(url, settings), self._faults)

    def loop_watch(self, loop: Any, thread: int) -> Any:
        """No thread that looks at real time."""
        del loop, thread
        return lambda: None


class Ledger:
    """What all processes of the fleet have executed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.executed: Counter[str] = Counter()
        self.at_work: set[str] = set()
        self.most = 0
        """How many were at work at once."""

    def execute(self, what: str) -> str:
        self.executed[what] += 1
        self.at_work.add(what)
        self.most = max(self.most, len(self.at_work))
        self._scheduler.point("execute", what)
        self.at_work.discard(what)
        return f"did {what}"


class Member:
    """One app of the fleet. It registers only the functions that are named: registering all of them takes a while."""

    def __init__(
        self, fleet: Fleet, number: int, knows: tuple[str, ...], faults: dict[str, int] | None, **settings: Any
    ) -> None:
        self.fleet = fleet
        self._ledger = fleet.ledger
        defaults: dict[str, Any] = {
            "poll": NEVER,
            "lease": NEVER,
            "grace": 5.0,
            "synchronous": "OFF",
            "concurrency": 4,
            "threads": 2,
        }
        self.app = app = App(fleet.url, settings=Settings(**{**defaults, **settings}), version="explored")
        runtime = app._runtime
        runtime.ids = IdMaker(runtime.clock, seed=number)
        self._faults = Counter(faults or {})
        runtime.parts = _CrashingParts(fleet.scheduler, self._faults)
        app.queue("serial", concurrency=1)
        app.queue("wide")
        for name in knows:
            getattr(self, name)

    @cached_property
    def note(self) -> Any:
        ledger = self._ledger

        @self.app.step
        async def note(what: str) -> str:
            return ledger.execute(what)

        return note

    @cached_property
    def note_blocking(self) -> Any:
        ledger = self._ledger

        @self.app.step
        def note_blocking(what: str) -> str:
            return ledger.execute(what)

        return note_blocking

    @cached_property
    def order(self) -> Any:
        """A workflow of one step."""
        note: AsyncFn[[str], str] = self.note

        @self.app.workflow
        async def order(what: str) -> str:
            return await note(what)

        return order

    @cached_property
    def order_blocking(self) -> Any:
        note: SyncFn[[str], str] = self.note_blocking

        @self.app.workflow
        def order_blocking(what: str) -> str:
            return note(what)

        return order_blocking

    @cached_property
    def parent(self) -> Any:
        """A workflow that waits for a child, which begins at once or comes through a queue."""
        note: AsyncFn[[str], str] = self.note
        order: AsyncFn[[str], str] = self.order

        @self.app.workflow
        async def parent(what: str, queue: str | None = None) -> str:
            await note(f"{what} before")
            child = order.options(id=f"{what} child")
            handle = await (child.options(queue=queue) if queue else child).start(what)
            return await handle.result()

        return parent

    @cached_property
    def parent_blocking(self) -> Any:
        note: SyncFn[[str], str] = self.note_blocking
        order: AsyncFn[[str], str] = self.order

        @self.app.workflow
        def parent_blocking(what: str, queue: str | None = None) -> str:
            note(f"{what} before")
            child = order.options(id=f"{what} child")
            handle = (child.options(queue=queue) if queue else child).start.sync(what)
            return handle.result.sync()

        return parent_blocking

    @cached_property
    def payment(self) -> Any:
        """A workflow of one transaction, which starts a run of its own, and one step."""
        note: AsyncFn[[str], str] = self.note
        ledger, order = self._ledger, self.order

        @self.app.transaction
        def pay(tx: Tx, what: str) -> None:
            tx.execute("CREATE TABLE IF NOT EXISTS payments (what TEXT)")
            tx.execute("INSERT INTO payments VALUES (?)", (what,))
            order.options(id=f"{what} thanks").start.sync(f"{what} thanks")
            ledger.execute(f"{what} paid")

        @self.app.workflow
        async def payment(what: str) -> str:
            await pay.aio(what)
            return await note(what)

        return payment

    @cached_property
    def reporter(self) -> Any:
        """A workflow that tells how far it is."""
        note: AsyncFn[[str], str] = self.note

        @self.app.workflow
        async def reporter(what: str) -> str:
            await run.set_event(_PROGRESS, "half")
            return await note(what)

        return reporter

    @cached_property
    def slow(self) -> Any:
        """A workflow whose `def` step has no time."""
        ledger = self._ledger

        @self.app.step(timeout=1)
        def slow_step(what: str) -> str:
            return ledger.execute(what)

        @self.app.workflow
        async def slow(what: str) -> str:
            return await slow_step.aio(what)

        return slow

    @cached_property
    def booking(self) -> Any:
        """A workflow that undoes its first step when it is cancelled in its second, which takes a while."""
        ledger, note = self._ledger, self.note

        @self.app.step
        async def hold(what: str) -> str:
            await asyncio.sleep(1.0)
            return ledger.execute(what)

        @self.app.workflow
        async def booking(what: str) -> str:
            async with run.undo() as undo:
                await note(f"{what} booked")
                undo.push(note.bind(f"{what} undone"))
                return await hold(what)

        return booking

    @cached_property
    def once(self) -> Any:
        """A workflow that is never started twice."""
        ledger = self._ledger

        @self.app.workflow(at_most_once=True)
        async def once(what: str) -> str:
            await asyncio.sleep(0.5)
            return ledger.execute(what)

        return once

    @cached_property
    def sleeper(self) -> Any:
        """A workflow that sleeps twice, shortly."""
        note: AsyncFn[[str], str] = self.note

        @self.app.workflow
        async def sleeper(what: str) -> str:
            for _ in range(2):
                await run.sleep(0.02)
            return await note(what)

        return sleeper

    @cached_property
    def stubborn(self) -> Any:
        """A workflow whose step fails once."""
        ledger = self._ledger

        @self.app.step(retry=Retry(3, first=0.1))
        async def second_try(what: str) -> str:
            if run.attempt == 1:
                await asyncio.sleep(0.01)
                raise ConnectionError("not yet")
            return ledger.execute(what)

        @self.app.workflow
        async def stubborn(what: str) -> str:
            return await second_try(what)

        return stubborn

    @cached_property
    def patient_listener(self) -> Any:
        """A workflow that waits for a message, and goes on without one after a while."""
        note: AsyncFn[[str], str] = self.note

        @self.app.workflow
        async def patient_listener(what: str) -> str:
            await run.receive(_NEWS, timeout=0.1)
            return await note(what)

        return patient_listener

    @cached_property
    def listener(self) -> Any:
        """A workflow that waits for a message."""
        note: AsyncFn[[str], str] = self.note

        @self.app.workflow
        async def listener(what: str) -> str:
            message = await run.receive(_NEWS)
            return message + await note(what)

        return listener

    async def check_idle(self) -> None:
        """When there is nothing left to do, every slot is free, and the store agrees that nothing is owned."""
        self._faults.clear()
        problem: str | None = None
        for _ in range(100):
            problem = await self._problem()
            if problem is None:
                return
            await asyncio.sleep(0.01)  # in which everything that can happen happens
        raise AssertionError(problem)

    async def _problem(self) -> str | None:
        engine, settings = self.app._runtime.engine, self.app.settings
        assert engine is not None
        owned = [
            notice.run
            for notice in await engine.in_thread(engine.store.owned, engine.worker_id)
            if not notice.state.ended  # a run that was terminated keeps its owner, who need not be there any more
        ]
        free, threads = engine.slots.free(), engine.slots.threads()
        problems = {
            f"in memory: {list(engine.executions)}": engine.executions,
            f"reserved for ever: {engine.local_starts.ids}": engine.local_starts.ids,
            f"{free} of {settings.concurrency} slots are free": free != settings.concurrency,
            f"{threads} of {settings.threads} threads are free": threads != settings.threads,
            f"owned by this worker, and not executed: {owned}": owned,
        }
        return next((text for text, is_so in problems.items() if is_so), None)


class Process:
    """A thread with a loop on which a member is at work; other threads ask it to do things, as a web server's would."""

    def __init__(self, fleet: Fleet, member: Member) -> None:
        self._scheduler = fleet.scheduler
        self.member = member
        self._loop = primitives.Loop(fleet.scheduler)
        self._ready = primitives.Event(fleet.scheduler)
        self._leaving = asyncio.Event()
        self._asked = False
        self._thread = primitives.Thread(fleet.scheduler, self._live, f"process {fleet.members}")
        self._thread.start()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._work())
        self.member.app.close()  # a call that came after it was left has connected it again

    async def _work(self) -> None:
        async with self.member.app:
            self._ready.set()
            await self._leaving.wait()

    def ready(self) -> Process:
        """Wait until it is at work."""
        self._ready.wait()
        return self

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have the process do something; its result is for later. RuntimeError if it has left."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the process do something, and wait for it."""
        return self.begin(work).result()

    def drop(self, function: AsyncFn[..., Any], *args: Any, **options: Any) -> None:
        """Have a run started by a caller who goes away meanwhile, as a web request does."""
        self.do(_dropped(function.options(**options), args))

    def retire(self) -> None:
        """Declare this process's worker dead, as another worker does."""
        engine = self.member.app._runtime.engine
        assert engine is not None
        engine.store.retire(engine.worker_id, engine.clock.now(), None)

    def ask_to_leave(self) -> None:
        if self._asked:
            return
        self._asked = True
        self._loop.call_soon_threadsafe(self._leaving.set)

    def leave(self) -> None:
        """Stop it in order, and wait for that."""
        self.ask_to_leave()
        self._thread.join()

    # -- what cases do with it -----------------------------------------------------------------------------------------------
    def start(self, function: AsyncFn[..., Any] | SyncFn[..., Any], *args: Any, **options: Any) -> Handle[Any]:
        return self.do(_started(function.options(**options), args))

    def outcome(self, run_id: str) -> str:
        """How a run ended: its result, or the name of the exception. A run that never ends is a stall."""
        return self.do(outcome_of(self.member.app.handle(run_id)))

    def runs(self) -> dict[str, str]:
        """All runs, and their states."""
        return {run.id: run.state for run in self.do(self.member.app.runs.list(limit=100)).runs}

    def check_all_ended(self, **states: str) -> None:
        """Every run has ended, as `states` says of some by their id, else well. Nothing was executed twice, and this is idle."""
        for run_id in self.runs():
            self.outcome(run_id)
        self.do(self.member.check_idle())
        for run_id, state in self.runs().items():
            wanted = states.get(run_id.replace(" ", "_"), "succeeded").split("|")
            assert state in wanted, f"run {run_id!r} is {state}, not {' or '.join(wanted)}"
        executed = self.member.fleet.ledger.executed
        twice = {what: count for what, count in executed.items() if count > self.member.fleet.executions}
        assert not twice, f"executed more than once: {twice}"


async def _started(function: AsyncFn[..., Any] | SyncFn[..., Any], args: tuple[Any, ...]) -> Handle[Any]:
    return await function.start(*args)


async def _dropped(function: AsyncFn[..., Any], args: tuple[Any, ...]) -> None:
    starting = asyncio.ensure_future(_started(function, args))
    await asyncio.sleep(0)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting


async def outcome_of(handle: Handle[Any]) -> str:
    try:
        return str(await handle.result())
    except MainspringError as error:
        return type(error).__name__


class Fleet:
    """A database file, the processes that work on it one after the other or together, and what they executed."""

    def __init__(self, scheduler: Scheduler, url: str) -> None:
        self.scheduler = scheduler
        self.url = url
        self.ledger = Ledger(scheduler)
        self.members = 0
        self.executions = 1
        """How often a step may be executed: once, unless a worker is declared dead in the middle of it."""

    def process(self, *knows: str, faults: dict[str, int] | None = None, **settings: Any) -> Process:
        """A process that is entering the fleet; `faults` are verbs of the store and how often each may fail."""
        self.members += 1
        return Process(self, Member(self, self.members, knows, faults, **settings))


_template: Path | None = None


def _made_template() -> Path:
    """A file with its tables. Creating them for each schedule would take longer than most schedules."""
    global _template  # noqa: PLW0603
    if _template is None or not _template.exists():
        _template = Path(tempfile.mkdtemp(prefix="interleavings-"), "template.db")
        store = open_store(f"sqlite:///{_template}", StoreSettings())
        store.open()
        store.close()
    return _template


@contextlib.contextmanager
def fleet(scheduler: Scheduler, *, memory: bool = False) -> Generator[Fleet]:
    """A fleet on a fresh file, or on a database in memory, where a process commits and claims on its own loop."""
    if memory:
        yield Fleet(scheduler, "sqlite://")
        return
    with tempfile.TemporaryDirectory(prefix="interleavings-") as folder:
        path = Path(folder, "fleet.db")
        shutil.copy(_made_template(), path)
        yield Fleet(scheduler, f"sqlite:///{path}")
