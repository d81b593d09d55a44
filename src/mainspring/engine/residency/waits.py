"""The open waits of the runs of this worker, and waking the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.engine.host import Host
    from mainspring.engine.replay.execution import Wait
    from mainspring.model.runs import Ending
    from mainspring.store.messages import Awaited

K = TypeVar("K")


class Waits:
    """The open waits of all runs of one engine, by the run or message that ends each."""

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._children: dict[str, list[Wait]] = {}
        self._awaiting: dict[Awaited, list[Wait]] = {}

    def watch(self, wait: Wait) -> None:
        """Have a wait resolved by its time, the end of a run or a message. From any thread of the run."""
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
        """Remove a wait that is over. From any thread of the run."""
        self._engine.here(self._unwatch, wait)

    def _unwatch(self, wait: Wait) -> None:
        if wait.timer is not None:
            wait.timer.cancel()
            wait.timer = None
        if wait.child is not None:
            _remove(self._children, wait.child, wait)
        if wait.awaits is not None:
            _remove(self._awaiting, wait.awaits, wait)

    def resolve(self, endings: Sequence[Ending]) -> None:
        """Wake the runs that wait for runs that have ended."""
        for ending in endings if self._children else ():
            for wait in list(self._children.get(ending.id, ())):
                wait.resolve(ending)

    def arrived(self, published: Iterable[Awaited]) -> None:
        """Wake the runs that wait for messages, events or streams that were published. Thread-safe."""
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
