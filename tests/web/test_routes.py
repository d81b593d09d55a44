"""Every way into the dashboard, found by walking its routes: guarded, described, and the same as a page and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from starlette.routing import Route

from mainspring.web.site import ACTIONS, VIEWS, Dashboard
from tests.web.conftest import form

if TYPE_CHECKING:
    from tests.web.conftest import Shop

OPEN = {"/healthz", "/readyz", "/login"}
"""What anybody may ask: it says nothing of anybody's runs."""
ALONE = {"/metrics", "/live", "/logout", "/api/openapi.json", *OPEN}
"""What is no page and no action."""
PLACES = {
    "/workflows/{name:path}": "checkout",
    "/runs/{id:path}": "order-2",
    "/schedules/{id:path}": "nightly",
    "/queues/{name:path}": "mail",
}
QUERIES = {
    "/runs/timeline": "?id=order-2",
    "/runs/count": "?verb=retry&matching=state%3Dfailed",
    "/schedules/preview": '?spec={"cron":["0 9 * * *"]}',
    "/schedules/backfill-preview": "?id=nightly&start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z",
}


def routes(shop: Shop) -> list[tuple[str, str]]:
    """All methods and paths that are routed, assets aside."""
    made = Dashboard(shop.app)._routes()
    found = [(method, route.path) for route in made if isinstance(route, Route) for method in route.methods or ()]
    return sorted({(method, path) for method, path in found if method != "HEAD"})


def at(path: str) -> str:
    for place, name in PLACES.items():
        if path.endswith(place):
            return path.replace(place[place.index("{") :], name)
    return path


async def test_every_page_and_action_has_a_twin_and_both_are_described(shop: Shop) -> None:
    found = routes(shop)
    async with shop.asking() as asking:
        described = (await asking.get("/api/openapi.json")).json()["paths"]
    in_words = {(method.upper(), path) for path, methods in described.items() for method in methods}
    for method, path in found:
        if path in ALONE:
            continue
        twin = path if path.startswith("/api/") else f"/api{path}"
        assert (method, twin) in found
        assert (method, twin.replace(":path", "")) in in_words, twin
    assert len(in_words) == len(VIEWS) + len(ACTIONS)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong-secret"},
        {"authorization": "Basic YWRhOmFkYQ=="},
        {"cookie": "mainspring_session=1.x"},
    ],
    ids=["nothing", "wrong token", "wrong kind", "made-up session"],
)
async def test_nothing_is_answered_to_somebody_who_is_not_known(shop: Shop, headers: dict[str, str]) -> None:
    async with shop.asking(auth="a-long-secret-of-ours", headers=headers, base_url="https://ops.example") as asking:
        for method, path in routes(shop):
            if path in OPEN:
                continue
            answer = await asking.request(method, at(path), json={"ids": ["order-4"]} if method == "POST" else None)
            assert answer.status_code in {401, 429}, (method, path)  # wrong tokens are throttled
            assert "order-4" not in answer.text
        await shop.world.advance("1m")
        assert (
            await asking.get("/api/runs", headers={"authorization": "Bearer a-long-secret-of-ours"})
        ).status_code == 200
    assert (await shop.app.runs.get("order-4")).state == "waiting"


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}], ids=str)
async def test_no_action_can_be_sent_from_another_site(shop: Shop, headers: dict[str, str]) -> None:
    async with shop.asking() as asking:
        await asking.get("/runs")
        secret = asking.cookies["mainspring_csrf"]
        for method, path in routes(shop):
            if method == "POST":
                sent: dict[str, Any] = {"json": {}} if path.startswith("/api/") else {"data": {"csrf": secret}}
                assert (await asking.post(path, headers=headers, **sent)).status_code == 403, path
        assert (await form(asking, "/schedules/pause", id="nightly")).status_code == 303  # the same from here


async def test_pages_show_what_their_twins_say(shop: Shop) -> None:
    async with shop.asking() as asking:
        await asking.post("/api/schedules/pause", json={"id": "nightly", "reason": "holidays"})
        for view in VIEWS:
            path = at(view.path) + QUERIES.get(view.path, "")
            page, data = await asking.get(path), (await asking.get(f"/api{path}")).json()
            assert page.status_code == 200, path
            told = {"who", "action", "subject", "reason"} if path == "/audit" else {"id", "name", "workflow", "run"}
            names = {value for name, value in _is_scope_end(data) if name in told}
            missing = {name for name in names if name and name not in page.text}
            assert not missing, path


def _is_scope_end(value: Any, name: str = "") -> list[tuple[str, str]]:
    """The texts in an answer, each with the name that it has there."""
    if isinstance(value, str):
        return [(name, value)]
    return [leaf for key, each in _inside(value, name) for leaf in _is_scope_end(each, key)]


def _inside(value: Any, name: str) -> list[tuple[str, Any]]:
    if hasattr(value, "items"):
        return list(value.items())
    return [(name, each) for each in value] if hasattr(value, "append") else []


async def test_assets_are_small(one_shop: Shop) -> None:
    from importlib.resources import files  # noqa: PLC0415

    sizes = {entry.name: len(entry.read_bytes()) for entry in files("mainspring.web").joinpath("static").iterdir()}
    async with one_shop.asking() as asking:
        page = (await asking.get("/")).text
    assert sum(sizes.values()) < 150_000
    assert all(f"/static/{name}" in page for name in sizes)
    assert "https://" not in page
