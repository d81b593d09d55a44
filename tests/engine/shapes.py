"""Workflows whose branches race each other: what each returns depends on who was first."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import anyio

from mainspring import App, AsyncFn, run
from tests.engine.conductor import Conductor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Coroutine

app = App("sqlite://")
conductor = Conductor()


class Burst(Exception):
    pass


@app.step
async def note(name: str) -> str:
    await conductor.cue(name)
    return name


@app.step
async def burst(name: str) -> str:
    await conductor.cue(name)
    raise Burst(name)


@app.workflow
async def first_completed() -> list[str]:
    tasks = {asyncio.create_task(sequence(f"{name}1", f"{name}2")) for name in "abc"}
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    winners = sorted(task.result() for task in done)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    return [*winners, await note(f"after {winners}")]


async def sequence(*names: str) -> str:
    done = [await note(name) for name in names]
    return "+".join(done)


@app.workflow
async def as_completed() -> list[str]:
    order: list[str] = []
    for coming in asyncio.as_completed([sequence("a"), sequence("b", "b2"), note("c"), sequence("d")]):
        order.append(await coming)
        order.append(await note(f"after {order[-1]}"))
    return order


@app.workflow
async def producer_and_consumers() -> list[str]:
    queue: asyncio.Queue[str] = asyncio.Queue(maxsize=2)
    seen: list[str] = []

    async def produce() -> None:
        for number in range(4):
            await queue.put(await note(f"made {number}"))

    async def consume(who: str) -> None:
        while True:
            item = await queue.get()
            seen.append(await note(f"{who} has {item}"))
            queue.task_done()

    consumers = [asyncio.create_task(consume(who)) for who in ("left", "right")]
    await produce()
    await queue.join()
    for task in consumers:
        task.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    return seen


@app.workflow
async def semaphore() -> list[str]:
    room = asyncio.Semaphore(2)
    order: list[str] = []

    async def enter(name: str) -> None:
        await note(f"{name} comes")
        async with room:
            order.append(await note(f"{name} is in"))

    await asyncio.gather(*(enter(name) for name in "abcd"))
    return order


@app.workflow
async def lock() -> list[str]:
    mutex = asyncio.Lock()
    order: list[str] = []

    async def take(name: str) -> None:
        await note(f"{name} comes")
        async with mutex:
            order.append(await note(f"{name} has it"))
            order.append(await note(f"{name} still has it"))

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(take(name))
    return order


@app.workflow
async def failing_member() -> list[str]:
    done: list[str] = []

    async def member(name: str, *, fails: bool) -> None:
        done.extend([await note(f"{name}{number}") for number in range(3)])
        if fails:
            await burst(f"{name} bursts")

    try:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(member(name, fails=name == "b"))
    except* Burst as bursts:
        done.extend(str(one) for one in bursts.exceptions)
    return [*done, await note("after")]


@app.workflow
async def timed_out_step() -> list[str]:
    done = [await note("before")]
    try:
        async with asyncio.timeout(0.03):
            await note("never")
    except TimeoutError:
        done.append(await note("instead"))
    return [*done, await note("after")]


@app.workflow
async def wait_for() -> list[str]:
    done: list[str] = []
    for name in ("a", "never", "b"):
        try:
            done.append(await asyncio.wait_for(sequence(f"{name} first"), 0.03 if name == "never" else 30))
        except TimeoutError:
            done.append(await note(f"without {name}"))
    return done


@app.workflow
async def gather_exceptions() -> list[str]:
    outcomes = await asyncio.gather(
        sequence("a1", "a2"), burst("b"), note("c"), sequence("d1", "d2", "d3"), return_exceptions=True
    )
    return [*(str(outcome) for outcome in outcomes), await note("after")]


@app.workflow
async def nested_groups() -> list[str]:
    order: list[str] = []

    async def leaf(name: str) -> None:
        order.append(await note(name))

    async def branch(name: str) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(leaf(f"{name}{number}"))
        order.append(await note(f"{name} is whole"))

    async with asyncio.TaskGroup() as group:
        for name in "ab":
            group.create_task(branch(name))
        order.append(await note("trunk"))
    return order


@app.workflow
async def uneven_sequences() -> list[str]:
    order: list[str] = []

    async def walk(name: str, length: int) -> None:
        for number in range(length):
            order.append(await note(f"{name}{number}"))
            if number == 1:
                await run.sleep("10m")
                order.append(f"{name} woke at {run.now():%H:%M}")

    await asyncio.gather(walk("a", 1), walk("b", 3), walk("c", 4))
    return order


@app.workflow
async def unfinished_generator() -> list[str]:
    async def numbers(name: str) -> AsyncGenerator[str]:
        try:
            for number in range(5):
                yield await note(f"{name}{number}")
        finally:
            await asyncio.sleep(0)

    async def only_two(name: str) -> list[str]:
        taken: list[str] = []
        async for item in numbers(name):
            taken.append(item)
            if len(taken) == 2:
                break
        return [*taken, await note(f"{name} after")]

    pairs = await asyncio.gather(only_two("a"), only_two("b"))
    return [item for pair in pairs for item in pair]


@app.workflow
async def anyio_groups() -> list[str]:
    order: list[str] = []

    async def member(name: str) -> None:
        order.append(await note(f"{name}1"))
        order.append(await note(f"{name}2"))

    with contextlib.suppress(TimeoutError):
        with anyio.fail_after(0.03):
            await note("never")
    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(member, name)
    return [*order, await note("after")]


@app.workflow
async def a_lost_race_for_a_child() -> list[str]:
    handle = await child.start("x")
    waiting = asyncio.ensure_future(handle.result())
    alone = asyncio.ensure_future(sequence("a", "b"))
    order: list[str] = []
    pending: set[asyncio.Future[str]] = {waiting, alone}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        order.extend(sorted(task.result() for task in done))
        order.append(await note(f"after {len(order)}"))
    return order


@app.workflow
async def child(name: str) -> str:
    return await note(f"child {name}")


@app.workflow
async def a_sleep_that_is_cut_short() -> list[str]:
    nap = asyncio.ensure_future(run.sleep("1h"))
    winner = await first(nap, asyncio.ensure_future(note("a")))
    nap.cancel()
    await asyncio.gather(nap, return_exceptions=True)
    return [winner, await note("after"), f"{run.now():%H:%M}"]


@app.workflow
async def undone_in_a_race() -> list[str]:
    """One racer fails in a block, whose compensations take a while; the other one may be faster."""

    async def failing() -> str:
        try:
            async with run.undo() as undo:
                undo.push(note.bind("undo 1"))
                undo.push(note.bind("undo 2"))
                await burst("a1")
        except Burst:
            return "undone"
        return "never"

    return await _called_off(failing(), sequence("b1", "b2", "b3"))


@app.workflow
async def blocks_left_in_a_race() -> list[str]:
    """Blocks that end well: leaving one is an operation, too."""

    async def block(name: str) -> str:
        async with run.undo() as undo:
            undo.push(note.bind(f"undo {name}"))
            await note(name)
        return name

    return await _called_off(block("a"), block("b"), sequence("c"))


async def _called_off(*racers: Coroutine[Any, Any, str]) -> list[str]:
    tasks = [asyncio.create_task(racer) for racer in racers]
    winner = await first(*tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [winner, await note(f"after {winner}")]


async def first(*racers: Awaitable[Any]) -> str:
    tasks = [asyncio.ensure_future(one) for one in racers]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return ",".join(str(number) for number, task in enumerate(tasks) if task in done)


RACES: list[AsyncFn[[], list[str]]] = [
    first_completed,
    as_completed,
    producer_and_consumers,
    semaphore,
    lock,
    failing_member,
    timed_out_step,
    wait_for,
    gather_exceptions,
    nested_groups,
    unfinished_generator,
    anyio_groups,
    undone_in_a_race,
    blocks_left_in_a_race,
]
"""Between steps alone."""

RACES_WITH_WAITS: list[AsyncFn[[], list[str]]] = [uneven_sequences, a_lost_race_for_a_child, a_sleep_that_is_cut_short]
