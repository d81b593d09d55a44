"""Detect runs that start each other for ever while virtual time stands still, so that a test would never end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.app.events import Listeners
from mainspring.errors import Endless
from mainspring.model.runs import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.verbs.unnotified import UnreportedEnd
    from mainspring.testing.clock import VirtualClock

LONGEST = 1_000


class Chains(Listeners):
    """Wraps the listeners of an app, and counts the length of the chains of runs that start at one virtual time."""

    def __init__(self, listeners: Listeners, clock: VirtualClock) -> None:
        super().__init__()
        self._listeners = listeners
        self.operations, self.around = listeners.operations, listeners.around
        self.changes = listeners.changes
        self._clock = clock
        self._moment = 0
        self._lengths: dict[str, int] = {}

    def add(self, name: str, fn: Callable[[Any], Any]) -> None:
        self._listeners.add(name, fn)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def _interested(self, name: str) -> list[Callable[[Any], Any]]:
        return self._listeners._interested(name)  # noqa: SLF001

    def tell(self, name: str, run: Run | UnreportedEnd, reason: str | None, at: int) -> None:
        if name == "run.started" and isinstance(run, Run):
            self._count(run, at)
        self._listeners.tell(name, run, reason, at)

    def _count(self, run: Run, now: int) -> None:
        if now != self._moment:
            self._moment = now
            self._lengths.clear()
        before = run.scheduled_by or run.parent
        length = self._lengths[run.id] = self._lengths.get(before, 0) + 1 if before is not None else 1
        if length == LONGEST:
            self._clock.give_up(
                Endless(
                    f"{LONGEST:,} runs have started each other, one after the other, while it was {self._clock.time.isoformat()}, the "
                    f"last one of {run.workflow!r}: this has no end. Give them a delay, or an end"
                )
            )
