"""One process of a simulated fleet: an app whose calls to the database can fail at any time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from mainspring.app.app import App
from mainspring.app.client_api import runtime_of
from mainspring.app.runtime import Parts
from mainspring.app.waits import Endings
from mainspring.errors import StoreError, StoreUnavailable
from mainspring.model.clock import SECOND
from mainspring.model.ids import IdMaker
from mainspring.services.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.app.settings import Settings
    from mainspring.engine.registry import Function
    from mainspring.model.clock import Alarm
    from mainspring.store.changes import Signal
    from mainspring.store.committer import Receiver, Reply
    from mainspring.store.protocol import Store
    from mainspring.store.writes import Op, Result
    from mainspring.testing.simulation.stage import Stage

_SILENT = {
    "open",
    "close",
    "listen",
    "url",
    "clock_offset",
    "run",
    "steps",
    "runs",
    "workers",
    "counts",
    "schema_report",
    "step",
    "transactions",
}
_EPOCH = 1_767_225_600 * SECOND  # 2026-01-01


class SimulatedClock:
    """The wall clock and the monotonic clock of a process. Wall-clock time is that of the stage, plus an offset."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.offset = 0

    def now(self) -> int:
        return _EPOCH + round(self._stage.time * SECOND) + self.offset

    def monotonic(self) -> float:
        return self._stage.time

    def call_at(
        self, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], *, background: bool = False
    ) -> Alarm:
        del background
        return _Alarm(self, when, loop, ring)

    @property
    def doubtful(self) -> bool:
        return False

    def confirm(self) -> None:
        pass

    def busy(self) -> None:
        pass

    def idle(self) -> None:
        pass

    def waiting(self, change: int) -> None:
        pass


class _Alarm:
    def __init__(
        self, clock: SimulatedClock, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]
    ) -> None:
        self._clock, self._when, self._loop, self._ring = clock, when, loop, ring
        self._look()

    def _look(self) -> None:
        left = (self._when - self._clock.now()) / SECOND
        if left <= 0:
            self._handle: asyncio.Handle = self._loop.call_soon(self._ring)
        else:
            self._handle = self._loop.call_later(min(left, 600.0), self._look)

    def cancel(self) -> None:
        self._handle.cancel()


class FaultyStore:
    """A process's connection to the shared database. Each call may crash the process, fail, or lose its response."""

    at_once = None
    """No call is answered at once."""

    def __init__(self, process: Process, store: Store) -> None:
        self._process = process
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in _SILENT:
            return found
        if not callable(found):  # a part of the store, with verbs of its own
            return FaultyStore(self._process, found)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._process.call_store(name, lambda: found(*args, **kwargs))

        call.process = self._process  # type: ignore[attr-defined]
        return call

    def open(self, *, migrate: bool = True, beside: bool = False) -> None:
        del migrate, beside

    def close(self) -> None:
        pass

    def listen(self, notify: Callable[[Signal], None]) -> None:
        self._process.on_signal = notify


class _Answered:
    """A write whose answer a receiver gets, by itself."""

    def __init__(self, receiver: Receiver, op: Op, caller: object) -> None:
        self._receiver = receiver
        self.op = op
        self.reply = caller
        self.answer: Result | Exception | None = None

    def done(self) -> bool:
        return self.answer is not None

    def set_result(self, answer: Result | Exception, /) -> None:
        self.answer = answer
        self._receiver.receive([self])

    set_exception = set_result


class _Committer:
    """Group commit without a thread: a batch is an action of the stage."""

    def __init__(self, process: Process, store: Store) -> None:
        self._process = process
        self._store = store
        self._queue: list[tuple[Op, Reply, bool]] = []
        self._planned = False
        self._closed = False

    def commit(self, op: Op, *, patient: bool = True) -> asyncio.Future[Any]:
        loop = self._process.stage.loop
        future = loop.create_future()
        self.hand_over(op, loop, future, patient=patient)
        return future

    def hand_over(self, op: Op, _: asyncio.AbstractEventLoop, reply: Reply, *, patient: bool = True) -> None:
        self._queue.append((op, reply, patient))
        if self._closed:
            self.close()
        else:
            self._plan()

    def hand_over_for(self, receiver: Receiver, op: Op, caller: object, loop: asyncio.AbstractEventLoop) -> None:
        self.hand_over(op, loop, _Answered(receiver, op, caller))

    def hand_over_both(
        self, first: tuple[Op, Reply], second: tuple[Op, Reply], loop: asyncio.AbstractEventLoop
    ) -> None:
        for op, reply in (first, second):
            self.hand_over(op, loop, reply)

    def commit_all(
        self, ops: Sequence[Op], *, patient: bool = True, then: Callable[[list[Any]], None] | None = None
    ) -> asyncio.Future[list[Any]]:
        answers = asyncio.gather(*[self.commit(op, patient=patient) for op in ops], return_exceptions=True)
        if then is None:
            return answers
        answers.add_done_callback(lambda done: then(done.result()))
        return asyncio.shield(answers)  # a caller that waits no longer must not keep `then` from the answers

    def commit_sync(self, op: Op, *, patient: bool = True) -> Any:
        raise NotImplementedError("`def` workflows have threads, which a simulation cannot repeat")

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._process.stage.add(self._process, self._flush, self._fail)

    def _fail(self) -> None:
        """Fail the impatient writes after the process died. A revived client continues with the others."""
        self._planned = False
        self._refuse_impatient(StoreUnavailable("the process is dead"))

    def _flush(self) -> None:
        self._planned = False
        batch, self._queue = self._queue, []
        if not batch:
            return
        try:
            answers: list[Any] = self._store.apply([op for op, _, _ in batch], self._process.clock.now())
        except StoreError as error:
            self._queue = batch + self._queue
            self._refuse_impatient(error)
            if self._queue:
                self._plan()
            return
        for (_, reply, _), answer in zip(batch, answers, strict=True):
            if not reply.done():
                if isinstance(answer, Exception):
                    reply.set_exception(answer)
                else:
                    reply.set_result(answer)

    def _refuse_impatient(self, error: StoreError) -> None:
        """Fail the writes whose callers do not want to wait for a retry."""
        for _, reply, patient in self._queue:
            if not patient and not reply.done():
                reply.set_exception(error)
        self._queue = [ticket for ticket in self._queue if ticket[2]]

    def close(self) -> None:
        self._closed = True
        late, self._queue = self._queue, []
        for _, reply, _ in late:
            if not reply.done():
                reply.set_exception(StoreUnavailable("the process is dead"))


class _Endings(Endings):
    """Looks up ended runs by actions instead of on a thread."""

    def __init__(self, process: Process, store: Store, poll: float) -> None:
        super().__init__(store.endings, poll)
        self._process = process

    def _start(self) -> None:
        self._process.stage.loop.call_later(self._poll, self._round)

    def _round(self) -> None:
        if not self._closing:
            self.look()
            self._start()

    def look(self, ended: frozenset[str] | None = None) -> None:
        if self._watched and not self._closing:
            super().look(ended)
            self._process.stage.add(self._process, self.ask_once)

    def close(self) -> None:
        self._closing = True


class _Heartbeat(Heartbeat):
    """Sends heartbeats by actions instead of on a thread."""

    process: Process

    def start(self) -> None:
        self.run_once()
        self._later()

    def _later(self) -> None:
        self.process.stage.loop.call_later(self._lease / 3, self._plan)

    def _plan(self) -> None:
        if not self._stopping.is_set():
            self.process.stage.add(self.process, self._beat)

    def _beat(self) -> None:
        with contextlib.suppress(StoreError):
            self.run_once()
        self._later()

    def stop(self) -> None:
        self.stop_soon()


class _CrashingParts(Parts):
    def __init__(self, process: Process, store: Store) -> None:
        self._process = process
        self._store = store

    def store(self, url: str, settings: Settings) -> Any:
        del url, settings
        return FaultyStore(self._process, self._store)

    def committer(self, store: Store, clock: Any) -> Any:
        del clock
        return _Committer(self._process, store)

    def endings(self, store: Store, settings: Settings) -> Endings:
        return _Endings(self._process, store, settings.poll)

    def heartbeat(self, **parts: Any) -> Heartbeat:
        beat = _Heartbeat(**parts)
        beat.process = self._process
        return beat

    def loop_watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> Callable[[], None]:
        del loop, thread
        return lambda: None


class Process:
    """A process, from its start to its death or the end of the simulation."""

    def __init__(
        self, stage: Stage, name: str, store: Store, functions: Iterable[Function], settings: Settings
    ) -> None:
        self.stage = stage
        self.name = name
        self.alive = True
        self.frozen = False
        self.death = asyncio.Event()
        self.stop = asyncio.Event()
        """Set to stop the process in an orderly way."""
        self.clock = SimulatedClock(stage)
        self.on_signal: Callable[[Signal], None] = lambda _: None
        self.app = App("sqlite://", settings=settings, version="simulated")
        runtime = runtime_of(self.app)
        runtime.clock = self.clock
        runtime.ids = IdMaker(self.clock, seed=stage.chance.getrandbits(64))
        runtime.parts = _CrashingParts(self, store)
        for function in functions:
            runtime.registry.add(function)

    def call_store(self, verb: str, word: Callable[[], Any]) -> Any:
        """Make one call to the store, with the faults of the simulation: a crash, a failure, or a lost response."""
        stage = self.stage
        if not self.alive:
            raise StoreUnavailable(f"{self.name} is dead")
        before = stage.chance.random() < 0.5
        crash = stage.happens("crash")
        if crash and before:
            self.die()
        if stage.happens("unavailable"):
            raise StoreUnavailable(f"{self.name}: the database is away ({verb})")
        answer = word()
        if crash:
            self.die()
        if stage.happens("lost_answer"):
            raise StoreUnavailable(f"{self.name}: the answer to {verb} was lost")
        return answer

    def die(self) -> None:
        """Crash: from now on no call of this process has an effect."""
        self.alive = False
        self.death.set()
        self.stage.drop(self)
        raise StoreUnavailable(f"{self.name} has died")

    def freeze(self) -> None:
        """Stop for longer than a lease, then continue."""
        self.frozen = True
        self.stage.loop.call_later(self.app.settings.lease * self.stage.chance.uniform(1.2, 3), self._unfreeze)

    def _unfreeze(self) -> None:
        self.frozen = False

    def ask_to_stop(self) -> None:
        """Leave in an orderly way."""
        self.stop.set()

    def set_clock(self, by: int) -> None:
        """Set the wall clock, by microseconds."""
        self.clock.offset += by
