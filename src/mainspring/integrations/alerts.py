"""A webhook for alerts of schedules, and check-ins for services that notice when nothing happens.

webhook(app, "https://hooks.example/mainspring")        # missed, late, paused by failures

@app.scheduled("0 2 * * *")
@app.workflow
@check_in("https://hc-ping.com/your-id")                # started, succeeded, failed
async def nightly() -> None: ...
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import urllib.request
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from mainspring.app.declarations.alerts import Alert  # noqa: TC001  (the annotation is read when the step is registered)
from mainspring.app.run import run
from mainspring.engine.retry import Retry
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from mainspring.app.app import App
    from mainspring.app.functions.options import Duration

log = logging.getLogger("mainspring.integrations")

P = ParamSpec("P")
R = TypeVar("R")
SECONDS = 10.0
_PATIENT = Retry(10, first=5, factor=2, cap=600)


def webhook(
    app: App, url: str, *, late: Duration = "5m", headers: Mapping[str, str] | None = None, name: str = "webhook"
) -> None:
    """POST alerts of schedules to a URL, as JSON: ticks that were missed or late, schedules that failures paused.

    Each alert is sent once, by a run of its own, which retries for about an hour.
    """
    _check(url)
    extra = dict(headers or {})

    async def tell(alert: Alert) -> int:
        body = json.dumps(asdict(alert), default=str).encode()
        return await asyncio.to_thread(_send, url, body, {"content-type": "application/json", **extra})

    send = app.step(name=name, retry=_PATIENT)(tell)
    app.on_missed(send)
    app.on_late(late)(send)
    app.on_paused_by_failure(send)


def check_in(
    url: str,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Make a workflow report its start (`URL/start`), its success (`URL`) and its failure (`URL/fail`).

    A check-in that fails is logged. The workflow continues.
    """
    _check(url)

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        @functools.wraps(function)
        async def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            await run.step("check in: begun", _ping, f"{url}/start")
            try:
                result = await function(*args, **kwargs)
            except Exception:
                await run.step("check in: failed", _ping, f"{url}/fail")
                raise
            await run.step("check in: done", _ping, url)
            return result

        return checked

    return decorate


async def _ping(url: str) -> int | None:
    try:
        return await asyncio.to_thread(_send, url, None, {})
    except OSError as error:
        log.warning("the check-in at %s failed: %s", url, error)
        return None


def _send(url: str, body: bytes | None, headers: dict[str, str]) -> int:
    request = urllib.request.Request(url, body, headers)  # noqa: S310  (checked when it was given)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        status: int = answer.status
        return status


def _check(url: str) -> None:
    if not url.startswith(("https://", "http://")):
        raise InvalidInput(f"{url!r} is not a web address; it begins with https://")
