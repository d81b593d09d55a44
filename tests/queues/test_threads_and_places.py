"""`def` runs need a thread and others only a place: neither kind keeps the other waiting, and both are asked for at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from mainspring import App, Client, Settings
from mainspring.services.claimer import Claimer

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


async def test_a_thread_that_becomes_free_during_a_claim_is_used_at_once(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim left out `def` runs when it began, and nobody would look for them before the next poll."""
    app = App(store_url, settings=Settings(threads=1, concurrency=2, poll=600))
    begun, gate, freed = threading.Event(), threading.Event(), threading.Event()

    @app.workflow
    def slow(number: int) -> int:
        begun.set()
        gate.wait(60)
        return number

    @app.workflow
    async def quick() -> None: ...

    store = app._runtime.connection().store
    claim, kick = store.claim, Claimer.kick_for_room

    def claim_while_the_thread_becomes_free(request: ClaimRequest) -> Any:
        if set(request.functions) == {"quick"} and not gate.is_set():
            gate.set()
            assert freed.wait(60)
        return claim(request)

    def kicked(claimer: Claimer) -> None:
        kick(claimer)
        if gate.is_set() and claimer._engine.slots.threads() > 0:
            freed.set()

    monkeypatch.setattr(Claimer, "kick_for_room", kicked)
    async with app:
        await app.drain()
        first = await slow.start(1)
        await app._runtime.in_thread(begun.wait)
        monkeypatch.setattr(store, "claim", claim_while_the_thread_becomes_free)
        second = await slow.start(2)
        assert [await first.result(timeout=60), await second.result(timeout=60)] == [1, 2]
