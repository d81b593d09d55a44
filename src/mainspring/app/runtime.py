"""The internals of an app that its functions and handles use: registry, settings, connection and engine.

The connection is opened on first use. It holds the store, its committer, and the waits of this process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.coroutines import Portal, bridged
from mainspring.app.declarations.declared import DeclaredQueues, DeclaredSchedules
from mainspring.app.events import Listeners
from mainspring.app.waits import Awaited, EndingLookups, Endings, Subscriptions
from mainspring.codec import value_codec
from mainspring.codec.values import PLAIN_JSON
from mainspring.engine.registry import FOR_EVER, Instances, Registry
from mainspring.errors import InvalidInput, SchemaError, StoreUnavailable
from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker
from mainspring.operations.connect import ClockKeeper, follow_database
from mainspring.operations.retention import keep_of
from mainspring.operations.unserved import Destinations

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from mainspring.app.declarations.crontab import Crontab
    from mainspring.app.functions.options import Duration
    from mainspring.app.settings import Settings
    from mainspring.codec import ValueCodec
    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Clock
    from mainspring.model.payloads import Offloaded, PayloadCodec
    from mainspring.model.runs import Ending
    from mainspring.services.heartbeat import Heartbeat
    from mainspring.store.changes import Signal
    from mainspring.store.committer import Committer
    from mainspring.store.external.engines import UsersEngine
    from mainspring.store.external.other_database import OtherDatabase
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.prune import Keep


class Parts:
    """Makes the store and the parts that have threads; a simulator replaces it. Modules are loaded on first use: importing an app is fast."""

    def store(self, url: str, settings: Settings) -> Store:
        from mainspring.store.open import open_store  # noqa: PLC0415

        return open_store(url, settings)

    def committer(self, store: Store, clock: Clock) -> Committer:
        from mainspring.store.committer import Committer  # noqa: PLC0415

        return Committer(store.apply, clock, store.at_once)

    def endings(self, store: Store, settings: Settings) -> Endings:
        return Endings(store.endings, settings.poll, lambda: bool(store.workers()))

    def heartbeat(self, **parts: Any) -> Heartbeat:
        from mainspring.services.heartbeat import Heartbeat  # noqa: PLC0415

        return Heartbeat(**parts)

    def loop_watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> Callable[[], None]:
        """Begin to watch a worker's loop for code that blocks it. Return the function that ends the watch."""
        from mainspring.app.blocked_loop import LoopWatch  # noqa: PLC0415

        return LoopWatch(loop, thread).start()


R = TypeVar("R")

_UNTYPED = value_codec(Any, "the result of a run")


class Connection:
    """An app's connection to the database. Opened on first use, closed with the app."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        clock: Clock,
        parts: Parts,
        *,
        beside: bool = False,
        payloads: PayloadCodec | None = None,
    ) -> None:
        self.clock = clock
        self.store = parts.store(url, settings)
        if payloads is not None:
            from mainspring.store.sealing.store import sealed_store  # noqa: PLC0415  (only where values are sealed)

            self.store = sealed_store(self.store, payloads)
        try:
            self.store.open(migrate=settings.migrate, beside=beside)
        except SchemaError:
            self.store.close()
            raise
        self._keeper = (
            ClockKeeper(clock) if isinstance(clock, SystemClock) and follow_database(clock, self.store) else None
        )
        self.committer = parts.committer(self.store, clock)
        self.endings = parts.endings(self.store, settings)
        self._lookups = EndingLookups(self._look_up, clock)
        self.subscriptions = Subscriptions(settings.poll)
        self._listeners: list[Callable[[Signal], None]] = []
        self.store.listen(self.notify)

    def on_signal(self, notify: Callable[[Signal], None]) -> None:
        """Also call `notify` with what a commit may have changed, on any thread."""
        self._listeners.append(notify)

    def off_signal(self, notify: Callable[[Signal], None]) -> None:
        if notify in self._listeners:
            self._listeners.remove(notify)

    def notify(self, signal: Signal) -> None:
        """Notify the waits of this process of what a commit may have changed. Thread-safe."""
        for notify in list(self._listeners):
            notify(signal)
        if signal.ended is None or signal.ended:
            self.endings.look(signal.ended)
        self.subscriptions.notify(signal)

    async def ending(self, run_id: str, timeout: Duration | None, *, look_first: bool = True) -> Ending | None:
        """Wait for a run's end. Return its ending, or None if there is no such run. `look_first`: it may have ended already."""
        with Awaited(self.endings, self.clock, run_id, timeout) as ended:
            if look_first:
                found = await self._lookups.at(run_id)
                if run_id not in found or found[run_id] is not None:
                    return found.get(run_id)
            return await ended

    async def _look_up(self, ids: set[str]) -> dict[str, Ending | None]:
        self.clock.busy()
        try:
            return await asyncio.to_thread(self.store.endings, ids)
        finally:
            self.clock.idle()

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
        self.endings.close()
        self.committer.close()
        self.store.close()
        if self._keeper is not None:
            self._keeper.release_clock()


class Runtime:
    """One app's registry, its connection, and its engine while the app executes."""

    def __init__(
        self,
        url: str | Callable[[], str],
        settings: Settings,
        clock: Clock | None,
        *,
        has_no_code: bool = False,
        engine: UsersEngine | None = None,
        payloads: PayloadCodec | None = None,
    ) -> None:
        if payloads is None and settings.payloads != "none":
            from mainspring.store.sealing.payloads import named_codec  # noqa: PLC0415  (only where values are sealed)

            payloads = named_codec(settings.payloads)
        if payloads is not None and not (hasattr(payloads, "encode") and hasattr(payloads, "decode")):
            raise InvalidInput(f"payloads= takes a codec with encode and decode, not {payloads!r}")
        self.payloads = payloads
        """The codec of stored values, if the app has one."""
        self.given_url = url
        self._given_engine = engine
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.has_no_code = has_no_code
        """Whether this is a client's runtime: a client starts functions by name and decodes results as plain JSON."""
        self.registry = Registry()
        self.instances = Instances(self.registry)
        self.parts = Parts()
        self.ids = IdMaker(self.clock)
        self.name = "app"
        self.version = ""
        self.stage = ""
        """The current stage of entering or leaving the app, to show to the user."""
        self.declarations = DeclaredSchedules()
        self.queues = DeclaredQueues()
        self.destinations = Destinations()
        self.crontab: Crontab | None = None
        self.listeners = Listeners()
        self.carriers: list[Callable[[], Mapping[str, Any]]] = []
        """Callbacks for attributes of each started run that is no child, such as those of a trace."""
        self.engine: Engine | None = None
        self.callers: dict[type, Callable[[Any, Any], Any]] | None = None
        """Factories of callers, by the class of the place of the call, if a framework integration has callers of its own."""
        self._connecting = threading.Lock()
        self._connection: Connection | None = None
        self._portal: Portal | None = None
        self._disconnecting = False

    @property
    def url(self) -> str:
        """The database's URL. A function given instead of a URL is called on each access."""
        return self.given_url if isinstance(self.given_url, str) else self.given_url()

    @url.setter
    def url(self, url: str) -> None:
        self.given_url = url

    @property
    def users_engine(self) -> UsersEngine | None:
        """The SQLAlchemy engine that was given instead of a URL, unless another database has replaced it."""
        return self._given_engine if self.given_url is self._given_engine else None

    @property
    def executing(self) -> bool:
        return self.engine is not None and bool(self.engine.executions)

    @property
    def other_databases(self) -> list[OtherDatabase]:
        """The other databases that transactions use."""
        return list({id(each.database): each.database for each in self.registry if each.database is not None}.values())

    @property
    def offloaded(self) -> Offloaded | None:
        """The values that the codec stored outside of the database, if workers delete those that are no longer needed."""
        return getattr(self.payloads, "offloaded", None)

    @property
    def keep(self) -> Keep:
        """The retention of ended runs, from the settings and from the functions."""
        names = {
            function.name: None if function.retention == FOR_EVER else function.retention
            for function in self.registry
            if function.retention is not None
        }
        # A function that is kept for ever must not be limited by the number of runs either.
        last_names = {
            function.name: function.keep_last
            for function in self.registry
            if function.keep_last is not None or function.retention == FOR_EVER
        }
        return keep_of(self.settings, names, last_names)

    def result_codec(self, workflow: str | None) -> ValueCodec:
        """Return the codec of a function's results: by its annotation, if the function is here."""
        if self.has_no_code:
            return PLAIN_JSON
        function = None if workflow is None else self.registry.find(workflow)
        return _UNTYPED if function is None else function.codec.result

    # -- connection ----------------------------------------------------------------------------------------------------
    def connection(self, *, beside: bool = False) -> Connection:
        """Return the connection; connect first if needed. `beside`: the caller has a transaction open in this database."""
        with self._connecting:
            self._refuse_while_disconnecting()
            if self._connection is None:
                self._connection = Connection(
                    self.url, self.settings, self.clock, self.parts, beside=beside, payloads=self.payloads
                )
                if (engine := self.users_engine) is not None:
                    self._connection.store.transactions.use(engine=engine)
            return self._connection

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    async def connected(self, *, beside: bool = False) -> Connection:
        if self._connection is not None:
            return self._connection
        return await self.in_thread(functools.partial(self.connection, beside=beside))

    async def in_thread(self, work: Callable[..., R], *args: Any) -> R:
        """Do blocking work on a thread. Wall-clock time does not pass until the work is done."""
        self.clock.busy()
        try:
            return await asyncio.to_thread(work, *args)
        finally:
            self.clock.idle()

    def disconnect(self) -> None:
        """Close the connection. A call that comes meanwhile gets an error: it must not open a connection that remains open."""
        with self._connecting:
            connection, self._connection = self._connection, None
            portal, self._portal = self._portal, None
            self._disconnecting = True
        try:
            if connection is not None:
                connection.close()
            for other in self.other_databases:
                other.close()
            if portal is not None:
                portal.close()
        finally:
            self._disconnecting = False

    def _refuse_while_disconnecting(self) -> None:
        if self._disconnecting:
            raise _closed()

    def leave_to_parent(self) -> list[object]:
        """Drop the parent's objects in a forked process, also its lock, which a thread of the parent may hold."""
        left: list[object] = [self._connection, self._portal, self.engine]
        self._connection = self._portal = self.engine = None
        self._connecting = threading.Lock()
        return left

    # -- blocking ------------------------------------------------------------------------------------------------------
    def block(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the app's loop, or on the portal's if the app is not entered. Block until it is done."""
        waiting = bridged(work)
        try:
            loop = self.engine.loop if self.engine is not None else self.portal().loop
            return asyncio.run_coroutine_threadsafe(waiting, loop).result()
        except concurrent.futures.CancelledError:  # only the end of the loop cancels it
            raise _closed() from None
        finally:
            if inspect.getcoroutinestate(waiting) == inspect.CORO_CREATED:  # there was no loop to run it
                waiting.close()
                work.close()

    def portal(self) -> Portal:
        with self._connecting:
            self._refuse_while_disconnecting()
            if self._portal is None:
                self._portal = Portal()
            return self._portal


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the app was closed while this call was under way; it may have been stored")
