"""What workers count, the charts made from it, and the figures for machines."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.web.conftest import Shop


def written_down(shop: Shop) -> None:
    worker = shop.app._worker
    assert worker is not None
    worker.activity.flush(shop.app._runtime.connection().store)


async def test_the_overview_shows_how_the_last_hour_went(shop: Shop) -> None:
    written_down(shop)
    async with shop.asking() as asking:
        pulse = (await asking.get("/api/")).json()["pulse"]
        assert (pulse["succeeded"], pulse["failed"], pulse["cancelled"]) == (4, 1, 0)
        assert pulse["live"]["waiting"] == 1
        assert (pulse["live"]["queued"], pulse["late"]) == (1, 0)
        (bar,) = [bar for bar in pulse["bars"] if bar["succeeded"]]
        assert bar["duration"] is not None
        await shop.world.advance("20m")
        pulse = (await asking.get("/api/")).json()["pulse"]
        assert (pulse["succeeded"], pulse["late"], pulse["oldest_queued"][:16]) == (4, 1, "2026-03-27T10:00")
        await shop.world.advance("2h")
        written_down(shop)
        assert (await asking.get("/api/")).json()["pulse"]["succeeded"] == 0
        assert (await asking.get("/api/?minutes=1440")).json()["pulse"]["succeeded"] == 4
        assert "<rect" in (await asking.get("/?minutes=1440")).text


async def test_a_column_of_a_chart_leads_to_the_runs_that_ended_in_it(shop: Shop) -> None:
    written_down(shop)
    async with shop.asking() as asking:
        page = (await asking.get("/")).text
        (address,) = {
            html.unescape(each) for each in re.findall(r'<a href="(/runs\?completed_after[^"]+before[^"]+)"', page)
        }
        found = (await asking.get(f"/api{address}")).json()["runs"]
        form = (await asking.get(address)).text
    assert {run["id"] for run in found} >= {"order-1", "order-2", "order-3"}
    assert all(run["state"] in {"succeeded", "failed"} for run in found)
    assert 'name="completed_after" step="1" value="2026-03-27T10:00:00"' in form


async def test_a_queue_says_how_its_latest_runs_went(shop: Shop) -> None:
    await shop.app.queues.set("mail", rate=None)
    await shop.app.queues.resume("mail")
    for number in range(3):
        await shop.checkout.options(id=f"queued-{number}", queue="mail").start("bad" if number == 2 else "fine")
    await shop.world.advance("1m")
    async with shop.asking() as asking:
        figures = (await asking.get("/api/queues/mail")).json()["figures"]
        page = (await asking.get("/queues/mail")).text
    assert (figures["succeeded"], figures["failed"], figures["failure_rate"]) == (3, 1, 0.25)
    assert 0 <= figures["p50"] <= figures["p95"]
    assert figures["late_p95"] >= 0
    assert "The latest 4 that ended" in page


async def test_what_is_counted_survives_while_the_database_is_away(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from mainspring.errors import StoreUnavailable  # noqa: PLC0415

    worker = shop.app._worker
    assert worker is not None
    store = shop.app._runtime.connection().store

    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store.dashboard, "add", away)
    worker.activity.flush(store)
    assert store.dashboard.totals() == []
    monkeypatch.undo()
    worker.activity.flush(store)
    worker.activity.flush(store)
    durations = [amount for amount in store.dashboard.totals() if amount.measure == "duration"]
    assert sum(amount.count for amount in durations) == 5


async def test_the_figures_are_what_openmetrics_readers_take(shop: Shop) -> None:
    written_down(shop)
    await shop.world.advance("1d")
    async with shop.asking() as asking:
        answer = await asking.get("/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    read: Any = pytest.importorskip("prometheus_client.openmetrics.parser").text_string_to_metric_families
    found = {family.name: family for family in read(answer.text)}
    values = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for each in found.values()
        for sample in each.samples
    }
    assert values["mainspring_runs", ("state", "waiting")] == 1
    assert values["mainspring_runs_ended_total", ("state", "failed"), ("workflow", "checkout")] == 1
    assert values["mainspring_ticks_total", ("outcome", "started")] == 1
    assert values["mainspring_queue_runs", ("queue", "mail"), ("state", "ready")] == 1
    assert values["mainspring_queue_oldest_seconds", ("queue", "mail")] >= 86_400
    assert values["mainspring_run_duration_seconds_count", ("workflow", "checkout")] == 3
    assert values["mainspring_run_duration_seconds_bucket", ("le", "+Inf"), ("workflow", "checkout")] == 3
    assert values["mainspring_commit_batches_total",] > 0
    assert len(found["mainspring_worker_lease_age_seconds"].samples) == 1
