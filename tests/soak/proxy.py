"""A TCP proxy before PostgreSQL, so that connections can be cut or go silent while both ends live."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Coroutine

_CHUNK = 65_536


class Proxy:
    """Listens on a port of 127.0.0.1 and passes every connection on to the server's Unix socket, from a thread of its own."""

    def __init__(self, url: str) -> None:
        parts = conninfo_to_dict(url)
        self._socket = str(Path(str(parts["host"]), ".s.PGSQL.5432"))
        self._user = str(parts["user"])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._lines: set[asyncio.StreamWriter] = set()
        self._silent: asyncio.Event | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._port = self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def url(self, database_url: str) -> str:
        """The same database, by way of the proxy."""
        name = conninfo_to_dict(database_url)["dbname"]
        return f"postgresql://{self._user}@127.0.0.1:{self._port}/{name}"

    def cut(self) -> int:
        """Cut every connection, in the middle of whatever it is doing; how many there were."""
        return self._do(self._cut())

    def silence(self) -> None:
        """Pass nothing on any more, in either direction; nobody is told."""
        assert self._silent is not None
        self._loop.call_soon_threadsafe(self._silent.clear)

    def speak(self) -> None:
        """Go on where it went silent."""
        assert self._silent is not None
        self._loop.call_soon_threadsafe(self._silent.set)

    def _do(self, work: Coroutine[Any, Any, int]) -> int:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> int:
        self._silent = asyncio.Event()
        self._silent.set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _cut(self) -> int:
        lines = list(self._lines)
        for line in lines:
            with contextlib.suppress(Exception):
                line.transport.abort()
        return len(lines) // 2

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_server = await asyncio.open_unix_connection(self._socket)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, to_server[1]}
        self._lines |= ends
        try:
            passing = [
                asyncio.ensure_future(self._pass(reader, to_server[1])),
                asyncio.ensure_future(self._pass(to_server[0], writer)),
            ]
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            for each in passing:
                each.cancel()
            await asyncio.gather(*passing, return_exceptions=True)
        finally:
            self._lines -= ends
            for end in ends:
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._silent is not None
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._silent.wait()
                writer.write(data)
                await writer.drain()
