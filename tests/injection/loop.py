"""An event loop among threads that take turns. Its iterations are counted, and something can be done at the n-th of them."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.injection.threads import Runner, Turns

_ANSWER_SECONDS = 0.2
"""Real seconds that a database may take to answer a coroutine, before other threads are let run to see whether it waits for them."""


class _Waiting(selectors.BaseSelector):
    """Waits by giving the turn to other threads. Descriptors are looked at as well: drivers that await have some."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._real = selectors.SelectSelector()
        self._own: Any = None
        self._line: list[Runner] = []
        self.lag = 0
        self._busy = 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._own is None:
            self._own = fileobj  # the loop's own pipe, which nobody writes to
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Any:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()

    def ready(self) -> bool:
        return bool(self._real.select(0))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        turns = self._turns
        outside = len(self._real.get_map()) > 1
        if timeout is not None and timeout <= 0:
            self._busy += 1
            if self._busy > self.lag:  # a loop that always has something to do lets the others run all the same
                self._busy = 0
                turns.stand_back()
            return self._real.select(0) if outside else []
        self._busy = 0
        found = self._real.select(_ANSWER_SECONDS) if outside else []
        if not found:
            deadline = None if timeout is None else turns.after(timeout)
            turns.wait(self._line, deadline, selector=self if outside else None)
            found = self._real.select(0) if outside else []
        return found

    def wake(self) -> None:
        if self._line:
            self._turns.wake(self._line.pop())


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop whose time is virtual. `lag`: how often a busy loop goes round before other threads get their turn."""

    def __init__(self, turns: Turns, *, lag: int = 0) -> None:
        self._turns = turns
        self._waiting = _Waiting(turns)
        self._waiting.lag = lag
        self.turn = 0
        """How many iterations there have been since `count_from_here`."""
        self._plans: dict[int, list[Callable[[], None]]] = {}
        self.complaints: list[str] = []
        super().__init__(self._waiting)
        self._clock_resolution = 1e-6  # a tick
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        return self._turns.now

    def count_from_here(self) -> None:
        self.turn = 0

    def at_turn(self, turn: int, work: Callable[[], None]) -> None:
        """Do something on the loop, before whatever else the n-th iteration from the counted beginning does."""
        self._plans.setdefault(turn, []).append(work)

    def in_turns(self, turns: int, work: Callable[[], None]) -> None:
        """The same, so many iterations from now."""
        self.at_turn(self.turn + max(turns, 1), work)

    def _run_once(self) -> None:
        self.turn += 1
        for work in self._plans.pop(self.turn, ()):
            work()
        super()._run_once()  # type: ignore[misc]

    def _write_to_self(self) -> None:
        self._waiting.wake()

    def _complain(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.complaints.append(f"{context.get('message', '')} {error!r}".strip())
