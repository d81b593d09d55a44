"""A worker that was declared dead, or has stopped, has no threads for steps any more. That is no outcome of a step."""

from __future__ import annotations

import asyncio

import pytest

from mainspring import App, Settings, Tx


class Shop:
    """Workflows that shut down the threads of their worker in the middle, as often as `closing` says."""

    def __init__(self, url: str, closing: int) -> None:
        self.app = app = App(url, version="1", settings=Settings(poll=0.05, lease=1, grace=1))
        self.left = closing
        self.closed = asyncio.Event()

        @app.step
        def quick(number: int) -> int:
            return number + 1

        @app.step(timeout=60)
        def limited(number: int) -> int:
            return number + 1

        @app.transaction
        def booked(tx: Tx, number: int) -> int:
            return number + 1

        @app.workflow
        async def step(number: int) -> int:
            self.close()
            return await quick.aio(number)

        @app.workflow
        def timed(number: int) -> int:
            self.close()
            return limited(number)

        @app.workflow
        async def transaction(number: int) -> int:
            self.close()
            return await booked.aio(number)

        self.workflows = {"step": step, "timed": timed, "transaction": transaction}

    def close(self) -> None:
        if self.left:
            self.left -= 1
            engine = self.app._runtime.engine
            assert engine is not None
            engine.step_pool.shutdown(wait=False)
            engine.here(self.closed.set)


@pytest.mark.parametrize("kind", ["step", "timed", "transaction"])
async def test_another_worker_goes_on_where_the_threads_are_gone(store_url: str, kind: str) -> None:
    shop = Shop(store_url, 1)
    async with shop.app:
        await shop.workflows[kind].options(id="order").start(1)
        await shop.closed.wait()
    again = Shop(store_url, 0)
    async with again.app:
        assert await again.workflows[kind].handle("order").result(timeout=60) == 2
