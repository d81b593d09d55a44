"""The simulator: executes a workload on a fleet, with a seed."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mainspring.app.client_api import runtime_of
from mainspring.app.settings import Settings
from mainspring.engine.replay.context import place
from mainspring.errors import InvalidInput, MainspringError, StoreError
from mainspring.model.states import State
from mainspring.store.sqlite.store import SqliteStore
from mainspring.testing.simulation.auditor import Auditor, Broken
from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.process import Process
from mainspring.testing.simulation.stage import Faults, Stage, Standstill

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from mainspring.app.app import App
    from mainspring.app.functions.functions import Call
    from mainspring.engine.registry import Function
    from mainspring.store.changes import Signal

_PATIENCE = 400 * 86_400.0
"""Virtual seconds after which a simulation that has not ended has failed."""


class SimulationFailed(AssertionError):
    """A promise was broken with this seed. The message has the call that reproduces it."""


@dataclass(slots=True)
class Report:
    """Counts and results of a simulation."""

    seed: int
    actions: int
    faults: dict[str, int]
    executions: int
    results: dict[str, str]
    """The state and stored result or error of each run of the workload."""
    replaced: int = field(default=0)
    """Processes that died and were replaced."""


def simulate(
    app: App,
    calls: Sequence[Call[Any]],
    *,
    seed: int,
    workers: int = 3,
    faults: Faults | None = None,
    calm_after: int = 1_500,
    cancel: Sequence[str] = (),
    expected: dict[str, str] | None = None,
) -> Report:
    """Execute `calls` (each with an id of its own) on a fleet of `workers` processes. `seed` decides the order and the faults.

    An auditor checks after every action that no promise is broken. At the end every run must have ended, and those in `expected` (for
    example the results of a simulation without faults) with that result. Runs in `cancel` are cancelled at some moment. Faults stop after
    `calm_after` actions. Steps and workflows must be `async def`. Time is virtual, so a year takes milliseconds.
    Raises `SimulationFailed` with the seed if a promise is broken, and `InvalidInput` for a call without an id.
    """
    for call in calls:
        if call.options.id is None:
            raise InvalidInput(f"the call of {call.name} needs an id: bind it with .options(id=…)")
    stage = Stage(seed, faults if faults is not None else Faults(), calm_after)
    world = _World(app, stage, workers, list(calls), list(cancel))
    loop = SimulatedLoop(stage)
    try:
        with _quiet():
            loop.run_until_complete(world.run())
        report = Report(
            seed, stage.actions, stage.counts, world.auditor.executions, world.results(), replaced=world.replaced
        )
    except (Broken, Standstill) as broken:
        raise SimulationFailed(f"{broken}\nagain: simulate(…, seed={seed})") from broken
    finally:
        stage.calm_after = 0
        loop.end_all_tasks()
        world.store.close()
        loop.close()
    for run_id, result in (expected or {}).items():
        found = report.results.get(run_id)
        if found != result and not (run_id in cancel and found is not None and found.startswith(State.CANCELLED)):
            raise SimulationFailed(
                f"run {run_id} ended as {found}, undisturbed it ends as {result}\nagain: simulate(…, seed={seed})"
            )
    return report


class _World:
    """One simulation in progress."""

    def __init__(self, app: App, stage: Stage, workers: int, calls: list[Call[Any]], cancel: list[str]) -> None:
        self._stage = stage
        self._workers = workers
        self._calls = calls
        self._cancel = cancel
        self.store = SqliteStore("", url="sqlite://")
        self.store.open()
        self.store.notify_only_self(self._broadcast)
        self.auditor = Auditor(self.store)
        stage.on_action = self._check
        self._processes: list[Process] = []
        stage.processes = self._processes
        self._functions = [self._audited(function) for function in runtime_of(app).registry]
        self._tasks: set[asyncio.Task[None]] = set()
        self.replaced = 0

    def _check(self) -> None:
        self.auditor.check()
        for process in self._processes:
            engine = runtime_of(process.app).engine
            if process.alive and engine is not None:
                self.auditor.check_engine(engine)

    def _audited(self, function: Function) -> Function:
        """Return a copy of the function that reports each execution of a step to the auditor."""
        if not function.is_async:
            return function
        twin = copy.copy(function)
        if function.kind == "step":
            twin.fn = self._reported(function.fn)
        return twin

    def _reported(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        async def recorded(*args: Any, **kwargs: Any) -> Any:
            where = place()
            if where is not None and where.step_name is not None:
                self.auditor.executing(where.execution.id, where.last_position(), where.execution.epoch)
            return await fn(*args, **kwargs)

        recorded.__signature__ = inspect.signature(fn)  # type: ignore[attr-defined]
        return recorded

    def _broadcast(self, signal: Signal) -> None:
        for process in self._processes:
            if process.alive and not self._stage.happens("lost_signal"):
                self._stage.loop.call_later(self._stage.chance.uniform(0, 0.05), process.on_signal, signal)

    # -- the processes -------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        for number in range(self._workers):
            self._start_process(f"process {number}")
        client = Process(self._stage, "client", self.store, self._functions, Settings(work=False))
        await asyncio.gather(
            *(self._start_run(client, call) for call in self._calls), *(self._stop(run) for run in self._cancel)
        )
        while any(not run.state.ended for run in self._runs()):
            if self._stage.time > _PATIENCE:
                break
            await asyncio.sleep(self._stage.chance.uniform(1, 600))
        self.auditor.check()
        self.auditor.finish()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_process(self, name: str) -> None:
        task = self._stage.loop.create_task(self._run_process(name))
        self._tasks.add(task)

    async def _run_process(self, name: str) -> None:
        """Run a process, and its successor after each death."""
        generation = 0
        while True:
            generation += 1
            resident = self._stage.chance.choice((0, 1, 10_000))
            settings = Settings(lease=300, poll=120, grace=1, resident=resident)
            process = Process(self._stage, f"{name}.{generation}", self.store, self._functions, settings)
            self._processes.append(process)
            try:
                await self._until_death(process)
            finally:
                process.alive = False
                self._processes.remove(process)
                self._stage.drop(process)
                await process.app._vanish()  # noqa: SLF001
            self.replaced += 1
            await asyncio.sleep(self._stage.chance.uniform(0.1, 30))

    async def _until_death(self, process: Process) -> None:
        """Run a process until it dies or has stopped in an orderly way. It may also die while it stops."""
        with contextlib.suppress(StoreError):
            await process.app.__aenter__()
            death, stop = (asyncio.ensure_future(event.wait()) for event in (process.death, process.stop))
            try:
                await asyncio.wait({death, stop}, return_when=asyncio.FIRST_COMPLETED)
                if process.alive:
                    leaving = asyncio.ensure_future(process.app.__aexit__())
                    await asyncio.wait({leaving, death}, return_when=asyncio.FIRST_COMPLETED)
                    if leaving.done():
                        leaving.result()
                    else:
                        leaving.cancel()
                        await asyncio.wait({leaving})
            finally:
                death.cancel()
                stop.cancel()

    async def _start_run(self, client: Process, call: Call[Any]) -> None:
        """Start a run as a client does: retry with the same id until it is acknowledged."""
        chance = self._stage.chance
        await asyncio.sleep(chance.uniform(0, 120))
        mine = structs.replace(call, runtime=runtime_of(client.app))
        while True:
            client.alive = True
            try:
                handle = await mine.start()
            except StoreError:
                await asyncio.sleep(chance.uniform(0.1, 5))
            else:
                self.auditor.acknowledged.add(handle.id)
                return

    async def _stop(self, run_id: str) -> None:
        await asyncio.sleep(self._stage.chance.uniform(0, 300))
        with contextlib.suppress(MainspringError):
            self.store.cancel([run_id], "asked to", 0)

    def _runs(self) -> list[Any]:
        return [run for call in self._calls if (run := self.store.run(call.options.id or "")) is not None]

    def results(self) -> dict[str, str]:
        return {
            run.id: f"{run.state} {run.output if run.output is not None else _message(run.error)}"
            for run in self._runs()
        }


def _message(error: str | None) -> str:
    from mainspring.codec import decode_exception  # noqa: PLC0415

    return "" if error is None else repr(decode_exception(error))


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Suppress the log: the faults are intended, and hundreds of lines about them would hide the rest."""
    logger = logging.getLogger("mainspring")
    before = logger.disabled, logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before[1])
