"""The guard before every page: authentication, permissions, security headers, and a limit for wrong tokens and passwords."""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse

from mainspring.errors import MainspringError
from mainspring.model.clock import SECOND
from mainspring.web.auth import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import HTTPConnection
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mainspring.model.clock import Clock
    from mainspring.web.auth import Auth, User

ATTEMPTS = 10
"""Wrong attempts that an address may make at once."""
PAUSE = 6
"""Seconds after which an address gets one more attempt."""
_MOST_ADDRESSES = 10_000
_NETWORK_BITS = 64


@dataclass(slots=True)
class _Account:
    left: float
    at: int


class Throttle:
    """Counts wrong attempts by address, in memory: each process counts on its own."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def wait(self, address: str, now: int) -> int:
        """Return the seconds until the next attempt from an address is checked; 0: now."""
        account = self._accounts.get(address)
        left = ATTEMPTS if account is None else self._left(account, now)
        return 0 if left >= 1 else max(1, round((1 - left) * PAUSE))

    def failed(self, address: str, now: int) -> None:
        """Count a wrong attempt."""
        account = self._accounts.pop(address, None) or _Account(ATTEMPTS, now)
        self._accounts[address] = _Account(self._left(account, now) - 1, now)
        if len(self._accounts) > _MOST_ADDRESSES:
            del self._accounts[next(iter(self._accounts))]

    @staticmethod
    def _left(account: _Account, now: int) -> float:
        return min(ATTEMPTS, account.left + (now - account.at) / (PAUSE * SECOND))


def address_of(request: HTTPConnection) -> str:
    """Return the address that a request comes from. For IPv6 it is the network, because one client has a whole network."""
    host = request.client.host if request.client else "a local socket"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), _NETWORK_BITS), strict=False))


log = logging.getLogger("mainspring.web")
LOGOUT = "/logout"
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
USER = "mainspring_user"
"""The key of the user in a request's scope. The key `user` may belong to the app around the dashboard."""
OPEN = ("/static/", "/healthz", "/readyz", "/login")
"""Paths without authentication: they show nothing about runs."""


class Guard:
    """Passes a request to the pages with its user, or answers it with a refusal."""

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
        self.throttle = Throttle()

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
        found = await self._who(request)
        if isinstance(found, Refusal):
            return found
        request.scope[USER] = found
        if request.method not in SAFE and path != LOGOUT and not may_act(found, read_only=self._read_only):
            why = "this dashboard is read-only" if self._read_only else f"{found.name} may look, and not act"
            return Refusal(403, why)
        return None

    async def _who(self, request: Request) -> User | Refusal:
        now = self._clock.now()
        if "authorization" in request.headers and (refusal := self.too_many(request)):
            return refusal
        try:
            found = await self._auth(request, now)
        except MainspringError as error:  # sessions are in the database
            return Refusal(503, str(error))
        if isinstance(found, Refusal) and found.wrong:
            self.failed(request)
        return found

    def too_many(self, request: Request) -> Refusal | None:
        """Return the refusal of a sign-in attempt that is not checked because there were too many wrong ones."""
        wait = self.throttle.wait(address_of(request), self._clock.now())
        message = f"too many wrong tokens or passwords came from your address; the next one is looked at in {wait} s"
        return Refusal(429, message, wait=wait) if wait else None

    def failed(self, request: Request) -> None:
        """Count and log a failed sign-in attempt."""
        address, now = address_of(request), self._clock.now()
        self.throttle.failed(address, now)
        wait = self.throttle.wait(address, now)
        then = f"further ones are refused for {wait} s" if wait else "it was refused"
        log.warning("wrong token or password from %s for %r; %s", address, request.scope["path"], then)


def may_act(user: User, *, read_only: bool) -> bool:
    return user.may("operator") and not read_only


def _foreign(request: Request) -> str | None:
    """Return why a request that changes something seems to come from another site's page, by the headers that browsers send."""
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
    if refusal.wait:
        headers["retry-after"] = str(refusal.wait)
    return JSONResponse({"error": refusal.message}, refusal.status, headers)
