"""Who is it? Nobody but this machine, unless the dashboard was told how to know people."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import HTTPConnection

Role: TypeAlias = Literal["viewer", "operator"]
ROLES = ("viewer", "operator")
SESSION = "mainspring_session"
SESSION_SECONDS = 12 * 3600
_SHORTEST_TOKEN = 8
_HOST = re.compile(r"(?P<name>[a-z0-9-]+(?:\.[a-z0-9-]+)*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_HIGHEST_PORT = 65535
_FORWARDED = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "x-cluster-client-ip"})
_FORWARDED_PREFIXES = ("x-forwarded", "x-original-", "x-envoy-", "x-proxy", "x-amzn-", "cf-", "fly-", "fastly-")


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who is known. A viewer sees everything, an operator may also act."""

    name: str
    role: Role = "operator"

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidInput(f"there is no role {self.role!r}; there are {', '.join(ROLES)}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody is not let in. `ask` is what a browser should ask for: a token, a password, or nothing."""

    status: int
    message: str
    ask: Literal["token", "basic", "nothing"] = "nothing"


class Auth(Protocol):
    """Finds out who makes a request."""

    async def __call__(self, request: HTTPConnection, now: int) -> User | Refusal: ...


Check: TypeAlias = "Callable[[HTTPConnection], User | Awaitable[User | None] | None]"
"""A function of the user's own: somebody, or None."""


class Loopback:
    """Whoever is on this machine. Asked for by a name of this machine, too, so that no page on the web can come in by a name that
    it has pointed here.
    """

    async def __call__(self, request: HTTPConnection, now: int) -> User | Refusal:
        del now
        if forwarded := forwarded_by(request):
            return Refusal(403, f"without auth=… the dashboard answers no proxy, and this request has {forwarded}")
        if _is_here(request.client.host if request.client else None) and _names_here(request):
            return User("local")
        return Refusal(403, "without auth=… the dashboard answers to this machine only, under its name localhost")


class Token:
    """A secret: as `Authorization: Bearer …`, or typed into a form by a person, who gets a cookie for half a day.

    `Token("…")` lets one in as an operator; `Token({"…": User("ada"), "…": User("wall screen", "viewer")})` knows several.
    """

    def __init__(self, tokens: str | Mapping[str, User]) -> None:
        self._users = {tokens: User("token")} if isinstance(tokens, str) else dict(tokens)
        if not self._users or any(len(token) < _SHORTEST_TOKEN for token in self._users):
            raise InvalidInput(f"a token has at least {_SHORTEST_TOKEN} characters")

    async def __call__(self, request: HTTPConnection, now: int) -> User | Refusal:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.find(given.strip()) or Refusal(401, "this token is not known here", "token")
        cookie = request.cookies.get(SESSION)
        if cookie is None:
            return Refusal(401, "a token is needed", "token")
        return self._of_session(cookie, now) or Refusal(401, "this session is over", "token")

    def find(self, given: str) -> User | None:
        """Whom a token belongs to. Takes as long for a wrong one as for a right one."""
        found = None
        for token, user in self._users.items():
            if hmac.compare_digest(token.encode(), given.encode("utf-8", "surrogateescape")):
                found = user
        return found

    def session(self, given: str, now: int) -> str:
        """What the cookie of somebody who has given a right token says."""
        until = str(now // 1_000_000 + SESSION_SECONDS)
        return f"{until}.{_sign(given, until)}"

    def _of_session(self, cookie: str, now: int) -> User | None:
        until, _, signature = cookie.partition(".")
        if not (until.isascii() and until.isdigit()) or int(until) < now // 1_000_000:
            return None
        found = None
        for token, user in self._users.items():
            if hmac.compare_digest(_sign(token, until), signature.encode("ascii", "replace").decode()):
                found = user
        return found


class Basic:
    """A name and a password, asked for by the browser: `Basic("ada", "…")`, or `Basic({"ada": "…"}, role="viewer")`."""

    def __init__(self, names: str | Mapping[str, str], password: str | None = None, *, role: Role = "operator") -> None:
        if isinstance(names, str):
            if not password:
                raise InvalidInput("Basic takes a name and a password, or a dict of them")
            names = {names: password}
        self._passwords = dict(names)
        self._role: Role = User("", role).role

    async def __call__(self, request: HTTPConnection, now: int) -> User | Refusal:
        del now
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name, password = "", ""
        expected = self._passwords.get(name)
        right = hmac.compare_digest((expected or "").encode(), password.encode())
        if scheme.lower() == "basic" and expected and right:
            return User(name, self._role)
        return Refusal(401, "a name and a password are needed", "basic")


class Asked:
    """The user's own function."""

    def __init__(self, check: Check) -> None:
        self._check = check

    async def __call__(self, request: HTTPConnection, now: int) -> User | Refusal:
        del now
        found = self._check(request)
        user = await found if inspect.isawaitable(found) else found
        return (
            user if isinstance(user, User) else Refusal(401, "who are you? This dashboard lets in only whom it knows")
        )


def auth_of(given: str | Token | Basic | Check | None) -> Auth:
    """What a user gave as `auth=`."""
    if given is None:
        return Loopback()
    if isinstance(given, str):
        return Token(given)
    if isinstance(given, (Token, Basic)):
        return given
    if callable(given):
        return Asked(given)
    raise InvalidInput(f"auth is a token, Token(…), Basic(…) or a function from a request to a User, not {given!r}")


def _sign(token: str, until: str) -> str:
    return hmac.new(token.encode(), f"mainspring session until {until}".encode(), hashlib.sha256).hexdigest()


def _is_here(host: str | None) -> bool:
    if host is None:  # a socket in the file system
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _names_here(request: HTTPConnection) -> bool:
    """Whether the `Host` header, as it was sent, is a name of this machine.

    Starlette's `request.url` falls back to the server's own address for a header that it cannot parse, so it proves nothing.
    """
    given = [value for name, value in request.scope["headers"] if name.lower() == b"host"]
    found = _HOST.fullmatch(given[0].decode("latin-1").lower()) if len(given) == 1 else None
    if found is None or int(found["port"] or 0) > _HIGHEST_PORT:
        return False
    name = found["name"]
    return name == "localhost" or name.endswith(".localhost") or _is_here(name.strip("[]"))


def forwarded_by(request: HTTPConnection) -> str | None:
    """What shows that a proxy has passed a request on: the name of a header, or a version of HTTP that no browser speaks."""
    for name in request.headers:
        if name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES):
            return f"the header {name}"
    # nginx speaks HTTP/1.0 to what is behind it, and adds no header, unless its configuration says otherwise.
    return "HTTP/1.0" if request.scope.get("http_version") == "1.0" else None
