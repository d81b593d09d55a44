# pyright: reportPrivateUsage=false
"""A run that was taken from a worker, and that the same worker claims again before it has heard of that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from mainspring import App
from mainspring.engine.engine import Engine
from mainspring.testing import world
from tests.engine.lives import store_of

if TYPE_CHECKING:
    import pytest

app = App("sqlite://")
gates: list[asyncio.Event] = []
begun = asyncio.Event()


@app.step
async def stand_still() -> str:
    """The first call never ends by itself."""
    gates.append(asyncio.Event())
    begun.set()
    if len(gates) > 1:
        return "done"
    await gates[0].wait()
    return "never"


@app.workflow
async def work() -> str:
    return await stand_still()


async def test_the_execution_of_before_is_halted(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gates.clear()
    begun.clear()
    monkeypatch.setattr(Engine, "patience", 0.02)
    async with world(app, url=store_url):
        handle = await work.options(id="a").start()
        await begun.wait()
        engine = app._runtime.engine
        assert isinstance(engine, Engine)
        before = engine.executions["a"]
        await asyncio.to_thread(store_of(app).retire, engine.worker_id, engine.clock.now(), 100)
        assert await handle.result() == "done"
        root = cast("asyncio.Task[None]", before.tasks.root)
        await asyncio.wait_for(asyncio.wait({root}), 10)
        assert not gates[0].is_set()
