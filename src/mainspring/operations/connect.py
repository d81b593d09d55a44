"""From a URL to what an operator may see and do, without an app."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mainspring.errors import InvalidInput, StoreUnavailable
from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker
from mainspring.operations.retention import Pruning
from mainspring.operations.runs import Runs
from mainspring.operations.schedules import Schedules
from mainspring.operations.workers import Workers
from mainspring.store.open import open_store, shown, sqlite_path

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.model.clock import Clock
    from mainspring.store.open import StoreSettings

__all__ = ["Operations", "connect", "missing_file", "shown"]


@dataclass(frozen=True, slots=True)
class Operations:
    """The nouns of one database, each with its verbs."""

    runs: Runs
    workers: Workers
    schedules: Schedules
    pruning: Pruning
    clock: Clock
    """Civil time as the database has it."""
    offset: int
    """How many microseconds that is ahead of this machine's."""


@contextlib.contextmanager
def connect(url: str, settings: StoreSettings) -> Generator[Operations]:
    """Connect for the length of a block. Looking changes nothing: tables are checked, never made or migrated."""
    require_there(url)
    store = open_store(url, settings)
    try:
        store.open(migrate=False)
        clock = SystemClock()
        clock.offset = store.clock_offset()
        schedules = Schedules(store, clock, IdMaker(clock))
        pruning = Pruning(store, clock)
        yield Operations(Runs(store, clock), Workers(store, clock), schedules, pruning, clock, clock.offset)
    finally:
        store.close()


def missing_file(url: str) -> Path | None:
    """The file that a SQLite URL names, if there is no such file."""
    if urlsplit(url).scheme != "sqlite":
        return None
    name = sqlite_path(url)
    if not name:
        raise InvalidInput(f"{url} is a temporary database, which only the process that made it can see; name a file")
    path = Path(name)
    return None if path.exists() else path


def require_there(url: str) -> None:
    """Opening a SQLite file makes one. Nobody who only wants to look wants that."""
    path = missing_file(url)
    if path is not None:
        raise StoreUnavailable(
            f"there is no database file {path.absolute()}; give another one with --url, "
            f"or make it with `mainspring db migrate --url {url}`"
        )
