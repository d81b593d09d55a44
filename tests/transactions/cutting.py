"""A line to PostgreSQL that is cut at a chosen message of a transaction."""

from __future__ import annotations

import contextlib
import selectors
import struct
import threading
from typing import TYPE_CHECKING, Literal, TypeAlias

from tests.store.proxies import _exactly, _message, _Proxy

if TYPE_CHECKING:
    import socket

How: TypeAlias = Literal["before", "during", "sent", "answered"]
HOWS: tuple[How, ...] = ("before", "during", "sent", "answered")
_MARK = b"RESET ALL"
"""Whoever says this executes users' transactions: with it, or after it, a session is reset."""
_SSL = 80877103
_READY = b"Z"


class CutLine(_Proxy):
    """Passes everything on. Armed, it cuts one connection that executes users' transactions at the n-th message it sends from then on.

    `before` and `during`: the server never has all of the message. `sent`: it has, and goes on by itself while the client is told that
    the connection is gone. `answered`: it has answered, and the answer is lost.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._turn = threading.Lock()
        self._left = 0
        self._how: How = "before"
        self.cut = 0
        """How often a connection was cut."""

    def arm(self, number: int, how: How) -> None:
        with self._turn:
            self._left, self._how = number, how

    def _is_it(self) -> How | None:
        with self._turn:
            if self._left:
                self._left -= 1
                if not self._left:
                    self.cut += 1
                    return self._how
        return None

    def _serve(self, client: socket.socket) -> None:
        server = self._connect()
        try:
            self._greet(client, server)
            self._talk(client, server)
        finally:
            with contextlib.suppress(OSError):
                client.shutdown(2)
            server.close()

    @staticmethod
    def _greet(client: socket.socket, server: socket.socket) -> None:
        head = _exactly(client, 4)
        (length,) = struct.unpack("!i", head)
        server.sendall(head + _exactly(client, length - 4))

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        marked = False
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is server:
                        data = server.recv(65536)
                        if not data:
                            return
                        client.sendall(data)
                        continue
                    kind, whole = _message(client)
                    marked = marked or _MARK in whole
                    how = self._is_it() if marked and kind != b"X" else None
                    if how is not None:
                        self._cut(how, whole, client, server)
                        return
                    server.sendall(whole)

    @staticmethod
    def _cut(how: How, whole: bytes, client: socket.socket, server: socket.socket) -> None:
        if how == "during":
            server.sendall(whole[: len(whole) // 2])
        elif how in {"sent", "answered"}:
            server.sendall(whole)
            if whole[:1] not in {b"S", b"Q"}:  # the server answers when it is asked to, at the end of a series
                return
            if how == "sent":
                client.shutdown(2)
            while _message(server)[0] != _READY:
                pass
