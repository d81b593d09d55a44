"""`def` runs need a thread and others only a place: neither kind keeps the other waiting, and both are asked for at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from mainspring import App, Client, Settings

if TYPE_CHECKING:
    import pytest

    from mainspring import AsyncFn, SyncFn
    from mainspring.store.protocol import ClaimRequest


class Shop:
    def __init__(self, url: str, threads: int) -> None:
        self.app = App(url, settings=Settings(threads=threads, poll=600))
        self.app.queue("q", concurrency=50)
        self.begun = threading.Event()
        self.gate = threading.Event()

        @self.app.workflow(queue="q")
        def slow(number: int) -> int:
            self.begun.set()
            self.gate.wait()
            return number

        @self.app.workflow(queue="q")
        async def quick(number: int) -> int:
            return number

        self.slow: SyncFn[[int], int] = slow
        self.quick: AsyncFn[[int], int] = quick


async def test_runs_that_need_no_thread_do_not_wait_for_those_that_do(store_url: str) -> None:
    shop = Shop(store_url, threads=1)
    async with shop.app:
        held = await shop.app.start_many(shop.slow.bind(number) for number in range(20))
        await shop.app._runtime.in_thread(shop.begun.wait)
        for number in range(3):  # each after a look that has found nothing of its kind
            assert await shop.quick(number) == number
        with Client(store_url) as client:
            handle = await client.options(queue="q").start("quick", number=9)
            assert await handle.result() == 9
        assert (await held[-1].describe()).state == "queued"
        shop.gate.set()
        assert [await handle.result() for handle in held] == list(range(20))


async def test_while_threads_are_free_both_kinds_are_one_question(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking for some functions only makes the database pass over all that waits of the others."""
    shop = Shop(store_url, threads=9)
    shop.gate.set()
    asked: list[set[str]] = []
    store = shop.app._runtime.connection().store
    claim = store.claim

    def noting(request: ClaimRequest) -> Any:
        asked.append(set(request.functions))
        return claim(request)

    monkeypatch.setattr(store, "claim", noting)
    async with shop.app:
        assert await shop.quick(1) == 1
    assert asked
    assert all(names == {"slow", "quick"} for names in asked)
