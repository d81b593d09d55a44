"""The dashboard as an ASGI app, composed of its pages."""

from __future__ import annotations

import contextlib
import hmac
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles

import mainspring
from mainspring.errors import Conflict, InvalidInput, MainspringError, NotFound, StoreUnavailable
from mainspring.operations.audit import Intent
from mainspring.operations.metrics import as_text
from mainspring.web import openapi
from mainspring.web.auth import SESSION, SESSION_SECONDS, Refusal, SignedIn, auth_of
from mainspring.web.backend import Backend
from mainspring.web.guard import USER, Guard, address_of, log, refuse_as_json
from mainspring.web.live import Streams, digest
from mainspring.web.pages import (
    audit,
    overview,
    queues,
    runs,
    scheduled_functions,
    schedules,
    sessions,
    timeline,
    workers,
    workflows,
)
from mainspring.web.redaction import Redactor
from mainspring.web.rendering import CSRF, Renderer, base_of, clean, here, note, set_session
from mainspring.web.requests import check_names, read_form, read_json, read_pairs
from mainspring.web.waterfall import waterfall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from mainspring.app.app import App
    from mainspring.app.client import Client
    from mainspring.operations.actions import Role
    from mainspring.operations.sessions import Sessions
    from mainspring.web.auth import Basic, Check, Token, User
    from mainspring.web.live import Look
    from mainspring.web.redaction import Redact
    from mainspring.web.views import Action, Done, Scene, View

R = TypeVar("R")
MOST_PAGES = 50
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
NOUNS = (
    overview,
    timeline,
    runs,
    workflows,
    schedules,
    scheduled_functions,
    queues,
    workers,
    audit,
    sessions,
)
VIEWS: list[View] = [view for noun in NOUNS for view in noun.pages.views]
ACTIONS: list[Action] = [action for noun in NOUNS for action in noun.pages.actions]


def dashboard(
    source: App | Client,
    *,
    prefix: str = "",
    auth: str | Token | Basic | Check | None = None,
    read_only: bool = False,
    redact: Redact | None = None,
) -> ASGIApp:
    """Return the dashboard of an app or client, as an ASGI app.

    Mounted with a framework's own `mount` it knows its path; set `prefix` where a proxy strips the prefix. Without `auth` it
    answers to this machine only. `auth` is a token, `Token(…)`, `Basic(…)` or a function from a request to a `User` or None.
    `read_only` forbids all actions to all users. `redact(value, about)` returns what is shown instead of a value.
    """
    return Dashboard(source, prefix=prefix, auth=auth, read_only=read_only, redact=redact)


class Dashboard:
    """One dashboard: its pages behind the guard."""

    def __init__(
        self,
        source: App | Client,
        *,
        prefix: str = "",
        auth: str | Token | Basic | Check | None = None,
        read_only: bool = False,
        redact: Redact | None = None,
    ) -> None:
        if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
            raise InvalidInput(f"a prefix begins with / and does not end with it, unlike {prefix!r}")
        self._prefix = prefix
        self.trouble: str | None = None
        """A message on every page: that code could not be loaded."""
        self._backend = Backend(source, Redactor(redact))
        self._streams = Streams()
        self._auth = auth_of(auth, self._ask_sessions)
        clock = self._backend.runtime.clock
        self._pages = Renderer(clock, name=self._backend.runtime.name, read_only=read_only)
        inner = Starlette(routes=self._routes(), exception_handlers={HTTPException: self._unrouted})
        self._app = Guard(inner, auth=self._auth, clock=clock, read_only=read_only, refuse=self._refuse)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._prefix:
            scope = dict(scope, mainspring_base=self._prefix)
            path = str(scope.get("path", ""))
            root = str(scope.get("root_path", ""))
            if path.startswith(f"{root}{self._prefix}/") or path == f"{root}{self._prefix}":
                scope["root_path"] = f"{root}{self._prefix}"
        await self._app(scope, receive, send)

    def _ask_sessions(self, question: Callable[[Sessions], R], /) -> Awaitable[R]:
        return self._backend.call(lambda scene: question(scene.operations.sessions))

    def stop(self) -> None:
        """End long-lived responses, because the server is about to stop."""
        self._streams.stop()

    def _routes(self) -> list[Route | Mount]:
        routes: list[Route | Mount] = [
            Route("/healthz", self._alive),
            Route("/readyz", self._ready),
            Route("/metrics", self._metrics),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/api/openapi.json", self._description),
            Route("/live", self._live),
        ]
        for action in ACTIONS:
            routes.append(Route(action.path, self._form(action), methods=["POST"]))
            routes.append(Route(f"/api{action.path}", self._call(action), methods=["POST"]))
        routes += [Route(f"/api{view.path}", self._data(view)) for view in VIEWS]
        routes += [Route(view.path, self._page(view)) for view in VIEWS]
        routes.append(Mount("/static", _Assets(packages=[("mainspring.web", "static")])))
        return routes

    # -- pages ---------------------------------------------------------------------------------------------------------
    def _look(self, view: View, request: Request) -> Callable[[], Awaitable[Any]]:
        pairs = [
            *request.query_params.multi_items(),
            *((name, str(value)) for name, value in request.path_params.items()),
        ]
        require(request, view.role)
        query = read_pairs(view.query, pairs)
        return lambda: self._ask(lambda scene: view.look(scene, query))

    async def _ask(self, question: Callable[[Scene], R]) -> R:
        """Run a query for a request. A value that overflows a time, a column or the stack is an error of the request."""
        try:
            return await self._backend.call(question)
        except (OverflowError, RecursionError) as error:
            raise InvalidInput(f"a number, a time or a value is out of range: {error}") from None

    def _page(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                if _wants_page(request) and not all(value for _, value in request.query_params.multi_items()):
                    return RedirectResponse(f"{base_of(request)}{clean(request)}", 303)
                found = await self._look(view, request)()
            except MainspringError as error:
                return self._problem(request, error)
            trouble = self.trouble
            return self._pages.page(
                request,
                view.template,
                it=found,
                view=view.name,
                waterfall=waterfall,
                trouble=trouble,
                seen=digest((trouble, found)),
            )

        return answer

    def _data(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                check_names(view.query, request.query_params)
                return _json(await self._look(view, request)())
            except MainspringError as error:
                return _problem_json(error)

        return answer

    async def _live(self, request: Request) -> Response:
        """Stream the changes of pages, each named by its path and query."""
        pages = list(dict.fromkeys(request.query_params.getlist("page")))
        if not 0 < len(pages) <= MOST_PAGES:
            return _problem_json(InvalidInput(f"name the pages, 1 to {MOST_PAGES} of them: /live?page=/runs"))
        return self._streams.open(self._backend, {page: self._looked_at(page, request) for page in pages})

    def _looked_at(self, page: str, request: Request) -> Look:
        """Return the query for a page's content and the dashboard's message. An invalid address has constant content."""
        path, _, query = page.partition("?")
        look: Look = _nothing
        for view in VIEWS:
            found, inner = Route(view.path, self._page(view)).matches(
                {"type": "http", "method": "GET", "path": unquote(path), "root_path": ""}
            )
            if found is Match.FULL:
                asked = {**request.scope, "path_params": inner["path_params"], "query_string": query.encode()}
                with contextlib.suppress(MainspringError):
                    look = self._look(view, Request(asked))
                break

        async def seen() -> object:
            return self.trouble, await look()

        return seen

    def _problem(self, request: Request, error: MainspringError) -> Response:
        status = _status(error)
        if request.headers.get("hx-request") and status < 500:
            return self._pages.page(request, "problem_part.html", message=str(error))
        return self._pages.page(request, "problem.html", status, message=str(error), code=status)

    # -- actions -------------------------------------------------------------------------------------------------------
    def _form(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                require(request, action.role)
                pairs = await read_form(request)
            except MainspringError as error:
                return self._problem(request, error)
            given = dict(pairs)
            cookie = request.cookies.get(CSRF, "")
            if not cookie or not hmac.compare_digest(cookie.encode(), given.get("csrf", "").encode()):
                return self._pages.page(
                    request,
                    "problem.html",
                    403,
                    message="this form is from an older page; go back and try again",
                    code=403,
                )
            back = RedirectResponse(f"{base_of(request)}{_local(given.get('back', '/'))}", 303)
            try:
                done = await self._act(action, read_pairs(action.body, pairs), request)
            except MainspringError as error:
                note(back, request, "problem", str(error))
            else:
                note(back, request, "done", done.message, done.run)
            return back

        return answer

    def _call(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                require(request, action.role)
                return _json(await self._act(action, await read_json(action.body, request), request))
            except MainspringError as error:
                return _problem_json(error)

        return answer

    async def _act(self, action: Action, body: Any, request: Request) -> Done:
        details: dict[str, Any] = msgspec.to_builtins(body)
        reason = details.pop("reason", None)
        subject = action.subject(body)
        for name in ("id", "ids"):
            details.pop(name, None)

        intent = Intent(request.scope[USER].name, action.name, subject, reason, details)

        def carry_out(scene: Scene) -> Done:
            return scene.operations.audit.carry_out(intent, lambda: action.act(scene, body), lambda done: done.result)

        return await self._ask(carry_out)

    # -- the rest ------------------------------------------------------------------------------------------------------
    async def _description(self, request: Request) -> Response:
        return JSONResponse(openapi.describe(VIEWS, ACTIONS, base=base_of(request), version=mainspring.__version__))

    async def _alive(self, request: Request) -> Response:
        del request
        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        """Answer whether the database responds and its schema is the one this code needs."""
        del request
        try:
            await self._backend.call(lambda scene: scene.operations.workers.list())
        except MainspringError:
            return JSONResponse({"status": "the database does not answer"}, 503)
        return JSONResponse({"status": "ok"})

    async def _metrics(self, request: Request) -> Response:
        del request
        try:
            families = await self._backend.call(
                lambda scene: scene.operations.metrics.families(scene.redactor.shows_step)
            )
        except MainspringError as error:
            return _problem_json(error)
        return Response(as_text([*families, *self._backend.own_figures()]), media_type=OPEN_METRICS)

    async def _login(self, request: Request) -> Response:
        try:
            given = dict(await read_form(request))
        except InvalidInput as error:
            return self._problem(request, error)
        auth, back = self._auth, _local(given.get("back", "/"))
        if refusal := self._app.too_many(request):
            return self._login_page(request, refusal, back)
        token = given.get("token", "")
        user = auth.tokens.find(token) if isinstance(auth, SignedIn) else None
        if not isinstance(auth, SignedIn) or user is None:
            self._app.failed(request)
            return self._login_page(request, Refusal(401, "this token is not known here", "token"), back)
        address = address_of(request)
        try:
            cookie = await auth.begin(token, user, address)
        except MainspringError as error:
            return self._problem(request, error)
        log.info("%s signed in from %s", user.name, address)
        answer = RedirectResponse(f"{base_of(request)}{back}", 303)
        set_session(answer, request, SESSION, cookie, SESSION_SECONDS)
        return answer

    def _login_page(self, request: Request, refusal: Refusal, back: str) -> Response:
        page = self._pages.page(request, "login.html", refusal.status, message=refusal.message, back=back)
        if refusal.wait:
            page.headers["retry-after"] = str(refusal.wait)
        return page

    async def _logout(self, request: Request) -> Response:
        if isinstance(self._auth, SignedIn):
            try:
                await self._auth.end(request)
            except MainspringError as error:
                return self._problem(request, error)
            log.info("%s signed out from %s", request.scope[USER].name, address_of(request))
        back = RedirectResponse(f"{base_of(request)}/", 303)
        back.delete_cookie(SESSION, path=base_of(request) or "/")
        return back

    async def _refuse(self, request: Request, refusal: Refusal) -> Response:
        if not _wants_page(request) or refusal.ask == "basic":
            return await refuse_as_json(request, refusal)
        if refusal.instead is not None:
            return refusal.instead
        if refusal.ask == "token":
            return self._login_page(request, replace(refusal, message=""), here(request))
        return self._pages.page(request, "problem.html", refusal.status, message=refusal.message, code=refusal.status)

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        """Answer a request for an unknown address, with a wrong method, or by a user without the role."""
        problem = cast("HTTPException", error)
        texts = {404: "there is no such page", 405: f"this address does not take {request.method}"}
        status, message = problem.status_code, texts.get(problem.status_code, problem.detail)
        if _wants_page(request):
            answer: Response = self._pages.page(request, "problem.html", status, message=message, code=status)
        else:
            answer = JSONResponse({"error": message}, status)
        answer.headers.update(problem.headers or {})
        return answer


def require(request: Request, role: Role) -> None:
    """Refuse a request whose user does not have the role."""
    user: User = request.scope[USER]
    if not user.may(role):
        raise HTTPException(403, f"{user.name} is {_a(user.role)}; this takes {_a(role)}")


def _a(role: Role) -> str:
    return f"a {role}" if role == "viewer" else f"an {role}"


def _wants_page(request: Request) -> bool:
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return "text/html" in request.headers.get("accept", "") and not path.startswith("/api/")


async def _nothing() -> None:
    """Return the content of a page that does not exist: none."""


class _Assets(StaticFiles):
    """Scripts and styles. Their addresses change with their contents, so a browser may cache them for ever."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _status(error: MainspringError) -> int:
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, InvalidInput):
        return 400
    if isinstance(error, Conflict):
        return 409
    return 503 if isinstance(error, StoreUnavailable) else 500


def _problem_json(error: MainspringError) -> Response:
    return JSONResponse({"error": str(error)}, _status(error))


def _local(path: str) -> str:
    """Return a redirect path within the dashboard, never to another site."""
    return (
        path
        if path.startswith("/") and not path.startswith(("//", "/\\")) and "\n" not in path and "\r" not in path
        else "/"
    )
