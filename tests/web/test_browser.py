"""The dashboard in a real Chromium, of an app whose worker is working: every page at three widths, light and dark, and every action, on
both databases.

Skipped where there is no Chromium; `apt-get install chromium` brings one. With MAINSPRING_SCREENSHOTS=docs/images the pictures of the
documentation are made anew.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.processes import PROJECT, eventually
from tests.support.samples import of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; apt-get install chromium"),
]
WIDTHS = {"wide": (1280, 900), "middle": (768, 1024), "phone": (390, 844)}
PATIENCE = 120.0
PAGES = (
    "/",
    "/errors",
    "/waits",
    "/runs",
    "/workflows",
    "/workflows/fulfil",
    "/schedules",
    "/functions",
    "/queues",
    "/queues/mail",
    "/workers",
    "/audit",
)
SECONDS = 120_000


class Site:
    """A dashboard at work, and what it says as data."""

    def __init__(self, api: httpx.Client, place: str, folder: Path, url: str) -> None:
        self.api = api
        self.place = place.rstrip("/")
        self.folder = folder
        self.url = url

    def data(self, path: str) -> Any:
        return self.api.get(f"{self.place}/api{path}").json()

    def act(self, path: str, **body: Any) -> Any:
        return self.api.post(f"{self.place}/api{path}", json=body).json()

    def some_run(self, **query: str) -> str:
        there = "/runs?" + str(httpx.QueryParams(query))
        eventually(lambda: bool(self.data(there)["runs"]), f"a run with {query}", within=PATIENCE)
        return str(self.data("/runs?" + str(httpx.QueryParams(query)))["runs"][0]["id"])

    def waiting_for_approval(self) -> str:
        """An order that waits for a person; one is started, since large ones are rare."""
        made = self.act("/runs/start", workflow="fulfil", input={"order": "large", "total": 950})["run"]
        eventually(lambda: bool(self.data(f"/runs/{made}")["waits"]), f"{made} waits for approval", within=PATIENCE)
        return str(made)


@contextlib.contextmanager
def started(*command: str, folder: Path) -> Generator[str]:
    """A command that serves the dashboard, and its address."""
    said = folder / f"said by {command[0]}"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "mainspring", *command], cwd=folder, stdout=output, stderr=output
        )
    try:
        eventually(
            lambda: bool(re.search(r"http://\S+", said.read_text())) or process.poll() is not None,
            "there is a dashboard",
            within=PATIENCE,
        )
        place = re.search(r"http://\S+", said.read_text())
        assert place is not None, said.read_text()
        yield place[0].rstrip("/")
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextlib.contextmanager
def at_work(folder: Path, url: str) -> Generator[Site]:
    """The shop of the examples as `mainspring dev` shows it, once it has fulfilled an order."""
    shop = str(PROJECT / "examples" / "shop.py")
    with (
        httpx.Client(timeout=PATIENCE) as api,
        started("dev", shop, "--port", "0", "--url", url, folder=folder) as place,
    ):
        made = Site(api, place, folder, url)
        made.some_run(workflow="fulfil", state="succeeded")
        today = datetime.now(UTC)
        begin = today - timedelta(days=40)
        made.act("/schedules/backfill", id="nightly-report", start=begin.isoformat(), end=today.isoformat())
        yield made


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with contextlib.ExitStack() as there:
        folder = tmp_path_factory.mktemp("shop")
        url = f"sqlite:///{folder / 'shop.db'}"
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("shared_postgres")
            url = there.enter_context(server.database())
        yield there.enter_context(at_work(folder, url))


def on(*databases: str) -> pytest.MarkDecorator:
    """Where a test looks. The scope has all tests of one database follow each other, so that one site is at work at a time."""
    return pytest.mark.parametrize("site", databases, indirect=True, scope="module")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright: Any = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        made = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


def complaints_of(page: Any) -> list[str]:
    """What the page complains about from now on."""
    complaints: list[str] = []

    def say(message: Any) -> None:
        if message.type == "error":
            complaints.append(message.text)

    def fail(error: Any) -> None:
        complaints.append(str(error))

    page.on("console", say)
    page.on("pageerror", fail)
    return complaints


def accept(dialog: Any) -> None:
    dialog.accept()


@pytest.fixture
def page(browser: Any, site: Site) -> Iterator[Any]:
    """A page that must not complain: neither about scripts nor about what its policy forbids."""
    wide, high = WIDTHS["wide"]
    viewport = {"width": wide, "height": high}
    context = browser.new_context(viewport=viewport, base_url=site.place, reduced_motion="reduce")
    context.set_default_timeout(SECONDS)
    made = context.new_page()
    complaints = complaints_of(made)
    made.on("dialog", accept)
    yield made
    context.close()
    assert complaints == []


def paths(site: Site) -> list[str]:
    return [
        *PAGES,
        f"/runs/{site.some_run(workflow='fulfil', state='succeeded')}",
        f"/runs/{site.some_run(workflow='fulfil', state='waiting')}",
        f"/runs/{site.waiting_for_approval()}",
        f"/runs/{site.some_run(workflow='take_inventory', state='succeeded')}",
        "/schedules/nightly-report",
        "/schedules/ledger",
    ]


def findings(page: Any, path: str, **options: Any) -> list[str]:
    """What axe finds on a page as it is now."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # Without `preload` axe does not fetch the style sheets once more, for rules that are off.
    answer = axe.run(page, options={"resultTypes": ["violations"], "preload": False, **options})
    violations = answer.response["violations"]
    return [f"{path}: {one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in violations]


def each_page(page: Any, site: Site, theme: str, pages: slice) -> Iterator[tuple[str, list[str]]]:
    """The paths of pages, and whether they fit at every width. Each is there in turn: at its widest, all of it open."""
    page.emulate_media(color_scheme=theme)
    for path in paths(site)[pages]:
        page.goto(path)
        page.wait_for_selector("h1")
        wider: list[str] = []
        for name in WIDTHS:
            resize(page, name)
            if page.evaluate("document.documentElement.scrollWidth") > WIDTHS[name][0]:
                wider.append(f"{path} is wider than {WIDTHS[name][0]}")
        resize(page, "wide")
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        yield path, wider


def resize(page: Any, width: str) -> None:
    page.set_viewport_size(dict(zip(("width", "height"), WIDTHS[width], strict=True)))


@pytest.mark.sampled
@on("sqlite")
def test_every_page_fits_complains_of_nothing_and_can_be_used_by_everybody(page: Any, site: Site) -> None:
    """On a phone, axe looks at a third of the pages; with `SAMPLES=all` at every one."""
    found: list[str] = []
    for number, (path, wider) in enumerate(each_page(page, site, "light", slice(None))):
        found += [*wider, *findings(page, f"{path}, all of it open")]
        if number % of(1, 3):
            continue
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = false; })")
        resize(page, "phone")
        found += findings(page, f"{path} on a phone")
    assert found == []


@pytest.mark.sampled
@on("sqlite")
def test_every_page_fits_and_can_be_read_in_the_dark(page: Any, site: Site) -> None:
    """The theme changes colours alone, and so what axe says of them. A third of the pages; with `SAMPLES=all` every one."""
    found: list[str] = []
    colours = ["color-contrast", "link-in-text-block"]
    for path, wider in each_page(page, site, "dark", slice(0, None, of(1, 3))):
        found += [*wider, *findings(page, f"{path}, dark", runOnly=colours)]
        resize(page, "phone")
        found += findings(page, f"{path}, dark, on a phone", runOnly=colours)
    assert found == []


@pytest.mark.sampled
@on("postgres")
def test_every_page_from_postgresql_fits_and_can_be_used_by_everybody(page: Any, site: Site) -> None:
    """The templates are the same; what is in them comes another way. A third of the pages, others than above; with `SAMPLES=all` every one."""
    found: list[str] = []
    for path, wider in each_page(page, site, "dark", slice(of(0, 1), None, of(1, 3))):
        found += [*wider, *findings(page, path)]
    assert found == []


@on("sqlite")
def test_signing_in_can_be_done_by_everybody(browser: Any, site: Site) -> None:
    found: list[str] = []
    secret = "a-long-secret-of-ours"
    context = browser.new_context()
    context.set_default_timeout(SECONDS)
    page = context.new_page()
    with started("ui", "--url", site.url, "--token", secret, "--port", "0", folder=site.folder) as place:
        page.goto(f"{place}/sessions")
        found += findings(page, "/login")
        page.fill("[name=token]", secret)
        with page.expect_navigation():
            page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('Sessions')")
        found += findings(page, "/sessions")
        with page.expect_navigation():
            page.click("text=Sign out")
        page.wait_for_selector("[name=token]")
        page.goto(f"{place}/nowhere")
        found += findings(page, "/nowhere")
    context.close()
    assert found == []


@on("sqlite", "postgres")
def test_an_open_page_keeps_itself_fresh(page: Any, site: Site) -> None:
    page.goto("/runs?workflow=take_orders&limit=5")
    page.wait_for_selector("#live:not([hidden])")
    first = page.locator("tbody a").first.inner_text()
    page.click(".new-rows")  # rows do not move by themselves: the page says how many are new
    page.wait_for_function("first => document.querySelector('tbody a').textContent !== first", arg=first)


@on("sqlite")
def test_somebody_who_writes_is_not_disturbed(page: Any, site: Site) -> None:
    run = site.waiting_for_approval()  # others wait for a second or two only, and cannot be cancelled after that
    page.goto(f"/runs/{run}")
    page.wait_for_selector("#live:not([hidden])")
    page.click("#action-cancel > summary")
    page.fill("#action-cancel input[name=reason]", "half a sent")
    site.act("/runs/cancel", ids=[run])
    other = page.context.new_page()  # which shares the stream of this one
    other.goto(f"/runs/{run}")
    other.wait_for_selector("#live:not([hidden])")
    site.act("/runs/set-attributes", ids=[run], attributes='{"seen": "by both"}')
    other.wait_for_selector("text=by both")
    page.evaluate("fetch(location.href).then(answer => answer.text())")  # as long as a refresh takes
    assert page.input_value("#action-cancel input[name=reason]") == "half a sent"
    page.keyboard.press("Escape")
    page.wait_for_selector(".head .s-cancelled")


def do(page: Any, action: str, reason: str = "", **fields: str) -> str:
    """Open the panel of an action, fill it in, confirm, and read what the next page says."""
    page.click(f"#action-{action} > summary")
    form = f"#action-{action} form"
    for name, value in fields.items():
        field = page.locator(f"{form} [name={name}]")
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.fill(f"{form} [name=reason]", reason)
    return confirm(page, f"{form} button:not([type=button])")


def confirm(page: Any, button: str) -> str:
    """Click, and read what the next page says. A click does not wait for it, and this page may have a notice, too."""
    with page.expect_navigation():
        page.click(button)
    said: str = page.locator("main > .notice[role=status]").inner_text()
    return said


@on("sqlite", "postgres")
def test_runs_are_acted_on_with_a_confirmation_and_a_reason(page: Any, site: Site) -> None:
    run = site.some_run(workflow="archive", state="scheduled")  # due in a month: it stays as it is
    page.goto(f"/runs/{run}")
    assert do(page, "cancel", "by mistake") == f"{run} is cancelled"
    assert do(page, "resume") == f"{run} is queued again"
    run = site.some_run(workflow="archive", state="scheduled")
    page.goto(f"/runs/{run}")
    assert do(page, "terminate") == f"{run} is terminated"
    run = site.some_run(workflow="fulfil", state="succeeded")
    page.goto(f"/runs/{run}")
    assert "forked: " in do(page, "fork", step="0")
    assert "forked:" in page.locator(".lineage").first.inner_text()
    run = site.some_run(workflow="fetch_prices", state="succeeded")  # the mail of an order may not have been sent yet
    page.goto(f"/runs/{run}")
    assert do(page, "delete") == f"{run} is deleted"
    failed = site.some_run(state="failed")
    page.goto(f"/runs/{failed}")
    assert do(page, "retry", "the exchange is back") == f"{failed} is queued again"
    page.goto("/audit")
    assert "the exchange is back" in page.locator("table").inner_text()


@on("sqlite", "postgres")
def test_runs_are_rescheduled_completed_and_failed(page: Any, site: Site) -> None:
    for run in ("by-hand-1", "by-hand-2"):
        site.act("/runs/start", workflow="archive", input={"order": run}, after="30d", id=run)
    page.goto("/runs/by-hand-1")
    assert "by-hand-1" in do(page, "reschedule", "not yet", after="60d")
    assert "in 2 mo" in page.locator(".facts").first.inner_text()
    assert "by-hand-1" in do(page, "complete", "archived on paper", result='{"shelf": 7}')
    assert site.data("/runs/by-hand-1")["run"]["output"] == {"shelf": 7}
    page.goto("/runs/by-hand-2")
    assert "by-hand-2" in do(page, "fail", "lost")
    assert site.data("/runs/by-hand-2")["run"]["state"] == "failed"
    for run in ("by-hand-1", "by-hand-2"):
        site.act("/runs/delete", ids=[run])


@on("sqlite", "postgres")
def test_many_runs_are_acted_on_at_once(page: Any, site: Site) -> None:
    site.some_run(workflow="archive", state="scheduled")
    page.goto("/runs?state=scheduled&workflow=archive&limit=3")
    assert page.locator(".bulk button:has-text('Cancel')").is_hidden()  # until there is something to act on
    page.check("[data-all]")
    count = page.locator("[name=ids]:checked").count()
    page.fill(".bulk [name=reason]", "too old")
    assert "cancelled" in confirm(page, ".bulk button:has-text('Cancel')")
    assert count > 0
    assert "state=scheduled" in page.url
    page.goto("/runs?state=cancelled&workflow=archive&limit=3")
    page.check("[data-all]")
    assert "queued again" in confirm(page, ".bulk button:has-text('Resume')")


@on("sqlite", "postgres")
def test_all_runs_that_match_are_acted_on_with_a_count_before(page: Any, site: Site) -> None:
    for number in range(3):
        site.act(
            "/runs/start", workflow="archive", input={"order": f"match-{number}"}, after="30d", id=f"match-{number}"
        )
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType, reportUnknownArgumentType]
    page.goto("/runs?id_prefix=match-&state=scheduled")
    assert page.locator("[data-progress]").is_hidden()
    page.check("[data-matching]")
    assert page.locator("[data-chosen]").inner_text() == "With all that match:"
    page.fill(".bulk [name=reason]", "all of them")
    page.click(".bulk button:has-text('Cancel')")
    page.wait_for_selector("main > .notice.done")
    assert asked == ["Cancel 3 runs that match?"]
    assert page.locator("main > .notice.done").inner_text() == "Cancel: 3 of 3 runs"
    assert {site.data(f"/runs/match-{number}")["run"]["state"] for number in range(3)} == {"cancelled"}
    assert site.data("/audit")["entries"][0]["reason"] == "all of them"
    page.goto("/runs?id_prefix=match-&state=cancelled")
    page.check("[data-matching]")
    page.click(".bulk button:has-text('Delete')")
    page.wait_for_selector("main > .notice.done")
    assert site.api.get(f"{site.place}/api/runs/match-0").status_code == 404


@on("sqlite", "postgres")
def test_a_run_is_started_by_a_form_and_again_with_its_input(page: Any, site: Site) -> None:
    page.goto("/workflows")
    page.click("[aria-label='Start take_inventory']")
    page.fill("[name='input:text:warehouse']", "south")
    page.fill("[name='input:json:shelves']", "2")
    page.click("#start-form button:has-text('Start')")
    page.click("main > .notice.done >> text=See it")
    page.wait_for_selector("h1.id")
    run = page.locator("h1.id").inner_text()
    assert site.data(f"/runs/{run}")["run"]["input"] == {"warehouse": "south", "shelves": 2}
    page.click("text=Start again")
    assert page.input_value("[name='input:text:warehouse']") == "south"
    page.fill("[name='input:json:shelves']", "1")
    page.click("#start-form button:has-text('Start')")
    page.wait_for_selector("main > .notice.done")


@on("sqlite", "postgres")
def test_an_order_that_waits_is_approved(page: Any, site: Site) -> None:
    run = site.waiting_for_approval()
    page.goto("/")
    page.click("#waits ~ a, .row:has(#waits) a")
    page.click(f"tbody a:text-is('{run}')")
    asked = page.locator(".wait", has_text="Answers the question discount")
    asked.locator("summary").click()
    asked.locator("[name='value:json:']").fill("10")
    with page.expect_navigation():
        asked.locator("button").click()
    page.wait_for_selector("#talk ~ .table >> text=855")  # the answer comes by itself
    approving = page.locator(".wait", has_text="Waits for the message approval")
    page.fill("[name='value:text:by']", "ada")
    page.evaluate("document.querySelector(`[name='value:json:approved']`).required = false")  # as a browser of old
    assert "needs approved" in confirm(page, "text=Send approval")
    assert page.input_value("[name='value:text:by']") == "ada"  # what was typed is kept when it is refused
    page.select_option("[name='value:json:approved']", "true")
    approving.locator("[name=reason]").fill("checked by phone")
    assert confirm(page, "text=Send approval").startswith(f"approval is sent to {run}")
    eventually(lambda: site.data(f"/runs/{run}")["run"]["state"] == "succeeded", f"{run} is shipped", within=PATIENCE)
    page.goto(f"/runs/{run}")
    assert "ada" in page.locator("#talk ~ .table").inner_text()


@on("sqlite", "postgres")
def test_schedules_and_queues_are_created_with_a_preview(page: Any, site: Site) -> None:
    page.goto("/schedules")
    page.click("#action-create summary")
    page.fill("#action-create [name=id]", "weekly")
    page.fill("#action-create [name=workflow]", "report")
    page.fill("#action-create [name=cron]", "15 6 * * mon")
    page.fill("#action-create [name=timezone]", "Asia/Tokyo")
    page.wait_for_selector("#action-create .preview >> text=Asia/Tokyo")
    page.fill("#action-create [name='input:json:']", '{"where": "Tokyo"}')
    page.click("#action-create button:has-text('Create')")
    page.wait_for_selector("main > .notice.done")
    page.goto("/schedules/weekly")
    page.click("#action-edit summary")
    page.select_option("#action-edit [name=overlap]", "buffer_one")
    page.fill("#action-edit [name='note:text?:']", "for the office")
    page.click("#action-edit button:has-text('Save')")
    page.wait_for_selector("main > .notice.done")
    found = site.data("/schedules/weekly")["schedule"]
    assert (found["policy"]["overlap"], found["note"], found["workflow"]) == ("buffer_one", "for the office", "report")
    page.goto("/queues")
    # Not before the page is left: it refreshes itself, and would complain that its schedule is gone.
    site.act("/schedules/delete", id="weekly")
    page.click("#action-create summary")
    page.fill("#action-create [name=name]", "parcels")
    page.fill("#action-create [name=concurrency]", "4")
    page.click("#action-create button:has-text('Create')")
    page.wait_for_selector("main > .notice.done")
    assert site.data("/queues/parcels")["queue"]["limits"]["concurrency"] == 4
    site.act("/queues/delete", name="parcels")


@on("sqlite", "postgres")
def test_runs_that_failed_alike_are_retried_together(page: Any, site: Site) -> None:
    site.some_run(workflow="sync_ledger", state="failed")
    page.goto("/errors?workflow=sync_ledger")
    page.click("summary:has-text('Retry')")
    page.fill("details[open] [name=reason]", "the password is right again")
    assert "queued again" in confirm(page, "details[open] form button")


@on("sqlite", "postgres")
def test_a_bar_opens_to_its_details_and_to_the_operations_of_its_child(page: Any, site: Site) -> None:
    run = site.some_run(workflow="fulfil", state="succeeded")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/runs/{run}")
    page.click("text=Copy id")
    # Not the word on the button: a page that refreshes itself says "Copy id" again.
    page.wait_for_function("async id => await navigator.clipboard.readText() === id", arg=run)
    page.click("summary:has-text('charge')")
    assert f"receipt of {run}" in page.locator(f"[id='op-{run}-1'] pre").inner_text()
    page.click("summary:has-text('ship')")
    page.click(".nested summary:has-text('print label')")
    assert "1 step" not in page.locator(".nested").first.inner_text()
    assert page.locator(".nested details[open] .facts").inner_text().startswith("Position")


@on("sqlite", "postgres")
def test_a_chart_leads_to_the_runs_behind_it(page: Any, site: Site) -> None:
    eventually(lambda: bool(site.data("/")["pulse"]["succeeded"]), "runs were counted", within=PATIENCE)
    page.goto("/")
    page.locator(".chart a").last.dispatch_event(
        "click"
    )  # a click has several parts, between which the page refreshes itself
    page.wait_for_url("**/runs?completed_after=*&completed_before=*")
    page.wait_for_selector("tbody tr")


@on("sqlite")
def test_rows_stay_where_they_are_and_new_ones_are_announced(page: Any, site: Site) -> None:
    page.goto("/runs")
    first = page.locator("tbody tr").first.get_attribute("data-id")
    page.wait_for_selector("[data-new]")
    assert page.locator("tbody tr").first.get_attribute("data-id") == first
    page.click("[data-new]")
    page.wait_for_function("first => document.querySelector('tbody tr').dataset.id !== first", arg=first)


@on("sqlite", "postgres")
def test_a_schedule_is_steered(page: Any, site: Site) -> None:
    page.goto("/schedules/nightly-report")
    assert (
        do(page, "pause", "holidays", until="2030-01-01T00:00") == "nightly-report is paused until 2029-12-31 23:00 UTC"
    )
    assert "holidays" in page.locator("main").inner_text()
    assert do(page, "resume") == "nightly-report is active again"
    assert "nightly-report was triggered" in do(page, "trigger", overlap="allow_all")
    assert "will skip" in do(page, "skip")
    assert "will not skip" in do(page, "unskip")


@on("sqlite", "postgres")
def test_backfills_and_edits_are_looked_at_before(page: Any, site: Site) -> None:
    page.goto("/schedules/nightly-report")
    page.click("#action-backfill > summary")
    page.fill("#action-backfill [name=start]", "2026-02-01T00:00")
    page.fill("#action-backfill [name=end]", "2026-02-03T23:00")
    page.click("#action-backfill button[type=button]")
    page.wait_for_selector("#action-backfill .preview b")
    assert page.locator("#action-backfill .preview b").inner_text() == "3 runs"
    assert "has begun" in confirm(page, "#action-backfill button:not([type=button])")
    page.click("#action-edit > summary")
    page.wait_for_selector("#action-edit .preview >> text=Europe/Paris")
    page.fill("#action-edit [name=spec]", '{"cron": ["rubbish"]}')
    page.wait_for_selector("#action-edit .preview .problem")
    page.fill("#action-edit [name=spec]", '{"cron": ["0 5 * * mon"], "timezone": "Asia/Tokyo"}')
    page.wait_for_selector("#action-edit .preview .times")
    assert "05:00:00 JST" in page.locator("#action-edit .preview").inner_text()
    assert "nightly-report is now" in confirm(page, "#action-edit button:not([type=button])")
    ages = site.act("/schedules/backfill", id="stock-count", start="2026-01-01", end="2026-01-02")  # a day's work
    page.goto("/schedules/stock-count")
    panel = page.locator("[id^=action-stop-]", has=page.locator(f"input[value='{ages['result']['backfill']}']"))
    stop = panel.get_attribute("id").removeprefix("action-")
    assert "stopped" in do(page, stop)


@on("sqlite", "postgres")
def test_queues_and_functions_are_steered_and_schedules_deleted(page: Any, site: Site) -> None:
    page.goto("/queues/mail")
    assert do(page, "pause") == "queue mail is paused"
    assert do(page, "set", concurrency="9", rate="500/1m") == "queue mail has new limits"
    assert do(page, "resume") == "queue mail is resumed"
    site.some_run(workflow="archive", state="scheduled")
    page.goto("/functions?name=archive")
    assert re.fullmatch(r"\d+ pending functions? of archive cancelled", do(page, "cancel"))
    page.goto("/schedules/newsletter")
    assert do(page, "delete") == "newsletter is deleted; its runs continue"
    page.goto("/queues/mail")
    assert do(page, "delete") == "queue mail is deleted"


@on("sqlite")
def test_pages_are_reached_by_keys_alone(page: Any, site: Site) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "workflow"
    page.keyboard.type("fulfil")
    page.keyboard.press("Enter")
    page.wait_for_url("**workflow=fulfil**")


@on("sqlite")
def test_the_theme_is_remembered(page: Any, site: Site) -> None:
    page.goto("/")
    page.click("#theme")
    page.goto("/runs")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@on("sqlite")
@pytest.mark.skipif("MAINSPRING_SCREENSHOTS" not in os.environ, reason="pictures are made when they are asked for")
def test_the_pictures_of_the_documentation_are_made(browser: Any, site: Site) -> None:
    folder = PROJECT / os.environ["MAINSPRING_SCREENSHOTS"]
    folder.mkdir(parents=True, exist_ok=True)
    for run in [each["id"] for each in site.data("/runs?state=waiting&workflow=fulfil&limit=2")["runs"]]:
        site.act("/runs/cancel", ids=[run], reason="the customer has changed their mind")
    time.sleep(float(os.environ.get("MAINSPRING_SCREENSHOTS_AFTER", "20")))  # something to see
    tried = next(
        run["id"]
        for run in site.data("/runs?workflow=fulfil&state=succeeded&limit=100")["runs"]
        if any(step["attempts"] > 1 for step in site.data(f"/runs/{run['id']}")["steps"])
    )
    fan = site.some_run(workflow="take_inventory", state="succeeded")
    for theme, width, name, path, opened in (
        ("light", "wide", "overview", "/", []),
        ("dark", "wide", "overview-dark", "/", []),
        ("light", "wide", "run", f"/runs/{tried}", ["charge"]),
        ("light", "wide", "fan-out", f"/runs/{fan}", ["count_shelf: 12"]),
        ("light", "wide", "approval", f"/runs/{site.waiting_for_approval()}", []),
        ("light", "wide", "schedules", "/schedules", []),
        ("dark", "wide", "schedule", "/schedules/nightly-report", []),
        ("light", "wide", "failing", "/schedules/ledger", []),
        ("dark", "phone", "phone", f"/runs/{tried}", []),
    ):
        wide, high = WIDTHS[width]
        context = browser.new_context(viewport={"width": wide, "height": high}, color_scheme=theme, base_url=site.place)
        page = context.new_page()
        page.goto(path)
        page.wait_for_selector("#live:not([hidden])")
        for text in opened:
            page.click(f"summary:has-text('{text}')")
        page.screenshot(path=folder / f"{name}.png")
        context.close()
