"""Runs with several branches: races, sequences side by side, and what passes between branches."""

from __future__ import annotations

import asyncio
from typing import Any

from mainspring import run
from tests.injection.scene import Caller, Drive, Scene, shape


def _is_first(found: dict[str, Any]) -> bool:
    return found["r"][0] in {"a", "slow"}


@shape({"r": ["a", "after a"]}, optional=("slow", "after slow"), check=_is_first)
def first_completed(s: Scene) -> Drive:
    """The first of two steps wins; the other one is called off by the workflow."""

    @s.app.step
    async def note(what: str, seconds: float) -> str:
        return await s.effect(what, seconds)

    @s.app.workflow
    async def work() -> list[str]:
        tasks = [asyncio.create_task(note("a", 0.05)), asyncio.create_task(note("slow", 0.3))]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = min(task.result() for task in done)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        return [winner, await note(f"after {winner}", 0.05)]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["a1", "a2", "b1", "b2", "c1", "c2"]})
def sequences(s: Scene) -> Drive:
    """Sequences of steps and sleeps, side by side."""

    @s.app.step
    async def note(what: str, seconds: float) -> str:
        return await s.effect(what, seconds)

    async def walk(name: str, seconds: float) -> list[str]:
        first = await note(f"{name}1", seconds)
        await run.sleep(seconds)
        return [first, await note(f"{name}2", seconds)]

    @s.app.workflow
    async def work() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(walk(name, seconds)) for name, seconds in (("a", 0.02), ("b", 0.05), ("c", 0.08))
            ]
        return [item for task in tasks for item in task.result()]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["got made 0", "got made 1", "done"]})
def between_branches(s: Scene) -> Drive:
    """An `asyncio.Queue` and an `asyncio.Event` between branches, one of which sleeps."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        over = asyncio.Event()
        got: list[str] = []

        async def produce() -> None:
            for number in range(2):
                await run.sleep(0.1)
                await queue.put(await note(f"made {number}"))
            await queue.join()
            over.set()

        async def consume() -> None:
            while True:
                got.append(await note(f"got {await queue.get()}"))
                queue.task_done()

        consumer = asyncio.create_task(consume())
        producer = asyncio.create_task(produce())
        await over.wait()
        consumer.cancel()
        await asyncio.gather(consumer, producer, return_exceptions=True)
        return [*got, "done"]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.results_of("r")

    return drive


@shape({"r": ["a", "slept"], "q": ["b", "slept"]}, main=("r", "q"), once=("b",), interrupted=("q",))
def step_beside_wait(s: Scene) -> Drive:
    """A step is under way in one branch while another branch waits."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what, 1)

    @s.app.step(at_most_once=True)
    async def once(what: str) -> str:
        return await s.effect(what, 1)

    async def nap() -> str:
        await run.sleep(2)
        return "slept"

    @s.app.workflow
    async def work() -> list[str]:
        return list(await asyncio.gather(note("a"), nap()))

    @s.app.workflow
    async def work_once() -> list[str]:
        return list(await asyncio.gather(once("b"), nap()))

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_once, "q")
        await caller.results_of("r", "q")

    return drive
