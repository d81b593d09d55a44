"""On a database in memory the event loop itself writes; but it never waits there."""

from __future__ import annotations

import asyncio

from mainspring import App, Tx
from mainspring.store.sqlite.database import Database


async def test_the_loop_goes_on_while_somebody_else_has_the_turn_at_writing() -> None:
    """A transaction that has the turn waits for the loop: a loop that waited for the turn would do so for ever."""
    app = App("sqlite://")
    loop = asyncio.get_running_loop()
    entered, leave = asyncio.Event(), asyncio.Event()

    @app.transaction
    def hold(tx: Tx) -> None:
        del tx
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(leave.wait(), loop).result(60)

    @app.workflow
    async def outer() -> None:
        await hold.aio()

    @app.workflow
    async def other() -> int:
        return 42

    async with asyncio.timeout(60), app:
        holding = await outer.start()
        await entered.wait()
        started = asyncio.ensure_future(other.start())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not started.done()
        leave.set()
        await holding.result()
        assert await (await started).result() == 42


async def test_what_comes_together_is_one_commit() -> None:
    app = App("sqlite://")

    @app.step
    async def one() -> None: ...

    @app.workflow
    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(100)))

    async with app:
        committer = app._runtime.connection().committer
        before = committer.batches
        await many()
        assert committer.batches - before < 50


def test_a_turn_that_is_free_is_had_at_once_and_by_one_only() -> None:
    database = Database("")
    database.open()
    assert database.prompt
    with database.at_once() as free:
        assert free
        with database.write() as db:
            db.execute("CREATE TABLE t (x)")
        with database.at_once() as again:
            assert not again
    database.lend_turn()
    with database.at_once() as free:
        assert not free
    database.take_back_turn()
    database.close()
