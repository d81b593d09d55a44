"""Notifies open pages of changes, by server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from starlette.responses import StreamingResponse

from mainspring.errors import MainspringError, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from mainspring.model.clock import Clock
    from mainspring.web.backend import Backend

Look: TypeAlias = "Callable[[], Awaitable[object]]"
"""Queries the content of a page."""
SHORTEST_PAUSE = 0.5
COST = 500
"""The pause after a query is the query's duration times this. A page that changes all the time is fetched after each query,
which takes no more than four times as long as the query: together that is at most one percent of a core.
"""
LONGEST_PAUSE = 5.0
"""Longest pause in seconds. On a busy machine queries take long, and a live page must still be no older than this."""
LIFE = 30.0
"""Seconds after which a stream ends and the browser connects again, so that a server that is stopping need not wait long."""


class Streams:
    """The open event streams."""

    def __init__(self) -> None:
        self._ends: set[asyncio.Event] = set()
        self._stopped = False

    def stop(self) -> None:
        """End all streams now, and each new one after its first event: the server is about to stop."""
        self._stopped = True
        for end in self._ends:
            end.set()

    def open(self, backend: Backend, looks: Mapping[str, Look]) -> StreamingResponse:
        """Open a stream that sends `changed` when the content of a page has changed, and `trouble` while its query fails."""
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._events(backend, looks), media_type="text/event-stream", headers=headers)

    async def _events(self, backend: Backend, looks: Mapping[str, Look]) -> AsyncIterator[bytes]:
        end = asyncio.Event()
        if self._stopped:
            end.set()
        self._ends.add(end)
        try:
            async for event in _events(backend, looks, end):
                yield event
        finally:
            self._ends.discard(end)


async def _events(backend: Backend, looks: Mapping[str, Look], end: asyncio.Event) -> AsyncIterator[bytes]:
    clock = backend.runtime.clock
    begun = clock.monotonic()
    last: dict[str, str] = {}
    yield b"retry: 1000\n\n"
    while clock.monotonic() - begun < LIFE:
        asked = clock.monotonic()
        for page, look in looks.items():
            try:
                found = await _seen(look)
            except MainspringError as error:
                last[page] = "trouble"
                yield event("trouble", page, " ".join(str(error).split()))
                continue
            if last.get(page) != found:
                yield event("changed" if page in last else "fresh", page, found)
            last[page] = found
        await _pause(clock, asked, end)
        if end.is_set():
            return


async def _seen(look: Look) -> str:
    """Return the digest of a page's content. A run that does not exist, or no longer, is content of its own, not a failure."""
    try:
        return digest(await look())
    except NotFound:
        return "not there"


def digest(found: object) -> str:
    """Return a short hash of a page's content. The page carries it, so that a change before its stream opens is not lost."""
    return hashlib.sha256(msgspec.json.encode(found)).hexdigest()[:12]


async def _pause(clock: Clock, asked: float, end: asyncio.Event) -> None:
    cost = (clock.monotonic() - asked) * COST
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(end.wait(), min(max(SHORTEST_PAUSE, cost), LONGEST_PAUSE))


def event(name: str, page: str, found: str) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode({"page": page, "is": found}))
