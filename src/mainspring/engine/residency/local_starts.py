"""The slots of a worker, and runs that begin in the worker that stores them, without a claim: one transaction less before their
first line.

Starting one has three moments, each with one owner. *Reserve*: the caller reserves a slot for the run. *Store*: the row is committed
with this worker as its owner. *Begin or hand back*: the answer to the commit decides, on the engine's loop, also when the caller has
given up waiting. A run that was stored begins. A run that was not stored frees its slot. A run whose commit has no known answer, or
that comes while the worker stops, is released for any worker. So a run is either not stored or executed, and its slot is freed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from mainspring.engine.registry import Bound
from mainspring.model.states import State
from mainspring.store.writes import Finish, Recorded, Release, Started, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from mainspring.engine.host import Host
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.context import StepScope
    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import NewRun
    from mainspring.store.writes import Start

    Answer = Started | Recorded | BaseException

log = logging.getLogger("mainspring.engine")

_MOST_YIELDING = 1_000
"""Runs that yield their slots at once. A step cannot be parked, and each thread that waits has another one started in its place."""


class Slots:
    """The slots of one engine. A run has one from the moment it is claimed or about to be started until it is released."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._reserved = 0
        self._threads_reserved = 0
        self._threads_used = 0
        self._yielding: dict[Execution, int] = {}
        """Runs with a step that waits for another run: the number of such waits. Their slots and threads count as free."""
        self._threads_yielded = 0
        self.paused = False
        """Whether only runs that runs of this worker start may begin here."""
        self.queued: dict[str, dict[str, int]] = {}
        """Runs of queues in memory, by queue and partition."""

    def free(self) -> int:
        """The number of runs that may still begin here. Runs that are stored as waiting take no slot."""
        engine = self._engine
        if not engine.accepting:
            return 0
        waiting = engine.residency.waiting + len(self._yielding)
        return engine.settings.concurrency - (len(engine.executions) - waiting) - self._reserved

    def threads(self) -> int:
        """The number of `def` runs for which a thread is free."""
        return self._engine.settings.threads - self._threads_used - self._threads_reserved + self._threads_yielded

    def reserve(self, function: Function, *, in_run: bool) -> bool:
        """Reserve a slot for a run that is about to be started here. Return False if none is free. Thread-safe.

        `in_run`: a run of this worker starts it.
        """
        with self._lock:
            if (self.paused and not in_run) or self.free() <= 0:
                return False
            if not function.on_loop and self.threads() <= 0:
                self._engine.residency.free_a_thread()
                return False
            self._change(1, blocking=not function.on_loop)
            return True

    def unreserve(self, function: Function) -> None:
        """Free a reserved slot: its run has begun, or does not begin here. Thread-safe."""
        with self._lock:
            self._change(-1, blocking=not function.on_loop)

    @contextlib.contextmanager
    def reserved(self, slots: int, *, blocking: bool) -> Generator[None]:
        """Reserve slots for runs that are being claimed, so that no start takes them before the claim is answered."""
        with self._lock:
            self._change(slots, blocking=blocking)
        try:
            yield
        finally:
            with self._lock:
                self._change(-slots, blocking=blocking)

    def _change(self, slots: int, *, blocking: bool) -> None:
        self._reserved += slots
        if blocking:
            self._threads_reserved += slots

    # -- steps that wait for other runs --------------------------------------------------------------------------------
    @contextlib.contextmanager
    def yielded(self, step: StepScope) -> Generator[None]:
        """Free the slot and the threads of a step while it waits for another run, which may need them to begin. Thread-safe."""
        engine, ex = self._engine, step.execution
        with self._lock:
            yields = len(self._yielding) < _MOST_YIELDING
            if yields and engine.executions.get(ex.id) is ex:  # a run that has left this worker has no slot
                self._count_yields(ex, 1)
        if not yields:
            log.warning(
                "step %s of run %s waits for another run and keeps its slot, because %d runs have yielded theirs already; the run that it"
                " waits for may not get a slot. Wait for runs in the workflow instead of a step",
                *(step.name, ex.id, _MOST_YIELDING),
            )
            yield
            return
        pools = [
            pool
            for pool, held in ((engine.run_pool, not ex.function.on_loop), (engine.step_pool, step.on_pool))
            if held
        ]
        for pool in pools:
            pool.grow()
        engine.here(engine.on_room)
        try:
            yield
        finally:
            for pool in pools:
                pool.shrink()
            with self._lock:
                if ex in self._yielding:
                    self._count_yields(ex, -1)

    def end_yields(self, runs: Iterable[Execution]) -> None:
        """Count the slots of runs no longer as yielded, because the runs leave this worker. Their steps may still wait. Thread-safe."""
        with self._lock:
            for ex in runs if self._yielding else ():
                if ex in self._yielding:
                    self._count_yields(ex, -self._yielding[ex])

    def _count_yields(self, ex: Execution, change: int) -> None:
        had, left = ex in self._yielding, self._yielding.get(ex, 0) + change
        if left:
            self._yielding[ex] = left
        else:
            self._yielding.pop(ex, None)
        if not ex.function.on_loop:
            self._threads_yielded += bool(left) - had

    def count_thread(self, change: int) -> None:
        """A `def` run has got its thread, or has left it."""
        self._threads_used += change

    def count_queued(self, ex: Execution, change: int) -> None:
        """A run has come into memory, or left it: if it is of a queue, it counts there."""
        queue, partition = ex.run.queue, ex.run.partition
        if queue is None:
            return
        there = self.queued.get(queue)
        if there is None:
            there = self.queued[queue] = {}
        count = there.get(partition, 0) + change
        if count:
            there[partition] = count
        else:
            del there[partition]

    @property
    def idle(self) -> bool:
        """Whether no slot is taken or reserved. For audits."""
        taken = self._reserved or self._threads_reserved or self._threads_used or self._yielding
        return not (taken or any(self.queued.values()))


class LocalStarts:
    """The runs of one engine that are being stored to begin here, and those that are being released without having begun."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._reserved: dict[str, NewRun] = {}
        """By uid, because two starts may ask for one id."""
        self._returning: dict[str, None] = {}
        self._rooms: dict[Room, None] = {}
        self._empty = asyncio.Event()

    @property
    def ids(self) -> set[str]:
        """Ids of the runs that this worker may own in the store although they are not in its memory."""
        given = (run.id for room in list(self._rooms) for run in list(room.given.values()))
        return {*(run.id for run in list(self._reserved.values())), *given, *self._returning}

    @property
    def is_empty(self) -> bool:
        """Whether `ids` is empty. Every start asks, so this does not make the set."""
        return not (self._reserved or self._returning or any(room.given for room in list(self._rooms)))

    # -- reserve -------------------------------------------------------------------------------------------------------
    def reserve(self, run: NewRun, *, in_run: bool = False) -> bool:
        """Make this worker the owner of a run that is about to be stored, if the run may begin here and a slot is free.

        `in_run`: a run of this worker starts it. The caller must call `begin_if_stored` when the start is answered, also with an
        exception. Thread-safe.
        """
        engine = self._engine
        if (
            run.state is not State.QUEUED
            or run.queue is not None
            or run.key is not None
            or run.scheduled_time is not None
            or run.version not in {None, engine.version}
        ):
            return False
        function = engine.registry.find(run.workflow)
        if function is None or not engine.slots.reserve(function, in_run=in_run):
            return False
        self._reserved[run.uid] = run
        self._own(run, function)
        if run.timeout is not None:
            until = run.created + run.timeout
            run.deadline = until if run.deadline is None else min(until, run.deadline)
        return True

    def _own(self, run: NewRun, function: Function) -> None:
        run.state, run.owner, run.kind = State.RUNNING, self._engine.worker_id, function.kind
        run.version, run.fingerprint = self._engine.version, function.fingerprint

    def reserve_each(self, runs: Iterable[NewRun], *, in_run: bool = False) -> bool:
        """Reserve slots for several runs. Return True if any of them begins here."""
        reserved = [self.reserve(run, in_run=in_run) for run in runs]
        return any(reserved)

    def room(self) -> Room:
        """Open room for the runs that a transaction is about to start. The caller closes it after the transaction. Thread-safe."""
        made = Room(self._engine, self._own, self._close_room)
        self._rooms[made] = None
        return made

    def _close_room(self, room: Room) -> None:
        self._reserved |= room.given
        del self._rooms[room]

    # -- store ---------------------------------------------------------------------------------------------------------
    def store(self, starts: list[Start], *, in_run: bool = False) -> asyncio.Future[list[Any]]:
        """Store runs, and begin those that have a slot here. Cancelling the future changes nothing about that. On the loop.

        The starts of a run wait for a database that is away, others fail.
        """
        runs = [start.run for start in starts]
        local = self.reserve_each(runs, in_run=in_run)
        then = partial(self.begin_if_stored, runs) if local else None
        return self._engine.committer.commit_all(starts, patient=in_run, then=then)

    def follow_write(self, runs: Sequence[NewRun], answer: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Begin the runs that a write starts when the write is answered. Cancelling the returned future does not prevent that."""
        answer.add_done_callback(lambda done: self.begin_if_stored(runs, [_answer(done)] * len(runs)))
        return asyncio.shield(answer)

    # -- begin or hand back --------------------------------------------------------------------------------------------
    def begin_if_stored(self, runs: Iterable[NewRun], answers: Iterable[Answer]) -> None:
        """Begin the runs that were stored, and free the slots of the others. Thread-safe."""
        for run, answer in zip(runs, answers, strict=True):
            if isinstance(answer, BaseException):
                self.hand_back(run)
            elif _is_stored(run, answer):
                self.begin(run)
            else:
                self.discard(run)

    def begin(self, run: NewRun, *, schedule: str | None = None, tick: str | None = None) -> None:
        """Begin a run that is stored with this worker as its owner. Thread-safe."""
        if run.uid in self._reserved:
            self._engine.here(self._begin, run, schedule, tick)

    def _begin(self, run: NewRun, schedule: str | None, tick: str | None) -> None:
        if self._engine.draining:
            self.hand_back(run)
            return
        self._engine.begin(run, schedule, tick)
        self._unreserve(run)

    def discard(self, run: NewRun) -> None:
        """Free the slot of a run that was not stored, or that this worker does not own. Thread-safe."""
        if run.uid in self._reserved:
            self._engine.here(self._unreserve, run)

    def hand_back(self, run: NewRun) -> None:
        """Release a run that may have been stored and does not begin here, so that any worker may claim it. Thread-safe."""
        if run.uid in self._reserved:
            self._engine.here(self._hand_back, run)

    def _hand_back(self, run: NewRun) -> None:
        self.release(run.id, run.uid, 1)
        self._unreserve(run)

    def release(self, run_id: str, uid: str, epoch: int) -> None:
        """Release a run that this worker owns and has not begun. On the loop."""
        self._returning[run_id] = None
        op = Release(self._engine.worker_id, run_id, epoch, unbegun=uid)
        self._engine.committer.commit(op).add_done_callback(partial(self._released, op))

    def _released(self, op: Release | Finish, done: asyncio.Future[Any]) -> None:
        engine = self._engine
        if not done.cancelled() and done.exception() is None and done.result() is Verdict.STOPPING:
            end = Finish(engine.worker_id, op.run, op.epoch, State.CANCELLED, engine.clock.now())
            engine.committer.commit(end).add_done_callback(partial(self._released, end))
            return
        # With an exception the connection is closed: the runs of this worker are freed when it leaves or is missed.
        self._returning.pop(op.run, None)
        self._perhaps_empty()

    def _unreserve(self, run: NewRun) -> None:
        if self._reserved.pop(run.uid, None) is not None:
            self._engine.slots.unreserve(self._engine.registry.get(run.workflow))
            self._engine.on_room()
        self._perhaps_empty()

    def _perhaps_empty(self) -> None:
        if self.is_empty:
            self._empty.set()

    async def drained(self) -> None:
        """Wait until every start is answered and every release is committed."""
        while not self.is_empty:
            self._empty.clear()
            await self._empty.wait()


class Room:
    """Slots that are reserved before a transaction decides which runs get them.

    The transaction assigns slots without calling the engine. After it, `close` frees the unused slots and leaves the runs that have
    one to `begin`, `discard` or `hand_back`.
    """

    def __init__(self, engine: Host, own: Callable[[NewRun, Function], None], close: Callable[[Room], None]) -> None:
        self._engine = engine
        self._own = own
        self._close = close
        self._unused: Counter[str] = Counter()
        self.given: dict[str, NewRun] = {}
        """The runs that have a slot, by uid."""

    def expect(self, functions: Iterable[str]) -> None:
        """Reserve a slot for a run of each of these functions, while slots are free."""
        self._free_unused()
        for name in functions:
            function = self._engine.registry.find(name)
            if function is None or function.bound is Bound.INSTANCE:
                continue  # a method is begun by a claim, which looks for its instance
            if self._engine.slots.reserve(function, in_run=False):
                self._unused[name] += 1

    def give(self, runs: Iterable[NewRun], now: int) -> set[str]:
        """Make this worker the owner of the runs that may begin at once, if there are slots for all of them. Return their uids.

        With slots for some of them only, claimed runs could begin before runs that are due earlier.
        """
        fitting = [run for run in runs if self._may_begin(run)]
        wanted = Counter(run.workflow for run in fitting)
        if not wanted <= self._unused:
            return set()
        self._unused -= wanted
        for run in fitting:
            self.given[run.uid] = run
            self._own(run, self._engine.registry.get(run.workflow))
            run.deadline = None if run.timeout is None else now + run.timeout
        return {run.uid for run in fitting}

    def _may_begin(self, run: NewRun) -> bool:
        unlimited = run.queue is None and run.key is None
        return run.state is State.QUEUED and unlimited and run.version in {None, self._engine.version}

    def take_back(self, run: NewRun) -> None:
        """Take the slot from a run that is not stored after all."""
        del self.given[run.uid]
        self._unused[run.workflow] += 1

    def close(self) -> None:
        self._free_unused()
        self._close(self)

    def _free_unused(self) -> None:
        for name in self._unused.elements():
            self._engine.slots.unreserve(self._engine.registry.get(name))
        if self._unused.total():
            self._engine.here(self._engine.on_room)
        self._unused.clear()


def _answer(done: asyncio.Future[Any]) -> Any:
    """The answer to a write, or the exception in its place."""
    return asyncio.CancelledError() if done.cancelled() else done.exception() or done.result()


def _is_stored(run: NewRun, answer: Started | Recorded) -> bool:
    """Whether this start stored the run, and the run was not cancelled by it."""
    if isinstance(answer, Started):
        return answer.created and answer.state is not State.CANCELLED
    return answer.verdict is Verdict.DONE and run.id not in answer.taken and run.id not in answer.became
