"""The HTTP server behind `mainspring ui` and `mainspring dev`. Needs the extra `web`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator

    from mainspring.web.site import Dashboard

HEADER_SECONDS = 10.0
"""Seconds after which a connection without a complete request header is closed. uvicorn itself waits for ever."""


class Http(H11Protocol):
    """HTTP/1.1 that waits a limited time for the headers of a request."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect()
        else:
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _arrived(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


@contextlib.asynccontextmanager
async def serving(pages: Dashboard, listening: socket.socket) -> AsyncGenerator[None]:
    """Serve the dashboard on a socket for the length of a block."""
    config = uvicorn.Config(
        pages, http=Http, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, ws="none"
    )
    server = uvicorn.Server(config)
    setattr(server, "capture_signals", contextlib.nullcontext)  # noqa: B010  (this process has its own handlers)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        pages.stop()  # otherwise open pages hold up the server until it cancels them, with a traceback for each
        server.should_exit = True
        await task
