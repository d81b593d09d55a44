"""Mainspring inside a FastAPI (or Starlette) app: its processes are workers, and the dashboard is part of the site.

    from fastapi import FastAPI
    from mainspring.integrations.fastapi import lifespan, mount

    site = FastAPI(lifespan=lifespan(app))
    mount(site, app, "/ops", auth="a-long-secret-of-ours")

Run it with any number of processes (`uvicorn shop:site --workers 4`): each is a worker, and a schedule fires once.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from mainspring.app.app import App
    from mainspring.web.auth import Basic, Check, Token
    from mainspring.web.redaction import Redact


class DashboardArguments(TypedDict, total=False):
    """The arguments of `mainspring.web.dashboard`."""

    auth: str | Token | Basic | Check | None
    read_only: bool
    redact: Redact | None


def lifespan(
    app: App, inner: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None
) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """Return a lifespan that enters the app while the site runs. `inner` is a lifespan of your own, entered inside it."""

    @contextlib.asynccontextmanager
    async def entered(site: Any) -> AsyncGenerator[Any]:
        async with app:
            if inner is None:
                yield None
            else:
                async with inner(site) as state:
                    yield state

    return entered


def mount(site: Any, app: App, path: str = "/mainspring", **options: Unpack[DashboardArguments]) -> None:
    """Mount the dashboard under a path of the site."""
    from mainspring.web import dashboard  # noqa: PLC0415  (needs an extra)

    if not path.startswith("/") or path == "/":
        raise InvalidInput(f"the dashboard is mounted under a path such as /ops, not {path!r}")
    site.mount(path, dashboard(app, **options))
