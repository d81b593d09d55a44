"""A run that is one transaction ends in the commit of that transaction: done, or stopped without effect."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mainspring import App, State, Tx, run
from mainspring.errors import RunCancelled, RunTimedOut
from mainspring.testing import crash, world
from tests.engine import lives
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

app = App("sqlite://")
DURING: dict[str, Callable[[], None]] = {}
"""What happens while a transaction is open."""


@app.step
async def later(entry: str) -> str:
    return entry


@app.transaction
def enter(tx: Tx, entry: str) -> str:
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    later.options(id=f"after {entry}").start.sync(entry)
    DURING.pop(entry, lambda: None)()
    return f"entered {entry}"


@app.workflow
async def parent(entry: str) -> str:
    child = await enter.options(id=f"child {entry}").start(entry)
    return await child.result()


def versions(url: str, run_id: str) -> list[Any]:
    """Which commits have written a run, and its record: PostgreSQL tells."""
    tables = (("runs", "id"), ("steps", "run"))
    return [
        bank.value(url, f"SELECT xmin::text FROM mainspring.{table} WHERE {key} = '{run_id}'") for table, key in tables
    ]


async def test_the_run_the_record_and_the_effect_are_one_commit(postgres_url: str) -> None:
    bank.execute(postgres_url, bank.LEDGER)
    async with world(app, url=postgres_url):
        assert await (await enter.options(id="a").start("a")).result() == "entered a"
        effect = bank.value(postgres_url, "SELECT xmin::text FROM ledger")
        assert versions(postgres_url, "a") == [effect, effect]


async def test_an_awaited_one_too(postgres_url: str) -> None:
    bank.execute(postgres_url, bank.LEDGER)

    @app.transaction(name="awaited")
    async def awaited(connection: psycopg.AsyncConnection[Any]) -> str:
        await connection.execute("INSERT INTO ledger VALUES ('awaited')")
        return "made"

    async with world(app, url=postgres_url):
        assert await (await awaited.options(id="a").start()).result() == "made"
        effect = bank.value(postgres_url, "SELECT xmin::text FROM ledger")
        assert versions(postgres_url, "a") == [effect, effect]


async def test_a_parent_that_waits_is_woken_and_all_that_want_to_know_are_told(url: str) -> None:
    arrived: list[str] = []
    app.on("run.succeeded", lambda event: arrived.append(event.run))
    async with world(app, url=url) as w:
        assert await parent("p") == "entered p"
        await w.drain()
        assert await app.handle("after p").result() == "p"
        info = await app.handle("child p").describe()
        assert (info.state, info.attempts) == (State.SUCCEEDED, 1)
        assert "child p" in arrived
    assert bank.entries(url) == ["p"]


async def test_a_run_that_was_cancelled_first_leaves_nothing(postgres_url: str) -> None:
    bank.execute(postgres_url, bank.LEDGER)
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait(30)

    DURING["x"] = hold
    async with world(app, url=postgres_url):
        handle = await enter.options(id="x").start("x")
        await asyncio.to_thread(begun.wait, 30)
        assert await handle.cancel("no")
        go_on.set()
        with pytest.raises(RunCancelled, match="no"):
            await handle.result()
        assert bank.entries(postgres_url) == []
        assert bank.count_runs(postgres_url, "later") == 0


async def test_a_run_that_is_out_of_time_first_leaves_nothing(url: str) -> None:
    """Its time is over while its transaction is open, and its timer has not rung yet."""
    async with world(app, url=url):
        engine = lives.engine_of(app)

        def time_is_over() -> None:
            engine.executions["a"].run.deadline = app._runtime.clock.now()

        DURING["a"] = time_is_over
        handle = await enter.options(id="a", timeout="1h").start("a")
        with pytest.raises(RunTimedOut):
            await handle.result()
        assert bank.entries(url) == []
        assert lives.store_of(app).run("after a") is None


async def test_a_cancel_at_any_moment_cancels_without_effect_or_not_at_all(url: str) -> None:
    async with world(app, url=url):
        for number in range(12):
            handle = await enter.options(id=f"c{number}").start(f"c{number}")
            for _ in range(number):
                await asyncio.sleep(0)
            cancelled = await handle.cancel()
            await app.first(handle)
            state = (await handle.describe()).state
            assert state is (State.CANCELLED if cancelled else State.SUCCEEDED)
            assert (f"c{number}" in bank.entries(url)) is not cancelled


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_to_the_store_makes_it_once(url: str, when: Literal["before", "after"]) -> None:
    for at in range(1, 60, bank.STRIDE):
        entry = f"crash {at}"

        async def work(entry: str = entry) -> Any:
            return await (await enter.options(id=entry).start(entry)).result()

        outcome = await crash(app, work, at=at, when=when, url=url)
        assert outcome.result == f"entered {entry}"
        assert bank.entries(url).count(entry) == 1
        if not outcome.crashed:
            return
    raise AssertionError("the workload never came to its end without a crash")


async def test_what_is_called_in_a_run_is_as_before(url: str) -> None:
    async with world(app, url=url):

        @app.workflow(name="calls")
        async def calls() -> str:
            found = await enter.aio("called")
            await run.sleep("1s")
            return found

        assert await calls() == "entered called"
    assert bank.entries(url) == ["called"]
