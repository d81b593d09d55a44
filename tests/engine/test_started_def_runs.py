"""A `def` run that an `async def` run starts is a run of its own, not a task of the run that started it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from mainspring import App

if TYPE_CHECKING:
    import pytest


async def test_it_outlives_the_run_that_started_it(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    app = App(store_url)
    go_on = threading.Event()

    @app.step
    async def until_no_claim_holds_the_threads() -> None:
        engine = app._runtime.engine
        assert engine is not None
        while engine.slots.threads() < app._runtime.settings.threads:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    @app.step
    def slow(name: str) -> str:
        assert go_on.wait(60)
        return f"{name} done"

    @app.workflow
    async def starts_it(name: str) -> tuple[str, bool]:
        await until_no_claim_holds_the_threads()
        handle = await slow.start(name)
        engine = app._runtime.engine
        return handle.id, engine is not None and handle.id in engine.executions

    async with app:
        child, began_here = await starts_it("a")
        assert began_here
        assert "unfinished" not in caplog.text
        go_on.set()
        assert await app.handle(child).result() == "a done"
    app.close()
