"""Lists of runs: whatever is asked for, the same few runs are looked at, and none is left out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring.operations.runs import lists
from tests.web.conftest import BEGIN

if TYPE_CHECKING:
    import httpx

    from tests.web.conftest import Shop


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten runs are a long history, and more than two of a kind are many."""
    monkeypatch.setattr(lists, "WITHIN", 10)
    monkeypatch.setattr(lists, "MOST", 3)


async def more_runs(shop: Shop, count: int = 60) -> None:
    """Runs of another workflow, a minute apart."""
    for number in range(count):
        await shop.report.options(id=f"report-{number:02}", attributes={"number": number}).start("x")
        await shop.world.advance("1m")


async def all_of(asking: httpx.AsyncClient, **query: Any) -> tuple[list[str], int]:
    """All runs that match, page by page, and how many pages it took."""
    ids: list[str] = []
    pages, after = 0, ""
    while after is not None:
        found = (await asking.get("/api/runs", params={"limit": 4, "after": after, **query})).json()
        assert found["next"] is not None or not found["further"]
        ids += [run["id"] for run in found["runs"]]
        after, pages = found["next"], pages + 1
    return ids, pages


SEARCHES: list[tuple[dict[str, Any], list[str]]] = [
    ({"workflow": "checkout"}, ["order-4", "order-3", "order-2", "order-1"]),
    ({"workflow": "checkout", "state": "succeeded"}, ["order-2", "order-1"]),
    ({"id_prefix": "order-"}, ["order-4", "order-3", "order-2", "order-1"]),
    ({"id_prefix": "order-2"}, ["order-2"]),
    ({"id_prefix": ["order-2", "mail-", "none"]}, ["mail-1", "order-2"]),
    ({"workflow": ["checkout", "none"], "state": ["failed", "waiting"]}, ["order-4", "order-3"]),
    ({"queue": ["mail", "none"], "version": ["none", "mail"]}, []),
    ({"attributes": '{"tenant": "acme"}'}, ["order-1"]),
    ({"attributes": '{"number": 7}'}, ["report-07"]),
    ({"queue": "mail"}, ["mail-1"]),
    ({"version": "none"}, []),
    ({"state": "failed"}, ["order-3"]),
    ({"state": "waiting"}, ["order-4"]),
]


@pytest.mark.usefixtures("few")
async def test_a_search_goes_on_from_page_to_page_and_finds_everything(shop: Shop) -> None:
    await more_runs(shop, 30)
    async with shop.asking() as asking:
        for query, expected in SEARCHES:
            ids, _ = await all_of(asking, **query)
            assert [run for run in ids if "/" not in run] == expected, query


@pytest.mark.usefixtures("few")
async def test_one_page_looks_at_so_many_runs_and_says_that_there_may_be_more(shop: Shop) -> None:
    await more_runs(shop, 30)
    async with shop.asking() as asking:
        found = (await asking.get("/api/runs?queue=mail")).json()
        page = (await asking.get("/runs?queue=mail")).text
    assert (found["runs"], found["further"]) == ([], True)
    assert "Look further back" in page
    assert "No run matches" not in page


@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
async def test_a_workflow_with_few_runs_is_found_at_once_among_many(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, many: bool
) -> None:
    monkeypatch.setattr(lists, "WITHIN", 10)
    monkeypatch.setattr(lists, "MOST", 3 if many else 1_000)
    await more_runs(shop, 30)
    async with shop.asking() as asking:
        found = (await asking.get("/api/runs?workflow=checkout&limit=10")).json()
    assert (len(found["runs"]), found["further"]) == ((0, True) if many else (4, False))


@pytest.mark.usefixtures("few")
async def test_times_of_creation_begin_and_end_the_search(shop: Shop) -> None:
    await more_runs(shop)
    begin, end = BEGIN + timedelta(minutes=10), BEGIN + timedelta(minutes=13)
    times = {"created_after": begin.isoformat(), "created_before": end.isoformat()}
    async with shop.asking() as asking:
        ids, pages = await all_of(asking, **times)
        whole, _ = await all_of(asking, created_after=BEGIN.isoformat())
    assert ids == ["report-12", "report-11", "report-10"]
    assert len(whole) == len({*whole}) >= 60
    assert pages < 15


@pytest.mark.usefixtures("few")
async def test_a_time_of_completion_begins_the_search(shop: Shop) -> None:
    await more_runs(shop, 130)
    begin, end = BEGIN + timedelta(minutes=10), BEGIN + timedelta(minutes=12)
    times = {"completed_after": begin.isoformat(), "completed_before": end.isoformat()}
    async with shop.asking() as asking:
        _, pages = await all_of(asking, **times)
        _, all_pages = await all_of(asking, completed_after=begin.isoformat())
    assert pages < all_pages - 4  # nothing later than an hour after its end is looked at


async def test_a_date_is_the_midnight_in_utc_at_which_it_begins(shop: Shop) -> None:
    async with shop.asking() as asking:
        assert (await all_of(asking, created_after="2026-03-28"))[0] == []
        assert "order-1" in (await all_of(asking, created_after="2026-03-27", created_before="2026-03-28"))[0]
        assert 'value="2026-03-27T00:00:00"' in (await asking.get("/runs?created_after=2026-03-27")).text
        wrong = await asking.get("/api/runs?created_after=2026-02-30")
        assert (wrong.status_code, "created_after: '2026-02-30' is not a time" in wrong.text) == (400, True)
        paused = await asking.post("/api/schedules/pause", json={"id": "nightly", "until": "2026-04-01"})
        assert paused.status_code == 200, paused.text
        assert (await asking.get("/api/schedules/nightly")).json()["schedule"]["resume_at"] == "2026-04-01T00:00:00Z"


async def test_what_looks_like_a_time_and_is_none_is_left_alone(shop: Shop) -> None:
    for name in ("2026-03-27", "2026-03-27T10:00"):
        await shop.report.options(id=name).start("x")
        async with shop.asking() as asking:
            assert name in (await all_of(asking, id_prefix=name))[0]


async def test_a_list_holds_no_values_however_long_they_are(shop: Shop) -> None:
    with pytest.raises(ValueError, match="alert"):
        await shop.checkout.options(id="odd")("bad")
    await shop.report.options(id="huge")("x" * 200_000)
    async with shop.asking() as asking:
        answer = await asking.get("/api/runs?limit=500")
    runs = {run["id"]: run for run in answer.json()["runs"]}
    assert not {"input", "output", "error"} & set(runs["huge"])
    assert "alert" in runs["odd"]["message"]
    assert len(answer.content) < 100_000


async def test_an_error_with_a_zero_in_it_is_listed(shop: Shop) -> None:
    app = shop.app

    async def breaks() -> None:
        raise ValueError("before\0after " + "long " * 500)

    fails = app.workflow(name="breaks")(breaks)
    with pytest.raises(ValueError, match="before"):
        await fails.options(id="zero")()
    async with shop.asking() as asking:
        (run,) = (await asking.get("/api/runs?id_prefix=zero")).json()["runs"]
        assert (await asking.get("/runs?id_prefix=zero")).status_code == 200
    assert run["message"].startswith("before")
    assert len(run["message"]) <= 300


async def test_a_page_shows_all_values_that_it_was_asked_for(shop: Shop) -> None:
    async with shop.asking() as asking:
        page = (await asking.get("/runs?workflow=checkout&workflow=report&queue=mail&queue=none")).text
    for name, value in (("workflow", "checkout"), ("workflow", "report"), ("queue", "mail"), ("queue", "none")):
        assert f'name="{name}" value="{value}"' in page
