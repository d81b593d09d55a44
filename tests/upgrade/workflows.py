"""Workflows whose recorded histories are kept in the repository. Do not change what they do: old runs must still replay."""

from __future__ import annotations

import asyncio
from collections import Counter

from mainspring import App, Retry, Settings, run

app = App("sqlite://", settings=Settings(continue_on="compatible"))
executed: Counter[str] = Counter()


@app.step
async def note(what: str) -> str:
    executed[what] += 1
    return f"did {what}"


@app.step
def threaded(what: str) -> str:
    executed[what] += 1
    return f"did {what} on a thread"


@app.step(retry=Retry(4, first="1m"))
async def stubborn(what: str) -> str:
    executed[what] += 1
    if run.attempt < 3:
        raise ConnectionError(what)
    return f"did {what} at last"


@app.step
async def failing(what: str) -> str:
    executed[what] += 1
    raise LookupError(what, 404)


@app.workflow
async def child(name: str) -> list[str]:
    first = await note(f"{name} one")
    await run.sleep("1h")
    return [first, await note(f"{name} two")]


@app.workflow
def plain(name: str) -> list[str]:
    first = threaded(f"{name} one")
    run.sleep.sync("2h")
    return [first, threaded(f"{name} two")]


@app.workflow
async def everything() -> list[str]:
    async def sequence(name: str) -> str:
        await note(f"{name} one")
        await run.sleep("10m")
        return await note(f"{name} two")

    results = [await note("first")]
    results += await asyncio.gather(sequence("left"), sequence("right"), note("lone"), threaded.aio("beside"))
    try:
        await failing("wrong")
    except LookupError as error:
        results.append(f"{error.args[1]}")
    results += await child("called")
    handle = await child.start("started")
    results.append(await stubborn("stubborn"))
    results += await handle.result()
    results.append(f"{run.random().randrange(10**6)} {run.uuid()}"[:6])
    found: asyncio.Queue[str] = asyncio.Queue()

    async def racer(name: str) -> None:
        await found.put(await note(name))

    async with asyncio.TaskGroup() as group:
        for name in ("hare", "tortoise"):
            group.create_task(racer(name))
    results += sorted([await found.get(), await found.get()])
    return results
