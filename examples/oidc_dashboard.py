"""The dashboard behind the sign-in of your organisation: OpenID Connect, with any provider (Keycloak, Okta, Entra, Google …).

    pip install 'mainspring[web]' httpx uvicorn
    OIDC_ISSUER=https://id.example/realms/shop OIDC_CLIENT_ID=ops OIDC_CLIENT_SECRET=… uvicorn oidc_dashboard:site

The provider sends people back to /signed-in, which has to be among the addresses that it knows. Who is in the group `platform` is an
admin here, who is in `support` an operator, all others are viewers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import httpx
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from mainspring import Client
from mainspring.web import User, dashboard

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request

SESSION, BEGUN = "ops_session", "ops_begun"


class SignIn:
    """The authorization code flow with PKCE. Sessions are kept here, for one process; several share a table."""

    def __init__(self, issuer: str, client_id: str, secret: str) -> None:
        self._issuer, self._client_id, self._secret = issuer.rstrip("/"), client_id, secret
        self._endpoints: dict[str, Any] = {}
        self._sessions: dict[str, User] = {}

    def who(self, request: HTTPConnection) -> User | Response:
        """What the dashboard asks for every request: who is it? A browser without a session is sent to sign in."""
        user = self._sessions.get(request.cookies.get(SESSION, ""))
        back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return user or RedirectResponse(f"/sign-in?{urlencode({'back': back})}", 303)

    async def begin(self, request: Request) -> Response:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": str(request.url_for("signed_in")),
            "scope": "openid email groups",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        answer = RedirectResponse(f"{(await self._known())['authorization_endpoint']}?{urlencode(query)}", 303)
        back = request.query_params.get("back", "/ops/")
        here = back.startswith("/ops/") and not urlsplit(back).netloc
        self._set(answer, request, BEGUN, f"{state} {nonce} {verifier} {back if here else '/ops/'}")
        return answer

    async def end(self, request: Request) -> Response:
        """The provider has sent the browser back, with a code that is worth the claims."""
        state, nonce, verifier, back = [*request.cookies.get(BEGUN, "").split(" ", 3), "", "", "", ""][:4]
        if not state or not secrets.compare_digest(state, request.query_params.get("state", "")):
            return PlainTextResponse("this browser has not begun to sign in here; go to /ops/ and try again", 400)
        known = await self._known()
        async with httpx.AsyncClient() as http:
            given = await http.post(
                known["token_endpoint"],
                auth=(self._client_id, self._secret),
                data={
                    "grant_type": "authorization_code",
                    "code": request.query_params.get("code", ""),
                    "redirect_uri": str(request.url_for("signed_in")),
                    "code_verifier": verifier,
                },
            )
            claims = await self._claims(given, known, nonce, http)
        if claims is None:
            return PlainTextResponse("the provider does not vouch for this sign-in", 403)
        answer = RedirectResponse(back, 303)
        session = secrets.token_urlsafe(32)
        self._sessions[session] = User(claims["email"], _role(claims.get("groups", [])), logout="/sign-out")
        self._set(answer, request, SESSION, session)
        answer.delete_cookie(BEGUN)
        return answer

    async def leave(self, request: Request) -> Response:
        self._sessions.pop(request.cookies.get(SESSION, ""), None)
        answer = PlainTextResponse("signed out")
        answer.delete_cookie(SESSION)
        return answer

    async def _claims(
        self, given: httpx.Response, known: dict[str, Any], nonce: str, http: httpx.AsyncClient
    ) -> dict[str, Any] | None:
        """Who it is, if all is right. The token comes from the provider itself, under TLS: its signature need not be checked then
        (OpenID Connect Core, 3.1.3.7).
        """
        if not given.is_success:
            return None
        part = given.json()["id_token"].split(".")[1]
        token: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        ours = (token["iss"], token["aud"], token.get("nonce")) == (self._issuer, self._client_id, nonce)
        bearer = {"authorization": f"Bearer {given.json()['access_token']}"}
        claims: dict[str, Any] = (await http.get(known["userinfo_endpoint"], headers=bearer)).json() if ours else {}
        return {**token, **claims} if claims.get("sub") == token["sub"] else None

    async def _known(self) -> dict[str, Any]:
        if not self._endpoints:
            async with httpx.AsyncClient() as http:
                self._endpoints = (await http.get(f"{self._issuer}/.well-known/openid-configuration")).json()
        return self._endpoints

    @staticmethod
    def _set(answer: Response, request: Request, name: str, value: str) -> None:
        answer.set_cookie(name, value, httponly=True, samesite="lax", secure=request.url.scheme == "https")


def _role(groups: list[str]) -> Any:
    return "admin" if "platform" in groups else "operator" if "support" in groups else "viewer"


def make_site(client: Client, sign_in: SignIn) -> Starlette:
    return Starlette(
        routes=[
            Route("/sign-in", sign_in.begin),
            Route("/signed-in", sign_in.end, name="signed_in"),
            Route("/sign-out", sign_in.leave),
            Mount("/ops", dashboard(client, auth=sign_in.who)),
        ]
    )


if issuer := os.environ.get("OIDC_ISSUER"):
    site = make_site(
        Client(os.environ["MAINSPRING_URL"]),
        SignIn(issuer, os.environ["OIDC_CLIENT_ID"], os.environ["OIDC_CLIENT_SECRET"]),
    )
