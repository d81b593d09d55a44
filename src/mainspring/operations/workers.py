"""Queries of the workers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  (a run that asks for a WorkerInfo records it, and reads it back by its annotations)
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND
from mainspring.operations.records import shown
from mainspring.store.bad_rows import readable

if TYPE_CHECKING:
    from mainspring.model.clock import Clock
    from mainspring.model.runs import Worker
    from mainspring.store.protocol import Store


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A live worker."""

    id: str
    host: str
    pid: int
    version: str
    functions: list[str]
    """The names of the functions that the worker executes."""
    started: datetime
    seen: datetime
    """The time of the last heartbeat."""
    silent: float
    """Seconds since the last heartbeat."""
    instances: list[str] = field(default_factory=list[str])
    """The names of the worker's registered instances, if it executes methods."""


class Workers:
    """The queries. All of them block."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def list(self) -> list[WorkerInfo]:
        """Return the workers, oldest first."""
        now = self._clock.now()
        return readable("workers", self._store.workers(), lambda worker: _info(worker, now), lambda worker: worker.id)


def _info(worker: Worker, now: int) -> WorkerInfo:
    return shown(
        WorkerInfo,
        worker,
        functions=sorted(json.loads(worker.functions)),
        silent=max(0, now - worker.seen) / SECOND,
        instances=sorted({name for names in json.loads(worker.instances).values() for name in names}),
    )
