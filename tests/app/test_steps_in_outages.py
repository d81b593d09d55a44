# pyright: reportPrivateUsage=false
"""What a step starts and sends waits for a database that is away: an outage uses up none of its attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring import App, run
from mainspring.errors import StoreUnavailable
from mainspring.store.writes import Send, Start
from mainspring.testing import world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.writes import Op, Result


@pytest.mark.parametrize("stored", [False, True])
async def test_a_step_that_starts_and_sends_does_not_notice_an_outage(store_url: str, *, stored: bool) -> None:
    """`stored`: the database has committed, and only its answer was lost."""
    app = App("sqlite://")
    attempts: list[str] = []

    @app.workflow
    async def hear() -> list[str]:
        return [await run.receive("news"), await run.receive("news", timeout=1)]

    @app.step
    async def note(what: str) -> str:
        return what

    @app.step
    async def tell() -> str:
        attempts.append("async")
        await app.send("ear", "news", "hello")
        await app.run_after(0, note.options(id="later").bind("later"))
        return (await note.options(id="now").start("now")).id

    @app.step
    def tell_blocking() -> str:
        attempts.append("def")
        app.send.sync("ear", "news", "again")
        return note.options(id="blocking").start.sync("blocking").id

    @app.workflow
    async def talk() -> list[str]:
        return [await tell(), await tell_blocking.aio()]

    async with world(app, url=store_url):
        heard = await hear.options(id="ear").start()
        committer = app._runtime.connection().committer
        apply, left = committer._apply, [StoreUnavailable("the line broke") for _ in range(4)]

        def away(ops: Sequence[Op], now: int) -> list[Result | Exception]:
            if left and any(isinstance(op, (Send, Start)) for op in ops):
                if stored:
                    apply(ops, now)
                raise left.pop()
            return apply(ops, now)

        handle = await talk.start()
        committer._apply = away
        assert await handle.result() == ["now", "blocking"]
        assert await heard.result() == ["hello", "again"]
        assert [await app.handle(each).result() for each in ("later", "now", "blocking")] == [
            "later",
            "now",
            "blocking",
        ]
        assert not left
        assert attempts == ["async", "def"]
