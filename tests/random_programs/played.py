"""The app that workers of the random programs execute. What a run does follows from its input and its id, not from chance."""

from __future__ import annotations

import random
from typing import Any

from mainspring import App, Retry, run
from tests.support.ledger import Ledger

app = App()
ledger = Ledger.of_environment()


@app.step
async def note(what: str, remark: str = "") -> str:
    ledger.add(run.id, what, remark)
    return what


@app.workflow
async def job(value: str, length: float = 0) -> str:
    """What it was given, after a while."""
    await note("begin", value)
    if length:
        await run.sleep(length)
    await note("end", value)
    return value


@app.step(retry=Retry(4, first=0.01))
async def send_in_step(receiver: str, values: list[str]) -> None:
    """Fails once after it has sent, so that it sends a second time."""
    for value in values:
        await app.send(receiver, "t", value)
    if run.attempt == 1 and random.Random(values[0]).random() < 0.5:
        raise ConnectionError("after it had sent")


@app.workflow
async def sender(receiver: str, name: str, count: int) -> None:
    for number in range(count):
        value = f"{name}:{number}"
        if random.Random(value).random() < 0.5:
            await app.send(receiver, "t", value)
        else:
            await send_in_step(receiver, [value])


@app.workflow
async def receiver(got: int = 0) -> int:
    """Writes whatever it receives to a stream, and begins anew every few messages."""
    for _ in range(random.Random(got).randint(1, 6)):
        value = await run.receive("t")
        if value is None:
            return got
        await run.write_stream("got", value)
        got += 1
    await run.set_event("count", got)
    await run.continue_as(got)
    return got


@app.workflow
async def echo(got: int = 0) -> None:
    """Answers what it is asked, and begins anew when it is told to."""
    run.answer("double", lambda value: value * 2)
    if await run.receive("anew") is not None:
        await run.continue_as(got + 1)


@app.workflow
async def asker(run_id: str, numbers: list[int]) -> list[int]:
    return [await app.ask(run_id, "double", number) for number in numbers]


class Declined(Exception):
    """What some runs end with."""


@app.workflow
async def tree(depth: int, label: str) -> list[str]:
    """A run with children; some of them fail, each in its own way."""
    chance = random.Random(label)
    made = [await note(label)]
    for number in range(chance.randint(0, 2) if depth else 0):
        child = tree.options(id=f"{run.id}-{number}", attributes={"depth": depth - 1})
        try:
            made += await child(depth - 1, f"{label}.{number}")
        except Declined:
            made.append("declined")
    if chance.random() < 0.5:
        await run.sleep(chance.choice([0, 0.01, 0.1]))
    if chance.random() < 0.15:
        raise Declined(label)
    return made


def expected(depth: int, label: str) -> list[str] | None:
    """What `tree` gives; None: it declines."""
    chance = random.Random(label)
    made = [label]
    for number in range(chance.randint(0, 2) if depth else 0):
        made += expected(depth - 1, f"{label}.{number}") or ["declined"]
    if chance.random() < 0.5:
        chance.choice([0, 0.01, 0.1])
    return None if chance.random() < 0.15 else made


@app.workflow
async def occupant(length: float) -> None:
    """Says when it comes and goes."""
    ledger.add(run.id, "come")
    await pause(length)
    ledger.add(run.id, "go")


@app.step
async def pause(length: float) -> None:
    import asyncio  # noqa: PLC0415

    await asyncio.sleep(length)


@app.workflow(retry=Retry(3, first=0.05))
async def various(number: int) -> Any:
    """Leaves rows of every kind, in any state at any time."""
    await note("various")
    await run.set_event("number", {"n": number, "text": "ß\n\u2028"})
    await run.write_stream("values", number)
    await run.write_stream("values", None)
    match number % 8:
        case 0:
            return [number, 0.1, None, {"a": [True]}]
        case 1:
            raise Declined("various")
        case 2:
            return await job(f"child of {run.id}", 0.05)
        case 3:
            await run.receive("go")
        case 4:
            await run.sleep(3600)
        case 5:
            async with run.undo() as undo:
                undo.push(note.bind("undone"))
                await run.receive("go")
        case 6:
            await run.continue_as(number + 1000 * 8 + 2)
        case _:
            return await run.receive("go", timeout=3600)
    return "went"
