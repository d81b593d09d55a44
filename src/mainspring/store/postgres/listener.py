"""Receives notifications of other processes on a connection and a thread of its own. Falls back to polling.

A pooler in transaction mode accepts LISTEN and delivers nothing, so the listener sends itself a notification first.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
from typing import TYPE_CHECKING, Self

import psycopg
from psycopg import sql

from mainspring.errors import StoreError
from mainspring.model.clock import SystemClock
from mainspring.store import changes
from mainspring.store.postgres import slots
from mainspring.store.transaction import NOTIFY

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.changes import Signal
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect

log = logging.getLogger("mainspring.store")

_POLL_SECONDS = 1.0
_POLLS = 60
"""How often to poll before trying to listen again."""
_ECHO_SECONDS = 3.0
_PING_SECONDS = 30.0


class Listener:
    """Calls `notify` for the commits of other processes, until it is closed."""

    def __init__(self, database: Database, dialect: Dialect, origin: str, notify: Callable[[Signal], None]) -> None:
        self._db = database
        self._sql = dialect
        self._origin = origin
        self._on_signal = notify
        self._clock = SystemClock()
        self._complained = False
        self._closing = threading.Event()
        self._wake_up, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._work, name="mainspring-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        os.write(self._waker, b"x")
        self._thread.join()
        os.close(self._waker)
        os.close(self._wake_up)

    def _work(self) -> None:
        while not self._sql.channel and not self._closing.wait(slots.IDLE_SECONDS):
            self._db.slots.trim()
        while not self._closing.is_set():
            polls = 1
            try:
                with self._db.connect() as connection, Notifications(connection, self._wake_up) as arrived:
                    if self._echoes(connection, arrived):
                        self._listen(connection, arrived)
                    elif not self._closing.is_set():
                        polls = _POLLS
                        self._complain("LISTEN does not work here (a pooler?)")
            except (psycopg.Error, StoreError) as error:
                self._complain(error)
            # Whether the database is down or only this connection is lost, the store is polled until notifications arrive again.
            for _ in range(polls):
                if not self._closing.wait(_POLL_SECONDS):
                    self._db.slots.trim()
                    self._notify(changes.EVERYTHING)

    def _complain(self, why: object) -> None:
        if not self._complained:
            log.warning("no notifications from other processes, polling every second instead: %s", why)
        self._complained = True

    def _notify(self, signal: Signal) -> None:
        try:
            self._on_signal(signal)
        except Exception:
            log.exception("could not process a notification from another process; polling finds its runs")

    def _echoes(self, connection: Connection, arrived: Notifications) -> bool:
        """Whether a notification to itself arrives.

        It uses a channel of its own: behind a pooler this LISTEN stays on a connection that other clients use. It is sent over another
        connection: an idle pooler may use the same server connection for both, and then the notification arrives with the response to the
        very statement that sent it, which proves nothing.
        """
        private = f"{self._sql.channel[:40]}:{self._origin}"
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(private)))
        with self._db.connection() as another:
            another.execute(self._sql(NOTIFY), {"channel": private, "payload": changes.ECHO})
        give_up = self._clock.monotonic() + _ECHO_SECONDS
        found = False
        while not found and (left := give_up - self._clock.monotonic()) > 0 and not self._closing.is_set():
            found = changes.ECHO in arrived.next(left)
        connection.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(private)))
        return found

    def _listen(self, connection: Connection, arrived: Notifications) -> None:
        """Listen until closed. Raises if the connection is lost."""
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._sql.channel)))
        self._complained = False
        self._notify(changes.EVERYTHING)  # for commits before this connection listened
        pinged = self._clock.monotonic()
        while not self._closing.is_set():
            for payload in arrived.next(min(_PING_SECONDS, slots.IDLE_SECONDS)):
                signal = changes.parse(payload, self._origin)
                if signal is not None:
                    self._notify(signal)
            self._db.slots.trim()
            if self._clock.monotonic() - pinged > _PING_SECONDS:
                connection.execute(b"SELECT 1")
                pinged = self._clock.monotonic()


class Notifications:
    """Notifications of a connection: some arrive with the results of statements, the others must be waited for."""

    def __init__(self, connection: Connection, wake_up: int) -> None:
        self._connection = connection
        self._payloads: list[str] = []
        connection.add_notify_handler(lambda each: self._payloads.append(each.payload))
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection.fileno(), selectors.EVENT_READ)
        self._selector.register(wake_up, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def next(self, timeout: float) -> list[str]:
        """Wait up to `timeout` seconds, or until woken up."""
        if not self._payloads:
            self._selector.select(timeout)
            self._connection.pgconn.consume_input()
            while (each := self._connection.pgconn.notifies()) is not None:
                self._payloads.append(each.extra.decode())
        found, self._payloads = self._payloads, []
        return found
