"""Places for runs in one worker: how many more it may take, and who holds which."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.engine.engine import Engine
    from mainspring.engine.execution import Execution
    from mainspring.engine.registry import Function


class Places:
    """The room of one engine. A run has a place from the moment somebody is about to take or start it until it is let go."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._held = 0
        self._threads_held = 0
        self._blocking = 0
        self.paused = False
        """Whether nothing is to begin here but what belongs to runs in hand."""
        self.queued: dict[str, dict[str, int]] = {}
        """Runs of queues in memory, by queue and partition."""

    def free(self) -> int:
        """How many more runs may be taken in hand. Those that rest do not count."""
        engine = self._engine
        if not engine.accepting:
            return 0
        return engine.settings.concurrency - (len(engine.executions) - engine.parking.resting) - self._held

    def threads(self) -> int:
        """How many more `def` runs there are threads for."""
        return self._engine.settings.threads - self._blocking - self._threads_held

    def admit(self, function: Function, run_id: str, *, in_hand: bool = False) -> bool:
        """Hold a place for a run that is about to be started here, if there is one; `in_hand`: by a run. From any thread."""
        with self._lock:
            if self.paused and not in_hand:
                return False
            if self.free() <= 0 or (not function.is_async and self.threads() <= 0):
                return False
            self._hold(1, blocking=not function.is_async)
            self._engine.expected.add(run_id)
            return True

    def give_back(self, function: Function) -> None:
        """What `admit` held is needed no longer. From any thread."""
        with self._lock:
            self._hold(-1, blocking=not function.is_async)

    @contextlib.contextmanager
    def held(self, places: int, *, blocking: bool) -> Generator[None]:
        """Hold places for runs that are being claimed, so that nothing that is started meanwhile takes them."""
        with self._lock:
            self._hold(places, blocking=blocking)
        try:
            yield
        finally:
            with self._lock:
                self._hold(-places, blocking=blocking)

    def _hold(self, places: int, *, blocking: bool) -> None:
        self._held += places
        if blocking:
            self._threads_held += places

    def count_thread(self, change: int) -> None:
        """A `def` run has got its thread, or has left it."""
        self._blocking += change

    def count_queued(self, ex: Execution, change: int) -> None:
        """A run has come into memory, or left it: if it is of a queue, it counts there."""
        if ex.run.queue is not None:
            there = self.queued.setdefault(ex.run.queue, {})
            there[ex.run.partition] = there.get(ex.run.partition, 0) + change
            if not there[ex.run.partition]:
                del there[ex.run.partition]
