"""Slots of one worker: how many more runs it may execute."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.engine.host import Host
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.execution import Execution


class Slots:
    """The slots of one engine. A run has one from the moment it is claimed or about to be started until it is released."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._reserved = 0
        self._threads_reserved = 0
        self._threads_used = 0
        self.paused = False
        """Whether only runs that runs of this worker start may begin here."""
        self.queued: dict[str, dict[str, int]] = {}
        """Runs of queues in memory, by queue and partition."""

    def free(self) -> int:
        """The number of runs that may still begin here. Runs that are stored as waiting take no slot."""
        engine = self._engine
        if not engine.accepting:
            return 0
        return engine.settings.concurrency - (len(engine.executions) - engine.residency.waiting) - self._reserved

    def threads(self) -> int:
        """The number of `def` runs for which a thread is free."""
        return self._engine.settings.threads - self._threads_used - self._threads_reserved

    def reserve(self, function: Function, *, in_run: bool) -> bool:
        """Reserve a slot for a run that is about to be started here. Return False if none is free. Thread-safe.

        `in_run`: a run of this worker starts it.
        """
        with self._lock:
            if (self.paused and not in_run) or self.free() <= 0:
                return False
            if not function.on_loop and self.threads() <= 0:
                self._engine.residency.free_a_thread()
                return False
            self._change(1, blocking=not function.on_loop)
            return True

    def unreserve(self, function: Function) -> None:
        """Free a reserved slot: its run has begun, or does not begin here. Thread-safe."""
        with self._lock:
            self._change(-1, blocking=not function.on_loop)

    @contextlib.contextmanager
    def reserved(self, slots: int, *, blocking: bool) -> Generator[None]:
        """Reserve slots for runs that are being claimed, so that no start takes them before the claim is answered."""
        with self._lock:
            self._change(slots, blocking=blocking)
        try:
            yield
        finally:
            with self._lock:
                self._change(-slots, blocking=blocking)

    def _change(self, slots: int, *, blocking: bool) -> None:
        self._reserved += slots
        if blocking:
            self._threads_reserved += slots

    def count_thread(self, change: int) -> None:
        """A `def` run has got its thread, or has left it."""
        self._threads_used += change

    def count_queued(self, ex: Execution, change: int) -> None:
        """A run has come into memory, or left it: if it is of a queue, it counts there."""
        if ex.run.queue is not None:
            there = self.queued.setdefault(ex.run.queue, {})
            there[ex.run.partition] = there.get(ex.run.partition, 0) + change
            if not there[ex.run.partition]:
                del there[ex.run.partition]

    @property
    def idle(self) -> bool:
        """Whether no slot is taken or reserved. For audits."""
        return not (self._reserved or self._threads_reserved or self._threads_used or any(self.queued.values()))
