"""Several lines of control of one run receive from one topic."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from mainspring import App, run
from mainspring.testing import world
from tests.engine.lives import store_of

if TYPE_CHECKING:
    import pytest

    from mainspring.store.messages import Message

PATIENCE = 60


class Looking:
    """A real inbox. Both lines find the first message, and the second of them awaits of it when the first one has received it."""

    def __init__(self, inbox: Any) -> None:
        self._next = inbox.next
        self._both = threading.Barrier(2)
        self._lock = threading.Lock()
        self._finders = 0
        self._received = threading.Event()

    def next(self, *args: Any, **kwargs: Any) -> Message | None:
        with self._lock:
            if self._finders == 2:
                self._received.set()  # the first of them looks for another
        found: Message | None = self._next(*args, **kwargs)
        if found is None or found.body != '"first"' or self._finders == 2:
            return found
        self._both.wait(PATIENCE)
        with self._lock:
            self._finders += 1
            late = self._finders == 2
        if late:
            assert self._received.wait(PATIENCE)
        return found


async def test_a_message_that_another_line_received_meanwhile_is_not_received_again(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(store_url)

    @app.workflow
    async def two_lines() -> list[str]:
        async def line() -> list[str]:
            return [await run.receive("t") for _ in range(2)]

        left, right = await asyncio.gather(line(), line())
        return sorted([*left, *right])

    async with world(app, url=store_url):
        inbox = store_of(app).messages
        monkeypatch.setattr(inbox, "next", Looking(inbox).next)
        handle = await two_lines.options(id="a").start()
        for message in ("first", "second", "third", "fourth"):
            await app.send("a", "t", message)
        assert await handle.result() == ["first", "fourth", "second", "third"]
