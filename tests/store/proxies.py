"""What may stand between a store and PostgreSQL: a connection that breaks at the worst moment, and a pooler.

Both speak on a Unix socket of their own and know just enough of the protocol for their part.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import tempfile
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Self
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

_STARTUP_LENGTH = 4
_READY = b"Z"
_SYNC = b"S" + struct.pack("!i", 4)


class _Proxy:
    """Listens where a server would, and answers each connection on a thread of its own."""

    def __init__(self, url: str) -> None:
        parts = conninfo_to_dict(url)
        self._server = str(Path(str(parts["host"]), ".s.PGSQL.5432"))
        self._folder = tempfile.TemporaryDirectory(prefix="ms-proxy-")
        self.url = f"postgresql://{parts['user']}@/{parts['dbname']}?host={quote(self._folder.name, safe='')}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(self._folder.name, ".s.PGSQL.5432")))
        self._listener.listen()
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                thread = threading.Thread(target=self._serve_quietly, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _serve_quietly(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._serve(client)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _connect(self) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        self._sockets.append(server)
        return server


class BrokenLine(_Proxy):
    """Passes everything on, until it is told to lose the answer to the n-th request from then on.

    The server has done what it was asked by then: it has sent its answer.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._left = 0
        self._needle: bytes | None = None
        self._held: tuple[socket.socket, bytes] | None = None

    def lose_answer(self, number: int) -> None:
        self._left = number

    def hold_request(self, needle: bytes) -> None:
        """Break the line of the next request in which this stands, while it is on its way to the server."""
        self._needle = needle

    def deliver(self) -> None:
        """Let the request arrive after all, and wait until the server has done what it asks for."""
        assert self._held is not None
        server, request = self._held
        server.sendall(request)
        while _message(server)[0] != _READY:
            pass
        server.close()

    def _serve(self, client: socket.socket) -> None:
        server = self._connect()
        asking = losing = False
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    source = key.fileobj
                    data = client.recv(65536) if source is client else server.recv(65536)
                    if not data or (losing and source is server and data[-6:-5] == _READY):
                        server.close()
                        return
                    if source is client and self._needle is not None and self._needle in data:
                        while not data.endswith(_SYNC):
                            data += client.recv(65536)
                        self._needle, self._held = None, (server, data)
                        return
                    if source is client:
                        if not asking and self._left:
                            self._left -= 1
                            losing = self._left == 0
                        asking = True
                        server.sendall(data)
                    else:
                        asking = False
                        if not losing:
                            client.sendall(data)


class Distance(_Proxy):
    """Passes everything on, each request after a while, and counts requests that were made together as one."""

    def __init__(self, url: str, seconds: float = 0.0) -> None:
        super().__init__(url)
        self.seconds = seconds
        self.requests = 0

    def _serve(self, client: socket.socket) -> None:
        server = self._connect()
        asking = False
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    source, sink = (client, server) if key.fileobj is client else (server, client)
                    data = source.recv(65536)
                    if not data:
                        server.close()
                        return
                    if source is client and not asking:
                        self.requests += 1
                        threading.Event().wait(self.seconds)
                    asking = source is client
                    sink.sendall(data)


class TransactionPooler(_Proxy):
    """Lends one of a few connections for one transaction at a time, each time another one, as PgBouncer does."""

    def __init__(self, url: str, size: int = 3) -> None:
        self._greeting = b""
        self._user = str(conninfo_to_dict(url)["user"])
        self._database = str(conninfo_to_dict(url)["dbname"])
        self._free: SimpleQueue[socket.socket] = SimpleQueue()
        super().__init__(url)
        for _ in range(size):
            self._free.put(self._log_in())

    def _log_in(self) -> socket.socket:
        server = self._connect()
        body = struct.pack("!i", 196608) + b"\0".join(
            [b"user", self._user.encode(), b"database", self._database.encode(), b"", b""]
        )
        server.sendall(struct.pack("!i", len(body) + 4) + body)
        greeting = b""
        while True:
            kind, whole = _message(server)
            if kind == b"K":  # the number by which the server process would be known
                whole = b"K" + struct.pack("!iii", 12, 99999, 1)
            greeting += whole
            if kind == _READY:
                self._greeting = greeting
                return server

    def _serve(self, client: socket.socket) -> None:
        (length,) = struct.unpack("!i", _exactly(client, _STARTUP_LENGTH))
        _exactly(client, length - _STARTUP_LENGTH)
        client.sendall(self._greeting)
        server: socket.socket | None = None
        asked = b""
        try:
            while True:
                kind, whole = _message(client)
                if kind == b"X":
                    return
                asked += whole
                if kind not in {b"S", b"Q"}:
                    continue
                server = server or self._free.get()
                server.sendall(asked)
                asked = b""
                if _relay(server, client) == b"I":
                    self._free.put(server)
                    server = None
        finally:
            if server is not None:  # its transaction is nobody's any more
                self._free.put(self._log_in())
                server.close()


def _relay(server: socket.socket, client: socket.socket) -> bytes:
    """Pass an answer on; the state of the transaction after it. Notifications are for nobody in particular: they vanish."""
    while True:
        kind, whole = _message(server)
        if kind != b"A":
            client.sendall(whole)
        if kind == _READY:
            return whole[-1:]


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + _exactly(source, length - 4)


def _exactly(source: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = source.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data
