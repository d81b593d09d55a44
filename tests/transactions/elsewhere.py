"""An app whose tables are in another database, and what has to hold for its transactions there, however they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from mainspring import App, State, run
from mainspring.errors import NotFound
from mainspring.store.external.outcomes import TABLE
from mainspring.testing import crash, world
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Shop:
    """The runs that transactions elsewhere start, tell and stop. `entering` and `nesting` are workflows that make such transactions."""

    entering: Any
    nesting: Any

    def __init__(self) -> None:
        self.app = app = App("sqlite://")
        self.executed: list[str] = []

        @app.workflow
        async def told(entry: str) -> str:
            return f"told {entry}"

        @app.workflow
        async def listener() -> Any:
            return await run.receive("news", timeout="1h")

        @app.workflow
        async def sleeper() -> None:
            await run.sleep("2h")

        self.told, self.listener, self.sleeper = told, listener, sleeper


async def everything_happens(shop: Shop, store_url: str, url: str, alone: Callable[[], Awaitable[None]]) -> None:
    """What a transaction elsewhere wants happens here, if and only if it commits. `alone` is done in between, before the nesting."""
    app = shop.app
    async with world(app, url=store_url):
        arrived = await shop.listener.options(id="listener").start()
        stopped = await shop.sleeper.options(id="sleeper").start()
        handle = await shop.entering.start("listen")
        assert await handle.result() == "told listen"
        assert await app.handle("told listen").result() == "told listen"
        assert await app.get_event(handle.id, "entered") == "listen"
        assert (await app.handle("later listen").describe()).state is State.SCHEDULED
        assert await arrived.result() == "listen"
        await app.first(stopped)
        assert (await stopped.describe()).state is State.CANCELLED
        assert await shop.entering("bad") == "failed bad"
        await _never_was(app, "told bad")
        await alone()
        await shop.nesting()
        await _never_was(app, "told bad inner")
        assert await app.handle("told inner").result() == "told inner"
    assert bank.value(url, f"SELECT count(*) FROM {TABLE}") <= 1  # those recorded go with the next transaction


async def _never_was(app: App, run_id: str) -> None:
    with pytest.raises(NotFound):
        await app.handle(run_id).describe()


async def survives_crashes(
    shop: Shop, workflow: Any, store_url: str, url: str, when: Literal["before", "after"]
) -> None:
    """A crash at any call to the store repeats no effect elsewhere, and loses none here."""
    for at in range(1, 100, bank.STRIDE):
        name = f"crash {at}"

        async def work(name: str = name) -> Any:
            return await (await workflow.options(id=f"a-{name}").start(name)).result()

        outcome = await crash(shop.app, work, at=at, when=when, url=store_url)
        assert outcome.result == f"told {name}"
        assert bank.entries(url).count(name) == 1
        told = f"SELECT count(*) FROM {bank.runs_table(store_url)} WHERE id = 'told {name}'"
        assert bank.value(store_url, told) == 1
        if not outcome.crashed:
            assert at > 4
            return
    raise AssertionError("the workload never came to its end without a crash")
