"""The worker processes of a soak: real `mainspring worker`s with short leases and little room, replaced when they end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.soak.functions.jobs import CRONTAB
from tests.support.processes import Fleet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.soak.clocks import Clock
    from tests.soak.ledger import Writer
    from tests.support.processes import Process

_LOOK = 0.05
LEASE = 1.5
GRACE = 1.0
CONCURRENCY = 25
THREADS = 6
SETTINGS: dict[str, Any] = {
    "lease": LEASE,
    "grace": GRACE,
    "concurrency": CONCURRENCY,
    "threads": THREADS,
    "resident": 8,  # few enough that most runs that wait are parked
    "park_after": 0.2,
    "poll": 0.5,
    "max_recoveries": "none",
    "continue_on": "compatible",
}


class Workers:
    """A fleet that keeps its size. Everything that becomes of a process is a line in the ledger."""

    def __init__(
        self, folder: Path, url: str, size: int, ledger: Writer, *, more: dict[str, str], clocks: Sequence[Clock]
    ) -> None:
        self.fleet = _SoakFleet(folder, url, more, clocks)
        self.fleet.quiet = True
        self.alive: list[Process] = []
        self.version = "old"
        self._size = size
        self._ledger = ledger

    def fill(self) -> int:
        """Start as many as are missing; how many had ended by themselves, as when the database was away at their start."""
        ended = [each for each in self.alive if not each.alive]
        for each in ended:
            self.alive.remove(each)
            self._ledger.write("process ended", label=str(each.pid))
        while len(self.alive) < self._size:
            self.alive.append(self.fleet.start(self.version))
            self._ledger.write("process started", label=str(self.alive[-1].pid), version=self.version)
        return len(ended)

    def remove(self, worker: Process) -> None:
        """It is about to be ended by the one who calls."""
        self.alive.remove(worker)

    def ready(self) -> list[Process]:
        return [each for each in self.alive if each.alive and "ready;" in each.output]

    def wait_for_most(self, within: float) -> bool:
        """Wait until at most one is missing: faults that come faster than processes start only show that nothing works without workers."""
        deadline = time.monotonic() + within
        while len(self.ready()) < max(1, len(self.alive) - 1):
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK)
        return True

    def wait_until_ready(self) -> None:
        for each in self.alive:
            each.says("ready;", within=60)


class _SoakFleet(Fleet):
    """A fleet of the soak's app, with other databases, a crontab and clocks."""

    def __init__(self, folder: Path, url: str, more: dict[str, str], clocks: Sequence[Clock]) -> None:
        super().__init__(folder, url, **SETTINGS)
        self._more = more
        self._clocks = clocks
        self._crontab = folder / "soak.crontab"
        self._crontab.write_text(CRONTAB)

    def environment(self, **settings: object) -> dict[str, str]:
        found = super().environment(**settings) | self._more
        if self._clocks:
            found |= self._clocks[len(self.processes) % len(self._clocks)].environment
        return found

    def start(self, version: str) -> Process:
        self._more["SOAK_VERSION"] = version
        return self.process("-m", "mainspring", "worker", "tests.soak.app:app", "--crontab", str(self._crontab))
