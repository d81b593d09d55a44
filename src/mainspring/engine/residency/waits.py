"""What the runs of this worker wait for, and waking them when it has happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.engine.host import Host
    from mainspring.engine.replay.execution import Wait
    from mainspring.model.runs import Ending
    from mainspring.store.messages import Awaited

K = TypeVar("K")


class Waits:
    """The waits of all runs of one engine, by what ends them."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._children: dict[str, list[Wait]] = {}
        self._awaiting: dict[Awaited, list[Wait]] = {}

    def watch(self, wait: Wait) -> None:
        """Arrange for a wait to be resolved by its time, by the end of a run or by a message. From any thread of the run's own."""
        self._engine.here(self._watch, wait)

    def _watch(self, wait: Wait) -> None:
        wait.register()
        if wait.until is not None and not wait.future.done():
            wait.timer = self._engine.timers.at(wait.until, wait.resolve)
        if wait.child is not None:
            self._children.setdefault(wait.child, []).append(wait)
        if wait.awaits is not None:
            self._awaiting.setdefault(wait.awaits, []).append(wait)

    def unwatch(self, wait: Wait) -> None:
        """The wait is over. From any thread of the run's own."""
        self._engine.here(self._unwatch, wait)

    def _unwatch(self, wait: Wait) -> None:
        if wait.timer is not None:
            wait.timer.cancel()
            wait.timer = None
        if wait.child is not None:
            _remove(self._children, wait.child, wait)
        if wait.awaits is not None:
            _remove(self._awaiting, wait.awaits, wait)

    def resolve(self, ending: Ending) -> None:
        """A run has ended: wake those that wait for it."""
        for wait in list(self._children.get(ending.id, ())):
            wait.resolve(ending)

    def arrived(self, published: Iterable[Awaited]) -> None:
        """Messages arrived: the runs that wait for them read again. From any thread."""
        self._engine.here(self._arrived, published)

    def _arrived(self, published: Iterable[Awaited]) -> None:
        for what in published:
            for wait in list(self._awaiting.get(what, ())):
                wait.resolve()


def _remove(waits: dict[K, list[Wait]], key: K, wait: Wait) -> None:
    others = waits.get(key)
    if others is not None and wait in others:
        others.remove(wait)
        if not others:
            del waits[key]
