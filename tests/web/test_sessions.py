"""Signing in and out, guessing, roles, and users whom the app around the dashboard knows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import RedirectResponse
from starlette.routing import Mount

from mainspring.web import Token, User, dashboard
from mainspring.web.guard import ATTEMPTS, PAUSE
from mainspring.web.site import ACTIONS, VIEWS
from tests.web.conftest import form

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from tests.web.conftest import Shop

ADA, BOB, EVE = "the-token-of-ada-lovelace", "the-token-of-bob-the-viewer", "the-token-of-eve-operator"
PEOPLE = {ADA: User("ada", "admin"), BOB: User("bob", "viewer"), EVE: User("eve", "operator")}
HTML = {"accept": "text/html"}


async def sign_in(asking: httpx.AsyncClient, token: str, back: str = "/") -> httpx.Response:
    return await asking.post("/login", data={"token": token, "back": back})


def cookie_of(asking: httpx.AsyncClient) -> dict[str, str]:
    """The cookie of a session, as a thief would send it."""
    return {"cookie": f"mainspring_session={asking.cookies['mainspring_session']}"}


async def test_a_session_that_was_signed_out_is_over_in_every_process(shop: Shop) -> None:
    options: dict[str, Any] = {"auth": Token(PEOPLE), "base_url": "https://ops.example"}
    async with shop.asking(**options) as asking, shop.asking(**options) as elsewhere:
        await sign_in(asking, BOB)
        stolen = cookie_of(asking)
        assert (await elsewhere.get("/api/runs", headers=stolen)).status_code == 200
        assert (await asking.post("/logout")).status_code == 303
        assert "mainspring_session" not in asking.cookies
        assert (await asking.get("/api/runs", headers=stolen)).status_code == 401
        assert (await elsewhere.get("/api/runs", headers=stolen)).status_code == 401


async def test_every_page_lets_one_sign_out(one_shop: Shop) -> None:
    async with one_shop.asking(auth=Token(PEOPLE)) as asking:
        await sign_in(asking, BOB)
        for path in ("/", "/runs", "/runs/order-1", "/runs/none", "/schedules", "/workers", "/audit", "/nowhere"):
            assert 'action="/logout"' in (await asking.get(path, headers=HTML)).text, path
    async with one_shop.asking() as local:
        assert "Sign out" not in (await local.get("/")).text


async def test_a_session_ends_with_the_token_that_began_it(shop: Shop) -> None:
    async with shop.asking(auth=Token(PEOPLE)) as before:
        await sign_in(before, ADA)
        cookies = cookie_of(before)
    async with shop.asking(auth=Token({"another-token-of-ada": User("ada", "admin"), BOB: PEOPLE[BOB]})) as after:
        assert (await after.get("/api/runs", headers=cookies)).status_code == 401


async def test_a_cookie_and_the_database_tell_nothing_of_the_token(shop: Shop) -> None:
    async with shop.asking(auth=ADA) as asking:
        await sign_in(asking, ADA)
        first = asking.cookies["mainspring_session"]
        await sign_in(asking, ADA)
        assert asking.cookies["mainspring_session"] != first
        kept = str(shop.app._runtime.connection().store.audit.sessions())
    assert "token" in kept  # the user's name
    assert first not in kept
    assert ADA not in kept


async def test_an_admin_sees_who_is_signed_in_and_ends_it(shop: Shop) -> None:
    options: dict[str, Any] = {"auth": Token(PEOPLE)}
    async with shop.asking(**options) as admin, shop.asking(**options) as viewer:
        await sign_in(admin, ADA)
        await sign_in(viewer, BOB)
        assert (await viewer.get("/sessions", headers=HTML)).status_code == 403
        assert (await viewer.get("/api/sessions")).status_code == 403
        assert (await viewer.get("/live?page=/sessions")).status_code == 403
        assert "bob" in (await admin.get("/sessions")).text
        found = (await admin.get("/api/sessions")).json()["sessions"]
        assert sorted(each["who"] for each in found) == ["ada", "bob"]
        (bobs,) = [each["id"] for each in found if each["who"] == "bob"]
        assert (await form(admin, "/sessions/end", ids=bobs)).status_code == 303
        assert (await viewer.get("/api/runs")).status_code == 401
        assert (await admin.get("/api/runs")).status_code == 200
        await shop.world.advance("13h")
        assert (await admin.get("/api/runs")).status_code == 401


async def test_guessing_is_slow_and_leaves_a_trace(one_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mainspring.web")
    async with one_shop.asking(auth=Token(PEOPLE), client=("10.1.2.3", 1)) as asking:
        await sign_in(asking, BOB)
        assert "bob signed in from 10.1.2.3" in caplog.text
        session = cookie_of(asking)
        asking.cookies.clear()
        for number in range(ATTEMPTS):
            wrong = {"authorization": f"Bearer wrong-token-number-{number}"}
            tried = await (sign_in(asking, "wrong") if number % 2 else asking.get("/api/runs", headers=wrong))
            assert tried.status_code == 401
        assert caplog.text.count("wrong token or password from 10.1.2.3") == ATTEMPTS
        right = {"authorization": f"Bearer {ADA}"}
        refused = await asking.get("/api/runs", headers=right)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, str(PAUSE))
        again = await sign_in(asking, ADA)
        assert (again.status_code, again.headers["retry-after"]) == (429, str(PAUSE))
        assert (await asking.get("/api/runs", headers=session)).status_code == 200  # who is in, stays in
        await one_shop.world.advance(f"{PAUSE}s")
        assert (await asking.get("/api/runs", headers=right)).status_code == 200


async def test_guesses_from_one_address_keep_nobody_else_out(one_shop: Shop) -> None:
    pages: Any = dashboard(one_shop.app, auth=ADA)
    asked: dict[str, int] = {}
    for address in ("2001:db8::1", "2001:db8::2", "2001:db8:1::1", "10.1.2.3"):
        transport = httpx.ASGITransport(pages, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="https://ops.example") as asking:
            if address == "2001:db8::1":
                for _ in range(ATTEMPTS):
                    await sign_in(asking, "wrong")
            asked[address] = (await sign_in(asking, ADA)).status_code
    assert asked == {"2001:db8::1": 429, "2001:db8::2": 429, "2001:db8:1::1": 303, "10.1.2.3": 303}


async def test_roles_are_kept_by_every_action_and_page(one_shop: Shop) -> None:
    async with one_shop.asking(auth=Token(PEOPLE)) as asking:
        for token, user in PEOPLE.items():
            bearer = {"authorization": f"Bearer {token}"}
            for action in ACTIONS:
                answer = await asking.post(f"/api{action.path}", json={}, headers=bearer)
                allowed = user.role in {"admin", action.role}
                assert (answer.status_code == 403) is not allowed, (user, action.path, answer.text)
            for view in VIEWS:
                answer = await asking.get(f"/api{view.path}", headers=bearer)
                assert (answer.status_code == 403) is (view.role == "admin" and user.role != "admin")
            page = (await asking.get("/runs/order-1", headers=bearer)).text
            assert ("/runs/delete" in page) is (user.role == "admin")
            assert ("/runs/fork" in page) is (user.role != "viewer")
    deleting = {action.path for action in ACTIONS if action.role == "admin"}
    assert deleting == {"/runs/delete", "/schedules/delete", "/queues/delete", "/sessions/end", "/versions/set-newest"}


@pytest.mark.parametrize(
    "deep", ["/runs?state=failed&state=running&limit=5", "/runs/a%20b%3Fc/d?x=1", "/schedules/nightly?outcome=late"]
)
async def test_signing_in_leads_to_the_page_that_was_asked_for(one_shop: Shop, deep: str) -> None:
    for prefix in ("", "/ops"):
        async with one_shop.asking(auth=Token(PEOPLE), prefix=prefix) as asking:
            page = (await asking.get(f"{prefix}{deep}", headers=HTML)).text
            back = page.partition('name="back" value="')[2].partition('"')[0].replace("&amp;", "&")
            wrong = (await asking.post(f"{prefix}/login", data={"token": "x", "back": back})).text
            assert f'value="{back.replace("&", "&amp;")}"' in wrong
            entered = await asking.post(f"{prefix}/login", data={"token": BOB, "back": back})
            assert entered.headers["location"] == f"{prefix}{deep}"


class _FromCookie(AuthenticationBackend):
    """Stands for the sign-in of an app: OIDC, SAML, its own users."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser] | None:
        name = conn.cookies.get("app_user")
        return None if name is None else (AuthCredentials(["ops"] if name == "ada" else []), SimpleUser(name))


def _who(request: HTTPConnection) -> User | Response:
    if not request.user.is_authenticated:
        return RedirectResponse(f"/sign-in?next={request.url.path}")
    return User(request.user.display_name, "operator" if "ops" in request.auth.scopes else "viewer", logout="/sign-out")


async def test_the_app_around_the_dashboard_can_say_who_it_is(one_shop: Shop) -> None:
    site = Starlette(
        routes=[Mount("/ops", dashboard(one_shop.app, auth=_who))],
        middleware=[Middleware(AuthenticationMiddleware, backend=_FromCookie())],
    )
    transport = httpx.ASGITransport(site)
    async with httpx.AsyncClient(transport=transport, base_url="https://shop.example") as asking:
        nobody = await asking.get("/ops/runs", headers=HTML)
        assert (nobody.status_code, nobody.headers["location"]) == (307, "/sign-in?next=/ops/runs")
        assert (await asking.get("/ops/api/runs")).status_code == 401
        assert (await asking.post("/ops/api/runs/cancel", json={"ids": ["order-4"]})).status_code == 401
        asking.cookies["app_user"] = "bob"
        page = (await asking.get("/ops/runs", headers=HTML)).text
        assert 'href="/sign-out"' in page
        assert "bob, may look" in page
        assert (await asking.post("/ops/api/runs/cancel", json={"ids": ["order-4"]})).status_code == 403
        asking.cookies["app_user"] = "ada"
        assert (await asking.post("/ops/api/runs/cancel", json={"ids": ["order-4"]})).status_code == 200


DEEP = "[" * 400_000


async def test_input_that_nothing_can_be_made_of_is_refused_and_no_fault_of_the_server(shop: Shop) -> None:
    async with shop.asking() as asking:
        page = await asking.get("/runs")
        secret = asking.cookies["mainspring_csrf"]
        assert page.status_code == 200
        as_json = {"content-type": "application/json"}
        typed = {"content-type": "application/x-www-form-urlencoded"}
        asked = [
            await asking.post("/api/runs/cancel", content=DEEP, headers=as_json),
            await asking.post("/api/runs/complete", json={"ids": ["order-4"], "result": DEEP[:90_000]}),
            await asking.post("/api/runs/reschedule", json={"ids": ["mail-1"], "priority": 10**30}),
            await asking.post("/api/schedules/update", json={"id": "nightly", "spec": DEEP[:90_000]}),
            await asking.post("/runs/cancel", content=b"ids=\xff", headers=typed),
            await asking.post("/runs/cancel", content=b"csrf=" + b"x" * 1_100_000, headers=typed),
            await asking.post("/login", content=b"token=" + b"x" * 1_100_000, headers=typed),
            await asking.post("/login", content=b"token=\xff", headers=typed),
            await asking.post("/runs/cancel", data={"csrf": secret, "ids": "x" * 700}),
        ]
        for path in (
            "/runs?attributes=" + DEEP[:1_900],
            '/runs?attributes={"a":' + DEEP[:1_500],
            "/schedules/preview?spec=" + DEEP[:50_000],
            "/schedules/backfill-preview?id=nightly&start=0001-01-01&end=0001-01-02",
            "/schedules/backfill-preview?id=nightly&start=0001-01-01T00:00:00%2B14:00&end=9999-12-31T23:59:59-14:00",
            "/schedules/backfill-preview?id=nightly&start=9999-12-31T23:59:59&end=9999-12-31T23:59:59-14:00",
            "/runs?created_after=0001-01-01T00:00:00%2B14:00",
            "/runs?created_before=9999-12-31T23:59:59-14:00",
        ):
            asked += [await asking.get(path), await asking.get(f"/api{path}")]
        for answer in asked:
            assert answer.status_code < 500, (answer.url.path, answer.text)
            assert answer.status_code != 200 or "created" in str(answer.url) or "backfill" in str(answer.url)
    assert (await shop.app.runs.get("order-4")).state == "waiting"


@pytest.mark.parametrize("cookie", ["notjson", "[1]", "{}", '{"kind":"done"}', "1", '"x"', "[" * 30_000, "null"])
async def test_a_notice_that_another_program_has_set_breaks_no_page(one_shop: Shop, cookie: str) -> None:
    async with one_shop.asking() as asking:
        page = await asking.get("/runs", headers={"cookie": f"mainspring_notice={cookie}"})
        assert page.status_code == 200
        assert 'class="notice' not in page.text.partition("<main")[2]
        assert "mainspring_notice" in page.headers["set-cookie"]  # it is taken away


async def test_an_address_that_there_is_not_is_answered_in_the_frame_and_as_json(one_shop: Shop) -> None:
    async with one_shop.asking() as asking:
        page = await asking.get("/nowhere", headers=HTML)
        assert (page.status_code, "Not found" in page.text, "<nav" in page.text) == (404, True, True)
        for method, path, status in (("GET", "/api/nowhere", 404), ("DELETE", "/api/runs", 405), ("GET", "/x", 404)):
            answer = await asking.request(method, path)
            assert (answer.status_code, bool(answer.json()["error"])) == (status, True)
