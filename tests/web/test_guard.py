"""Who is let in, and what nobody can make a browser do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mainspring.errors import InvalidInput
from mainspring.web import Basic, Token, User, dashboard
from mainspring.web.site import ACTIONS, VIEWS
from tests.web.conftest import form

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from tests.web.conftest import Shop

SECRET = "a-long-secret-of-ours"


async def state(shop: Shop, run: str = "order-4") -> str:
    return str((await shop.app.runs.get(run)).state)


@pytest.mark.parametrize(
    ("client", "base_url", "headers"),
    [
        (("10.1.2.3", 1), "http://localhost", {}),
        (("127.0.0.1", 1), "http://rebound.example", {}),
        (("127.0.0.1", 1), "http://localhost", {"x-forwarded-for": "10.1.2.3"}),
    ],
    ids=["another machine", "a name that was pointed here", "a proxy"],
)
async def test_without_auth_only_this_machine_is_let_in(
    one_shop: Shop, client: tuple[str, int], base_url: str, headers: dict[str, str]
) -> None:
    async with one_shop.asking(client=client, base_url=base_url, headers=headers) as asking:
        for view in VIEWS:
            for path in (view.path, f"/api{view.path}", f"/live?page={view.path}"):
                assert (await asking.get(path.replace("{id:path}", "order-1"))).status_code == 403
        for action in ACTIONS:
            body = {"ids": ["order-4"], "id": "nightly"}
            assert (await asking.post(f"/api{action.path}", json=body)).status_code == 403
        assert (await asking.get("/healthz")).status_code == 200
    assert await state(one_shop) == "waiting"


@pytest.mark.parametrize(
    "host",
    [
        *("evil.com:99999", "evil.com:", "localhost@evil.com", "", "a{b.evil.test", 'a"b.evil.test', "a`b.evil.test"),
        *(
            "localhost:99999",
            "localhost:7070:7070",
            "localhost:",
            "localhost evil.com",
            "localhost,evil.com",
            "evil.com",
        ),
        *("localhost.evil.com", "[::1", "::1", "[::1]evil.com", "127.0.0.1.evil.com", "0.0.0.0", "\xff", None),
    ],
    ids=repr,
)
async def test_a_host_header_that_is_no_name_of_this_machine_is_refused(one_shop: Shop, host: str | None) -> None:
    headers = [] if host is None else [(b"host", host.encode("latin-1"))]
    assert await _answered(one_shop, headers) == 403
    assert await _answered(one_shop, [(b"host", b"localhost"), *headers]) == (200 if host is None else 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:7070", "shop.localhost:1", "127.0.0.1:7070", "[::1]:7070"])
async def test_every_name_of_this_machine_is_let_in(one_shop: Shop, host: str) -> None:
    assert await _answered(one_shop, [(b"host", host.encode())]) == 200


async def _answered(shop: Shop, headers: list[tuple[bytes, bytes]], **scope: Any) -> int:
    """The status of an answer to exactly these headers; clients mend what they send."""
    sent: list[Any] = []
    asked: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
    }
    asked |= {"path": "/api/runs", "raw_path": b"/api/runs", "query_string": b"", "root_path": "", "headers": headers}
    asked |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 7070), **scope}

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await dashboard(shop.app)(asked, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Via",
            "Forwarded",
            "X-Real-IP",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "X-Forwarded-By",
        ),
        *("CF-Connecting-IP", "CF-Ray", "True-Client-IP", "X-Client-IP", "X-Envoy-External-Address", "X-Amzn-Trace-Id"),
        *("CDN-Loop", "Client-IP", "X-Azure-ClientIP", "X-Vercel-Id", "Tailscale-User-Login", "Ngrok-Trace-Id"),
        *("Remote-User", "X-Remote-User", "X-Auth-Request-User", "X-Appengine-User-IP", "X-Cloud-Trace-Context"),
    ],
)
async def test_any_header_of_a_proxy_ends_the_trust_in_this_machine(one_shop: Shop, name: str) -> None:
    async with one_shop.asking(headers={name: "10.1.2.3"}) as asking:
        answer = await asking.get("/api/runs")
        assert answer.status_code == 403
        assert name.lower() in answer.json()["error"]


async def test_a_proxy_that_speaks_http_1_0_and_adds_nothing_is_not_trusted(one_shop: Shop) -> None:
    assert await _answered(one_shop, [(b"host", b"localhost")], http_version="1.0") == 403


async def test_a_token_lets_in_and_nothing_else_does(one_shop: Shop) -> None:
    async with one_shop.asking(auth=SECRET, client=("10.1.2.3", 1), base_url="https://ops.example") as asking:
        assert (await asking.get("/api/runs")).status_code == 401
        assert (await asking.get("/", headers={"accept": "text/html"})).status_code == 401
        for wrong in ("Bearer wrong-secret", f"Basic {SECRET}", "Bearer", f"Bearer {SECRET} ", "Bearer \xff"):
            answer = await asking.get("/api/runs", headers=[(b"authorization", wrong.encode("latin-1"))])
            assert answer.status_code == (200 if wrong.strip() == f"Bearer {SECRET}" else 401), wrong
        assert (
            await asking.get("/api/runs", headers={"cookie": "mainspring_session=9999999999.00"})
        ).status_code == 401


async def test_somebody_who_signs_in_gets_a_session_that_ends(one_shop: Shop) -> None:
    async with one_shop.asking(auth=SECRET, base_url="https://ops.example") as asking:
        wrong = await asking.post("/login", data={"token": "wrong-secret"})
        assert wrong.status_code == 401
        right = await asking.post("/login", data={"token": SECRET, "back": "//evil.example"})
        assert (right.status_code, right.headers["location"]) == (303, "/")
        cookie = right.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=lax", "secure"))
        assert SECRET not in cookie
        assert (await asking.get("/runs")).status_code == 200
        await one_shop.world.advance("13h")
        assert (await asking.get("/runs")).status_code == 401


async def test_a_password_is_asked_for_by_the_browser(one_shop: Shop) -> None:
    async with one_shop.asking(auth=Basic({"ada": "s3cret-s3cret"}), client=("10.1.2.3", 1)) as asking:
        asked = await asking.get("/", headers={"accept": "text/html"})
        assert (asked.status_code, asked.headers["www-authenticate"]) == (401, 'Basic realm="mainspring"')
        assert (await asking.get("/", auth=("ada", "wrong"))).status_code == 401
        assert (await asking.get("/", auth=("bob", ""))).status_code == 401
        assert "ada" in (await asking.get("/", auth=("ada", "s3cret-s3cret"))).text


async def test_a_viewer_sees_everything_and_does_nothing(one_shop: Shop) -> None:
    async def who(request: HTTPConnection) -> User | None:
        name = request.headers.get("x-user")
        return User(name, "operator" if name == "ada" else "viewer") if name else None

    async with one_shop.asking(auth=who) as asking:
        assert (await asking.get("/runs")).status_code == 401
        page = await asking.get("/runs/order-4", headers={"x-user": "bob"})
        assert page.status_code == 200
        assert "/runs/cancel" not in page.text
        body = {"ids": ["order-4"]}
        refused = await asking.post("/api/runs/cancel", json=body, headers={"x-user": "bob"})
        assert (refused.status_code, refused.json()) == (403, {"error": "bob may look, and not act"})
        assert await state(one_shop) == "waiting"
        assert (await asking.post("/api/runs/cancel", json=body, headers={"x-user": "ada"})).status_code == 200
    assert await state(one_shop) in {"cancelling", "cancelled"}


async def test_read_only_means_that_nobody_acts(one_shop: Shop) -> None:
    async with one_shop.asking(read_only=True) as asking:
        for action in ACTIONS:
            assert (await asking.post(f"/api{action.path}", json={})).status_code == 403
            assert (await form(asking, action.path)).status_code == 403
        assert "Cancel this run" not in (await asking.get("/runs/order-4")).text
    assert await state(one_shop) == "waiting"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
    ids=str,
)
async def test_no_page_from_elsewhere_can_act(one_shop: Shop, headers: dict[str, str]) -> None:
    async with one_shop.asking() as asking:
        await asking.get("/runs")
        secret = asking.cookies["mainspring_csrf"]
        fields = {"ids": "order-4", "csrf": secret}
        assert (await asking.post("/runs/cancel", data=fields, headers=headers)).status_code == 403
        assert (await asking.post("/api/runs/cancel", json={"ids": ["order-4"]}, headers=headers)).status_code == 403
    assert await state(one_shop) == "waiting"


async def test_a_form_without_the_secret_of_its_page_does_nothing(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        for fields in ({}, {"csrf": ""}, {"csrf": "guessed"}):
            await asking.get("/runs")
            answer = await asking.post("/runs/cancel", data={"ids": "order-4", **fields})
            assert answer.status_code == 403
        asking.cookies.clear()
        assert (await asking.post("/runs/cancel", data={"ids": "order-4", "csrf": ""})).status_code == 403
        plain = await asking.post(
            "/api/runs/cancel", content='{"ids": ["order-4"]}', headers={"content-type": "text/plain"}
        )
        assert plain.status_code == 400
    assert await state(one_shop) == "waiting"


async def test_browsers_are_told_what_to_forbid(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        for path in ("/", "/api/runs", "/static/mainspring.js", "/runs/none"):
            headers = (await asking.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
        for path in ("/", "/runs", "/runs/order-1", "/schedules", "/schedules/nightly", "/functions", "/workers"):
            text = (await asking.get(path)).text
            assert "style=" not in text
            assert "onclick" not in text
            assert "<script>" not in text


async def test_the_way_back_after_an_action_stays_here(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        for back in ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/ok\r\nx: y"):
            answer = await form(asking, "/schedules/pause", id="nightly", back=back)
            assert answer.headers["location"] == "/"


@pytest.mark.parametrize(
    "wrong",
    [{"auth": "short"}, {"auth": 5}, {"auth": Token}, {"prefix": "ops"}, {"prefix": "/ops/"}],
    ids=str,
)
def test_a_wrong_setting_is_an_error_at_the_call(one_shop: Shop, wrong: dict[str, Any]) -> None:
    if wrong.get("auth") is Token:
        with pytest.raises(InvalidInput):
            Token({})
        return
    with pytest.raises(InvalidInput):
        dashboard(one_shop.app, **wrong)


async def test_it_works_under_any_prefix(one_shop: Shop) -> None:
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.routing import Mount  # noqa: PLC0415

    for mounted in (
        Starlette(routes=[Mount("/ops/flows", dashboard(one_shop.app))]),
        dashboard(one_shop.app, prefix="/ops/flows"),
    ):
        import httpx  # noqa: PLC0415

        transport = httpx.ASGITransport(mounted, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            for path in ("/", "/runs", "/runs/order-4", "/schedules/nightly"):
                page = await asking.get(f"/ops/flows{path}")
                assert page.status_code == 200
                links = [part.partition('"')[0] for part in page.text.replace('action="', 'href="').split('href="')[1:]]
                outside = [link for link in links if link.startswith("/") and not link.startswith("/ops/flows/")]
                assert not outside
            assert (await asking.get("/ops/flows/static/mainspring.css")).status_code == 200
