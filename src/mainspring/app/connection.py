"""A live connection to the database: the store, its committer, and the waits of this process."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING

from mainspring.app.waiting.in_process import Awaited, EndingLookups, Subscriptions
from mainspring.errors import SchemaError, StoreError
from mainspring.model.clock import SystemClock
from mainspring.operations.connect import follow_database

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.factory import Parts
    from mainspring.app.functions.options import Duration
    from mainspring.app.settings import Settings
    from mainspring.model.clock import Clock
    from mainspring.model.payloads import PayloadCodec
    from mainspring.model.runs import Ending
    from mainspring.store.changes import Signal


log = logging.getLogger("mainspring.app")

_MEASURED_EVERY = 30.0


class ClockKeeper:
    """Measures the database's clock periodically, and whenever its time is in doubt, on a thread of its own."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._wake = threading.Event()
        self._closing = False
        clock.on_doubt = self._wake.set
        self._thread = threading.Thread(target=self._run, name="mainspring-clock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._thread.join()

    def release_clock(self) -> None:
        """Let the clock follow the machine's: the app may be connected to another database next, which may have no clock."""
        self._clock.unfollow()

    def _run(self) -> None:
        pause = _MEASURED_EVERY
        while True:
            self._wake.wait(pause)
            if self._closing:
                return
            try:
                self._clock.confirm()
                pause = _MEASURED_EVERY
            except StoreError as error:
                if pause == _MEASURED_EVERY:
                    log.warning("the clock of the database cannot be read; retrying every second: %s", error)
                pause = 1.0
                time.sleep(0.1)  # the time stays in doubt until the next measurement
            self._wake.clear()


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
