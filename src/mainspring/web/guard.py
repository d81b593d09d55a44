"""What stands before every page: who asks, whether they may, and what a browser is told to forbid."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse

from mainspring.web.auth import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mainspring.model.clock import Clock
    from mainspring.web.auth import Auth, User

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN = ("/static/", "/healthz", "/readyz", "/login")
"""What is answered to anybody: it says nothing of anybody's runs."""


class Guard:
    """Lets a request through to the pages, with its user, or answers it."""

    def __init__(
        self,
        pages: ASGIApp,
        *,
        auth: Auth,
        clock: Clock,
        read_only: bool,
        refuse: Callable[[Request, Refusal], Awaitable[Response]],
    ) -> None:
        self._pages = pages
        self._auth = auth
        self._clock = clock
        self._read_only = read_only
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        request = Request(scope, receive)
        refusal = await self._refusal(request)
        answer = self._pages if refusal is None else await self._refuse(request, refusal)
        await answer(scope, receive, guarded)

    async def _refusal(self, request: Request) -> Refusal | None:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if request.method not in SAFE and (foreign := _foreign(request)):
            return Refusal(403, foreign)
        if path.startswith(OPEN):
            return None
        found = await self._auth(request, self._clock.now())
        if isinstance(found, Refusal):
            return found
        request.scope["user"] = found
        if request.method not in SAFE and not may_act(found, read_only=self._read_only):
            why = "this dashboard is read-only" if self._read_only else f"{found.name} may look, and not act"
            return Refusal(403, why)
        return None


def may_act(user: User, *, read_only: bool) -> bool:
    return user.role == "operator" and not read_only


def _foreign(request: Request) -> str | None:
    """Why a request that changes something seems to come from a page of somebody else's. Browsers say where it comes from."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return None if site in {"same-origin", "none"} else f"a page from elsewhere ({site}) cannot act here"
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        return f"a page of {origin} cannot act here"
    return None


async def refuse_as_json(request: Request, refusal: Refusal) -> Response:
    del request
    headers = {"www-authenticate": "Bearer"} if refusal.ask == "token" else {}
    if refusal.ask == "basic":
        headers = {"www-authenticate": 'Basic realm="mainspring"'}
    return JSONResponse({"error": refusal.message}, refusal.status, headers)
