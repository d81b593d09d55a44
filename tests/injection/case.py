"""One case: a shape, an injection and a point. Played in one life or more, then once more without any injection, then audited."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainspring import Settings
from mainspring.errors import StoreError, StoreUnavailable
from tests.injection.auditor import audit
from tests.injection.loop import CountingLoop
from tests.injection.scene import Caller, Ended, Ledger, Scene
from tests.injection.seams import LifeOf, expecting_thread, lazy_thread, lost_signal
from tests.injection.threads import Abandoned, Deadlock, Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.injection.databases import Database
    from tests.injection.injections import Injection, Point
    from tests.injection.scene import Drive, Shape

CONCURRENCY = 4
_LIMIT = 120.0
"""Virtual seconds that a life may take until everything has ended."""
_DRAIN = 60.0
_GONE = 20.0
"""Virtual seconds in which a caller learns that its app was left."""
_LEAVING_TURNS = 24
"""Iterations that leaving an app takes, about."""
SLOW = 0.06
"""Virtual seconds that a slow call takes: longer than a step."""


@dataclass
class Record:
    """What a case went through, for the auditor."""

    shape: Shape
    injection: Injection
    point: Point | None
    ledger: Ledger = field(default_factory=Ledger)
    problems: list[str] = field(default_factory=list[str])
    hit: bool = False
    """Whether the point was reached."""
    calls: list[str] = field(default_factory=list[str])
    """The verbs that the first life called, in order."""
    verbs: set[str] = field(default_factory=set[str])
    turns: int = 0
    operations: int = 0
    stopped: dict[str, bool] = field(default_factory=dict[str, bool])
    """Runs that were cancelled or terminated, and whether there was something to cancel."""
    at_death: dict[str, bool] = field(default_factory=dict[str, bool])
    """Runs at the moment of a kill, and whether the outcome of their only operation was recorded."""
    done: list[str] = field(default_factory=list[str])
    dropped: list[str] = field(default_factory=list[str])
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    ended_at: float = 0.0
    hit_at: float = 0.0
    logs: list[str] = field(default_factory=list[str])


class Case:
    """A case under way. Injections act through it."""

    def __init__(self, shape: Shape, injection: Injection, point: Point | None, database: Database) -> None:
        self.record = Record(shape, injection, point)
        self.shape = shape
        self.injection = injection
        self.point = point
        self.database = database
        self.turns = Turns(lazy=lazy_thread, expects=expecting_thread)
        self.loop: CountingLoop
        self.lives: list[LifeOf] = []
        self.drives: dict[int, Drive] = {}
        self.probes: dict[int, list[Any]] = {}
        self.driving: asyncio.Task[None] | None = None
        self.caller: Caller | None = None
        self.news = asyncio.Event()
        self.leave = False
        """The first life is to be left in an orderly way."""
        self.taken_over = False
        self.between_lives: Callable[[], None] = lambda: None
        self._failing: dict[str, int] = {}
        self._muted: LifeOf | None = None
        self._failing_at_random = False
        self._calm = False

    # -- what injections do --------------------------------------------------------------------------------------------
    @property
    def life(self) -> LifeOf:
        """The life that injections concern."""
        return self.lives[0]

    def tell(self) -> None:
        self.loop.call_soon_threadsafe(self.news.set)

    def kill(self) -> None:
        """The process is gone: nothing that it does from now on has an effect."""
        if not self.life.dead and not self._calm:
            for run_id in self.shape.interrupted if self.life.connected else ():
                steps = self.life.inner.steps(run_id)
                self.record.at_death[run_id] = any(step.completed is not None for step in steps)
            self.life.dead = True
            self.tell()

    def stop(self) -> None:
        self.leave = True
        self.tell()

    def take_over(self) -> None:
        if not self.taken_over and not self._calm and self.life.connected:
            self.life.declare_dead()
            self.taken_over = True
            self.tell()

    def cancel(self) -> None:
        self._end_runs("cancel")

    def terminate(self) -> None:
        self._end_runs("terminate")

    def _end_runs(self, verb: str) -> None:
        inner = self.life.inner
        if self._calm or not self.life.connected:
            return
        there = [run_id for run_id in self.shape.main if inner.run(run_id) is not None]
        if there:
            done: dict[str, bool] = getattr(inner, verb)(there, "asked", self.life.now())
            for run_id, was in done.items():
                self.record.stopped[run_id] = self.record.stopped.get(run_id, False) or was

    def drop(self) -> None:
        """The caller is cancelled in the middle of whatever it awaits, and goes on with the next thing."""
        if self.driving is not None and self.caller is not None and not self.driving.done():
            if self.caller.under_way is not None:
                self.record.dropped.append(self.caller.under_way)
            self.driving.cancel()

    def fail_commits(self) -> None:
        """The database does not take the next two batches of writes."""
        self._failing["apply"] = 2

    def fail_at_random(self) -> None:
        """From here on every third call fails, for a while."""
        self._failing_at_random = True

    def kill_soon(self) -> None:
        """The process is gone in the middle of a call that takes long."""
        self.loop.call_soon_threadsafe(self.loop.call_later, SLOW / 2, self.kill)

    def later(self, turns: int, work: Callable[[], None]) -> None:
        """Do something so many iterations of the loop from now."""
        self.loop.call_soon_threadsafe(self.loop.in_turns, turns, work)

    def fire(self) -> None:
        """The point is reached."""
        if not self.record.hit and not self._calm and self.lives:
            self.record.hit = True
            self.record.hit_at = self.turns.now
            self.injection.act(self, self.point)

    # -- the store's calls ---------------------------------------------------------------------------------------------
    def call(self, life: LifeOf, verb: str, work: Callable[[], Any]) -> Any:
        """Make a call of a store: before and after it are points."""
        number = self._enter(life, verb)
        self._at("before", number)
        self._refuse(life, verb, number)
        answer = work()
        self._leave(life, verb, number)
        return answer

    async def acall(self, life: LifeOf, verb: str, work: Callable[[], Any]) -> Any:
        number = self._enter(life, verb)
        self._at("before", number)
        self._refuse(life, verb, number)
        answer = await work()
        self._leave(life, verb, number)
        return answer

    def _enter(self, life: LifeOf, verb: str) -> int:
        self.record.verbs.add(verb)
        if life is not self.lives[0] or self._calm:
            return 0
        self.record.calls.append(verb)
        return len(self.record.calls)

    def _at(self, when: str, number: int) -> None:
        point = self.point
        if point is not None and number == point.number and point.kind == when:
            self.fire()
            if self.injection.holds and not self._on_loop():
                self.turns.sleep(0.001)  # the call takes long enough for the rest of the process to feel what happened
        if when == "before" and point is not None and number == point.number and point.kind == "slow":
            self.fire()
            if not self._on_loop():
                self.turns.sleep(SLOW)

    def _refuse(self, life: LifeOf, verb: str, number: int) -> None:
        if life.dead:
            raise StoreUnavailable("this process is dead")
        point = self.point
        if point is None or not number:
            return
        if point.kind == "away" and number == point.number:
            self._failing[verb] = 2
            self.fire()
        chance = self.turns.chance
        unlucky = self._failing_at_random and chance is not None and self.turns.now < 20 and chance.random() < 0.3
        if unlucky or self._failing.get(verb):
            self._failing[verb] = max(self._failing.get(verb, 0) - 1, 0)
            if not self._on_loop():
                self.turns.sleep(0.005)  # a connection takes a while to break
            raise StoreUnavailable(f"{verb}: the database is away")

    def _leave(self, life: LifeOf, verb: str, number: int) -> None:
        self._at("after", number)
        point = self.point
        if point is not None and point.kind == "lost" and number == point.number:
            self.fire()
            lost_signal(life)
            raise StoreUnavailable(f"{verb}: the answer was lost")
        if life.dead:
            raise StoreUnavailable("this process is dead")

    def _on_loop(self) -> bool:
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop() is self.loop
        return False

    # -- playing -------------------------------------------------------------------------------------------------------
    def play(self) -> Record:
        """Play the case from its beginning to its audit."""
        record = self.record
        with _quiet(record), self.turns.installed():
            self.turns.horizon = 5_000.0
            lag = self.point.lag if self.point is not None else 0
            self.loop = CountingLoop(self.turns, lag=lag)
            if self.point is not None and self.point.kind == "turn":
                self.loop.at_turn(self.point.number, self.fire)
            if self.point is not None and self.point.kind == "time":
                self.loop.call_later(self.point.number / 1_000, self.fire)
            if self.point is not None and self.point.kind == "switch":
                self.turns.preempt_at, self.turns.on_preempt = self.point.number, self.fire
            if self.point is not None and self.point.kind == "seed":
                self.turns.chance = chance = random.Random(self.point.number)
                self.loop.at_turn(chance.randrange(15, 90), self.fire)
            try:
                self.loop.run_until_complete(self._play())
            except Deadlock as deadlock:
                record.problems.append(f"hangs: {deadlock}")
            except (Exception, asyncio.CancelledError) as error:
                record.problems.append(f"{type(error).__name__} out of the case: {error}")
            finally:
                self._clear_away()
        record.problems += audit(record, self.database, self.lives)
        return record

    def _clear_away(self) -> None:
        loop, record = self.loop, self.record
        try:
            left = [task for task in asyncio.all_tasks(loop) if not task.done()]
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=30))
            loop.run_until_complete(loop.shutdown_default_executor())
        except (Deadlock, RuntimeError) as error:
            record.problems.append(f"cannot be cleared away: {error}")
        record.problems += [f"loop: {each}" for each in loop.complaints]
        with contextlib.suppress(RuntimeError):
            loop.close()

    async def _play(self) -> None:
        first = self._new_life(0)
        await self._first_life(first)
        self._calm = True
        self.record.turns, self.record.operations = self.loop.turn, self.turns.operations
        self.between_lives()
        second = self.lives[1] if len(self.lives) > 1 else self._new_life(1)
        await self._last_life(second)

    def _new_life(self, number: int) -> LifeOf:
        options: dict[str, Any] = {**self.shape.settings, **(self.injection.settings if number == 0 else {})}
        settings = Settings(concurrency=CONCURRENCY, threads=CONCURRENCY, synchronous="OFF", **options)
        life = LifeOf(self.database, self.turns, number, settings, self.call, self.acall)
        self.lives.append(life)
        scene = Scene(life, self.record.ledger, self.database.kind, self.database.elsewhere, lambda: self.turns.now)
        self.drives[number] = self.shape.build(scene)
        self.probes[number] = _probes(scene)
        return life

    async def _first_life(self, life: LifeOf) -> None:
        entering = self.loop.create_task(life.app.__aenter__())
        await self._until(entering)
        if life.dead:
            await self._bury(life, entering)
            return
        if entering.exception() is not None:
            if not isinstance(entering.exception(), StoreError) or not self.record.hit:
                raise entering.exception()  # type: ignore[misc]
            self._look_for_remains()  # it could not be entered: the next life tries again
            return
        self.driving = self.loop.create_task(self._drive(life))
        while True:
            await self._until(self.driving)
            if not self.driving.cancelled() or life.dead or self.leave:
                break
            self.driving = self.loop.create_task(self._drive(life))  # it was dropped, and another caller goes on
        others: asyncio.Task[Any] | None = None
        if self.taken_over and not life.dead and not self.leave:
            # Another worker, which has declared this one dead, begins.
            others = self.loop.create_task(self._new_life(1).app.__aenter__())
            await self._until(self.driving)
        if not life.dead and not self.leave:
            settling = self.loop.create_task(self._settle(life))
            await self._until(settling)
            await _called_off(settling)
        if life.dead:
            await self._bury(life, self.driving)
        else:
            await self._leave_app(life)
        if others is not None:
            await others

    async def _until(self, work: asyncio.Task[Any]) -> None:
        """Until something is done, or the life is over."""
        news = self.loop.create_task(self.news.wait())
        while not work.done() and not self.life.dead and not (self.leave and self.driving is not None):
            if self.taken_over and len(self.lives) == 1 and self.driving is not None:
                break
            await asyncio.wait({work, news}, return_when=asyncio.FIRST_COMPLETED, timeout=_LIMIT)
            if news.done():
                self.news.clear()
                news = self.loop.create_task(self.news.wait())
            elif not work.done():
                self.record.problems.append("hangs: the caller, or drain(), is still waiting")
                break
        news.cancel()

    async def _drive(self, life: LifeOf) -> None:
        record = self.record
        self.caller = Caller(_scene_of(self, life), record.done, record.results, record.dropped)
        if not self.shape.at_once:
            await asyncio.sleep(0.01)  # a worker that is claiming has no slot for what is started here
        with contextlib.suppress(Ended):
            await self.drives[life.number](self.caller)

    async def _settle(self, life: LifeOf) -> None:
        """A worker that lives on comes to rest, and has all its slots."""
        await self._drain(life)
        await self._probe(life)

    async def _drain(self, life: LifeOf) -> None:
        try:
            await asyncio.wait_for(life.app.drain(), _DRAIN)
        except TimeoutError:
            self.record.problems.append("drain() does not return")

    async def _probe(self, life: LifeOf) -> None:
        """As many runs as the worker has slots for must be under way at once, and as many threads."""
        for function in self.probes[life.number]:
            name = function.name
            ids = [f"{name}-{life.number}-{number}" for number in range(CONCURRENCY)]
            handles = [await function.options(id=run_id).start(name) for run_id in ids]
            done = await asyncio.gather(*(handle.result() for handle in handles))
            if not all(done):
                missing = sum(not each for each in done)
                self.record.problems.append(f"slots: {missing} of {CONCURRENCY} {name} runs had none to be executed in")

    async def _leave_app(self, life: LifeOf) -> None:
        leaving = self.loop.create_task(life.app.__aexit__(None, None, None))
        waiting: list[asyncio.Task[Any]] = []
        if self.shape.while_leaving:
            turns = 1 + (self.point.number if self.point is not None else 0) % _LEAVING_TURNS
            self.loop.in_turns(turns, lambda: waiting.append(self.loop.create_task(_result(life, self.shape.main[0]))))
        while not leaving.done() and not life.dead:
            news = self.loop.create_task(self.news.wait())
            await asyncio.wait({leaving, news}, return_when=asyncio.FIRST_COMPLETED, timeout=_LIMIT)
            if news.done():
                self.news.clear()
            elif not leaving.done():
                self.record.problems.append("hangs: the app cannot be left")
                break
            news.cancel()
        if life.dead:
            await self._bury(life, leaving)
        elif leaving.done() and leaving.exception() is not None:
            self.record.problems.append(f"leaving the app raised {leaving.exception()!r}")
        if self.driving is not None and not self.driving.done():
            await asyncio.wait({self.driving}, timeout=_GONE)
        await self._end_caller()
        for task in waiting:
            await _called_off(task)
        self._look_for_remains()

    async def _bury(self, life: LifeOf, doing: asyncio.Task[Any]) -> None:
        """Clear a dead process away."""
        await self._end_caller()
        doing.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(life.vanish(), 60)
        await asyncio.wait({doing}, timeout=30)
        if doing.done() and not doing.cancelled():
            doing.exception()

    async def _end_caller(self) -> None:
        driving = self.driving
        if driving is None:
            return
        if not driving.done():
            driving.cancel()
            await asyncio.wait({driving}, timeout=30)
        if driving.done() and not driving.cancelled() and driving.exception() is not None and not self.life.dead:
            self.record.problems.append(f"the caller got {driving.exception()!r}")

    def _look_for_remains(self) -> None:
        """Nothing of an app may go on after it was left."""
        mine = asyncio.current_task()
        others = [
            task.get_coro().__qualname__  # type: ignore[union-attr]
            for task in asyncio.all_tasks()
            if task is not mine and not task.done() and "bridged" not in task.get_coro().__qualname__ and "mainspring" in task.get_coro().cr_code.co_filename  # type: ignore[union-attr]
        ]
        if others and len(self.lives) == 1:
            self.record.problems.append(f"tasks go on after the app was left: {sorted(set(others))}")

    async def _last_life(self, life: LifeOf) -> None:
        """A fresh worker, nothing injected: everything comes to its end."""
        if life.app.runtime.engine is None:
            await life.app.__aenter__()
        driving = self.driving = self.loop.create_task(self._drive(life))
        await asyncio.wait({driving}, timeout=_LIMIT)
        if not driving.done():
            self.record.problems.append("the caller waits for ever")
        await self._end_caller()
        await self._all_ended(life)
        self.record.ended_at = self.turns.now
        await self._settle(life)
        await life.app.__aexit__(None, None, None)

    async def _all_ended(self, life: LifeOf) -> None:
        until = self.turns.now + _LIMIT
        while self.turns.now < until and any(life.inner.counts().values()):
            await asyncio.sleep(1.0)


async def _result(life: LifeOf, run_id: str) -> Any:
    return await life.app.handle(run_id).result()


async def _called_off(task: asyncio.Task[Any]) -> None:
    """End something that the harness itself did, whatever came of it."""
    task.cancel()
    await asyncio.wait({task}, timeout=30)
    if task.done() and not task.cancelled():
        task.exception()


def _scene_of(case: Case, life: LifeOf) -> Scene:
    return Scene(life, case.record.ledger, case.database.kind, case.database.elsewhere, lambda: case.turns.now)


# -- slots -------------------------------------------------------------------------------------------------------------
def _probes(scene: Scene) -> list[Any]:
    there: dict[str, int] = {}
    full = asyncio.Event()
    filled = threading.Event()

    @scene.app.workflow
    async def probe_async(group: str) -> bool:
        there[group] = there.get(group, 0) + 1
        if there[group] == CONCURRENCY:
            full.set()
        try:
            async with asyncio.timeout(2):
                await full.wait()
        except TimeoutError:
            return False
        return True

    @scene.app.workflow
    def probe_blocking(group: str) -> bool:
        there[group] = there.get(group, 0) + 1
        if there[group] == CONCURRENCY:
            filled.set()
        return filled.wait(2)

    return [probe_async, probe_blocking]


_LOUD = ("asyncio", "concurrent.futures")
"""Loggers that have something to say about every thread and task that a killed process leaves."""


class _Logs(logging.Handler):
    def __init__(self, record: Record) -> None:
        super().__init__(logging.ERROR)
        self._record = record

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, Abandoned):
            self._record.logs.append(f"{record.getMessage()}{f': {error!r}' if error is not None else ''}")


@contextlib.contextmanager
def _quiet(record: Record) -> Any:
    """What goes wrong is meant to; errors that the library logs are kept for the auditor."""
    logger, others = logging.getLogger("mainspring"), [logging.getLogger(name) for name in _LOUD]
    handler = _Logs(record)
    before = logger.propagate, [other.disabled for other in others]
    logger.addHandler(handler)
    logger.propagate = False
    for other in others:
        other.disabled = True
    gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logger.removeHandler(handler)
        logger.propagate = before[0]
        for other, disabled in zip(others, before[1], strict=True):
            other.disabled = disabled
