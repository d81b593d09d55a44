"""Every page, as a page and as JSON."""

from __future__ import annotations

import html
import re
import shlex
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest
from click.testing import CliRunner

from mainspring import App, Settings, Spec, run
from mainspring.cli.main import main
from mainspring.web import dashboard
from mainspring.web.rendering import LONGEST_VALUE
from mainspring.web.site import Dashboard
from tests.web.conftest import EVIL

if TYPE_CHECKING:
    from tests.web.conftest import Shop

PAGES = {
    "/": "Workers alive",
    "/?minutes=1440": "24 h",
    "/runs": "order-1",
    "/runs?state=failed&workflow=checkout&id_prefix=order": "order-3",
    '/runs?attributes={"tenant": "acme"}&created_after=2026-03-27T10:00&version=': "order-1",
    "/runs?schedule=nightly&queue=none&forked_from=x": "No run matches",
    "/runs?stranded=true": "No run matches",
    "/waits": "No run waits for a message",
    "/waits?topic=none": "No run waits for that",
    "/runs/order-1": "done: fine",
    "/runs/order-3": "ValueError",
    "/runs/order-4": "waiting",
    "/schedules": "Europe/Paris",
    "/schedules?paused=false": "nightly",
    "/schedules/nightly": "the clocks go forward",
    "/functions": "report",
    "/functions?state=success": "No function matches",
    "/workers": "alive",
    "/queues": "30 per minute",
    "/queues/mail": "Unfinished runs",
    "/audit": "There are no actions yet",
}


async def test_what_has_not_begun_says_when_it_will_and_what_never_will_does_not(shop: Shop) -> None:
    await shop.report.options(id="later", after="30d").start("x")
    await shop.report.options(id="never", after="30d").start("x")
    await shop.app.runs.cancel("never")
    await shop.world.advance("5s")
    async with shop.asking() as asking:
        page = (await asking.get("/runs?workflow=report&id_prefix=later")).text
        assert re.search(r'data-label="Time">due <time[^>]*>in 30 d</time>', page)
        assert "due <time" not in (await asking.get("/runs?workflow=report&id_prefix=never")).text
        assert "waits to begin" in (await asking.get("/runs/later")).text


async def test_every_page_shows_what_there_is_and_its_twin_says_the_same_as_data(shop: Shop) -> None:
    async with shop.asking() as asking:
        for path, shown in PAGES.items():
            page = await asking.get(path)
            assert page.status_code == 200, (path, page.text)
            assert shown in page.text, path
            twin = await asking.get(f"/api{path}")
            assert twin.status_code == 200, (path, twin.text)
            assert twin.headers["content-type"] == "application/json"
            twin.json()


async def test_a_run_is_shown_step_by_step_with_what_it_said_and_where_it_comes_from(shop: Shop) -> None:
    async with shop.asking() as asking:
        found = (await asking.get("/api/runs/order-2")).json()
        page = (await asking.get("/runs/order-2")).text
        child = (await asking.get("/runs/" + found["children"][0]["id"])).text
    charge = next(step for step in found["steps"] if step["name"] == "charge")
    assert charge["attempts"] == 2
    first, second = charge["tries"]
    assert "the bank does not answer" in first["error"]
    assert second["error"] is None
    assert charge["started"] <= first["started"] <= first["ended"] < second["started"] <= second["ended"]
    assert second["ended"] == charge["completed"]
    assert "attempt 1: TimeoutError" in page
    assert "attempt 2: done" in page
    assert "the bank does not answer" in charge["tried"][0]
    assert "2 attempts" in page
    assert page.count("w-pause") == 2  # one in the picture, one in its legend
    assert found["conversation"]["events"][0]["value"] == 50
    assert "flaky is paid" in page
    assert "child of" in child


async def test_what_a_run_logged_is_shown_with_it(shop: Shop) -> None:
    line = {"run": "order-2", "at": 1, "level": "WARNING", "logger": "shop", "message": f"asked again: {EVIL}"}
    line |= {"step": "charge", "position": "0", "attempt": 2, "worker": "w"}
    shop.app._runtime.connection().store.management.keep_logs([line], 1)
    async with shop.asking() as asking:
        (found,) = (await asking.get("/api/runs/order-2")).json()["logs"]
        page = (await asking.get("/runs/order-2")).text
    assert (found["level"], found["step"], found["attempt"]) == ("WARNING", "charge", 2)
    assert "asked again: &lt;script&gt;" in page
    assert "attempt 2" in page


async def test_what_comes_of_a_tick_is_reached_from_the_schedule_to_the_run_and_back(shop: Shop) -> None:
    await shop.world.advance("2d")
    async with shop.asking() as asking:
        ticks = (await asking.get("/api/schedules/nightly")).json()["ticks"]
        page = (await asking.get("/schedules/nightly")).text
        run = (await asking.get(f"/runs/{ticks[0]['run']}")).text
    assert [tick["outcome"] for tick in ticks] == ["fired", "fired"]
    assert ticks[0]["run"] in page
    assert "/schedules/nightly" in run
    assert "2026-03-29 07:00:00 UTC" in run


async def test_the_year_of_a_schedule_has_what_was_what_is_to_come_and_when_the_clocks_change(shop: Shop) -> None:
    await shop.world.advance("3d")
    async with shop.asking() as asking:
        year = {day["day"]: day for day in (await asking.get("/api/schedules/nightly")).json()["year"]}
        card = (await asking.get("/api/schedules")).json()["schedules"][0]
    assert year["2026-03-29"]["outcomes"] == {"fired": 1}
    assert year["2026-03-29"]["clocks"] == 3600
    assert year["2025-10-26"]["clocks"] == -3600
    assert (year["2026-03-31"]["coming"], year["2026-03-31"]["first"]) == (1, "2026-03-31T07:00:00Z")
    assert year["2026-03-20"]["outcomes"] == {}
    assert [day["outcomes"] for day in card["days"][-4:]] == [{}, {"fired": 1}, {"fired": 1}, {"fired": 1}]
    assert len(card["upcoming"]) == 5


async def test_what_is_not_there_and_what_is_asked_wrongly_is_said_in_a_sentence(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        for path, status in (
            ("/runs/none", 404),
            ("/schedules/none", 404),
            ("/runs?state=odd", 400),
            ("/runs?limit=0", 400),
            ("/runs?attributes=rubbish", 400),
            ("/runs?created_after=yesterday", 400),
            ("/runs?limit=999999999999", 400),
            ("/schedules/nightly?after=rubbish", 400),
            ("/schedules/preview?spec=rubbish", 400),
            ("/schedules/preview?spec=[]", 400),
            ('/schedules/preview?spec={"cron":["61 * * * *"]}', 400),
        ):
            page = await asking.get(path)
            twin = await asking.get(f"/api{path}")
            assert (page.status_code, twin.status_code) == (status, status), path
            assert twin.json()["error"]
            assert 'role="alert"' in page.text


async def test_nothing_that_was_stored_becomes_part_of_a_page(shop: Shop) -> None:
    evil = EVIL.replace("/", "")
    await shop.report.options(id=evil, attributes={evil: evil})(evil)
    await shop.app.schedules.create(evil, shop.report.bind(evil), (await spec_of(shop)), note=evil)
    async with shop.asking() as asking:
        schedules = (await asking.get("/api/schedules")).json()["schedules"]
        assert evil in [card["info"]["id"] for card in schedules]
        for path in ("/", "/runs", "/runs/order-3", "/schedules", "/functions", "/workers"):
            assert "<script>alert" not in (await asking.get(path)).text
        for kind in ("runs", "schedules"):
            page = await asking.get(f"/{kind}/{httpx_quote(evil)}")
            assert page.status_code == 200
            assert "<script>alert" not in page.text
            assert "&lt;script&gt;alert" in page.text


async def spec_of(shop: Shop) -> Any:
    from mainspring import Spec  # noqa: PLC0415

    return Spec(intervals=["1h"])


def httpx_quote(text: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415

    return quote(text, safe="")


@pytest.mark.parametrize("name", ["..", ".", "a b?c#d%", "ü\u0301日本", "-" * 400])
async def test_any_id_has_a_page_and_links_lead_to_it(one_shop: Shop, name: str) -> None:
    await one_shop.report.options(id=name)("x")
    async with one_shop.asking() as asking:
        listed = (await asking.get("/runs?workflow=report")).text
        links = [part.partition('"')[0] for part in listed.split('href="')[1:]]
        found = [link for link in links if link.startswith("/runs/")]
        page = await asking.get(found[0].replace("&amp;", "&"))
    assert page.status_code == 200
    assert "report" in page.text


async def test_a_huge_value_is_cut_on_the_page_and_whole_in_the_data(one_shop: Shop) -> None:
    huge = "x" * 300_000
    await one_shop.report.options(id="huge")(huge)
    async with one_shop.asking() as asking:
        page = await asking.get("/runs/huge")
        assert len(page.text) < 6 * LONGEST_VALUE
        assert "more characters" in page.text
        assert (await asking.get("/api/runs/huge")).json()["run"]["output"] == huge


async def test_pages_follow_one_another_without_gaps(shop: Shop) -> None:
    async with shop.asking() as asking:
        ids: list[str] = []
        after = ""
        while after is not None:
            page = (await asking.get("/api/runs", params={"limit": 2, "after": after})).json()
            ids += [run["id"] for run in page["runs"]]
            after = page["next"]
        assert ids == [run["id"] for run in (await asking.get("/api/runs?limit=500")).json()["runs"]]
        assert "Next page" in (await asking.get("/runs?limit=2")).text


async def test_stranded_runs_are_shown_with_the_commands_that_help(store_url: str) -> None:
    old, new = App(store_url, settings=Settings(poll=0.05)), App(store_url, settings=Settings(poll=0.05))

    @old.workflow(name="checkout")
    async def before() -> str:
        return str(await run.receive("go"))

    @new.workflow(name="checkout")
    async def after() -> str:
        return f"differently: {await run.receive('go')}"

    async with old:
        await before.options(id="it's order-7").start()
        while (await old.runs.get("it's order-7")).state != "waiting":
            pass
    async with new:
        await new.send("it's order-7", "go", "gone")
        while not (await new.runs.list(stranded=True)).runs:
            pass
        pages: Any = dashboard(new)
        transport = httpx.ASGITransport(pages, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            (listed,) = (await asking.get("/api/workers")).json()["stranded"]
            assert listed["id"] == "it's order-7"
            told = (await asking.get("/api/runs/it's order-7")).json()
            assert told["run"]["stranded"] == listed["stranded"]
            careful, forcing = told["helps"]
            assert "MAINSPRING_CONTINUE_ON=compatible" in careful
            page = html.unescape((await asking.get("/runs/it's order-7")).text)
            assert all(words in page for words in (told["run"]["stranded"], careful, forcing))
            assert "| mainspring versions force -" in (await asking.get("/workers")).text
    assert CliRunner().invoke(main, [*shlex.split(forcing)[1:], "--url", store_url]).output == "it's order-7\n"


async def test_the_latest_starts_of_a_schedule_are_linked_however_many_ticks_were_left_out_since(shop: Shop) -> None:
    await shop.app.schedules.create("often", shop.checkout.bind("slow"), Spec(intervals=["1m"]))
    await shop.world.advance("2h")
    async with shop.asking() as asking:
        found = (await asking.get("/api/schedules/often")).json()
        page = (await asking.get("/schedules/often")).text
    (start,) = found["schedule"]["recent_starts"]
    assert {tick["outcome"] for tick in found["ticks"]} == {"skipped_overlap"}
    assert f"/runs/{quote(start['run'])}" in page.partition("Latest starts")[2].partition("</p>")[0]


async def test_a_page_knows_what_it_shows_so_that_its_stream_misses_no_change(shop: Shop) -> None:
    pages = Dashboard(shop.app)
    pages.stop()  # a stream ends after its first answer
    transport = httpx.ASGITransport(pages, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:

        async def seen(path: str) -> tuple[str, str]:
            page = re.search(r'data-seen="(\w+)"', (await asking.get(path)).text)
            event = re.search(r'event: fresh\ndata: .*"is":"(\w+)"', (await asking.get(f"/live?page={path}")).text)
            assert page is not None
            assert event is not None
            return page[1], event[1]

        first = [await seen(path) for path in ("/", "/runs", "/runs/order-4", "/schedules/nightly", "/queues/mail")]
        assert all(page == event for page, event in first)
        await shop.app.runs.cancel("order-4")
        assert (await seen("/runs/order-4"))[0] != first[2][0]
