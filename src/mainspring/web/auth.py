"""Authentication of the dashboard. Default: loopback only."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
import ipaddress
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from mainspring.operations.actions import Role
    from mainspring.operations.sessions import Sessions

R = TypeVar("R")
ROLES = ("viewer", "operator", "admin")
"""The roles. Each may do everything that the roles before it may."""
SIGNED_IN = "mainspring_session"
"""The key of the session's id in a request's scope."""
SESSION = "mainspring_session"
SESSION_SECONDS = 12 * 3600
_SHORTEST_TOKEN = 16
_HOST = re.compile(r"(?P<name>[a-z0-9-]+(?:\.[a-z0-9-]+)*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_HIGHEST_PORT = 65535
_FORWARDED = frozenset({"forwarded", "via", "x-real-ip", "x-cluster-client-ip", "remote-user", "max-forwards"})
_FORWARDED_PREFIXES = (
    *("x-forwarded", "x-original-", "x-envoy-", "x-proxy", "x-amzn-", "x-azure-", "x-appengine-", "x-cloud-trace-"),
    *("x-vercel-", "x-remote-", "x-auth-request-", "cf-", "cdn-", "fly-", "fastly-", "ngrok-", "tailscale-"),
)
_FORWARDED_SUFFIXES = ("client-ip", "clientip")


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user. A viewer sees everything, an operator may also act, an admin may also delete and end sessions.

    `logout` is an address of your own that signs the user out; every page links to it.
    """

    name: str
    role: Role = "operator"
    logout: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidInput(f"there is no role {self.role!r}; there are {', '.join(ROLES)}")
        if self.logout is not None and not self.logout.startswith(("/", "https://", "http://")):
            raise InvalidInput(f"logout is a path or a web address, not {self.logout!r}")

    def may(self, role: Role) -> bool:
        """Whether this user may do what a role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused. `ask` is what the browser should ask the user for: a token, a password, or nothing."""

    status: int
    message: str
    ask: Literal["token", "basic", "nothing"] = "nothing"
    wrong: bool = False
    """Whether a wrong token or password was given."""
    wait: int = 0
    """Seconds after which another attempt is checked."""
    instead: Response | None = None
    """The response to a browser that asks for a page, instead of the message, such as a redirect to a sign-in page."""


class Auth(Protocol):
    """Authenticates the user of a request."""

    async def __call__(self, request: HTTPConnection, now: int) -> User | Refusal: ...


Known: TypeAlias = "User | Response | None"
Check: TypeAlias = "Callable[[HTTPConnection], Known | Awaitable[Known]]"
"""A function of the user's app. It returns a user, or None, or a response for a browser that has to sign in first."""


class Ask(Protocol):
    """Queries the sessions in the database."""

    def __call__(self, question: Callable[[Sessions], R], /) -> Awaitable[R]: ...


class Loopback:
    """Lets in every user of this machine. The `Host` header must name this machine, too, so that no web page can get in by a
    DNS name that points here (DNS rebinding).
    """

    async def __call__(self, request: HTTPConnection, now: int) -> User | Refusal:
        del now
        if forwarded := forwarded_by(request):
            return Refusal(403, f"without auth=… the dashboard answers no proxy, and this request has {forwarded}")
        if _is_here(request.client.host if request.client else None) and _names_here(request):
            return User("local", "admin")
        return Refusal(403, "without auth=… the dashboard answers to this machine only, under its name localhost")


class Token:
    """A secret: sent as `Authorization: Bearer …`, or typed into a form by a person, who gets a session for half a day.

    `Token("…")` is one admin. `Token({"…": User("ada"), "…": User("wall screen", "viewer")})` has several users.
    """

    def __init__(self, tokens: str | Mapping[str, User]) -> None:
        self._users = {tokens: User("token", "admin")} if isinstance(tokens, str) else dict(tokens)
        if not self._users or any(len(token) < _SHORTEST_TOKEN for token in self._users):
            raise InvalidInput(
                f"a token has at least {_SHORTEST_TOKEN} characters; `openssl rand -base64 24` makes one of 32"
            )

    def find(self, given: str) -> User | None:
        """Return the user of a token. The comparison takes as long for a wrong token as for a right one."""
        found = None
        for token, user in self._users.items():
            if hmac.compare_digest(token.encode(), given.encode("utf-8", "surrogateescape")):
                found = user
        return found

    def mark(self, given: str) -> str:
        """Return the hash of a token that is stored with its session: the session ends with the token and does not reveal it."""
        return next(mark for mark, token in self._marks.items() if token == given)

    def of_mark(self, mark: str) -> User | None:
        """Return the user of the token with this hash; None if the token is no longer known."""
        token = self._marks.get(mark)
        return None if token is None else self._users[token]

    @cached_property
    def _marks(self) -> dict[str, str]:
        return {
            hashlib.scrypt(token.encode(), salt=b"mainspring session", n=2**14, r=8, p=1, dklen=16).hex(): token
            for token in self._users
        }


class SignedIn:
    """Lets in every holder of a token, or of a session that began with a token."""

    def __init__(self, tokens: Token, sessions: Ask) -> None:
        self.tokens = tokens
        self._ask = sessions

    async def __call__(self, request: HTTPConnection, now: int) -> User | Refusal:
        del now
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            found = self.tokens.find(given.strip())
            return found or Refusal(401, "this token is not known here", "token", wrong=True)
        cookie = request.cookies.get(SESSION)
        if cookie is None:
            return Refusal(401, "a token is needed", "token")
        session = await self._ask(lambda sessions: sessions.find(cookie))
        user = None if session is None else self.tokens.of_mark(session[1])
        if session is None or user is None:
            return Refusal(401, "this session is over", "token")
        request.scope[SIGNED_IN] = session[0].id
        return user

    async def begin(self, token: str, user: User, address: str | None) -> str:
        """Begin a session for a user who gave a valid token. Return the value of the cookie."""
        mark = self.tokens.mark(token)
        return await self._ask(
            lambda sessions: sessions.begin(user.name, mark, address=address, seconds=SESSION_SECONDS)
        )

    async def end(self, request: HTTPConnection) -> None:
        """End the session of a request: its cookie is invalid from now on."""
        if SIGNED_IN in request.scope:
            await self._ask(lambda sessions: sessions.end([request.scope[SIGNED_IN]]))


class Basic:
    """A user name and a password, asked for by the browser: `Basic("ada", "…")`, or `Basic({"ada": "…"}, role="viewer")`."""

    def __init__(self, names: str | Mapping[str, str], password: str | None = None, *, role: Role = "admin") -> None:
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
        return Refusal(401, "a name and a password are needed", "basic", wrong=bool(given))


class Asked:
    """Authentication by the user's own function."""

    def __init__(self, check: Check) -> None:
        self._check = check

    async def __call__(self, request: HTTPConnection, now: int) -> User | Refusal:
        del now
        answer = self._check(request)
        found = await answer if inspect.isawaitable(answer) else answer
        if isinstance(found, User):
            return found
        return Refusal(401, "this dashboard does not know you: sign in first", instead=found)


def auth_of(given: str | Token | Basic | Check | None, sessions: Ask) -> Auth:
    """Return the authentication for the argument `auth=`."""
    if given is None:
        return Loopback()
    if isinstance(given, str):
        given = Token(given)
    if isinstance(given, Token):
        return SignedIn(given, sessions)
    if isinstance(given, Basic):
        return given
    if callable(given):
        return Asked(given)
    raise InvalidInput(f"auth is a token, Token(…), Basic(…) or a function from a request to a User, not {given!r}")


def _is_here(host: str | None) -> bool:
    if host is None:  # a Unix domain socket
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _names_here(request: HTTPConnection) -> bool:
    """Whether the `Host` header, as sent, is a name of this machine.

    Starlette's `request.url` falls back to the server's own address for a header that it cannot parse, so it cannot be used.
    """
    given = [value for name, value in request.scope["headers"] if name.lower() == b"host"]
    found = _HOST.fullmatch(given[0].decode("latin-1").lower()) if len(given) == 1 else None
    if found is None or int(found["port"] or 0) > _HIGHEST_PORT:
        return False
    name = found["name"]
    return name == "localhost" or name.endswith(".localhost") or _is_here(name.strip("[]"))


def forwarded_by(request: HTTPConnection) -> str | None:
    """Return the sign that a proxy forwarded a request: the name of a header, or a version of HTTP that no browser uses."""
    for name in request.headers:
        if name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES) or name.endswith(_FORWARDED_SUFFIXES):
            return f"the header {name}"
    # nginx uses HTTP/1.0 for its upstreams, and adds no header, unless its configuration says otherwise.
    return "HTTP/1.0" if request.scope.get("http_version") == "1.0" else None
