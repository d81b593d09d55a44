"""The runs that this process has in hand: setting them off, waking them, parking them, stopping them.

Everything here happens on one event loop, except where a method says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mainspring.codec import check_size, encode_exception, in_a_line
from mainspring.engine.execution import Execution
from mainspring.engine.parking import Parking
from mainspring.engine.places import Places
from mainspring.engine.runner import run_async, run_blocking
from mainspring.engine.signals import HandedBack, Lost, Stopped
from mainspring.engine.stopping import Stopping
from mainspring.engine.timers import Timers
from mainspring.engine.waits import Waits
from mainspring.errors import StoreError, StoreUnavailable
from mainspring.model.records import Ending, Run
from mainspring.model.states import State
from mainspring.store.ops import Finish, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from mainspring.engine.registry import Function, Registry
    from mainspring.engine.settings import EngineSettings
    from mainspring.model.clock import Clock
    from mainspring.model.records import Claim, NewRun, Step
    from mainspring.store.committer import Committer
    from mainspring.store.protocol import Poke, Store

log = logging.getLogger("mainspring.engine")

_LAST_WAIT = 2.0


class Engine:
    """What one worker executes."""

    patience = 1.0
    """Seconds until the database is asked again, and until a run that was told to let go and does not is cancelled."""

    def __init__(
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
        on_end: Callable[[Ending], None],
        on_room: Callable[[], None],
        on_poke: Callable[[], None],
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
        """The functions that need an instance, with the names of those that there are here."""
        self._on_end = on_end
        self.on_room = on_room
        self.on_poke = on_poke
        self.on_scheduled_end: Callable[[], None] = lambda: None
        self.on_concluded: Callable[[Run, Ending], None] = lambda _run, _ending: None
        """Called when a run that a schedule started has ended here."""
        self.on_left: Callable[[str], None] = lambda _run_id: None
        """Called when a run is no longer in hand, and what became of it is for the store to say."""
        self.on_change: Callable[[str, Run, str | None], None] = lambda _name, _run, _reason: None
        """Called on the loop when something has happened to a run here."""
        self.operations: list[Callable[[Run, Step], None]] = []
        """Called, on whatever thread it is, when an operation of a run is over and recorded."""
        self.around: Callable[[Run, str], Callable[[], None]] | None = None
        """Called before each attempt of a step with its run and position, where it is executed; what it returns is called afterwards."""
        self.home = home
        """The runtime that this engine executes for: what its runs call and start goes through it."""
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.timers = Timers(clock, self.loop)
        self.executions: dict[str, Execution] = {}
        self.accepting = True
        self.expected: set[str] = set()
        """Runs that may be in this worker's hand by the store's account and are about to be, or rightly are not, among the executions."""
        self._run_pool = ThreadPoolExecutor(settings.threads, "mainspring-run")
        self.step_pool = ThreadPoolExecutor(settings.threads, "mainspring-step")
        self._store_pool = ThreadPoolExecutor(4, "mainspring-store")
        self.waits = Waits(self)
        self.parking = Parking(self)
        self.places = Places(self)
        self.stopping = Stopping(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped_early: dict[str, Poke] = {}
        """Runs that were stopped between being claimed or started and being set off."""
        self.launches = 0
        """How often a run was set off here."""

    # -- setting off ---------------------------------------------------------------------------------------------------
    def begin(self, new: NewRun, *, created: bool, schedule: str | None = None, tick: str | None = None) -> None:
        """Set off a run that was stored as being in this worker's hand, if it was. From any thread."""
        if new.owner != self.worker_id:
            return
        self.places.give_back(self.registry.get(new.workflow))
        if not created:
            self.expected.discard(new.id)
            return
        run = Run(
            new.id,
            new.uid,
            new.workflow,
            new.kind,
            State.RUNNING,
            None,
            new.input,
            None,
            None,
            new.due,
            new.created,
            new.created,
            None,
            new.timeout,
            new.deadline,
            new.owner,
            1,
            0,
            new.version,
            new.fingerprint,
            new.parent,
            new.scheduled_by,
            new.attributes,
            None,
            schedule,
            tick,
            priority=new.priority,
            attempts=1,
            retry=new.retry,
            since=new.created,
        )
        self.here(self.launch, Execution(self, run, self.registry.get(run.workflow), []))

    def take(self, claims: Iterable[Claim]) -> None:
        """Set off runs that were claimed."""
        for claim in claims:
            self.launch(Execution(self, claim.run, self.registry.get(claim.run.workflow), claim.steps))

    def launch(self, ex: Execution) -> None:
        """Execute a run that is in this worker's hand."""
        self.executions[ex.id] = ex
        self.launches += 1
        self.expected.discard(ex.id)
        self.places.count_queued(ex, 1)
        self.changed(ex, "run.started" if ex.epoch == 1 else "run.resumed")
        if ex.unwinding is not None:
            self.stopping.press_on_later(ex)
        elif ex.run.deadline is not None:
            ex.deadline = self.timers.at(ex.run.deadline, lambda: self.stopping.out_of_time(ex))
        if not ex.function.is_async:
            self.places.count_thread(1)
            self.clock.busy()
        early = self._stopped_early.pop(ex.id, None)
        if early is not None and early.epoch >= ex.epoch:
            self._stopped(ex, early)
        ex.root = self._create(self._run(ex), f"mainspring {ex.id}")

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside the runs."""
        self._create(work).add_done_callback(self._tasks.discard)

    def _create(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """A task with a context of its own: in that of the run which asks for it, it would be cancelled with that run's end."""
        task = self.loop.create_task(work, name=name, context=contextvars.Context())
        self._tasks.add(task)
        return task

    @property
    def at_rest(self) -> bool:
        """Whether all runs in hand wait for something that this process has no part in, and none is just being concluded."""
        return len(self._tasks) == len(self.executions) and all(ex.resting for ex in self.executions.values())

    async def _run(self, ex: Execution) -> None:
        ending: Ending | None = None
        try:
            try:
                ending = await (run_async(ex) if ex.function.is_async else self._run_on_thread(ex))
            except StoreError as error:
                log.warning(
                    "run %s of %s could not be concluded, others will go on with it: %s", ex.id, ex.function.name, error
                )
                if ex.function.at_most_once:
                    self.expected.add(ex.id)  # not to be taken up again
            except Exception as defect:
                log.exception("run %s of %s could not be concluded", ex.id, ex.function.name)
                ending = await self._give_up(ex, defect)
            finally:
                self._forget(ex)
            if isinstance(ex.halted, Stopped) and ex.undoable:
                await self.stopping.unwind(ex)
            if ending is not None:
                await self._conclude(ex, ending)
            else:
                self.on_left(ex.id)
        finally:
            if ex.root is not None:
                self._tasks.discard(ex.root)

    async def _run_on_thread(self, ex: Execution) -> Ending | None:
        context = contextvars.Context()
        try:
            return await self.loop.run_in_executor(self._run_pool, lambda: context.run(run_blocking, ex))
        finally:
            self.places.count_thread(-1)
            self.clock.idle()

    async def _conclude(self, ex: Execution, ending: Ending) -> None:
        """Tell whoever wants to know that a run has ended here."""
        self.on_concluded(ex.run, ending)
        if ending.state is State.CANCELLED and ending.reason is None:
            ending = await self._with_reason(ending)
        self.settle(ending)
        self.changed(ex, f"run.{ending.state}", ending.reason)
        if ex.run.schedule is not None and not ex.settled:
            self.on_scheduled_end()

    def changed(self, ex: Execution, name: str, reason: str | None = None) -> None:
        """Something has happened to a run that others may want to know. From any thread."""
        self.here(self.on_change, name, ex.run, reason)

    async def _with_reason(self, ending: Ending) -> Ending:
        """A run that was stopped at its very end does not know why; the store does, when it can be asked."""
        with contextlib.suppress(StoreError):
            return (await self.in_thread(self.store.endings, [ending.id])).get(ending.id) or ending
        return ending

    async def _give_up(self, ex: Execution, defect: Exception) -> Ending | None:
        """A defect of the library's own must not leave a run in nobody's hand: it fails, with what is known."""
        finish = Finish(self.worker_id, ex.id, ex.epoch, State.FAILED, self.clock.now())
        finish.reason, finish.error = in_a_line(defect), encode_exception(defect)
        with contextlib.suppress(Exception):
            if await self.committer.commit(finish) is Verdict.DONE:
                return Ending(ex.id, finish.state, finish.reason, None, finish.error)
        return None

    def _forget(self, ex: Execution) -> None:
        ex.set_resting(resting=False)
        for wait in list(ex.waits):
            ex.woken(wait)
        if ex.deadline is not None:
            ex.deadline.cancel()
        if self.executions.get(ex.id) is ex:
            del self.executions[ex.id]
        self.places.count_queued(ex, -1)
        if ex.halted is not None:
            # It holds every frame of the run, and they hold it: memory that only a rare, full garbage collection would find.
            ex.halted.__traceback__ = ex.halted.__context__ = None
        self.on_room()

    def settle(self, ending: Ending) -> None:
        """A run has ended: wake those in this process that wait for it."""
        self.waits.settle(ending)
        self._on_end(ending)

    # -- from outside --------------------------------------------------------------------------------------------------
    def heed_stops(self, stops: Iterable[Poke]) -> None:
        """Runs in hand were stopped by a commit of this process: nothing of them begins from now on. From any thread."""
        for poke in stops:
            ex = self.executions.get(poke.run)
            if ex is not None:
                self._stopped(ex, poke)
            else:  # claimed or started, and not set off yet; or just over
                self._stopped_early[poke.run] = poke
                self.here(self._forget_stop_later, poke)

    def _forget_stop_later(self, poke: Poke) -> None:
        def forget() -> None:
            if self._stopped_early.get(poke.run) is poke:
                del self._stopped_early[poke.run]

        self.loop.call_later(self.patience, forget)

    def _stopped(self, ex: Execution, poke: Poke) -> bool:
        """Halt a run that was stopped, or is another's by now; whether it was."""
        if poke.epoch != ex.epoch or poke.state.ended:
            self.stopping.halt(ex, Lost())
        elif poke.state is State.CANCELLING:
            self.stopping.halt(ex, Stopped(poke.reason))
        else:
            return False
        return True

    async def attend(self, pokes: list[Poke]) -> None:
        """React to what happened to runs in hand."""
        found = ((self.executions.get(poke.run), poke) for poke in pokes)
        await self._look_around([ex for ex, poke in found if ex is not None and not self._stopped(ex, poke)])

    async def _look_around(self, curious: list[Execution]) -> None:
        """Something that these runs wait for may have happened."""
        children = {wait.child for ex in curious for wait in ex.waits if wait.child is not None}
        if children:
            for ending in (await self.in_thread(self.store.endings, children)).values():
                if ending is not None:
                    self.waits.settle(ending)
        for ex in curious:
            for wait in [wait for wait in ex.waits if wait.hears is not None]:
                wait.resolve()
            self.parking.reconsider(ex)

    # -- the end -------------------------------------------------------------------------------------------------------
    async def stop(self, grace: float) -> None:
        """Hand every run back. Steps in flight may finish, for as long as the grace lasts."""
        self.accepting = False
        for ex in list(self.executions.values()):
            self.stopping.halt(ex, HandedBack())
        left = [ex.root for ex in self.executions.values() if ex.root is not None]
        if left:
            await asyncio.wait(left, timeout=grace)
        for ex in list(self.executions.values()):
            log.warning(
                "run %s of %s is in a step that does not end; it is left to be taken over", ex.id, ex.function.name
            )
            if ex.root is not None and ex.function.is_async:
                ex.halted = Lost()
                ex.root.cancel()
        await self.wait_until_empty(_LAST_WAIT)
        self.close()

    async def wait_until_empty(self, timeout: float) -> None:
        """Wait until nothing is in hand any more, for so long at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    def abandon(self) -> None:
        """This worker was declared dead: nothing it has in hand is its own any more."""
        for ex in list(self.executions.values()):
            self.stopping.halt(ex, Lost())

    def close(self) -> None:
        self.timers.close()
        self._run_pool.shutdown(wait=False, cancel_futures=True)
        self.step_pool.shutdown(wait=False, cancel_futures=True)
        self._store_pool.shutdown(wait=False)

    def here(self, work: Callable[..., None], *args: Any) -> None:
        """Do something on the loop: now if this is its thread, else as soon as it can."""
        if threading.get_ident() == self._thread:
            work(*args)
        else:
            self.loop.call_soon_threadsafe(work, *args)

    # -- helpers -------------------------------------------------------------------------------------------------------
    async def consult(self, ex: Execution, question: Callable[[], Any]) -> Any:
        """Ask the store something on behalf of a run. While it is out of reach the run waits, as its writes do."""
        while True:
            try:
                return await self.in_thread(question)
            except StoreUnavailable as error:
                log.warning("run %s waits for the database: %s", ex.id, error)
                await asyncio.sleep(self.patience)
                if ex.halted is not None:
                    raise ex.halted from None

    async def in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        """Do something blocking on a thread, with civil time standing still meanwhile."""
        self.clock.busy()
        try:
            return await self.loop.run_in_executor(self._store_pool, work, *args)
        finally:
            self.clock.idle()

    async def in_store(self, work: Callable[..., Any], *args: Any) -> Any:
        """Have the store do something: here if it is certain to wait for nothing, else on a thread."""
        at_once = self.store.at_once
        if at_once is None:
            return await self.in_thread(work, *args)
        self.clock.busy()
        try:
            with at_once() as free:
                answer = work(*args) if free else None
            if free:
                await asyncio.sleep(0)  # others on this loop have their turn, as they would have meanwhile
                return answer
        finally:
            self.clock.idle()
        return await self.in_thread(work, *args)

    def check_size(self, text: str, value: object, what: str) -> str:
        """The text of a value, unless that is larger than the setting allows."""
        return check_size(text, value, self.settings.value_bytes, what)
