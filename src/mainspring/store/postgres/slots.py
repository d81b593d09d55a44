"""A limit on the connections of one process to a database, shared by the library's own and those of users' transactions.

A slot is the permission to have one connection open, in use or idle. Users' transactions may use all slots but the reserved ones, so that a
transaction that holds a connection while the library needs another cannot deadlock.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeAlias

from mainspring.errors import StoreUnavailable
from mainspring.model import forks
from mainspring.model.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Hashable

    import psycopg

    AnyConnection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

DEFAULT = 8
FEWEST = 3
"""One for the listener, one for the library, one for a user's transaction."""
IDLE_SECONDS = 10.0
"""How long an unused connection is kept. The library's last one is always kept."""
_TRIM_EVERY = 0.5
"""Seconds between two looks for such connections when one is returned, which every step does."""
WAIT_SECONDS = 30.0
"""How long to wait for a connection before an error is raised."""
MOMENT = 0.02
"""How long the library waits for one of its own connections before it opens another, so that a poll and a heartbeat share one."""
_BUSY = 10
"""After so many waits within a second the library opens another connection at once."""
LIBRARY = "library"
"""The kind of the library's own connections. Users' kinds are `USERS`, or the event loop of an async connection."""
USERS = "users"

_CLOCK = SystemClock()
_ABANDONED: list[object] = []
"""Connections of the parent of this process, which still uses them. This process must not close them."""


class _Waiter:
    """A request for a connection, answered with an idle one, or with None: open one."""

    __slots__ = ("future", "kind", "may_open")

    def __init__(self, kind: Hashable, *, may_open: bool) -> None:
        self.kind = kind
        self.may_open = may_open
        self.future: Future[Any] = Future()


class Slots:
    """Hands out permissions to open connections, and idle connections. Thread-safe."""

    def __init__(self, where: str, connections: int = DEFAULT) -> None:
        self._where = where
        self._connections = max(connections, FEWEST)
        self._most = self._connections - 1
        """Without the listener's connection."""
        self._reserved = max(1, self._connections // 4)
        self._lock = threading.Lock()
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self._process = forks.count
        self._open = 0
        self._used_by_users = 0
        self._library = 0
        self._idle: dict[Hashable, list[tuple[float, AnyConnection]]] = {}
        self._waiting: deque[_Waiter] = deque()
        self._waits: deque[float] = deque(maxlen=_BUSY)
        self._trim_at = 0.0

    # -- requests ------------------------------------------------------------------------------------------------------
    def take(self, kind: Hashable) -> Any:
        """Return an idle connection, or None for the permission to open one. Blocks; `StoreUnavailable` after `WAIT_SECONDS`."""
        asked = self._ask(kind, may_open=kind is not LIBRARY)
        if not isinstance(asked, _Waiter):
            return asked
        if not asked.may_open:
            try:
                return asked.future.result(MOMENT)
            except TimeoutError:
                self._let_open(asked)
        try:
            return asked.future.result(WAIT_SECONDS)
        except TimeoutError:
            return self._give_up(asked)

    async def take_async(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Return an idle connection, or None for the permission to open one, for a user's async transaction on `loop`."""
        asked = self._ask(loop, may_open=True)
        if not isinstance(asked, _Waiter):
            return asked
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(asked.future)), WAIT_SECONDS)
        except TimeoutError:
            return self._give_up(asked)
        except BaseException:
            self._withdraw(asked)
            raise

    def _ask(self, kind: Hashable, *, may_open: bool) -> _Waiter | AnyConnection | None:
        """Answer a request at once, or add it to the waiting ones."""
        with self._lock:
            if self._process != forks.count:
                _ABANDONED.append(self._idle)
                self._forget()
            if self._closed:
                raise StoreUnavailable(f"the database {self._where} is closed")
            may_open = may_open or self._library == 0
            granted, connection = (False, None) if self._waiting else self._grant(kind, may_open=may_open)
            if granted:
                return connection
            waiter = _Waiter(kind, may_open=may_open or self._is_busy())
            self._waiting.append(waiter)
            self._serve()
        return waiter

    def _is_busy(self) -> bool:
        """Whether the library has lately waited for its own connections all the time."""
        self._waits.append(_CLOCK.monotonic())
        return len(self._waits) == _BUSY and self._waits[-1] - self._waits[0] < 1.0

    def _let_open(self, waiter: _Waiter) -> None:
        with self._lock:
            waiter.may_open = True
            self._serve()

    def _give_up(self, waiter: _Waiter) -> Any:
        """The error for a request that has waited too long, or the connection that arrived at the last moment."""
        with self._lock:
            if waiter.future.done():
                return waiter.future.result()
            self._waiting.remove(waiter)
            users, own = self._used_by_users, self._open - sum(map(len, self._idle.values())) - self._used_by_users
        raise StoreUnavailable(
            f"no connection to {self._where} became free within {WAIT_SECONDS:g} s: {users} are used by transactions of functions and "
            f"{own} by Mainspring itself, {self._connections} are allowed; raise the setting `connections`, or keep transactions short"
        )

    def _withdraw(self, waiter: _Waiter) -> None:
        """Withdraw the request of a cancelled caller. A connection that it was given is returned."""
        with self._lock:
            if not waiter.future.done():
                self._waiting.remove(waiter)
                return
        try:
            connection = waiter.future.result()
        except (StoreUnavailable, CancelledError):
            return
        self.give_back(waiter.kind, connection)

    def _serve(self) -> None:
        """Answer waiting requests, the library's own first. Call it with the lock held."""
        if not self._waiting:
            return
        for waiter in sorted(self._waiting, key=lambda each: each.kind is not LIBRARY):
            granted, connection = self._grant(waiter.kind, may_open=waiter.may_open)
            if granted:
                self._waiting.remove(waiter)
                waiter.future.set_result(connection)

    def _grant(self, kind: Hashable, *, may_open: bool) -> tuple[bool, AnyConnection | None]:
        users = kind is not LIBRARY
        if users and self._used_by_users >= self._most - self._reserved:
            return False, None
        idle = self._idle.get(kind)
        connection: AnyConnection | None = None
        if idle:
            connection = idle.pop()[1]
        elif not may_open or not self._room():
            return False, None
        else:
            self._open += 1
            self._library += not users
        self._used_by_users += users
        return True, connection

    def _room(self) -> bool:
        """Whether one more connection may be opened. If needed, an idle one of another kind is closed for it."""
        if self._open < self._most:
            return True
        for kind, idle in self._idle.items():
            if idle:
                self._close(kind, idle.pop(0)[1])
                return True
        return False

    # -- returns -------------------------------------------------------------------------------------------------------
    def give_back(self, kind: Hashable, connection: AnyConnection | None) -> bool:
        """Return a connection; None for one that was closed or could not be opened. Return False if it cannot be kept and was closed."""
        with self._lock:
            if self._process != forks.count:
                return False
            self._used_by_users -= kind is not LIBRARY
            kept = connection is not None and not self._closed
            now = _CLOCK.monotonic()
            if connection is not None and kept:
                self._idle.setdefault(kind, []).append((now, connection))
            else:
                self._open -= 1
                self._library -= kind is LIBRARY
            if self._waiting:
                self._serve()
            if now >= self._trim_at or not kept:
                self._trim(now)
        if connection is not None and not kept:
            connection.pgconn.finish()
        return kept

    def trim(self) -> None:
        """Close connections that have been idle for a while."""
        with self._lock:
            if self._process == forks.count:
                self._trim(_CLOCK.monotonic())

    def _trim(self, now: float) -> None:
        self._trim_at, before = now + _TRIM_EVERY, now - IDLE_SECONDS
        for kind, idle in list(self._idle.items()):
            kept = 1 if kind is LIBRARY and self._library == len(idle) else 0
            while len(idle) > kept and idle[0][0] <= before:
                self._close(kind, idle.pop(0)[1])
            if not idle and kind is not LIBRARY:
                del self._idle[kind]

    def close_idle(self, kind: Hashable) -> None:
        """Close all idle connections of a kind."""
        with self._lock:
            if self._process == forks.count:
                for _, connection in self._idle.pop(kind, []):
                    self._close(kind, connection)
                self._serve()

    def close(self) -> None:
        """Close idle connections. Waiting requests get an error, and connections in use are closed when they are returned."""
        with self._lock:
            self._closed = True
            if self._process != forks.count:
                return
            for kind, idle in self._idle.items():
                while idle:
                    self._close(kind, idle.pop()[1])
            while self._waiting:
                error = StoreUnavailable(f"the database {self._where} is closed")
                self._waiting.popleft().future.set_exception(error)

    def _close(self, kind: Hashable, connection: AnyConnection) -> None:
        self._open -= 1
        self._library -= kind is LIBRARY
        connection.pgconn.finish()  # the loop of an async one may be gone, and this does not need it
