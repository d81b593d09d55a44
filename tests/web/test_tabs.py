"""Many tabs of one browser, in a real Chromium: one stream for those that are visible, none for the others."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

import pytest

from mainspring.cli.serving import serving
from mainspring.web import live
from mainspring.web.site import Dashboard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.types import Receive, Scope, Send

    from tests.web.conftest import Shop

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; apt-get install chromium"),
]
TABS = 10
SECONDS = 120_000
HIDE = "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
TELL = "document.dispatchEvent(new Event('visibilitychange'));"


class Counting:
    """A dashboard that knows which streams are open."""

    def __init__(self, shop: Shop) -> None:
        self._pages: Any = Dashboard(shop.app)
        self.streams: list[list[str]] = []
        self.stop = self._pages.stop
        self._changed = asyncio.Event()

    async def until(self, wanted: Callable[[list[list[str]]], bool]) -> None:
        """Wait until the streams are as wanted."""
        try:
            async with asyncio.timeout(60):
                while not wanted(self.streams):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(self.streams) from None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/live"):
            await self._pages(scope, receive, send)
            return
        pages = parse_qs(scope["query_string"].decode()).get("page", [scope["path"]])
        self.streams.append(pages)
        self._changed.set()
        try:
            await self._pages(scope, receive, send)
        finally:
            self.streams.remove(pages)
            self._changed.set()


async def test_ten_tabs_have_one_stream_and_those_that_are_hidden_none(
    one_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "COST", 0)
    playwright: Any = pytest.importorskip("playwright.async_api")
    pages = Counting(one_shop)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with serving(cast("Any", pages), listening), playwright.async_playwright() as running:
            place = f"http://localhost:{listening.getsockname()[1]}"
            browser = await running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = await browser.new_context()
            context.set_default_timeout(SECONDS)
            tabs: list[Any] = []
            for number in range(TABS):
                tab = await context.new_page()
                await tab.goto(f"{place}/runs?limit={number + 50}")
                await tab.wait_for_selector("#live:not([hidden])")
                tabs.append(tab)
            await pages.until(lambda streams: [len(each) for each in streams] == [TABS])

            await one_shop.report.options(id="news")("x")
            for tab in tabs:
                await tab.wait_for_selector(".new-rows")

            for tab in tabs[1:]:
                await tab.evaluate(HIDE + TELL)
            await pages.until(lambda streams: streams == [["/runs?limit=50"]])
            await one_shop.report.options(id="newer")("x")
            await tabs[0].wait_for_selector("text=2 new")
            assert "newer" not in await tabs[1].content()
            await tabs[1].evaluate("delete document.hidden;" + TELL)
            await tabs[1].wait_for_selector("text=2 new")

            await tabs[0].close()
            await tabs[1].evaluate(HIDE + TELL)
            await pages.until(lambda streams: not streams)
            await context.add_init_script(HIDE)
            behind = await context.new_page()
            await behind.goto(f"{place}/workers")
            await behind.wait_for_function("document.readyState === 'complete'")
            fetched = await behind.evaluate("performance.getEntriesByType('resource').map(one => one.name)")
            assert not [name for name in fetched if "/live" in name]
            assert pages.streams == []
            await browser.close()


async def test_a_browser_without_shared_workers_has_a_stream_for_a_visible_page(one_shop: Shop) -> None:
    playwright: Any = pytest.importorskip("playwright.async_api")
    pages = Counting(one_shop)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with serving(cast("Any", pages), listening), playwright.async_playwright() as running:
            browser = await running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = await browser.new_context()
            context.set_default_timeout(SECONDS)
            await context.add_init_script("delete window.SharedWorker;")
            tab = await context.new_page()
            await tab.goto(f"http://localhost:{listening.getsockname()[1]}/workers")
            await tab.wait_for_selector("#live:not([hidden])")
            assert pages.streams == [["/workers"]]
            await tab.evaluate(HIDE + TELL)
            await pages.until(lambda streams: not streams)
            await browser.close()


@contextlib.asynccontextmanager
async def two_tabs(shop: Shop, path: str) -> AsyncGenerator[tuple[Any, Any]]:
    """Two tabs of one browser that show the same page, and share its stream."""
    playwright: Any = pytest.importorskip("playwright.async_api")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pages = cast("Any", Dashboard(shop.app))
        async with serving(pages, listening), playwright.async_playwright() as running:
            browser = await running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = await browser.new_context()
            context.set_default_timeout(SECONDS)
            tabs = [await context.new_page() for _ in range(2)]
            for tab in tabs:
                await tab.goto(f"http://localhost:{listening.getsockname()[1]}{path}")
                await tab.wait_for_selector("#live:not([hidden])")
            yield tabs[0], tabs[1]
            await browser.close()


@pytest.fixture
def one_long_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that does not end: a browser that connects again is told everything, and hides what was lost before."""
    monkeypatch.setattr(live, "COST", 0)
    monkeypatch.setattr(live, "LIFE", 3600.0)


@pytest.mark.usefixtures("one_long_stream")
async def test_a_tab_that_comes_back_to_a_page_that_another_shows_has_missed_nothing(one_shop: Shop) -> None:
    async with two_tabs(one_shop, "/runs") as (tab, other):
        await tab.evaluate(HIDE + TELL)
        await one_shop.report.options(id="news")("x")
        await other.wait_for_selector("text=1 new")
        await tab.evaluate("delete document.hidden;" + TELL)
        await tab.wait_for_selector("text=1 new")


@pytest.mark.usefixtures("one_long_stream")
async def test_a_change_while_the_page_is_fetched_is_not_lost(one_shop: Shop) -> None:
    async with two_tabs(one_shop, "/runs/order-4") as (tab, other):
        fetched, go_on = asyncio.Event(), asyncio.Event()

        async def hold(route: Any) -> None:
            answer = await route.fetch()
            fetched.set()
            await go_on.wait()
            await route.fulfill(response=answer)

        await tab.route("**/runs/order-4", hold)
        await one_shop.app.runs.set_attributes("order-4", {"seen": "at first"})
        await fetched.wait()
        await one_shop.app.runs.set_attributes("order-4", {"seen": "after that"})
        await other.wait_for_selector("text=after that")
        go_on.set()
        await tab.wait_for_selector("text=after that")


@pytest.mark.usefixtures("one_long_stream")
async def test_a_button_that_is_pressed_is_not_replaced(one_shop: Shop) -> None:
    async with two_tabs(one_shop, "/runs/order-4") as (tab, other):
        await tab.hover("#action-cancel > summary")
        await tab.mouse.down()
        await one_shop.app.runs.set_attributes("order-4", {"seen": "by both"})
        await other.wait_for_selector("text=by both")
        await tab.evaluate("fetch(location.href).then(answer => answer.text())")  # as long as a refresh takes
        await tab.mouse.up()
        await tab.wait_for_selector("#action-cancel[open]")
        await tab.keyboard.press("Escape")
        await tab.wait_for_selector("text=by both")


@pytest.mark.usefixtures("one_long_stream")
async def test_what_was_typed_stays_while_the_page_around_it_changes(one_shop: Shop) -> None:
    async with two_tabs(one_shop, "/workflows/report") as (tab, _):
        await tab.fill("[name='input:text?:where'], [name='input:text:where']", "half a sent")
        await tab.click("h1")  # nothing of the form has the focus
        await one_shop.report.options(id="news")("x")
        await tab.wait_for_selector("tbody >> text=news")
        assert await tab.input_value("[name='input:text?:where'], [name='input:text:where']") == "half a sent"
