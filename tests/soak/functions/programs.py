"""Programs: random mixtures of everything that a workflow can do, carried out by an `async def` and by a `def` workflow.

A program is a list of operations, each a list: `["step", name, label, seconds, fails]`, `["gather", [program, …]]` … The load makes them
from a seed (`tests/soak/programs.py`), so one run may sleep in one branch, wait for a child in another and retry a step in the third.
What comes out is the list of all outcomes; each operation is given the outcome of the one before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from mainspring import Retry, run
from mainspring.errors import RunEnded
from tests.soak.functions.effects import STEPS, Planned, adhoc, app, blocking, plain
from tests.soak.functions.transactions import TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Operation = list[Any]
CALLS = STEPS | TRANSACTIONS
MAIL = "mail"


def _failed(error: BaseException) -> str:
    """An exception as an outcome: planned ones name the execution that raised them."""
    return f"!{error}" if isinstance(error, Planned) else f"!{type(error).__name__}"


# -- in a coroutine --------------------------------------------------------------------------------------------------------
class Player:
    """One branch of a run that carries out a program."""

    def __init__(self, before: str) -> None:
        self.before = before

    async def play(self, program: list[Operation]) -> list[Any]:
        outcomes: list[Any] = []
        for kind, *rest in program:
            outcome = await _KINDS[kind](self, *rest)
            outcomes.append(outcome)
            if isinstance(outcome, str) and "|" in outcome:
                self.before = outcome
        return outcomes

    async def step(self, name: str, *arguments: Any) -> Any:
        label, *rest = arguments
        return await plain(CALLS[name])(label, self.before, *rest)

    async def adhoc(self, label: str) -> Any:
        return await run.step("adhoc", adhoc, label, self.before)

    async def sleep(self, seconds: float) -> Any:
        await run.sleep(seconds)

    async def gather(self, programs: list[list[Operation]]) -> Any:
        return await asyncio.gather(*(Player(self.before).play(each) for each in programs))

    async def group(self, programs: list[list[Operation]]) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(Player(self.before).play(each)) for each in programs]
        return [task.result() for task in tasks]

    async def first(self, programs: list[list[Operation]]) -> Any:
        """Which of the branches is over first is recorded; the others are cancelled by the run's own code."""
        tasks = [asyncio.ensure_future(Player(self.before).play(each)) for each in programs]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        return [[tasks.index(task), task.result()] for task in sorted(done, key=tasks.index)]

    async def timeout(self, seconds: float, program: list[Operation]) -> Any:
        try:
            async with run.timeout(seconds):
                return await Player(self.before).play(program)
        except TimeoutError:
            return "!TimeoutError"

    async def catch(self, program: list[Operation]) -> Any:
        try:
            return await Player(self.before).play(program)
        except Planned as error:
            return _failed(error)

    async def fail(self, label: str, attempts: int) -> Any:
        if run.attempt <= attempts:
            raise Planned(label)

    async def call(self, colour: str, program: list[Operation]) -> Any:
        with contextlib.suppress(RunEnded):
            return await plain(_flow(colour))(program, self.before)
        return "!RunEnded"

    async def start(self, colour: str, program: list[Operation], detached: bool) -> Any:
        handle = await _flow(colour).options(detached=detached).start(program, self.before)
        return await self._result(handle)

    async def many(self, colour: str, programs: list[list[Operation]]) -> Any:
        handles = await app.start_many(_flow(colour).bind(each, self.before) for each in programs)
        return [await self._result(handle) for handle in handles]

    async def _result(self, handle: Any) -> Any:
        with contextlib.suppress(RunEnded):
            return await handle.result()
        return "!RunEnded"

    async def event(self, key: str, value: int) -> Any:
        await run.set_event(key, value)

    async def stream(self, key: str, values: list[int]) -> Any:
        for value in values:
            await run.write_stream(key, value)

    async def mail(self, count: int) -> Any:
        """Messages to itself: sent once each, received once each, in order."""
        for number in range(count):
            await app.send(run.id, MAIL, number)
        return [await run.receive(MAIL) for _ in range(count)]

    async def unheard(self, seconds: float) -> Any:
        """A message that does not come."""
        return await run.receive("nothing", timeout=seconds)

    async def later(self, label: str) -> Any:
        """A function that is scheduled once, whatever becomes of this run."""
        handle = await app.run_after(0.1, CALLS["act"].bind(label, self.before))
        return f"later {handle.id}"

    async def patched(self, name: str) -> Any:
        return run.patched(name)


_KINDS: dict[str, Callable[..., Awaitable[Any]]] = {
    name: getattr(Player, name) for name in vars(Player) if not name.startswith("_") and name != "play"
}


# -- in a thread -----------------------------------------------------------------------------------------------------------
class BlockingPlayer:
    """The same for a `def` workflow: one branch, and what there is of the operations."""

    def __init__(self, before: str) -> None:
        self.before = before

    def play(self, program: list[Operation]) -> list[Any]:
        outcomes: list[Any] = []
        for kind, *rest in program:
            outcome = _BLOCKING_KINDS[kind](self, *rest)
            outcomes.append(outcome)
            if isinstance(outcome, str) and "|" in outcome:
                self.before = outcome
        return outcomes

    def step(self, name: str, *arguments: Any) -> Any:
        label, *rest = arguments
        return blocking(CALLS[name])(label, self.before, *rest)

    def adhoc(self, label: str) -> Any:
        return run.step.sync("adhoc", adhoc, label, self.before)

    def sleep(self, seconds: float) -> Any:
        run.sleep.sync(seconds)

    def catch(self, program: list[Operation]) -> Any:
        try:
            return BlockingPlayer(self.before).play(program)
        except Planned as error:
            return _failed(error)

    def fail(self, label: str, attempts: int) -> Any:
        if run.attempt <= attempts:
            raise Planned(label)

    def call(self, colour: str, program: list[Operation]) -> Any:
        with contextlib.suppress(RunEnded):
            return blocking(_flow(colour))(program, self.before)
        return "!RunEnded"

    def start(self, colour: str, program: list[Operation], detached: bool) -> Any:
        handle = _flow(colour).options(detached=detached).start.sync(program, self.before)
        return self._result(handle)

    def many(self, colour: str, programs: list[list[Operation]]) -> Any:
        handles = app.start_many.sync(_flow(colour).bind(each, self.before) for each in programs)
        return [self._result(handle) for handle in handles]

    def _result(self, handle: Any) -> Any:
        with contextlib.suppress(RunEnded):
            return handle.result.sync()
        return "!RunEnded"

    def event(self, key: str, value: int) -> Any:
        run.set_event.sync(key, value)

    def stream(self, key: str, values: list[int]) -> Any:
        for value in values:
            run.write_stream.sync(key, value)

    def mail(self, count: int) -> Any:
        for number in range(count):
            app.send.sync(run.id, MAIL, number)
        return [run.receive.sync(MAIL) for _ in range(count)]

    def unheard(self, seconds: float) -> Any:
        return run.receive.sync("nothing", timeout=seconds)

    def later(self, label: str) -> Any:
        handle = app.run_after.sync(0.1, CALLS["act"].bind(label, self.before))
        return f"later {handle.id}"

    def patched(self, name: str) -> Any:
        return run.patched(name)


_BLOCKING_KINDS: dict[str, Callable[..., Any]] = {
    name: getattr(BlockingPlayer, name) for name in vars(BlockingPlayer) if not name.startswith("_") and name != "play"
}
BLOCKING_KINDS = frozenset(_BLOCKING_KINDS)


# -- the workflows ---------------------------------------------------------------------------------------------------------
@app.workflow
async def program(operations: list[Any], before: str = "start") -> list[Any]:
    return await Player(before).play(operations)


@app.workflow
def program_blocking(operations: list[Any], before: str = "start") -> list[Any]:
    return BlockingPlayer(before).play(operations)


@app.workflow(retry=Retry(4, first=0.1, factor=3, jitter=0.2))
async def program_retried(operations: list[Any], before: str = "start") -> list[Any]:
    """The run itself is retried: `fail` operations count its attempts."""
    return await Player(before).play(operations)


@app.workflow(retry=Retry(4, first=0.1, factor=3, jitter=0.2))
def program_retried_blocking(operations: list[Any], before: str = "start") -> list[Any]:
    return BlockingPlayer(before).play(operations)


def _flow(colour: str) -> Any:
    return {
        "async": program,
        "def": program_blocking,
        "async retried": program_retried,
        "def retried": program_retried_blocking,
    }[colour]


PROGRAMS = frozenset({"program", "program_blocking", "program_retried", "program_retried_blocking"})
