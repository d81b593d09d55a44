"""One case: a shape, an injection and a point. Played in one life or more, then once more without any injection, then audited."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from typing import TYPE_CHECKING, Any

from mainspring import Settings
from mainspring.errors import StoreError
from tests.injection.auditor import audit
from tests.injection.faults import Faults
from tests.injection.loop import CountingLoop
from tests.injection.probes import CONCURRENCY, PREFIX, make_probes, missing_slots
from tests.injection.quiet import quiet
from tests.injection.record import Record
from tests.injection.scene import Caller, Ended, Scene
from tests.injection.seams import LifeOf, all_runs, expecting_thread, lazy_thread
from tests.injection.threads import Deadlock, Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.injection.databases import Database
    from tests.injection.injections import Injection, Point
    from tests.injection.scene import Drive, Shape

_LIMIT = 120.0
"""Virtual seconds that a caller waits until what it waits for counts as hanging."""
_HORIZON = 3_000.0
_DRAIN = 60.0
_GONE = 20.0
"""Virtual seconds in which a caller learns that its app was left."""
_LEAVING_TURNS = 24
"""Iterations that leaving an app takes, about."""


class Life:
    """One life of the shape: the process, how it is driven, and its probes."""

    def __init__(self, case: Case, number: int) -> None:
        shape, record = case.record.shape, case.record
        options: dict[str, Any] = {**shape.settings, **(record.injection.settings if number == 0 else {})}
        settings = Settings(concurrency=CONCURRENCY, threads=CONCURRENCY, synchronous="OFF", **options)
        self.process = LifeOf(case.database, case.turns, number, settings, case.faults)
        self.scene = Scene(
            self.process, record.ledger, case.database.kind, case.database.elsewhere, lambda: case.turns.now
        )
        self.drive: Drive = shape.build(self.scene)
        self.probes = make_probes(self.process.app, number)

    @property
    def app(self) -> Any:
        return self.process.app


class Case:
    """A case under way."""

    def __init__(self, shape: Shape, injection: Injection, point: Point, database: Database) -> None:
        self.record = Record(shape, injection, point)
        self.database = database
        self.turns = Turns(lazy=lazy_thread, expects=expecting_thread)
        self.faults = Faults(self.record, self.turns, database)
        self.between_lives: Callable[[], None] = lambda: None
        self._lives: list[Life] = []

    def play(self) -> Record:
        """Play the case from its beginning to its audit."""
        record = self.record
        with quiet(record.logs), _without_collector(), self.turns.installed():
            self.turns.horizon = _HORIZON
            self.faults.loop = self._loop = CountingLoop(self.turns, lag=record.point.lag)
            self._arm()
            try:
                self._loop.run_until_complete(self._play())
            except Deadlock as deadlock:
                record.problems.append(f"hangs: {deadlock}")
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (whatever it is, the case is a failure)
                record.problems.append(f"{type(error).__name__}: out of the case came {error}")
            finally:
                self._clear_away()
        record.problems += audit(record, self.database, self._lives[-1].process.now())
        return record

    def _arm(self) -> None:
        """See to it that the point is noticed; calls of the store are noticed by `Faults`."""
        point, fire = self.record.point, self.faults.fire
        if point.kind == "turn":
            self._loop.at_turn(point.number, fire)
        elif point.kind == "time":
            self._loop.call_later(point.number / 1_000, fire)
        elif point.kind == "switch":
            self.turns.preempt_at, self.turns.on_preempt = point.number, fire
        elif point.kind == "seed":
            self.turns.chance = chance = random.Random(point.number)
            self._loop.at_turn(chance.randrange(15, 90), fire)

    def _clear_away(self) -> None:
        loop, problems = self._loop, self.record.problems
        try:
            left = [task for task in asyncio.all_tasks(loop) if not task.done()]
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=30))
            loop.run_until_complete(loop.shutdown_default_executor())
        except (Deadlock, RuntimeError) as error:
            problems.append(f"hangs: it cannot be cleared away: {error}")
        problems += [f"loop: {each}" for each in loop.complaints]
        with contextlib.suppress(RuntimeError):
            loop.close()

    # -- lives ---------------------------------------------------------------------------------------------------------
    async def _play(self) -> None:
        first = self._new_life(0)
        self.faults.life = first.process
        await self._first_life(first)
        while any(operator.is_alive() for operator in self.faults.operators):  # noqa: ASYNC110  (threads tell nobody)
            await asyncio.sleep(0.01)
        self.faults.life = None
        self.record.turns, self.record.operations = self._loop.turn, self.turns.operations
        self.between_lives()
        await self._last_life(self._lives[1] if len(self._lives) > 1 else self._new_life(1))

    def _new_life(self, number: int) -> Life:
        self._lives.append(Life(self, number))
        return self._lives[-1]

    async def _first_life(self, life: Life) -> None:
        faults, process = self.faults, life.process
        entering = self._loop.create_task(life.app.__aenter__())
        await self._until(entering)
        if process.dead:
            await self._bury(life, entering)
            return
        if entering.exception() is not None:
            if not isinstance(entering.exception(), StoreError) or not self.record.hit:
                raise entering.exception()  # type: ignore[misc]
            self._look_for_remains()  # it could not be entered: the next life tries again
            return
        other = await self._drive_on(life)
        if not process.dead and not faults.leave:
            settling = self._loop.create_task(self._settle(life))
            await self._until(settling)
            await _called_off(settling)
        if process.dead:
            await self._bury(life, faults.driving)
        else:
            await self._leave_app(life)
        if other is not None:
            await other

    async def _drive_on(self, life: Life) -> asyncio.Task[Any] | None:
        """Drive the shape until it is done or the life is over. Another worker's life, if one has taken over."""
        faults = self.faults
        faults.driving = self._loop.create_task(self._drive(life))
        while True:
            await self._until(faults.driving)
            if not faults.driving.cancelled() or life.process.dead or faults.leave:
                break
            faults.driving = self._loop.create_task(self._drive(life))  # it was dropped, and another caller goes on
        if not faults.taken_over or life.process.dead or faults.leave:
            return None
        other = self._loop.create_task(self._new_life(1).app.__aenter__())
        await self._until(faults.driving)
        return other

    async def _until(self, work: asyncio.Task[Any]) -> None:
        """Until something is done, or the life is over, or another worker is to begin."""
        faults = self.faults
        news = self._loop.create_task(faults.news.wait())
        while not work.done() and not self._lives[0].process.dead and not (faults.leave and faults.driving is not None):
            if faults.taken_over and len(self._lives) == 1 and faults.driving is not None:
                break
            await asyncio.wait({work, news}, return_when=asyncio.FIRST_COMPLETED, timeout=_LIMIT)
            if news.done():
                faults.news.clear()
                news = self._loop.create_task(faults.news.wait())
            elif not work.done():
                self.record.problems.append("hangs: the caller, or drain(), is still waiting")
                break
        news.cancel()

    async def _drive(self, life: Life) -> None:
        record = self.record
        self.faults.caller = caller = Caller(
            life.scene, record.done, record.results, record.dropped, deleted=record.deleted
        )
        if not record.shape.at_once:
            await asyncio.sleep(0.01)  # a worker that is claiming has no slot for what is started here
        with contextlib.suppress(Ended):
            await life.drive(caller)

    async def _settle(self, life: Life) -> None:
        """A worker that lives on comes to rest, and has all its slots."""
        try:
            await asyncio.wait_for(life.app.drain(), _DRAIN)
        except TimeoutError:
            self.record.problems.append("drain: it does not return")
        self.record.problems += await missing_slots(life.probes)

    async def _leave_app(self, life: Life) -> None:
        faults = self.faults
        leaving = self._loop.create_task(life.app.__aexit__(None, None, None))
        waiting: list[asyncio.Task[Any]] = []
        if self.record.shape.while_leaving:
            wait = _result(life, self.record.shape.main[0])
            self._loop.in_turns(
                1 + self.record.point.number % _LEAVING_TURNS, lambda: waiting.append(self._loop.create_task(wait))
            )
        while not leaving.done() and not life.process.dead:
            news = self._loop.create_task(faults.news.wait())
            await asyncio.wait({leaving, news}, return_when=asyncio.FIRST_COMPLETED, timeout=_LIMIT)
            if news.done():
                faults.news.clear()
            elif not leaving.done():
                self.record.problems.append("hangs: the app cannot be left")
                break
            news.cancel()
        if life.process.dead:
            await self._bury(life, leaving)
        elif leaving.done() and leaving.exception() is not None:
            self.record.problems.append(f"leaving: the app raised {leaving.exception()!r}")
        if faults.driving is not None and not faults.driving.done():
            await asyncio.wait({faults.driving}, timeout=_GONE)
        await self._end_caller()
        for task in waiting:
            await _called_off(task)
        self._look_for_remains()

    async def _bury(self, life: Life, doing: asyncio.Task[Any] | None) -> None:
        """Clear a dead process away."""
        await self._end_caller()
        if doing is not None:
            doing.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(life.process.vanish(), 60)
        if doing is not None:
            await _called_off(doing)

    async def _end_caller(self) -> None:
        driving = self.faults.driving
        if driving is None:
            return
        if not driving.done():
            driving.cancel()
            await asyncio.wait({driving}, timeout=30)
        failed = driving.done() and not driving.cancelled() and driving.exception() is not None
        if failed and not self._lives[-1].process.dead:
            self.record.problems.append(f"caller: it got {driving.exception()!r}")

    def _look_for_remains(self) -> None:
        """Nothing of an app may go on after it was left, except what was begun for a caller: it cannot be cut off in its thread."""
        if len(self._lives) > 1 or self._lives[0].process.dead:
            return
        names: set[str] = set()
        for task in asyncio.all_tasks():
            work: Any = task.get_coro()
            ours = "mainspring" in work.cr_code.co_filename and work.__qualname__ not in {
                "bridged",
                "EndingLookups._look",
            }
            if ours and not task.done() and task is not asyncio.current_task():
                names.add(work.__qualname__)
        if names:
            self.record.problems.append(f"remains: tasks go on after the app was left: {sorted(names)}")

    async def _last_life(self, life: Life) -> None:
        """A fresh worker, nothing injected: everything comes to its end."""
        if not life.process.connected:
            await life.app.__aenter__()
        driving = self.faults.driving = self._loop.create_task(self._drive(life))
        await asyncio.wait({driving}, timeout=_LIMIT)
        if not driving.done():
            self.record.problems.append("hangs: the caller waits for ever")
        await self._end_caller()
        until = self.turns.now + _LIMIT
        while self.turns.now < until and self._is_unfinished(life):  # noqa: ASYNC110  (by whomever)
            await asyncio.sleep(1.0)
        self.record.ended_at = self.turns.now
        await self._settle(life)
        await life.app.__aexit__(None, None, None)

    @staticmethod
    def _is_unfinished(life: Life) -> bool:
        """Whether runs have not ended. Probes of an earlier life that was cut short do not count: only that life knew them."""
        runs = all_runs(life.process.inner)
        return any(not run.state.ended and not run.id.startswith(PREFIX) for run in runs)


async def _result(life: Life, run_id: str) -> Any:
    return await life.app.handle(run_id).result()


async def _called_off(task: asyncio.Task[Any]) -> None:
    """End something that the harness itself did, whatever came of it."""
    task.cancel()
    await asyncio.wait({task}, timeout=30)
    if task.done() and not task.cancelled():
        task.exception()


@contextlib.contextmanager
def _without_collector() -> Generator[None]:
    """Garbage that is collected in the middle of a case would be collected in the middle of anything."""
    gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
