"""This process as a worker: the engine and its services, from joining the fleet to leaving it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.app.declarations.worker_declarations import WorkerCrontab, WorkerDeclarations
from mainspring.app.logs import Keeper, carry_runs
from mainspring.engine.engine import Engine
from mainspring.engine.replay import asyncio_sleep_warning, branches
from mainspring.errors import StoreError
from mainspring.model.clock import SECOND
from mainspring.model.runs import Worker as WorkerRecord
from mainspring.operations.retention import Pruning
from mainspring.operations.runs.start import described
from mainspring.operations.unserved import unserved
from mainspring.services.activity import ActivityCounter
from mainspring.services.claimer import Claimer
from mainspring.services.heartbeat import boot, host, start_time
from mainspring.services.inbox import Inbox
from mainspring.services.notifier import DefinitionWatch, Notifier
from mainspring.services.pruner import Pruner, Sweeper
from mainspring.services.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.app.runtime import Connection, Runtime
    from mainspring.model.runs import Ending, Run
    from mainspring.store.changes import Signal
    from mainspring.store.schedules import Plan

log = logging.getLogger("mainspring.app")

_PAUSE = 1.0
_LOOK = 0.01
"""Seconds between two checks whether all work is done, for callers of `drain`."""
_REVIEW = 60.0
_WARN = 600.0
_DYING = 10.0
"""Seconds to wait for halted runs to end: longer than it takes until runs that ignore the halt are cancelled."""


class WorkerState(Enum):
    """The state of a worker. Parts that begin work check it first."""

    JOINING = "joining"
    """The worker joins the fleet, for the first time or after it was declared dead."""
    WORKING = "working"
    STOPPING = "stopping"
    """The worker hands its runs back. It does not join the fleet again."""
    LEFT = "left"


class Worker:
    """A worker on the running loop. If another worker declares it dead, it starts again under a new id."""

    def __init__(self, runtime: Runtime, connection: Connection) -> None:
        self._runtime = runtime
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._tasks: list[asyncio.Task[None]] = []
        self._rejoining: asyncio.Task[None] | None = None
        self._state = WorkerState.JOINING
        self.paused = False
        self._review_at = runtime.clock.monotonic() + _REVIEW
        self._warn_at = 0.0
        self._warned: set[str] = set()
        """Warnings already logged about runs that nothing serves."""
        self._end_watch: Callable[[], None] = lambda: None
        """Ends the watch for code that blocks the loop."""
        self.activity = ActivityCounter(runtime.clock)
        self._crontab = WorkerCrontab(runtime, connection.store)
        self._declarations = WorkerDeclarations(runtime, connection.store, self._crontab)
        self._keeper: Keeper | None = None
        self._make()

    async def start(self) -> None:
        branches.install(self._loop)
        carry_runs()
        asyncio_sleep_warning.install(self._loop)
        self._connection.on_signal(self._notify)
        self._connection.endings.resolved_here = lambda run_id: run_id in self.engine.executions
        self._end_watch = self._runtime.parts.loop_watch(self._loop, self._thread)
        await self._begin()
        self._joined()

    def _make(self) -> None:
        """Create all parts of one incarnation of the worker, without starting them."""
        runtime, store, clock = self._runtime, self._connection.store, self._runtime.clock
        settings = runtime.settings
        self._me = record = self._record()
        self.engine = Engine(
            store=store,
            committer=self._connection.committer,
            clock=clock,
            registry=runtime.registry,
            settings=settings,
            worker_id=record.id,
            version=runtime.version,
            receiver=runtime.instances.receiver,
            methods=runtime.instances.methods,
            home=runtime,
        )
        self._claimer = Claimer(self.engine, settings.poll, compatible=settings.continue_on == "compatible")
        self._claimer.queues = settings.queues
        self._claimer.paused = self.engine.slots.paused = self.paused
        self._inbox = Inbox(self.engine, settings.poll)
        kept = settings.tick_retention
        self._scheduler = Scheduler(
            self.engine,
            settings.poll,
            ids=runtime.ids,
            retention=None if kept is None else round(kept * 1_000_000),
        )
        self._scheduler.paused = self.paused
        self._pruner = Pruner(self.engine, runtime.keep)
        self._sweeper = Sweeper(self.engine, runtime.other_databases)
        if (offloaded := runtime.offloaded) is not None:
            self._sweeper.sweep_values = partial(Pruning(store, clock).sweep_values, offloaded)
        self._notifier = Notifier(
            self.engine,
            settings.poll,
            wanted=lambda: bool(runtime.listeners),
            count=self.activity.count_unreported,
            report=lambda end: runtime.listeners.emit(f"run.{end.state}", end, end.reason, end.completed),
        )
        self.engine.on_change = lambda name, run, reason: runtime.listeners.emit(name, run, reason, clock.now())
        self.engine.has_listeners = lambda: bool(runtime.listeners) or runtime.listeners.follows_runs
        self.engine.operations, self.engine.around = runtime.listeners.operations, runtime.listeners.around
        self._scheduler.on_plans = self._planned
        self._watched = DefinitionWatch(
            self.engine,
            settings.poll,
            wants=runtime.listeners.wants,
            tell_queue=lambda what, queue: runtime.listeners.tell_queue(what, queue, clock.now()),
            tell_schedule=lambda what, schedule, workflow: runtime.listeners.tell_schedule(
                what, schedule, workflow, clock.now()
            ),
        )
        self.engine.on_room = self._claimer.kick_for_room
        self.engine.on_notice = self._inbox.kick
        self.engine.on_end = self._connection.endings.resolve_all
        self.engine.on_scheduled_end = self._scheduler.kick
        self.engine.on_concluded = self._concluded
        self.engine.on_left = lambda run_id: self._connection.endings.look(frozenset({run_id}))
        self._heartbeat = runtime.parts.heartbeat(
            store=store,
            clock=clock,
            worker=record,
            lease=settings.lease,
            max_recoveries=settings.max_recoveries,
            limits=runtime.registry.recovery_limits,
            on_lost=lambda: self._call_soon(self._lost),
            on_round=self._round,
            on_fleet=self._claimer.turns.update,
            on_dead=self._on_dead,
        )

    async def _begin(self) -> None:
        runtime, store, clock = self._runtime, self._connection.store, self._runtime.clock
        # Its entries are listed when their schedules are as its crontab says.
        await self.engine.in_thread(store.register, replace(self._me, crontab="{}"))
        await self.engine.in_thread(store.remember_version, runtime.version, clock.now())
        await self.engine.in_thread(self._heartbeat.start)
        await self.engine.in_thread(self._declarations.bring, self._me)
        runtime.engine = self.engine
        if runtime.settings.keep_logs != "off":
            self._keeper = Keeper(runtime.settings.keep_logs, self.engine.worker_id, clock)
            self._keeper.begin()
        await self.engine.in_thread(store.declared_functions.keep, described(runtime.registry, runtime.keep))
        services = (
            self._claimer,
            self._inbox,
            self._scheduler,
            self._pruner,
            self._sweeper,
            self._notifier,
            self._watched,
        )
        self._tasks = [self._loop.create_task(service.run()) for service in services]

    def _record(self) -> WorkerRecord:
        runtime = self._runtime
        now = runtime.clock.now()
        return WorkerRecord(
            id=f"{host()}-{os.getpid()}-{runtime.ids.new()[-8:]}",
            host=host(),
            boot=boot(),
            pid=os.getpid(),
            pid_start=start_time(os.getpid()) or 0,
            version=runtime.version,
            functions=json.dumps({function.name: function.fingerprint for function in runtime.registry}),
            started=now,
            beat=0,
            seen=now,
            crontab=self._crontab.listing(),
            instances=json.dumps(runtime.instances.methods()),
        )

    def pause(self, *, paused: bool) -> None:
        """Pause or resume claiming. Thread-safe."""
        self.paused = paused
        self._claimer.paused = self._scheduler.paused = self.engine.slots.paused = paused
        self._call_soon(self._claimer.kick)
        self._call_soon(self._tell, "paused" if paused else "resumed")

    def _tell(self, what: str, reason: str | None = None) -> None:
        """Call the listeners for an event of this worker, on the loop."""
        self._runtime.listeners.tell_worker(what, self._me.id, self._me.host, self._runtime.clock.now(), reason)

    def _planned(self, plans: Sequence[Plan]) -> None:
        """Call the listeners for the ticks that this worker decided."""
        listeners, now = self._runtime.listeners, self._runtime.clock.now()
        if not listeners:
            return
        for plan in plans:
            for tick in plan.ticks:
                listeners.tell_tick(plan.schedule.workflow, tick, now)
        if listeners.changes:  # a schedule may have paused itself
            self._watched.kick()

    def _on_dead(self, worker: WorkerRecord, freed: int) -> None:
        """Call the listeners for another worker that this one found dead. Called on the heartbeat's thread."""
        self._call_soon(self._died, worker, freed)

    def _died(self, worker: WorkerRecord, freed: int) -> None:
        reason = f"{freed} of its runs are free to be taken"
        self._runtime.listeners.tell_worker("died", worker.id, worker.host, self._runtime.clock.now(), reason)

    async def drained(self) -> None:
        """Wait until no work is due that this worker may do. Work that waits for a time, a limit or another worker stays.

        A worker that only drains lives for a short time, so one that has deleted no old runs yet does so here, or no worker would.
        """
        while True:
            engine, before = self.engine, self.engine.launches
            if self._state is WorkerState.WORKING and engine.is_idle:
                for service in (self._inbox, self._scheduler, self._claimer):
                    await service.next_round()
                if engine is self.engine and engine.is_idle and engine.launches == before:
                    await self._pruner.first_deleted()
                    return
            await asyncio.sleep(_LOOK)

    async def stop(self) -> None:
        """Hand all runs back and leave the fleet."""
        self._tell("stopping")
        await self._begin_to_stop()
        try:
            await self._stop_services()
            await self.engine.stop(self._runtime.settings.grace)
            await self._end_logs()
            self._runtime.engine = None
            await asyncio.to_thread(self._leave)
            self._tell("stopped")
            await self._runtime.listeners.finish(self._runtime.settings.grace)
        except BaseException:  # also when the caller was cancelled: a worker without heartbeat must not execute runs
            self._heartbeat.stop_soon()
            self.engine.abandon()
            raise
        finally:
            self._state = WorkerState.LEFT

    async def _begin_to_stop(self) -> None:
        self._state = WorkerState.STOPPING
        self._end_watch()
        if self._rejoining is not None:
            self._rejoining.cancel()
            await asyncio.gather(self._rejoining, return_exceptions=True)
        self._connection.off_signal(self._notify)

    async def vanish(self) -> None:
        """Release everything without a write to the database, as a crash does. For tests."""
        await self._begin_to_stop()
        await self._stop_services()
        self._runtime.engine = None
        self._heartbeat.stop_soon()
        self.engine.abandon()
        await asyncio.to_thread(self._runtime.disconnect)
        await self.engine.wait_until_empty(_DYING)
        self.engine.close()

    def _leave(self) -> None:
        self._heartbeat.stop()
        self.activity.flush(self._connection.store)
        if self._keeper is not None:
            self._keeper.store(self._connection.store)
        with contextlib.suppress(Exception):
            self._connection.store.retire(
                self.engine.worker_id,
                self._runtime.clock.now(),
                self._runtime.settings.max_recoveries,
                self._runtime.registry.recovery_limits(),
            )

    async def _stop_services(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what happens --------------------------------------------------------------------------------------------------
    def _concluded(self, ended: Sequence[tuple[Run, Ending]]) -> None:
        self.activity.count(ended)
        self._pruner.ended()

    def _notify(self, signal: Signal) -> None:
        if signal.published:
            self._call_soon(self.engine.waits.arrived, signal.published)
        if signal.lost:
            self._call_soon(self._inbox.missed)
        mine = signal.notified is None or self.engine.worker_id in signal.notified
        if signal.stops and mine:
            self.engine.halting.heed_all(signal.stops)
        if signal.started:
            self._call_soon(self._claimer.expect, signal.started)
        if signal.claimed:
            self._call_soon(self._claimer.claimed_elsewhere, signal.claimed)
        ended = signal.ended is None or bool(signal.ended)
        if ended and self._claimer.note_ends():
            self._call_soon(self._claimer.kick)
        if signal.ready or signal.due or mine:
            self._call_soon(self._wake, signal.ready, mine, signal.due)
        if signal.due or self._unobserved(signal, mine=mine):
            self._call_soon(self._notifier.kick)
        if (signal.due or signal.ready) and self._runtime.listeners.changes:
            self._call_soon(self._watched.kick)

    def _unobserved(self, signal: Signal, *, mine: bool) -> bool:
        """Whether runs may have ended that were unowned or taken from their worker. The engine reports all other ends."""
        ended = signal.ended or frozenset()
        return bool(ended) and (mine or not ended <= self.engine.executions.keys())

    def _wake(self, ready: bool, notified: bool, due: bool) -> None:  # noqa: FBT001
        if ready:
            self._claimer.kick()
        if due:
            self._scheduler.kick()
        if notified:
            self._inbox.kick()

    async def _end_logs(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.to_thread(keeper.end, self._connection.store)

    def _round(self) -> None:
        """Store activity and logs, and mark runs that no live worker can continue. Once per heartbeat, on its thread."""
        self.activity.flush(self._connection.store)
        if self._keeper is not None:
            self._keeper.store(self._connection.store)
        self._list_instances()
        self._runtime.destinations.check(self._connection.store)
        functions = {function.name: function.fingerprint for function in self._runtime.registry}
        stranded = self._connection.store.strand(functions)
        if stranded:
            log.warning("%d runs are stranded: see `mainspring runs list --stranded`", stranded)
        self._review_unknown()
        self._declarations.review(self._me.id)

    def _list_instances(self) -> None:
        """Write the instances that were named since the worker joined the fleet to its row, for the other workers."""
        there = json.dumps(self._runtime.instances.methods())
        if there != self._me.instances:
            self._connection.store.list_instances(self._me.id, there)
            self._me = replace(self._me, instances=there)

    def named_instance(self) -> None:
        """Look for runs that wait for a newly named instance. Thread-safe."""
        self._call_soon(self._claimer.kick)

    def _review_unknown(self) -> None:
        """Mark runs of functions that no worker knows, and fail them after `unknown_after`. Throttled."""
        clock = self._runtime.clock
        if clock.monotonic() < self._review_at:
            return
        self._review_at = clock.monotonic() + _REVIEW
        patience = round(self._runtime.settings.unknown_after * SECOND)
        found = self._connection.store.unknown.review(clock.now(), patience)
        if found.marked or found.failed:
            log.warning(
                "%d runs wait for a function that no worker knows, %d failed after waiting too long for one: see `mainspring runs list --stranded`",
                found.marked,
                found.failed,
            )

        self._warn_of_runs_that_nothing_serves()

    def _warn_of_runs_that_nothing_serves(self) -> None:
        """Warn of runs that name a queue that does not exist or a version that no worker has: they would wait silently."""
        store, clock = self._connection.store, self._runtime.clock
        if clock.monotonic() < self._warn_at:
            return
        self._warn_at = clock.monotonic() + _WARN
        found = {f"{each.found}; {each.hint}" for each in unserved(store, clock)}
        for what in sorted(found - self._warned):
            log.warning("runs wait, because %s", what)
        self._warned = found

    def _lost(self) -> None:
        """Handle that another worker declared this one dead. A worker that is stopping has nothing left to hand back."""
        if self._state is WorkerState.WORKING:
            self._state = WorkerState.JOINING
            self._tell("lost", "declared dead by another worker; this process begins again as a new one")
            self._rejoining = self._loop.create_task(self._begin_anew())
        else:
            self.engine.abandon()

    async def _begin_anew(self) -> None:
        """Abandon all runs, which other workers own now, and join the fleet again as soon as the database is available."""
        await self._stop_services()
        await self._end_logs()
        self._runtime.engine = None
        self.engine.abandon()
        self.engine.close()
        while True:
            self._make()
            try:
                await self._begin()
            except Exception as error:  # a worker that gave up here would beat and claim nothing
                unexpected = None if isinstance(error, StoreError) else error
                log.warning("cannot join the fleet again; retrying in %g s: %s", _PAUSE, error, exc_info=unexpected)
                self._heartbeat.stop_soon()
                self.engine.close()
                await asyncio.sleep(_PAUSE)
            else:
                break
        self._rejoining = None
        self._joined()

    def _joined(self) -> None:
        self._state = WorkerState.WORKING
        self._tell("started")
        if self.engine.draining:  # declared dead before it had started
            self._lost()

    def _call_soon(self, work: object, *args: object) -> None:
        if threading.get_ident() == self._thread:
            self._loop.call_soon(work, *args)  # type: ignore[arg-type]
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing is left to wake
            self._loop.call_soon_threadsafe(work, *args)  # type: ignore[arg-type]
