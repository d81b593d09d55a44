"""An app with runs and schedules of every kind, and its dashboard, asked without a network between."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mainspring import App, Policy, Rate, Retry, Settings, Spec, run
from mainspring.testing import world
from mainspring.web import dashboard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mainspring.testing import World

BEGIN = datetime(2026, 3, 27, 10, 0, tzinfo=UTC)
"""Two days before the clocks change in Paris."""
EVIL = "<script>alert('x')</script>\"'&\u202e🪤"


class Shop:
    """The app, and ways to ask its dashboard."""

    def __init__(self, url: str) -> None:
        self.app = App(url, name="shop", settings=Settings(poll=0.05))
        self.world: World
        app = self.app
        app.queue("mail", concurrency=1, rate=Rate(30, per="1m"))

        @app.step(retry=Retry(3, first=1))
        async def charge(order: str) -> str:
            if run.attempt == 1 and order == "flaky":
                raise TimeoutError("the bank does not answer")
            return f"paid {order}"

        @app.workflow
        async def ship(order: str) -> str:
            await charge(order)
            return "shipped"

        @app.workflow
        async def checkout(order: str) -> str:
            await charge(order)
            await run.set_event("progress", 50)
            await run.write_stream("log", f"{order} is paid")
            if order == "bad":
                raise ValueError(EVIL)
            if order == "slow":
                await run.sleep("30d")
            await ship(order)
            return f"done: {order}"

        @app.workflow
        async def report(where: str = "eu") -> str:
            return where

        self.checkout, self.report = checkout, report

    async def fill(self) -> None:
        """A little of everything."""
        await self.checkout.options(id="order-1", attributes={"tenant": "acme"})("fine")
        await self.checkout.options(id="order-2")("flaky")
        bad = await self.checkout.options(id="order-3").start("bad")
        await self.checkout.options(id="order-4").start("slow")
        await self.app.queues.pause("mail")
        await self.report.options(id="mail-1", queue="mail", partition="acme").start("mail")
        await self.app.run_after("5d", self.report.bind("later"))
        spec = Spec(cron=["0 9 * * *"], timezone="Europe/Paris")
        await self.app.schedules.create("nightly", self.report.bind("eu"), spec, Policy(catchup="1h"))
        with pytest.raises(ValueError, match="alert"):
            await bad.result()

    @asynccontextmanager
    async def asking(self, **options: Any) -> AsyncGenerator[httpx.AsyncClient]:
        client = options.pop("client", ("127.0.0.1", 1234))
        base = options.pop("base_url", "http://localhost")
        headers = options.pop("headers", {})
        pages: Any = dashboard(self.app, **options)
        transport = httpx.ASGITransport(pages, client=client)
        async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers) as asking:
            yield asking


@asynccontextmanager
async def shop_at(url: str) -> AsyncGenerator[Shop]:
    made = Shop(url)
    async with world(made.app, at=BEGIN, url=url) as made.world:
        await made.fill()
        await made.world.advance("1s")
        yield made


@pytest.fixture
async def shop(store_url: str) -> AsyncGenerator[Shop]:
    """The shop on each database."""
    async with shop_at(store_url) as made:
        yield made


@pytest.fixture
async def one_shop(sqlite_url: str) -> AsyncGenerator[Shop]:
    """The shop on SQLite, where the database makes no difference."""
    async with shop_at(sqlite_url) as made:
        yield made


async def form(asking: httpx.AsyncClient, path: str, **fields: Any) -> httpx.Response:
    """Send a form as the pages do: with the secret that the last page had."""
    await asking.get("/runs")
    secret = asking.cookies["mainspring_csrf"]
    return await asking.post(path, data={"csrf": secret, **fields})
