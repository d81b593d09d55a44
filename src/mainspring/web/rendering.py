"""Renders pages from templates. Everything is escaped. The helpers that templates may use are defined here."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, timedelta
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from mainspring.model.clock import to_datetime
from mainspring.model.schedules import Overlap
from mainspring.web import charts, formatting
from mainspring.web.auth import SIGNED_IN
from mainspring.web.forms import fields_of
from mainspring.web.guard import USER, may_act

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from starlette.requests import Request

    from mainspring.model.clock import Clock
    from mainspring.operations.overview import Bar

NOTICE = "mainspring_notice"
_BY_SCRIPTS = ("hx-request", "mainspring-refresh")
"""Headers of requests by the scripts of a page that is open. A notice is for the page that a person comes to next, in one tab."""
_PAGES_BESIDE = frozenset({"/runs/count", "/runs/timeline", "/schedules/preview", "/schedules/backfill-preview"})
"""Paths of pages that could also be those of a run or schedule."""
_PAGING = frozenset({"after", "limit"})
CSRF = "mainspring_csrf"
LONGEST_VALUE = 20_000
_SECRET_BYTES = 16


def base_of(request: Request) -> str:
    """Return the base path of the dashboard, as the browser sees it."""
    scope = request.scope
    return str(scope.get("mainspring_base") or scope.get("root_path", "")).rstrip("/")


class Renderer:
    """Renders pages."""

    def __init__(self, clock: Clock, *, name: str, read_only: bool) -> None:
        self._clock = clock
        self._name = name
        self._read_only = read_only
        self._templates = Environment(
            loader=PackageLoader("mainspring.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Any] = self._templates.filters
        filters.update(pretty=pretty, sparse=sparse, count=formatting.count, duration=formatting.duration)
        filters.update(
            outcome=formatting.outcome,
            moment=formatting.moment,
            exactly=formatting.exactly,
            known_zone=formatting.known_zone,
            stamp=stamp,
            rate=formatting.rate,
            in_form=formatting.in_form,
        )
        known: dict[str, Any] = self._templates.globals
        known.update(charts=charts, fields_of=fields_of, limits=formatting.limits, asset_version=asset_version())
        known.update(overlaps=tuple(Overlap))

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        base = base_of(request)
        now = to_datetime(self._clock.now())
        user = request.scope.get(USER)
        csrf = request.cookies.get(CSRF) or new_secret()
        scripted = any(name in request.headers for name in _BY_SCRIPTS)
        notice = None if scripted else read_notice(request.cookies.get(NOTICE))

        def url(path: str, **query: Any) -> str:
            pairs = [(name, each) for name, value in query.items() for each in _listed(value)]
            return f"{base}{path}{'?' + urlencode(pairs) if pairs else ''}"

        def link(kind: str, item: str) -> str:
            """Return the address of a run's or schedule's page. An id of dots, which browsers resolve as a parent path, or one
            that is also the name of a page goes into the query.
            """
            if any(part in {".", ".."} for part in item.split("/")) or f"/{kind}/{item}" in _PAGES_BESIDE:
                return url(f"/{kind}/", **{"name" if kind in {"queues", "workflows"} else "id": item})
            return f"{base}/{kind}/{quote(item, safe='/')}"

        def same(**changed: Any) -> str:
            """Return the address of this page with some parameters changed; None removes one."""
            there = [
                (name, value) for name, value in request.query_params.multi_items() if name not in changed and value
            ]
            there += [(name, each) for name, value in changed.items() for each in _listed(value)]
            return f"{base}{_path(request)}{'?' + urlencode(there) if there else ''}"

        def time(when: datetime | None) -> str:
            return formatting.time_tag(when, now)

        def due(when: datetime) -> str:
            """Format a future time. A time that has just passed is shown as now."""
            return formatting.time_tag(when, now, coming=True)

        def ago(minutes: int) -> str:
            """Return the time a number of minutes ago, as a query parameter."""
            return stamp(now - timedelta(minutes=minutes))

        response = HTMLResponse(
            self._templates.get_template(template).render(
                **values,
                url=url,
                link=link,
                same=same,
                here=_path(request),
                query=request.query_params,
                twin=f"{base}/api{here(request)}",
                page=here(request),
                time=time,
                due=due,
                ago=ago,
                ended_within=partial(_ended_within, url),
                matching=_matching(request),
                now=now,
                user=user,
                may_act=user is not None and may_act(user, read_only=self._read_only),
                read_only=self._read_only,
                csrf=csrf,
                notice=notice,
                is_admin=user is not None and user.may("admin") and not self._read_only,
                signed_in=request.scope.get(SIGNED_IN),
                app_name=self._name,
            ),
            status,
        )
        if CSRF not in request.cookies:
            _set(response, request, CSRF, csrf, None)
        if NOTICE in request.cookies and not scripted:
            response.delete_cookie(NOTICE, path=base or "/")
        return response


def _ended_within(url: Callable[..., str], bars: Sequence[Bar]) -> Callable[[Bar], str]:
    """Return the address of the runs that ended within a column of a chart."""
    width = bars[1].start - bars[0].start
    return lambda bar: url("/runs", completed_after=stamp(bar.start), completed_before=stamp(bar.start + width))


def stamp(when: datetime) -> str:
    """Format a time as a query parameter."""
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _matching(request: Request) -> str:
    """Return the filters in the address of a page of runs; empty if there are none."""
    pairs = [(name, value) for name, value in request.query_params.multi_items() if value and name not in _PAGING]
    return urlencode(pairs)


def _path(request: Request) -> str:
    path = str(request.scope["path"])
    root = str(request.scope.get("root_path", ""))
    return quote(path.removeprefix(root) or "/", safe="/")


def here(request: Request) -> str:
    """Return the address of a page within the dashboard, with its query."""
    return f"{_path(request)}{'?' + request.url.query if request.url.query else ''}"


def read_notice(text: str | None) -> dict[str, str] | None:
    """Return the notice that the last page left in a cookie. Any other content is ignored: other programs here can set cookies."""
    try:
        found = msgspec.json.decode(text or "null", type=dict[str, str] | None)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return (
        found if found and found.keys() == {"kind", "message", "run"} and found["kind"] in {"done", "problem"} else None
    )


def clean(request: Request) -> str:
    """Return the address of a page without empty parameters. A form sends all of its fields, a bookmark needs only some."""
    given = [(name, value) for name, value in request.query_params.multi_items() if value]
    return f"{_path(request)}{'?' + urlencode(given) if given else ''}"


def note(response: HTMLResponse | Any, request: Request, kind: str, message: str, run: str | None = None) -> None:
    """Leave a notice for the next page, with a link to the run that it is about."""
    notice = {"kind": kind, "message": message[:1_500], "run": run or ""}
    _set(response, request, NOTICE, json.dumps(notice), 60)


def _set(
    response: Any, request: Request, name: str, value: str, seconds: int | None, *, samesite: str = "strict"
) -> None:
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=base_of(request) or "/",
        httponly=True,
        samesite=samesite,
        secure=request.url.scheme == "https",
    )


def set_session(response: Any, request: Request, name: str, value: str, seconds: int) -> None:
    """Set the session cookie. It is also sent when a link to here is followed, so actions check more than the cookie."""
    _set(response, request, name, value, seconds, samesite="lax")


def new_secret() -> str:
    import secrets  # noqa: PLC0415  (only here)

    return secrets.token_urlsafe(_SECRET_BYTES)


def sparse(value: dict[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their empty values, for people to read."""
    return {name: each for name, each in value.items() if each not in (None, "", {}, False, 0)}


def pretty(value: Any) -> str:
    """Format a value as indented JSON, cut if it is long."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if len(text) > LONGEST_VALUE:
        return f"{text[:LONGEST_VALUE]}\n… {len(text) - LONGEST_VALUE:,} more characters: see JSON, below"
    return text


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return [*cast("list[Any]", value)] if isinstance(value, (list, tuple)) else [value]


@cache
def asset_version() -> str:
    """Return a hash of scripts and styles for their addresses, so that browsers may cache them."""
    digest = hashlib.sha256()
    for entry in sorted(files("mainspring.web").joinpath("static").iterdir(), key=lambda entry: entry.name):
        digest.update(entry.read_bytes())
    return digest.hexdigest()[:12]
