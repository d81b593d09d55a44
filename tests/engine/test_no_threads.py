"""A process that may have no more threads: work waits for one, and nothing is lost, refused or done twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from mainspring import App
from mainspring.engine.residency import threads
from mainspring.testing import world

if TYPE_CHECKING:
    from collections.abc import Callable

app = App("sqlite://")
executed: list[int] = []


@app.step
def blocking(number: int) -> int:
    executed.append(number)
    return number


@app.step(timeout="1h")
def limited(number: int) -> int:
    executed.append(number)
    return number


@app.workflow
async def awaits(number: int) -> int:
    return await blocking.aio(number)


@app.workflow
def blocks(number: int) -> int:
    return blocking(number)


@app.workflow
def blocks_with_limit(number: int) -> int:
    return limited(number)


def refuse_threads(monkeypatch: pytest.MonkeyPatch, prefix: str, times: int) -> list[str]:
    """Let the system refuse the next threads of a name, so many times."""
    start: Callable[[threading.Thread], None] = threading.Thread.start
    refused: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(prefix) and len(refused) < times:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return refused


@pytest.mark.parametrize("pool", ["mainspring-step", "mainspring-run", "mainspring-store"])
async def test_work_waits_for_a_thread(monkeypatch: pytest.MonkeyPatch, pool: str) -> None:
    monkeypatch.setattr(threads, "_AGAIN_SECONDS", 0.01)
    executed.clear()
    async with world(app):
        refused = refuse_threads(monkeypatch, pool, 2)
        handles = [await each.start(n) for n, each in enumerate([awaits, blocks, blocks_with_limit] * 2)]
        assert [await handle.result() for handle in handles] == list(range(6))
    assert sorted(executed) == list(range(6))
    assert len(refused) == 2 or pool == "mainspring-store"


async def test_a_wait_that_gets_no_thread_does_not_spoil_the_next(
    monkeypatch: pytest.MonkeyPatch, sqlite_url: str
) -> None:
    async with world(app, url=sqlite_url):
        handle = await awaits.start(1)
        refused = refuse_threads(monkeypatch, "mainspring-endings", 1)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await app.handle(handle.id).result()
        assert refused
        assert await app.handle(handle.id).result() == 1
