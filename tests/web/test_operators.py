"""Small things that operators stumble over."""

from __future__ import annotations

import shutil
import socket
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from mainspring.cli.serving import serving
from mainspring.model.clock import to_micros
from mainspring.operations.connect import Operations
from mainspring.operations.overview import Watch
from mainspring.operations.runs import lists
from mainspring.web.site import Dashboard
from tests.web.conftest import form

if TYPE_CHECKING:
    from tests.web.conftest import Shop

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HTML = {"accept": "text/html"}


async def test_ids_that_begin_alike_are_found_however_old_they_are(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "WITHIN", 3)
    monkeypatch.setattr(lists, "MOST", 2)  # there are more of them than are few
    for number in range(3):
        await shop.report.options(id=f"bulk-05-{number}")("x")
    for number in range(6):
        await shop.report.options(id=f"later-{number}")("x")
    async with shop.asking() as asking:
        found = (await asking.get("/api/runs?id_prefix=bulk-05")).json()
    assert [run["id"] for run in found["runs"]] == ["bulk-05-2", "bulk-05-1", "bulk-05-0"]


class At:
    """A clock that stands."""

    def __init__(self, now: int) -> None:
        self.now = lambda: now


async def test_a_schedule_that_is_due_this_moment_comes_next(shop: Shop) -> None:
    (when,) = (await shop.app.schedules.describe("nightly")).upcoming[:1]
    clock: Any = At(to_micros(when))  # the scheduler has not acted on it yet
    listed = Watch(shop.app._runtime.connection().store, clock).coming()
    assert [(each.schedule, each.when) for each in listed] == [("nightly", when)]


async def test_a_filter_leaves_only_what_was_filled_in_in_the_address(one_shop: Shop) -> None:
    async with one_shop.asking(prefix="/ops") as asking:
        sent = "/ops/runs?state=failed&workflow=check+out&id_prefix=&queue=&schedule=&attributes=&created_after="
        answer = await asking.get(sent, headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ops/runs?state=failed&workflow=check+out")
        assert (await asking.get(answer.headers["location"], headers=HTML)).status_code == 200


async def test_what_came_of_an_action_is_linked(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        for path, fields in (
            ("/runs/fork", {"ids": "order-1", "beginning": "true"}),
            ("/schedules/trigger", {"id": "nightly"}),
        ):
            await form(asking, path, **fields)
            done = (await asking.get("/api/audit")).json()["entries"][0]["outcome"]
            made = done.get("run") or done["order-1"]
            assert f'<a href="/runs/{quote(made)}">See it</a>' in (await asking.get("/runs")).text
        await form(asking, "/queues/pause", name="mail")
        assert '<a href="/queues/mail">mail</a>' in (await asking.get("/audit")).text


async def test_a_run_that_has_not_ended_is_not_forked_at_what_ended_it(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        assert "what ended it" not in (await asking.get("/runs/order-4")).text
        assert "what ended it" in (await asking.get("/runs/order-3")).text


async def test_what_is_wrong_with_a_parameter_is_said_in_words(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        assert (await asking.get("/api/runs?limit=0")).json() == {"error": "limit: expected int >= 1"}
        nothing = await asking.post("/api/runs/cancel", json={"ids": []})
        assert nothing.json() == {
            "error": "which runs? Give ids, or matching, the query of a page of runs, such as state=failed"
        }


async def test_no_wait_is_shorter_than_none(one_shop: Shop, sqlite_url: str) -> None:
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file, file:
        file.execute("UPDATE mainspring_runs SET started = created - 4000 WHERE workflow = 'checkout'")
    operations = Operations(
        one_shop.app._runtime.connection().store, one_shop.app._runtime.clock, one_shop.app._runtime.ids
    )
    (figures,) = operations.runs.aggregate(("workflow",), None, {"workflow": "checkout"})
    assert figures.longest_wait == 0


@pytest.mark.processes
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; apt-get install chromium")
async def test_what_was_refused_can_be_mended_and_nothing_chosen_is_said(one_shop: Shop) -> None:
    playwright: Any = pytest.importorskip("playwright.async_api")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with serving(Dashboard(one_shop.app), listening), playwright.async_playwright() as running:
            place = f"http://localhost:{listening.getsockname()[1]}"
            browser = await running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = await browser.new_page()
            page.set_default_timeout(120_000)
            await page.goto(f"{place}/schedules/nightly")
            await page.click("#action-edit summary")
            assert await page.input_value("#action-edit [name=timezone]") == "Europe/Paris"
            await page.wait_for_selector("#action-edit .preview .times")
            await page.fill("#action-edit [name=cron]", "99 * * * *")
            await page.fill("#action-edit [name=reason]", "earlier")
            await page.click("#action-edit button:text('Save')")
            await page.wait_for_selector("main > .notice.problem")
            assert await page.input_value("#action-edit [name=cron]") == "99 * * * *"
            assert await page.input_value("#action-edit [name=reason]") == "earlier"
            assert await page.is_visible("#action-edit [name=cron]")
            await page.fill("#action-edit [name=cron]", "9 * * * *")
            await page.click("#action-edit button:text('Save')")
            await page.wait_for_selector("main > .notice.done")
            assert not await page.is_visible("#action-edit [name=cron]")
            spec = (await one_shop.app.schedules.describe("nightly")).spec
            assert (spec["cron"], spec["timezone"]) == (["9 * * * *"], "Europe/Paris")

            await page.goto(f"{place}/runs")
            assert await page.is_visible("text=Tick runs to act on them.")
            assert await page.is_hidden(".bulk button:text('Retry')")
            retry = "document.querySelector(`.bulk button[formaction$='retry']`)"
            await page.evaluate(f"document.querySelector('#bulk').requestSubmit({retry})")  # as where it is shown
            said = await page.evaluate("document.querySelector('[name=ids]').validationMessage")
            assert said == "Choose at least one run."
            await page.check("[name=ids] >> nth=1")
            assert await page.evaluate("document.querySelector('[name=ids]').validationMessage") == ""
            assert await page.is_visible(".bulk button:text('Retry')")
            await browser.close()
