"""`app.pause()`: nothing new begins in this process, wherever it comes from; what is in hand goes on."""

from __future__ import annotations

import asyncio

from mainspring import App, State
from mainspring.testing import world


async def test_what_is_started_in_a_paused_process_waits_until_it_is_resumed(store_url: str) -> None:
    app, begun = App(), list[str]()

    @app.workflow
    async def noted(what: str) -> str:
        begun.append(what)
        return what

    async with world(app, url=store_url) as w:
        app.pause()
        handles = [await noted.start("a"), *await app.start_many([noted.bind("b"), noted.bind("c")])]
        handles.append(await app.run_after(0, noted.bind("d")))
        await w.drain()
        assert begun == []
        assert {run.state for run in await app.runs.list()} == {State.QUEUED}
        app.resume()
        assert await app.gather(*handles) == ["a", "b", "c", "d"]


async def test_what_is_in_hand_goes_on_with_the_runs_that_it_calls(store_url: str) -> None:
    app, go_on = App(store_url), asyncio.Event()

    @app.workflow
    async def part() -> str:
        return "done"

    @app.step
    async def held() -> None:
        await go_on.wait()

    @app.workflow
    async def whole() -> str:
        await held()
        return await part()

    async with app:
        handle = await whole.start()
        app.pause()
        go_on.set()
        assert await handle.result(timeout=60) == "done"
