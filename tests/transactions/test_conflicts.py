"""Keys that are taken while a run that has them becomes unfinished again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App
from mainspring.errors import Conflict
from mainspring.testing import world
from tests.transactions.bank import is_sqlite, value
from tests.transactions.own import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

app = App()
_BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@app.workflow
async def job(*, fails: bool) -> None:
    if fails:
        raise ValueError("no")


def _blocked(url: str) -> None:
    """Until a session of the database waits for another one. SQLite has no sessions to ask: there the order does not matter."""
    while not is_sqlite(url) and not value(url, _BLOCKED):
        time.sleep(0.01)


@pytest.mark.parametrize("verb", ["retry", "resume"])
async def test_a_key_that_is_taken_while_its_run_is_revived_is_a_conflict(store_url: str, verb: str) -> None:
    async with world(app, url=store_url):
        old = await job.options(id="old", key="k", after="1h" if verb == "resume" else 0).start(fails=True)
        if verb == "resume":
            await old.cancel()
        else:
            with pytest.raises(ValueError, match="no"):
                await old.result()
        revive: Callable[[str], Coroutine[Any, Any, Any]] = getattr(app.runs, verb)
        async with opened(store_url, "sqlite3" if is_sqlite(store_url) else "psycopg async") as own:
            async with app.joined(own.given):
                await job.options(id="new", key="k", after="1h").start(fails=False)
            asked = asyncio.create_task(revive("old"))
            await asyncio.to_thread(_blocked, store_url)
            await own.commit()
        with pytest.raises(Conflict, match="key"):
            await asked
        assert (await old.describe()).state in {"failed", "cancelled"}


async def test_an_unfinished_run_whose_key_is_taken_is_not_loaded(store_url: str) -> None:
    async with world(app, url=store_url):
        await job.options(id="first", key="k", after="1h").start(fails=False)
        exported = await app.runs.export("first")
        await app.runs.fail("first", reason="to make room")
        await app.runs.delete("first")
        await job.options(id="second", key="k", after="1h").start(fails=False)
        with pytest.raises(Conflict, match="'second'"):
            await app.runs.load(exported)
        assert [found.id for found in await app.runs.list()] == ["second"]
