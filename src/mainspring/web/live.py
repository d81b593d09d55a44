"""Pages that are open learn that something has changed, by server-sent events."""

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
"""Finds what a page shows."""
SHORTEST_PAUSE = 0.5
COST = 500
"""A look that took so long is followed by a pause so many times as long. A page that changes all the time is fetched after each look, which
takes no more than four times as long as the look: together that is at most one percent of a core.
"""
LONGEST_PAUSE = 5.0
"""On a busy machine a look takes long; a page that is called live is still not older than this."""
LIFE = 30.0
"""Seconds after which the browser has to ask again, so that a server that wants to stop need not wait for it for long."""


class Streams:
    """The streams that are open."""

    def __init__(self) -> None:
        self._ends: set[asyncio.Event] = set()
        self._stopped = False

    def stop(self) -> None:
        """End all of them now, and each new one after its first answer: the server is about to stop."""
        self._stopped = True
        for end in self._ends:
            end.set()

    def open(self, backend: Backend, looks: Mapping[str, Look]) -> StreamingResponse:
        """Answers `changed` whenever what the look of a page finds has changed, and `trouble` while it finds nothing."""
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
    """What is there, in short. That a run is not there, or no longer, is something that a page can show, and no trouble."""
    try:
        return digest(await look())
    except NotFound:
        return "not there"


def digest(found: object) -> str:
    """What a page shows, in short. A page carries it, so that a change between the page and its stream is not lost."""
    return hashlib.sha256(msgspec.json.encode(found)).hexdigest()[:12]


async def _pause(clock: Clock, asked: float, end: asyncio.Event) -> None:
    cost = (clock.monotonic() - asked) * COST
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(end.wait(), min(max(SHORTEST_PAUSE, cost), LONGEST_PAUSE))


def event(name: str, page: str, found: str) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode({"page": page, "is": found}))
