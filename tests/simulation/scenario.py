"""What the simulated fleet is given to do: children, retries, sleeps, branches, deadlines, failures, things to cancel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mainspring import App, Retry, run

if TYPE_CHECKING:
    from mainspring import Call

app = App("sqlite://")


@app.step
async def note(what: str) -> str:
    return f"did {what}"


@app.step
async def slow(what: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return what


@app.step(retry=Retry(4, first="1m"))
async def stubborn(number: int) -> int:
    if run.attempt < 3:
        raise ConnectionError("not yet")
    return number


@app.workflow
async def child(number: int) -> list[str]:
    first = await note(f"child {number}")
    await run.sleep("1h")
    return [first, await slow("second", 3)]


@app.workflow
async def parent(number: int) -> list[object]:
    async def sequence(name: str) -> list[str]:
        one = await slow(f"{name} one", 1)
        await run.sleep("10m")
        return [one, await note(name)]

    results: list[object] = [await note("first")]
    results += await asyncio.gather(sequence("left"), sequence("right"), slow("lone", 2))
    results.append(await child(number))
    handle = await child.start(number + 100)
    results.append(await stubborn(number))
    results.append(await handle.result())
    return results


@app.workflow
async def racing(number: int) -> str:
    """Branches that meet: whoever is first by the record stays first in every replay."""
    found: asyncio.Queue[str] = asyncio.Queue()

    async def runner(name: str, seconds: float) -> None:
        await found.put(await slow(f"{name} {number}", seconds))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("hare", 1), ("tortoise", 5), ("snail", 9)):
            group.create_task(runner(name, seconds))
    everybody = [found.get_nowait() for _ in range(3)]
    return await note(" and ".join(sorted(everybody)))


@app.workflow
async def failing(number: int) -> None:
    await note("before the fall")
    raise ValueError(f"no {number}")


@app.workflow(timeout="30m")
async def too_slow(number: int) -> str:
    await note(f"begin {number}")
    return (await child(number))[0]


CALLS: list[Call[Any]] = [
    *(parent.options(id=f"parent-{number}").bind(number) for number in range(3)),
    *(racing.options(id=f"racing-{number}").bind(number) for number in range(2)),
    *(failing.options(id=f"failing-{number}").bind(number) for number in range(2)),
    too_slow.options(id="too-slow").bind(1),
    parent.options(id="unwanted").bind(9),
]
CANCELLED = ["unwanted"]
