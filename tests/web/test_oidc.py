"""The dashboard behind OpenID Connect: examples/oidc_dashboard.py with a provider on this machine, both as real servers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import importlib.util
import json
import secrets
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from mainspring import Client
from tests.support.processes import PROJECT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

    from tests.web.conftest import Shop

pytestmark = pytest.mark.processes
SECRET = "the secret of the client"
GROUPS = {"ada": ["platform"], "grace": ["support", "staff"], "bob": []}
HTML = {"accept": "text/html"}


class Provider:
    """Knows three people; who signs in is what a test sets. It checks all that a provider has to check."""

    def __init__(self) -> None:
        self.issuer = ""
        self.person = "ada"
        self.lies: dict[str, Any] = {}
        """Claims of the next token that are not right."""
        self._codes: dict[str, dict[str, str]] = {}
        self._tokens: dict[str, str] = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._configuration),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/userinfo", self._userinfo),
            ]
        )

    async def _configuration(self, request: Request) -> Response:
        del request
        names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "userinfo_endpoint": "userinfo"}
        return JSONResponse({"issuer": self.issuer, **{name: f"{self.issuer}/{path}" for name, path in names.items()}})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe()
        self._codes[code] = {**asked, "person": self.person}
        query = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{query}", 303)

    async def _token(self, request: Request) -> Response:
        given = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        asked = self._codes.pop(given.get("code", ""), None)
        proof = base64.urlsafe_b64encode(hashlib.sha256(given["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        client = base64.b64encode(f"ops:{SECRET}".encode()).decode()
        if (
            asked is None
            or asked["code_challenge"] != proof
            or asked["redirect_uri"] != given["redirect_uri"]
            or request.headers["authorization"] != f"Basic {client}"
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        claims = {"iss": self.issuer, "aud": "ops", "sub": asked["person"], "nonce": asked["nonce"], **self.lies}
        parts = [json.dumps(part).encode() for part in ({"alg": "RS256"}, claims)]
        token = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, b"signature"))
        access = secrets.token_urlsafe()
        self._tokens[access] = asked["person"]
        return JSONResponse({"access_token": access, "token_type": "Bearer", "id_token": token})

    async def _userinfo(self, request: Request) -> Response:
        person = self._tokens[request.headers["authorization"].removeprefix("Bearer ")]
        return JSONResponse({"sub": person, "email": f"{person}@example.com", "groups": GROUPS[person]})


@asynccontextmanager
async def served(app: Any) -> AsyncGenerator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        setattr(server, "capture_signals", contextlib.nullcontext)  # noqa: B010  (the tests have handlers of their own)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


def example() -> Any:
    spec = importlib.util.spec_from_file_location("oidc_dashboard", PROJECT / "examples" / "oidc_dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@asynccontextmanager
async def organisation(shop: Shop) -> AsyncGenerator[tuple[Provider, str]]:
    provider, oidc = Provider(), example()
    async with served(provider.app) as provider.issuer:
        with Client(str(shop.app.url)) as client:
            sign_in = oidc.SignIn(provider.issuer, "ops", SECRET)
            async with served(oidc.make_site(client, sign_in)) as place:
                yield provider, place


def browser(place: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=place, follow_redirects=True, timeout=120, headers=HTML)


@pytest.mark.parametrize(
    ("person", "acts", "deletes"),
    [("ada", 200, 200), ("grace", 200, 403), ("bob", 403, 403)],
    ids=["admin", "operator", "viewer"],
)
async def test_a_person_signs_in_with_the_provider_and_has_the_role_of_their_group(
    one_shop: Shop, person: str, acts: int, deletes: int
) -> None:
    async with organisation(one_shop) as (provider, place), browser(place) as asking:
        provider.person = person
        page = await asking.get("/ops/runs?state=waiting&limit=5")
        assert (page.status_code, urlsplit(str(page.url)).path) == (200, "/ops/runs")
        assert "state=waiting" in str(page.url)  # where one wanted to go
        assert f"{person}@example.com" in page.text
        cancelled = await asking.post("/ops/api/runs/cancel", json={"ids": ["order-4"], "reason": "by OIDC"})
        assert cancelled.status_code == acts
        assert (await asking.post("/ops/api/runs/delete", json={"ids": ["order-1"]})).status_code == deletes
        if acts == 200:
            entries = (await asking.get("/ops/api/audit")).json()["entries"]
            assert entries[-1]["who"] == f"{person}@example.com"
        assert 'href="/sign-out"' in page.text
        await asking.get("/sign-out")
        asking.headers["accept"] = "application/json"
        assert (await asking.get("/ops/api/runs")).status_code == 401


async def test_programs_get_401_and_nobody_comes_in_by_what_another_browser_has_begun(one_shop: Shop) -> None:
    async with organisation(one_shop) as (_, place), browser(place) as asking, browser(place) as other:
        assert (await other.get("/ops/api/runs", headers={"accept": "*/*"})).status_code == 401
        begun = await asking.get("/sign-in", follow_redirects=False)
        code = await asking.get(begun.headers["location"], follow_redirects=False)
        stolen = await other.get(code.headers["location"], follow_redirects=False)  # a login that somebody else began
        assert (stolen.status_code, "ops_session" in stolen.headers.get("set-cookie", "")) == (400, False)
        ended = await asking.get(code.headers["location"], follow_redirects=False)
        assert (ended.status_code, ended.headers["location"]) == (303, "/ops/")
        assert (await asking.get(code.headers["location"])).status_code == 400  # once


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/ops/../x", "/elsewhere"])
async def test_the_way_back_stays_on_the_dashboard(one_shop: Shop, back: str) -> None:
    async with organisation(one_shop) as (_, place), browser(place) as asking:
        page = await asking.get("/sign-in", params={"back": back})
        assert str(page.url).startswith(f"{place}/")


@pytest.mark.parametrize("lie", [{"iss": "https://evil.example"}, {"aud": "another"}, {"nonce": "old"}, {"sub": "bob"}])
async def test_a_token_that_was_made_for_somebody_else_is_refused(one_shop: Shop, lie: dict[str, str]) -> None:
    async with organisation(one_shop) as (provider, place), browser(place) as asking:
        provider.lies = lie
        answer = await asking.get("/ops/runs")
        assert (answer.status_code, "ops_session" in asking.cookies) == (403, False)
