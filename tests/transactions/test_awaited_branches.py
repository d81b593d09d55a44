"""Tasks that the library or a driver creates for an `async def` transaction are no branches of the run that calls it."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg  # noqa: TC002  (the app reads the annotations)

from mainspring import App, run
from mainspring.testing import world
from tests.engine import lives

app = App("sqlite://")


@app.transaction
async def note(connection: psycopg.AsyncConnection[Any]) -> int:
    found = await asyncio.wait_for(_asked(connection), 10)  # on Python 3.11 a task of its own
    return int(found[0])


async def _asked(connection: psycopg.AsyncConnection[Any]) -> Any:
    return await (await connection.execute("SELECT 1")).fetchone()


@app.step
async def say(what: str) -> str:
    return what


async def line(what: str) -> str:
    return await say(what)


@app.workflow
async def branching() -> list[str]:
    await note()
    found = list(await asyncio.gather(line("a"), line("b")))
    await run.receive("go on")
    return found


async def test_branches_have_the_same_numbers_in_a_replay_that_makes_no_transaction(postgres_url: str) -> None:
    async with world(app, url=postgres_url) as w:
        handle = await branching.options(id="r").start()
        await w.drain()
        assert [step.position for step in lives.record(w.app, "r")] == ["0", "t0.0", "t1.0", "1"]
        await lives.another_process(w)
        await w.app.send("r", "go on", None)
        assert await handle.result() == ["a", "b"]
