"""What an operator needs to see at night: schedules that fail look so, failures by their error, children to scale."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mainspring import App, Policy, Retry, Settings, Spec, run
from mainspring.testing import world
from mainspring.web import dashboard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mainspring.testing import World

log = logging.getLogger("night")
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Night:
    """An app whose schedule begins to fail, with a dashboard."""

    def __init__(self, url: str) -> None:
        self.app = App(url, name="night", settings=Settings(keep_logs="warning"))
        self.world: World
        self.asking: httpx.AsyncClient
        app = self.app

        @app.workflow
        async def fetch(source: str) -> str:
            if run.tick is not None and run.tick.nominal.hour >= 13:
                raise ConnectionError(f"{source} refused connection {run.tick.nominal.minute}")
            return source

        @app.workflow
        async def leaf(number: int) -> int:
            await run.sleep(number + 1)
            if number == 3:
                raise ValueError("leaf 3 is rotten")
            return number

        @app.workflow
        async def fan(count: int) -> int:
            handles = [await leaf.options(id=f"leaf-{number}").start(number) for number in range(count)]
            return len([await handle.result() for handle in handles[:2]])

        @app.step(retry=Retry(2, first=1))
        async def weigh(number: int) -> int:
            log.warning("weighing %d", number)
            if run.attempt == 1:
                raise TimeoutError("the scale does not answer")
            return number

        @app.workflow
        async def pack(count: int) -> int:
            total = sum([await weigh(number) for number in range(count)])
            return total + await leaf(1)

        self.fetch, self.fan, self.pack, self.leaf = fetch, fan, pack, leaf

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self.asking.get(f"/api{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
async def night(store_url: str) -> AsyncGenerator[Night]:
    made = Night(store_url)
    async with world(made.app, at=NOON, url=store_url) as made.world:
        transport = httpx.ASGITransport(dashboard(made.app), client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as made.asking:
            yield made


async def test_a_schedule_whose_runs_fail_looks_so(night: Night) -> None:
    spec = Spec(cron=["*/30 * * * *"])
    await night.app.schedules.create("prices", night.fetch.bind("exchange"), spec, Policy(catchup="1h"))
    await night.world.advance("45m")
    assert [card["info"]["id"] for card in (await night.get("/schedules", failing="true"))["schedules"]] == []
    await night.world.advance("1h")
    found = await night.get("/schedules/prices")
    assert [tick["run_state"] for tick in found["ticks"]] == ["failed", "failed", "succeeded"]
    assert {tick["outcome"] for tick in found["ticks"]} == {"fired"}
    (today,) = [day for day in found["year"] if day["day"] == "2026-03-02"]
    assert today["outcomes"]["run_failed"] == 2
    (card,) = (await night.get("/schedules", failing="true"))["schedules"]
    assert (card["last"]["run_state"], card["days"][-1]["outcomes"]["run_failed"]) == ("failed", 2)
    page = (await night.asking.get("/schedules/prices")).text
    for words in (
        "The last 2 runs failed: exchange refused connection",
        'class="state s-failed">failed',
        "o-run_failed",
    ):
        assert words in page, words
    assert "o-run_failed" in (await night.asking.get("/schedules")).text
    assert (await night.get("/schedules", failing="false"))["schedules"] == []


async def test_failed_runs_are_grouped_by_their_error_and_acted_on_together(night: Night) -> None:
    await night.app.schedules.create("prices", night.fetch.bind("exchange"), Spec(cron=["*/10 13 * * *"]))
    await night.app.schedules.create("rates", night.fetch.bind("bank"), Spec(cron=["5 13 * * *"]))
    await night.world.advance("2h")
    found = await night.get("/errors")
    assert [(group["count"], group["type"], group["workflow"]) for group in found["groups"]] == [
        (6, "ConnectionError", "fetch"),
        (1, "ConnectionError", "fetch"),
    ]
    assert found["groups"][0]["message"] == "exchange refused connection 50"
    assert (await night.get("/errors", workflow="leaf"))["groups"] == []
    overview = await night.get("/")
    assert overview["errors"][0]["count"] == 6
    page = (await night.asking.get("/errors")).text
    assert "6 runs" in page
    ids = found["groups"][0]["ids"]
    marked = await night.asking.post("/api/runs/fail", json={"ids": ids, "reason": "the exchange was closed"})
    assert marked.json()["message"] == "6 runs marked as failed"
    assert "6 runs" in (await night.asking.get("/")).text


async def test_children_have_their_real_length_and_many_of_them_are_one_line(night: Night) -> None:
    await night.fan.options(id="fan").start(9)
    await night.world.advance("30s")
    found = await night.get("/runs/fan")
    assert {child["id"] for child in found["children"]} == {f"leaf-{number}" for number in range(9)}
    page = (await night.asking.get("/runs/fan")).text
    assert "leaf: 9, 1 failed, slowest 9" in page
    assert "1 failed" in page
    assert page.count('<summary class="op-row depth-1"') >= 9
    assert "leaf-8: succeeded" in page


async def test_all_operations_of_a_long_run_are_reached_by_paging(night: Night) -> None:
    await night.fan.options(id="fan").start(9)
    await night.world.advance("30s")
    first = await night.get("/runs/fan", limit=5)
    assert (len(first["steps"]), first["offset"], first["operations"], first["next"]) == (5, 0, 11, 5)
    rest = await night.get("/runs/fan", limit=5, offset=10)
    assert (len(rest["steps"]), rest["next"]) == (1, None)
    page = (await night.asking.get("/runs/fan?offset=5&limit=5")).text
    assert "6 to 10 of 11" in page
    assert (await night.asking.get("/api/runs/fan?offset=-1")).status_code == 400


async def test_an_operation_opens_to_its_attempts_output_and_logs_beside_its_bar(night: Night) -> None:
    await night.pack.options(id="parcel").start(1)
    await night.world.advance("30s")
    worker = night.app._worker
    assert worker is not None
    assert worker._keeper is not None
    worker._keeper.store(night.app._runtime.connection().store)
    page = (await night.asking.get("/runs/parcel")).text
    (weighed,) = re.findall(r'<details class="fold" id="op-parcel-0">.*?</details>', page, re.DOTALL)
    for words in (
        "2 attempts",
        "TimeoutError: the scale does not answer",
        "succeeded",
        "weighing 0",
        "12:00:00.000 UTC",
    ):
        assert words in weighed, words
    assert "pause before another attempt" in page


async def test_a_child_is_unfolded_in_the_timeline_of_its_parent_and_at_its_scale(night: Night) -> None:
    await night.pack.options(id="parcel").start(1)
    await night.world.advance("30s")
    page = (await night.asking.get("/runs/parcel")).text
    address = re.search(r'hx-get="([^"]+)"', page)
    assert address is not None
    asked = address[1].replace("&amp;", "&")
    nested = await night.asking.get(asked)
    assert nested.status_code == 200
    for words in ("Input", "&#34;number&#34;: 1", "sleep", "Output"):
        assert words in nested.text, words
    assert "<html" not in nested.text
    assert float(re.findall(r'<rect x="([\d.]+)"', nested.text)[-1]) > 250  # it slept at the end of its parent
    backwards = {"id": "parcel", "since": "9999-12-31T23:59:59Z", "until": "0001-01-01"}
    assert (await night.asking.get("/runs/timeline", params=backwards)).status_code == 200
    nothing = await night.asking.get("/api/runs/timeline")
    assert (nothing.status_code, nothing.json()["error"]) == (400, "id is missing")
    found = (await night.asking.get(f"/api{asked}")).json()
    assert [step["kind"] for step in found["steps"]] == ["sleep"]


async def test_many_operations_of_one_name_are_one_line(night: Night) -> None:
    await night.pack.options(id="parcel").start(8)
    await night.world.advance("30s")
    page = (await night.asking.get("/runs/parcel")).text
    assert "weigh: 8" in page
    assert 'id="fold-parcel-0"' in page
    assert 'id="op-parcel-7"' in page


async def test_what_a_cancelled_run_left_unfinished_ends_with_it_in_the_picture(night: Night) -> None:
    handle = await night.leaf.options(id="cut").start(3_600)
    await night.world.advance("1m")
    before = (await night.asking.get("/runs/cut")).text
    assert "<dt>Wakes</dt>" in before
    assert await handle.cancel()
    await night.world.advance("30d")
    page = (await night.asking.get("/runs/cut")).text
    assert "<dt>Wakes</dt>" not in page
    assert "The run ended before it." in page
    assert "30 d" not in re.sub(r"<time.*?</time>", "", page)
