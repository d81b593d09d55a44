"""A ledger of effects: what really happened, in the order in which it happened, whoever died since.

Each entry is one line, appended by one write to a file opened for appending: the system keeps such writes of several processes
apart and in order, and a line that was written survives the process that wrote it. The database under test has no part in it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "FLEET_LEDGER"


@dataclass(frozen=True, slots=True)
class Entry:
    """A step of a run was executed: by which process, when (monotonic seconds, the same for all processes), and a remark."""

    run: str
    step: str
    pid: int
    at: float
    remark: str


class Ledger:
    """The entries in a file. Any number of processes may add to it while others read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_environment(cls) -> Ledger:
        return cls(Path(os.environ.get(VARIABLE, os.devnull)))

    def add(self, run: str, step: str, remark: object = "") -> None:
        line = f"{run}\t{step}\t{os.getpid()}\t{time.monotonic()!r}\t{remark}\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def entries(self, run: str | None = None) -> list[Entry]:
        if not self.path.exists():
            return []
        lines = self.path.read_text().split("\n")[:-1]
        found = [_entry(line) for line in lines]
        return found if run is None else [entry for entry in found if entry.run == run]

    def steps(self, run: str) -> list[str]:
        """The steps of a run in the order in which they were executed."""
        return [entry.step for entry in self.entries(run)]

    def times(self) -> Counter[tuple[str, str]]:
        """How often each step of each run was executed."""
        return Counter((entry.run, entry.step) for entry in self.entries())

    def pids(self, run: str, step: str) -> list[int]:
        return [entry.pid for entry in self.entries(run) if entry.step == step]


def _entry(line: str) -> Entry:
    run, step, pid, at, remark = line.split("\t")
    return Entry(run, step, int(pid), float(at), remark)
