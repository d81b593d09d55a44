"""The dashboard as a Django view: behind Django's middleware and login, under WSGI and ASGI."""

from __future__ import annotations

import asyncio
import contextlib
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.db import connections, transaction
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from mainspring.integrations.django.project import get_app
from mainspring.web import User
from mainspring.web.site import Dashboard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from starlette.requests import HTTPConnection

    from mainspring.operations.actions import Role

_USER = "mainspring_django_user"
_dashboards: dict[bool, Dashboard] = {}


@csrf_exempt  # the dashboard's forms have a token of their own, and it refuses requests of other sites
async def dashboard(request: HttpRequest, path: str = "") -> HttpResponseBase:
    """Serve a page of the dashboard to staff. Superusers are its admins, other staff have the role that STAFF_ROLE names."""
    person: Any = await request.auser()
    if not person.is_active or not person.is_staff:
        if person.is_authenticated:
            raise PermissionDenied("the dashboard is for staff")
        return redirect_to_login(request.get_full_path(), _login())
    role: Role = "admin" if person.is_superuser else get_app().configuration.staff_role
    user = User(person.get_username(), role)
    live = isinstance(request, ASGIRequest)
    return await _Answer(_site(live=live), _scope(request, path, user), request.body).given(live=live)


for (
    _alias
) in connections:  # a coroutine cannot be part of a transaction that Django opens for a request (ATOMIC_REQUESTS)
    transaction.non_atomic_requests(_alias)(dashboard)


def _site(*, live: bool) -> Dashboard:
    """Return the dashboard of this process. Under WSGI (`live` is False) an open page polls instead of listening."""
    if live not in _dashboards:
        _dashboards[live] = Dashboard(get_app(), auth=_user_of)
        if not live:
            _dashboards[live].stop()
    return _dashboards[live]


def _user_of(request: HTTPConnection) -> User | None:
    found: User | None = request.scope.get(_USER)
    return found


def _login() -> str:
    try:
        return reverse("admin:login")
    except NoReverseMatch:
        return str(settings.LOGIN_URL)


def _scope(request: HttpRequest, path: str, user: User) -> dict[str, Any]:
    given = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method or "GET",
        "scheme": request.scheme or "http",
        "path": request.path,
        "raw_path": quote(request.path).encode(),
        "root_path": request.path[: len(request.path) - len(path)].rstrip("/"),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "headers": given,
        "client": (request.META.get("REMOTE_ADDR", ""), 0),
        "server": (request.META.get("SERVER_NAME", ""), int(request.META.get("SERVER_PORT") or 0)),
        _USER: user,
    }


class _Answer:
    """One request to an ASGI app, and its response as Django's."""

    def __init__(self, site: Callable[..., Coroutine[Any, Any, None]], scope: dict[str, Any], body: bytes) -> None:
        self._site = site
        self._scope = scope
        self._body: list[bytes] = [body]
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._started: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def given(self, *, live: bool) -> HttpResponseBase:
        """Return the response: all of it, or a stream of events."""
        work = asyncio.get_running_loop().create_task(self._served())
        start = await self._started
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
        if live and any(name == "content-type" and value.startswith("text/event-stream") for name, value in headers):
            answer: HttpResponseBase = StreamingHttpResponse(self._stream(work), status=start["status"])
        else:
            await work
            answer = HttpResponse(b"".join([chunk async for chunk in self._stream(work)]), status=start["status"])
        for name, value in headers:
            if name == "set-cookie":
                answer.cookies.update(SimpleCookie(value))
            elif name != "content-length":
                answer.headers[name] = value
        return answer

    async def _served(self) -> None:
        try:
            await self._site(self._scope, self._receive, self._send)
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
        finally:
            self._chunks.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await asyncio.Event().wait()  # cancelled when the browser disconnects
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._started.set_result(message)
        elif message["type"] == "http.response.body":
            self._chunks.put_nowait(message.get("body", b""))

    async def _stream(self, work: asyncio.Task[None]) -> AsyncGenerator[bytes]:
        try:
            while (chunk := await self._chunks.get()) is not None:
                yield chunk
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
