"""A live connection to the database: the store, its committer, and those in this process who wait for runs to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.app.ears import Ears
from mainspring.errors import SchemaError
from mainspring.model.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.backstage import Backstage
    from mainspring.app.settings import Settings
    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Signal


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
        if isinstance(clock, SystemClock):
            clock.offset = self.store.clock_offset()
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
        self.endings.close()
        self.committer.close()
        self.store.close()
