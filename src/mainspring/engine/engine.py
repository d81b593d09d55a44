"""The engine of one worker: it begins, wakes, suspends and stops the runs that the worker owns.

Its methods run on one event loop, unless their docstring says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mainspring.codec import check_size
from mainspring.engine.batch_runs import BatchRun
from mainspring.engine.batching import Batches
from mainspring.engine.ends import Ends
from mainspring.engine.replay.execution import Execution
from mainspring.engine.replay.signals import Lost
from mainspring.engine.residency.halting import Halting
from mainspring.engine.residency.local_starts import LocalStarts, Slots
from mainspring.engine.residency.residency import Residency
from mainspring.engine.residency.threads import ElasticPool
from mainspring.engine.residency.timers import Timers
from mainspring.engine.runner import run_async, run_blocking
from mainspring.errors import StoreUnavailable
from mainspring.model.runs import Run
from mainspring.model.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from mainspring.engine.host import EngineSettings
    from mainspring.engine.registry import Function, Registry
    from mainspring.engine.replay.execution import Wait
    from mainspring.model.clock import Clock
    from mainspring.model.runs import Claim, Ending, NewRun, Step
    from mainspring.store.changes import Notice
    from mainspring.store.committer import Committer
    from mainspring.store.messages import Awaited
    from mainspring.store.protocol import Store


log = logging.getLogger("mainspring.engine")

_LAST_WAIT = 2.0
_SILENT = 1.0
"""Seconds after which a stopping worker logs which runs it waits for."""


class Engine:
    """Executes the runs of one worker."""

    patience = 1.0
    """Seconds between two tries to reach the database, and until the tasks of a halted run that does not unwind are cancelled."""

    def __init__(  # noqa: PLR0915
        self,
        *,
        store: Store,
        committer: Committer,
        clock: Clock,
        registry: Registry,
        settings: EngineSettings,
        worker_id: str,
        version: str,
        receiver: Callable[[Function, Any], Any],
        methods: Callable[[], Mapping[str, Sequence[str]]],
        home: object,
    ) -> None:
        self.store = store
        self.committer = committer
        self.clock = clock
        self.registry = registry
        self.settings = settings
        self.worker_id = worker_id
        self.version = version
        self.receiver = receiver
        self.methods = methods
        """By function that needs an instance: the names of the instances that this process has."""
        self.on_room: Callable[[], None] = lambda: None
        """Called when a slot became free."""
        self.on_notice: Callable[[], None] = lambda: None
        """Called when the store has notices for runs of this worker."""
        self.on_end: Callable[[Sequence[Ending]], None] = lambda _endings: None
        """Called with the ends that callers in this process may wait for."""
        self.on_scheduled_end: Callable[[], None] = lambda: None
        """Called when a run that a schedule started has ended here, and the schedule has yet to process that."""
        self.on_concluded: Callable[[Sequence[tuple[Run, Ending]]], None] = lambda _ended: None
        """Called when runs have ended here."""
        self.on_left: Callable[[str], None] = lambda _run_id: None
        """Called when this worker no longer owns a run that has not ended here."""
        self.on_change: Callable[[str, Run, str | None], None] = lambda _name, _run, _reason: None
        """Called on the loop with each event of a run (`run.started`, `run.waiting`, …), if there are listeners."""
        self.has_listeners: Callable[[], bool] = lambda: False
        self.operations: list[Callable[[Run, Step], None]] = []
        """Called when an operation of a run is recorded, on the thread that recorded it."""
        self.around: Callable[[Run, str], Callable[[], None]] | None = None
        """Called before each attempt of a step, on its thread, with its run and position. The returned function is called after it."""
        self.home = home
        """The runtime of the app: calls and starts inside runs go through it."""
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.timers = Timers(clock, self.loop)
        self.executions: dict[str, Execution] = {}
        self.moving = threading.Lock()
        """The lock for changes of the phase of a run."""
        self.accepting = True
        """Whether runs are claimed and begun."""
        self.draining = False
        """Whether the worker stops: no operation begins, and the runs in memory end or are released."""
        self.drained_at: float | None = None
        """The end of the grace of a stop, by the loop's time."""
        self.given_up: set[str] = set()
        """Ids of `at_most_once` runs that this worker owns in the store and no longer executes."""
        self.run_pool = ElasticPool(settings.threads, "mainspring-run")
        self.step_pool = ElasticPool(settings.threads, "mainspring-step")
        self._store_pool = ElasticPool(4, "mainspring-store")
        for pool in (self.run_pool, self.step_pool, self._store_pool):
            pool.call_later = self._call_later
        self.waits = Waits(self)
        self.residency = Residency(self)
        self.slots = Slots(self)
        self.local_starts: LocalStarts = LocalStarts(self)
        self.halting = Halting(self)
        self.batches = Batches(self)
        self.ends = Ends(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self.launches = 0
        """The number of times that a run was begun or continued here."""

    # -- beginning -----------------------------------------------------------------------------------------------------
    def begin(self, new: NewRun, schedule: str | None, tick: str | None) -> None:
        """Execute a run that was stored with this worker as its owner. Called by `LocalStarts`."""
        run = Run(
            id=new.id,
            uid=new.uid,
            workflow=new.workflow,
            kind=new.kind,
            state=State.RUNNING,
            reason=None,
            input=new.input,
            output=None,
            error=None,
            due=new.due,
            created=new.created,
            started=new.created,
            completed=None,
            timeout=new.timeout,
            deadline=new.deadline,
            owner=new.owner,
            epoch=1,
            recoveries=0,
            version=new.version,
            fingerprint=new.fingerprint,
            parent=new.parent,
            scheduled_by=new.scheduled_by,
            attributes=new.attributes,
            blocked=None,
            schedule=schedule,
            tick=tick,
            priority=new.priority,
            attempts=1,
            retry=new.retry,
            attempt_started=new.created,
        )
        self.launch(Execution(self, run, self.registry.get(run.workflow), []))

    def take(self, claims: Iterable[Claim]) -> None:
        """Execute claimed runs. A stopping worker releases them."""
        for claim in claims:
            if self.draining:
                self.local_starts.release(claim.run.id, claim.run.uid, claim.run.epoch)
            else:
                self.launch(Execution(self, claim.run, self.registry.get(claim.run.workflow), claim.steps))

    def launch(self, ex: Execution) -> None:
        """Execute a run that this worker owns."""
        before = self.executions.get(ex.id)
        if before is not None:
            self.halting.halt(before, Lost())  # the run was taken from this worker, which has claimed it again
        self.executions[ex.id] = ex
        self.launches += 1
        self.slots.count_queued(ex, 1)
        self.changed(ex, "run.started" if ex.run.attempts <= 1 and not ex.run.is_continuation else "run.resumed")
        late = False
        if ex.undoing is not None:
            self.halting.press_on_later(ex)
        elif ex.run.deadline is not None:
            # If its time passed while no worker owned it, the run would begin its next step before a timer is called.
            late = ex.run.deadline <= self.clock.now()
            if not late:
                ex.deadline = self.timers.at(ex.run.deadline, lambda: self.halting.out_of_time(ex))
        if not ex.function.on_loop:
            self.slots.count_thread(1)
            self.clock.busy()
        self.halting.halt_if_stopped_early(ex)
        if late:
            self.halting.out_of_time(ex)
        if ex.function.batch is not None:
            BatchRun(ex).begin()
        else:
            self.execute(ex)

    def execute(self, ex: Execution, body: Coroutine[Any, Any, Any] | None = None) -> None:
        """Execute the code of a run as a task; `body` is the rest of the code, if it has begun."""
        work = self._run(ex, body) if ex.function.on_loop else self._run_on_thread(ex)
        ex.tasks.root = self._create(work, f"mainspring {ex.id}")

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task that belongs to no run."""
        self._create(work).add_done_callback(self._tasks.discard)

    def _create(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Create a task with an empty context: in the context of a run the task would be cancelled with the end of that run."""
        task = self.loop.create_task(work, name=name, context=contextvars.Context())
        self._tasks.add(task)
        return task

    @property
    def is_idle(self) -> bool:
        """Whether every run of this worker is suspended, and none is being started or concluded."""
        return (
            len(self._tasks) == len(self.executions)
            and self.ends.is_empty
            and self.local_starts.is_empty
            and all(ex.suspended for ex in self.executions.values())
        )

    async def _run(self, ex: Execution, body: Coroutine[Any, Any, Any] | None) -> None:
        """Execute the code of a run on the loop. Its end is recorded without this task."""
        try:
            await run_async(ex, body)
        except Exception as defect:  # noqa: BLE001  (logged there)
            self.ends.fail(ex, defect)
        except BaseException:  # cut off by the stop of this worker
            self.forget([ex])
            raise
        else:
            self.ends.begin(ex)
        finally:
            self._over(ex)

    async def _run_on_thread(self, ex: Execution) -> None:
        """Execute a `def` run with its end, on a thread."""
        context = contextvars.Context()
        try:
            try:
                ending = await self.loop.run_in_executor(self.run_pool, lambda: context.run(run_blocking, ex))
            finally:
                self.slots.count_thread(-1)
                self.clock.idle()
        except Exception as error:  # noqa: BLE001  (logged there)
            self.ends.fail(ex, error)
        except BaseException:
            self.forget([ex])
            raise
        else:
            self.ends.conclude_with(ex, ending)
        finally:
            self._over(ex)

    def _over(self, ex: Execution) -> None:
        self._tasks.discard(cast("asyncio.Task[None]", ex.tasks.root))

    def changed(self, ex: Execution, name: str, reason: str | None = None) -> None:
        """Report an event of a run to `on_change`. Thread-safe."""
        if self.has_listeners():
            self.here(self.on_change, name, ex.run, reason)

    def forget(self, runs: Sequence[Execution]) -> None:
        """Take runs out of the memory of this worker."""
        for ex in runs:
            ex.leave()
            for wait in list(ex.waits) if ex.waits else ():
                ex.woken(wait)
            if ex.deadline is not None:
                ex.deadline.cancel()
            if ex.park_timer is not None:
                ex.park_timer.cancel()
            if self.executions.get(ex.id) is ex:
                del self.executions[ex.id]
            self.slots.count_queued(ex, -1)
            if ex.signal is not None:
                # The traceback refers to every frame of the run, and they refer to it: only a full garbage collection would free them.
                ex.signal.__traceback__ = ex.signal.__context__ = None
        self.slots.end_yields(runs)
        self.on_room()

    def resolve(self, endings: Sequence[Ending]) -> None:
        """Wake the callers in this process that wait for runs that have ended."""
        self.waits.resolve(endings)
        self.on_end(endings)

    # -- from outside --------------------------------------------------------------------------------------------------
    async def attend(self, notices: list[Notice]) -> None:
        """Process the notices of runs of this worker: halt those that were stopped, wake the others."""
        found = ((self.executions.get(notice.run), notice) for notice in notices)
        await self._look_around(
            [ex for ex, notice in found if ex is not None and not self.halting.raise_if_stopping(ex, notice)]
        )

    async def _look_around(self, curious: list[Execution]) -> None:
        """Look up the awaited runs of these runs, and have their branches read messages again."""
        children = {wait.child for ex in curious for wait in ex.waits if wait.child is not None}
        if children:
            found = await self.in_thread(self.store.endings, children)
            self.waits.resolve([ending for ending in found.values() if ending is not None])
        for ex in curious:
            for wait in [wait for wait in ex.waits if wait.awaits is not None]:
                wait.resolve()
            self.residency.reconsider(ex)

    # -- the end -------------------------------------------------------------------------------------------------------
    async def stop(self, grace: float) -> None:
        """Stop executing. Until the grace ends, executing steps may finish, and runs that need no further step end. Release the others."""
        self.accepting, self.draining = False, True
        self.drained_at = self.loop.time() + grace
        for ex in list(self.executions.values()):
            self.halting.hand_back_if_idle(ex)
        self.batches.begin_all()
        notice = self.loop.call_later(_SILENT, self._say_what_is_awaited, grace)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self.drained_at):
                await self._drained()
        notice.cancel()
        for ex in list(self.executions.values()):
            log.warning(
                "run %s of %s: a step is still executing after the grace; another worker will recover the run",
                ex.id,
                ex.function.name,
            )
            self.halting.halt(ex, Lost())
            if ex.tasks.root is not None and ex.function.on_loop:
                ex.tasks.root.cancel()
        self.ends.abandon()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WAIT):
                await self._drained()
        self.close()

    def _say_what_is_awaited(self, grace: float) -> None:
        names = sorted({ex.function.name for ex in self.executions.values()})
        if names:
            log.warning(
                "stopping: %d runs (%s) finish the steps they are in, for up to %g s (setting grace)",
                len(self.executions),
                ", ".join(names[:5]) + (", …" if len(names) > 5 else ""),
                grace,
            )

    async def _drained(self) -> None:
        """Wait until no run executes and no start is being answered."""
        while not (self._is_empty and self.local_starts.is_empty):
            await self._emptied()
            await self.local_starts.drained()

    @property
    def _is_empty(self) -> bool:
        return not self._tasks and self.ends.is_empty

    async def _emptied(self) -> None:
        """Wait until no run executes."""
        while not self._is_empty:
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self.ends.drained()

    def abandon(self) -> None:
        """Halt every run: this worker was declared dead and owns no run any more."""
        self.accepting, self.draining = False, True
        for ex in list(self.executions.values()):
            self.halting.halt(ex, Lost())

    async def wait_until_empty(self, timeout: float) -> None:
        """Wait until no run executes, up to the timeout in seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._emptied()

    def close(self) -> None:
        self.accepting, self.draining = False, True
        self.timers.close()
        self.run_pool.shutdown(wait=False, cancel_futures=True)
        self.step_pool.shutdown(wait=False, cancel_futures=True)
        self._store_pool.shutdown(wait=False)

    @property
    def on_loop(self) -> bool:
        """Whether this is the thread of the engine's loop."""
        return threading.get_ident() == self._thread

    def here(self, work: Callable[..., None], *args: Any) -> None:
        """Call a function on the loop: now if this is its thread, else by `call_soon_threadsafe`. Thread-safe."""
        if threading.get_ident() == self._thread:
            work(*args)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and everything on it with it
            self.loop.call_soon_threadsafe(work, *args)

    def _call_later(self, seconds: float, work: Callable[[], None]) -> None:
        def plan() -> None:
            self.loop.call_later(seconds, work)

        self.here(plan)

    def on_loop_thread(self, thread: int) -> bool:
        """Whether a thread is that of the loop."""
        return thread == self._thread

    # -- helpers -------------------------------------------------------------------------------------------------------
    async def consult(self, ex: Execution, question: Callable[[], Any]) -> Any:
        """Query the store for a run. Retried while the database is unavailable, until the run is halted."""
        while True:
            try:
                return await self.in_thread(question)
            except StoreUnavailable as error:
                log.warning("run %s waits for the database: %s", ex.id, error)
                await asyncio.sleep(self.patience)
                if ex.signal is not None:
                    raise ex.signal from None

    async def in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call a blocking function on a thread of the pool for the store. A virtual clock does not advance while it runs."""
        self.clock.busy()
        try:
            return await self.loop.run_in_executor(self._store_pool, work, *args)
        finally:
            self.clock.idle()

    async def in_store(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the store: on the loop if the store can answer without waiting, else on a thread."""
        at_once = self.store.at_once
        if at_once is None:
            return await self.in_thread(work, *args)
        self.clock.busy()
        try:
            with at_once() as free:
                answer = work(*args) if free else None
            if free:
                await asyncio.sleep(0)  # let other tasks of the loop run, as during a call on a thread
                return answer
        finally:
            self.clock.idle()
        return await self.in_thread(work, *args)

    def check_size(self, text: str, value: object, what: str) -> str:
        """Return the text of a value. Raises an error if it is larger than the setting `value_bytes`."""
        return check_size(text, value, self.settings.value_bytes, what)


K = TypeVar("K")


class Waits:
    """The open waits of all runs of one engine, by the run or message that ends each."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._children: dict[str, list[Wait]] = {}
        self._awaiting: dict[Awaited, list[Wait]] = {}

    def watch(self, wait: Wait) -> None:
        """Have a wait resolved by its time, the end of a run or a message. From any thread of the run."""
        self._engine.here(self._watch, wait)

    def _watch(self, wait: Wait) -> None:
        wait.register()
        if wait.until is not None and not wait.future.done():
            wait.timer = self._engine.timers.at(wait.until, wait.resolve)
        if wait.child is not None:
            self._children.setdefault(wait.child, []).append(wait)
        if wait.awaits is not None:
            self._awaiting.setdefault(wait.awaits, []).append(wait)

    def unwatch(self, wait: Wait) -> None:
        """Remove a wait that is over. From any thread of the run."""
        self._engine.here(self._unwatch, wait)

    def _unwatch(self, wait: Wait) -> None:
        if wait.timer is not None:
            wait.timer.cancel()
            wait.timer = None
        if wait.child is not None:
            _remove(self._children, wait.child, wait)
        if wait.awaits is not None:
            _remove(self._awaiting, wait.awaits, wait)

    def resolve(self, endings: Sequence[Ending]) -> None:
        """Wake the runs that wait for runs that have ended."""
        for ending in endings if self._children else ():
            for wait in list(self._children.get(ending.id, ())):
                wait.resolve(ending)

    def arrived(self, published: Iterable[Awaited]) -> None:
        """Wake the runs that wait for messages, events or streams that were published. Thread-safe."""
        self._engine.here(self._arrived, published)

    def _arrived(self, published: Iterable[Awaited]) -> None:
        for what in published:
            for wait in list(self._awaiting.get(what, ())):
                wait.resolve()


def _remove(waits: dict[K, list[Wait]], key: K, wait: Wait) -> None:
    others = waits.get(key)
    if others is not None and wait in others:
        others.remove(wait)
        if not others:
            del waits[key]
