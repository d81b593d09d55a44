"""The order in which idle workers claim a run that just became ready, so that they do not all query for it at once.

Every worker computes the same order from the run's id and the workers that know its function. The first claims at once, each other one a
moment later than the one before it, unless it is notified by then that the run was claimed.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.model.runs import Worker

STEP = 0.025
"""Seconds between the claims of two workers: enough for a claim and its notification."""
LONGEST = 1.0


class Turns:
    """The order of the workers for each run."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._functions: dict[str, tuple[str, frozenset[str]]] = {}
        self._others: tuple[tuple[str, frozenset[str]], ...] = ()

    def update(self, fleet: Iterable[Worker]) -> None:
        """Update the list of workers. Thread-safe."""
        known = {
            worker.id: self._functions.get(worker.id)
            if self._functions.get(worker.id, ("",))[0] == worker.functions
            else (worker.functions, frozenset[str](json.loads(worker.functions)))
            for worker in fleet
            if worker.id != self._me
        }
        self._functions = {worker: found for worker, found in known.items() if found is not None}
        self._others = tuple((worker, names) for worker, (_, names) in self._functions.items())

    @property
    def alone(self) -> bool:
        """Whether there is no other worker."""
        return not self._others

    def delay(self, run: str, function: str) -> float:
        """Return the seconds that this worker waits before it claims a run."""
        mine = _rank(run, self._me)
        before = sum(1 for worker, names in self._others if function in names and _rank(run, worker) < mine)
        return min(before * STEP, LONGEST)


def _rank(run: str, worker: str) -> bytes:
    return blake2b(f"{run} {worker}".encode(), digest_size=8).digest()
