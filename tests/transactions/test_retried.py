"""What a retry of a run keeps of what was committed, and what it makes again."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Retry, Tx, run
from mainspring.testing import world
from tests.support.samples import covering
from tests.transactions import bank

if TYPE_CHECKING:
    from pathlib import Path

TWICE = Retry(2, first=1)


class Shop:
    """An app whose transactions write into its own database, or into another one."""

    def __init__(self, database: str | None) -> None:
        self.app = app = App("sqlite://")
        self.failures = 1
        self.handed_over = threading.Event()
        """The workflow has had the exception."""

        @app.transaction(database=database)
        def pay(tx: Tx, what: str) -> str:
            """Commits after the exception of a sibling has ended the attempt, or was caught."""
            assert self.handed_over.wait(30)
            tx.execute("INSERT INTO ledger VALUES (?)", (what,))
            return f"paid {what}"

        @app.transaction(database=database)
        def note(tx: Tx, what: str) -> str:
            tx.execute("INSERT INTO ledger VALUES (?)", (what,))
            return f"noted {what}"

        @app.step
        async def check() -> str:
            if self.failures:
                self.failures -= 1
                raise ConnectionError("no answer")
            return "checked"

        self.pay, self.note, self.check = pay, note, check


@pytest.fixture(params=["own", "other"])
def where(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> tuple[Shop, str]:
    """A shop, and the URL of the database that its ledger is in."""
    if request.param == "own":
        return Shop(None), url
    other = f"sqlite:///{tmp_path / 'other.db'}"
    bank.execute(other, bank.LEDGER)
    return Shop(other), other


async def retried(workflow: Any, app: App, how: str) -> Any:
    """The result of a run that fails once: by its own policy, or by hand."""
    if how == "by hand":
        handle = await workflow.options(id="r", retry=Retry(1)).start()
        with pytest.raises((ConnectionError, ExceptionGroup)):
            await handle.result()
        await app.runs.retry("r")
    else:
        handle = await workflow.options(id="r").start()
    return await handle.result()


@covering
@pytest.mark.parametrize("how", ["by itself", "by hand"])
@pytest.mark.parametrize("shape", ["operations", "operations turned", "branches", "task group"])
async def test_a_transaction_that_commits_after_the_exception_of_a_sibling_is_not_made_again(
    where: tuple[Shop, str], url: str, shape: str, how: str
) -> None:
    shop, ledger = where
    app = shop.app
    if ledger == url and bank.is_sqlite(url):
        pytest.skip(
            "SQLite has one writer: while the transaction is open, the exception of the sibling cannot be recorded"
        )

    async def paying() -> str:
        return await shop.pay.aio("clock")

    async def checking() -> str:
        return await shop.check()

    @app.workflow(retry=TWICE)
    async def order() -> list[str]:
        try:
            if shape == "task group":
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(paying()), group.create_task(checking())]
                    tasks[1].add_done_callback(lambda _: shop.handed_over.set())
                return [task.result() for task in tasks]
            if shape == "branches":
                return list(await asyncio.gather(paying(), checking()))
            both = [shop.pay.aio("clock"), shop.check()]
            return sorted(await asyncio.gather(*(both if shape == "operations" else reversed(both))), reverse=True)
        finally:
            shop.handed_over.set()

    async with world(app, url=url):
        assert await retried(order, app, how) == ["paid clock", "checked"]
        assert bank.entries(ledger) == ["clock"]


async def test_a_sibling_that_goes_on_by_itself_keeps_all_it_has_done(where: tuple[Shop, str], url: str) -> None:
    shop, ledger = where
    app = shop.app
    go_on = asyncio.Event()

    @app.step
    async def fail() -> None:
        raise ValueError("as always")

    async def independent() -> list[str]:
        found = [await shop.note.aio("a")]
        await go_on.wait()
        try:
            await fail()
        except ValueError:
            found.append(await shop.note.aio("b"))
        try:
            await asyncio.wait_for(run.sleep("1h"), 0.001)
        except TimeoutError:
            found += await asyncio.gather(shop.note.aio("c"))
        return found

    @app.workflow(retry=TWICE)
    async def order() -> list[str]:
        side = asyncio.create_task(independent())
        try:
            await shop.check()
        except ConnectionError:
            go_on.set()
            await side
            raise
        go_on.set()
        return await side

    async with world(app, url=url):
        assert await retried(order, app, "by itself") == ["noted a", "noted b", "noted c"]
        assert bank.entries(ledger) == ["a", "b", "c"]


async def test_what_a_handler_does_is_forgotten_with_the_exception_it_handles(
    where: tuple[Shop, str], url: str
) -> None:
    shop, ledger = where
    app = shop.app

    async def in_a_task(what: str) -> str:
        return await shop.note.aio(what)

    @app.workflow(retry=Retry(3, first=1))
    async def order() -> list[str]:
        try:
            await shop.check()
        except ConnectionError:
            left = shop.failures
            await shop.note.aio(f"sorry {left}")
            await asyncio.gather(in_a_task(f"told {left}"), shop.note.aio(f"logged {left}"))
            raise
        return [await shop.note.aio("sold"), *await asyncio.gather(in_a_task("sent"), shop.note.aio("counted"))]

    shop.failures = 2
    async with world(app, url=url):
        assert await retried(order, app, "by itself") == ["noted sold", "noted sent", "noted counted"]
        handled = [f"{what} {left}" for left in (0, 1) for what in ("logged", "sorry", "told")]
        assert bank.entries(ledger) == sorted([*handled, "sold", "sent", "counted"])


async def test_a_sibling_that_waits_goes_on_waiting_in_the_next_attempt(url: str) -> None:
    shop = Shop(None)
    app = shop.app

    @app.workflow(retry=TWICE)
    async def gathered() -> str:
        await asyncio.gather(run.sleep("1h"), shop.check())
        return "ended"

    @app.workflow(retry=TWICE)
    async def grouped() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.sleep("1h"))
            group.create_task(shop.check())
        return "ended"

    async with world(app, url=url) as w:
        for workflow in (gathered, grouped):
            shop.failures = 1
            handle = await workflow.start()
            await w.advance("2h")
            assert await asyncio.wait_for(handle.result(), 20) == "ended"


async def test_what_was_committed_elsewhere_and_not_recorded_is_found_after_a_resume(url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    bank.execute(other, bank.LEDGER)
    shop = Shop(other)
    app = shop.app

    @app.workflow(retry=TWICE)
    async def order() -> str:
        await shop.check()
        noted = await shop.note.aio("clock")
        await run.receive("go")
        return noted

    async with world(app, url=url) as w:
        handle = await order.options(id="r").start()
        await w.advance("1m")
        (place,) = app._runtime.other_databases
        place._recorded.clear()  # as a process leaves it that dies between the commit there and the record here
        steps = "mainspring_steps" if bank.is_sqlite(url) else "mainspring.steps"
        bank.execute(url, f"DELETE FROM {steps} WHERE kind = 'transaction'")
        assert await handle.cancel()
        await w.drain()
        await app.runs.resume("r")
        await app.send("r", "go", None)
        assert await handle.result() == "noted clock"
        assert bank.entries(other) == ["clock"]
