"""Connect to a database as an operator, without an app."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from mainspring.errors import InvalidInput, StoreError, StoreUnavailable
from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker
from mainspring.model.states import NOT_BEGUN
from mainspring.operations.audit import Audit
from mainspring.operations.metrics import Metrics
from mainspring.operations.overview import Watch
from mainspring.operations.queues import Queues
from mainspring.operations.retention import Pruning
from mainspring.operations.runs.info import Conversation, Runs, conversation
from mainspring.operations.sessions import Sessions
from mainspring.operations.unserved import unserved, why_unserved
from mainspring.operations.versions import Versions
from mainspring.operations.workers import Workers
from mainspring.store.open import StoreSettings, open_store, shown, sqlite_path

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from mainspring.model.clock import Clock
    from mainspring.operations.runs.bulk import Progress
    from mainspring.operations.runs.info import RunInfo
    from mainspring.operations.runs.start import Starting
    from mainspring.operations.scheduled_functions import ScheduledFunctions
    from mainspring.operations.schedules.actions import Schedules
    from mainspring.operations.schedules.pictures import Pictures
    from mainspring.operations.unserved import Unserved
    from mainspring.store.protocol import ServerState, Store
    from mainspring.store.verbs.defects import Defect

__all__ = ["Operations", "connect", "missing_file", "shown", "sqlite_path"]
log = logging.getLogger("mainspring.app")
_MOST_NAMED = 5
_MEASURED_EVERY = 30.0
"""Seconds between two measurements of the database's clock."""


class ConnectionSettings(StoreSettings, Protocol):
    """The settings that a connection needs."""

    @property
    def payloads(self) -> str: ...


class Operations:
    """The nouns of one database, each with its verbs."""

    def __init__(self, store: Store, clock: Clock, ids: IdMaker, offset: int = 0) -> None:
        self._store = store
        self._ids = ids
        self.clock = clock
        """Wall-clock time of the database."""
        self.offset = offset
        """Microseconds that the database's clock is ahead of this machine's."""
        self.runs = Runs(store, clock)
        self.workers = Workers(store, clock)
        self.queues = Queues(store, clock)
        self.versions = Versions(store, clock)
        self.pruning = Pruning(store, clock)

    def runs_with(self, progress: Progress) -> Runs:
        """Return the verbs of runs with `progress`, which follows a verb through the runs that a filter finds."""
        return Runs(self._store, self.clock, progress)

    @property
    def functions(self) -> ScheduledFunctions:
        return self.runs.functions

    def unserved(self) -> Iterator[Unserved]:
        """Yield the queues and versions that runs wait for in vain."""
        return unserved(self._store, self.clock)

    def why_unserved(self, run: RunInfo) -> Unserved | None:
        """Return why no worker begins a run, if that is so."""
        if run.state not in NOT_BEGUN:
            return None
        return why_unserved(self._store, run.queue, run.version if run.started is None else None)

    @property
    def schedules(self) -> Schedules:
        from mainspring.operations.schedules.actions import Schedules  # noqa: PLC0415  (recurrence is slow to import)

        return Schedules(self._store, self.clock, self._ids)

    @property
    def starting(self) -> Starting:
        """Start runs by name, and send them messages."""
        from mainspring.operations.runs.start import Starting  # noqa: PLC0415

        return Starting(self._store, self.clock, self._ids)

    @property
    def pictures(self) -> Pictures:
        """The days of schedules, for the dashboard's calendars."""
        from mainspring.operations.schedules.pictures import Pictures  # noqa: PLC0415

        return Pictures(self._store, self.clock)

    @property
    def watch(self) -> Watch:
        """The overview of all runs and schedules."""
        return Watch(self._store, self.clock)

    @property
    def metrics(self) -> Metrics:
        """Figures for monitoring."""
        return Metrics(self._store, self.clock)

    @property
    def audit(self) -> Audit:
        """The audit log of operators' actions."""
        return Audit(self._store, self.clock, self._ids)

    @property
    def sessions(self) -> Sessions:
        """The sessions of users who are signed in to the dashboard."""
        return Sessions(self._store, self.clock)

    def inspect(self, *, thorough: bool | None = None) -> list[Defect]:
        """Return the inconsistencies of the database. By default every row is read, unless the database is large."""
        from mainspring.operations.inspection import inspect  # noqa: PLC0415  (rarely used, and it imports schedules)

        return inspect(self._store, self.clock.now(), thorough=thorough)

    @property
    def is_large(self) -> bool:
        """Whether the database is so large that `inspect` does not read every row by default."""
        from mainspring.operations.inspection import is_large  # noqa: PLC0415

        return is_large(self._store)

    def server_state(self) -> ServerState | None:
        """Return the state of the database server. None on SQLite."""
        return self._store.server_state()

    def conversation(self, run: str) -> Conversation:
        """Return the messages, events and streams of a run."""
        return conversation(self._store, run)


@contextlib.contextmanager
def connect(url: str, settings: ConnectionSettings) -> Generator[Operations]:
    """Connect for the length of a block. The tables are checked, never created or migrated."""
    require_there(url)
    store = open_store(url, settings)
    if settings.payloads != "none":
        from mainspring.store.sealing.payloads import named_codec  # noqa: PLC0415  (only needed with a payload codec)
        from mainspring.store.sealing.store import sealed_store  # noqa: PLC0415

        codec = named_codec(settings.payloads)
        store = store if codec is None else sealed_store(store, codec)
    try:
        store.open(migrate=False)
        clock = SystemClock()
        follow_database(clock, store)
        yield Operations(store, clock, IdMaker(clock), clock.offset)
    finally:
        store.close()


def follow_database(clock: SystemClock, store: Store) -> bool:
    """Make a clock follow that of the database. Return False if the database has none."""
    if store.clock_offset() is None:
        return False
    clock.follow(lambda: store.clock_offset() or 0)
    return True


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


def missing_file(url: str) -> Path | None:
    """Return the file of a SQLite URL if it does not exist, otherwise None."""
    if urlsplit(url).scheme != "sqlite":
        return None
    name = sqlite_path(url)
    if not name:
        raise InvalidInput(f"{url} is a temporary database, which only the process that made it can see; name a file")
    path = Path(name)
    return None if path.exists() else path


def require_there(url: str) -> None:
    """Raise `StoreUnavailable` if the SQLite file does not exist, because opening it would create it."""
    path = missing_file(url)
    if path is not None:
        raise StoreUnavailable(
            f"there is no database file {path.absolute()}{_beside(path)}; give another one with --url or MAINSPRING_URL, "
            f"or make it with `mainspring db migrate --url {url}`"
        )


def _beside(path: Path) -> str:
    """Return a hint with the database files of the same folder, since a wrong name is a common mistake."""
    names = sorted(each.name for each in path.parent.glob("*.db"))
    return f"; there is {', '.join(names[:_MOST_NAMED])}" if names else ""
