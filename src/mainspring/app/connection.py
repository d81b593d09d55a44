"""A live connection to the database: the store, its committer, and those in this process who wait for runs to end."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from mainspring.app.ears import Ears
from mainspring.errors import SchemaError, StoreError
from mainspring.model.clock import SystemClock
from mainspring.operations.connect import follow_database

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.backstage import Backstage
    from mainspring.app.settings import Settings
    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Signal


log = logging.getLogger("mainspring.app")

_MEASURED_EVERY = 30.0


class ClockKeeper:
    """Measures the database's clock again, now and then and whenever the time is in doubt, on a thread of its own."""

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
                    log.warning("the clock of the database cannot be read, trying again every second: %s", error)
                pause = 1.0
                time.sleep(0.1)  # it stays in doubt
            self._wake.clear()


class Connection:
    """What an app has while it is connected. Made on first use, closed with the app."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        clock: Clock,
        backstage: Backstage,
        *,
        beside: bool = False,
    ) -> None:
        self.clock = clock
        self.store = backstage.store(url, settings)
        try:
            self.store.open(migrate=settings.migrate, beside=beside)
        except SchemaError:
            self.store.close()
            raise
        self._keeper = (
            ClockKeeper(clock) if isinstance(clock, SystemClock) and follow_database(clock, self.store) else None
        )
        self.committer = backstage.committer(self.store, clock)
        self.endings = backstage.endings(self.store, settings)
        self.ears = Ears(settings.poll)
        self._hearers: list[Callable[[Signal], None]] = []
        self.store.listen(self._hear)

    def on_signal(self, hear: Callable[[Signal], None]) -> None:
        """Also tell `hear` of what commits may have changed, on whatever thread learns of it."""
        self._hearers.append(hear)

    def off_signal(self, hear: Callable[[Signal], None]) -> None:
        if hear in self._hearers:
            self._hearers.remove(hear)

    def _hear(self, signal: Signal) -> None:
        for hear in list(self._hearers):
            hear(signal)
        if signal.ended is None or signal.ended:
            self.endings.look(signal.ended)
        self.ears.hear(signal)

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
        self.endings.close()
        self.committer.close()
        self.store.close()
