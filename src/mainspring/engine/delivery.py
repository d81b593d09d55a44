"""Outcomes reach a workflow's code one at a time, in the order in which they were recorded: live and on replay alike.

Without this, races between branches (first completed, queues, semaphores, task groups) come out differently on replay. The loop
goes round a few times between two outcomes, so that whatever the first one sets off has happened before the second arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.engine.unused import UNUSED, own

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

ROUNDS = 3
"""How often the loop goes round between two outcomes."""


class Delivery:
    """The order of one run's outcomes. Only used on the run's loop."""

    __slots__ = ("_held", "_loop", "_settling", "_skipped", "_waiting", "cursor", "recorded")

    def __init__(self, loop: asyncio.AbstractEventLoop, recorded: int = 0, skipped: Iterable[int] = ()) -> None:
        self._loop = loop
        self.recorded = recorded
        """How many outcomes there were when the run was taken in hand."""
        self._skipped: dict[int, None] = dict.fromkeys(skipped) or UNUSED
        self._waiting: dict[int, asyncio.Future[None]] = UNUSED
        self._held: dict[asyncio.Future[None], None] = UNUSED
        self._settling = False
        self.cursor = 0
        self._pass_skipped()

    @property
    def replaying(self) -> bool:
        """Whether there are recorded outcomes that the code has not had yet."""
        return self.cursor < self.recorded

    def turn(self, seq: int, *, alone: bool) -> asyncio.Future[None] | None:
        """What to await before outcome `seq` may be handed to the code; None: nothing."""
        if alone and self.is_next(seq):
            self.cursor += 1
            if self._skipped:
                self._pass_skipped()
            return None
        self._waiting = own(self._waiting)
        future = self._waiting[seq] = self._loop.create_future()
        self._pump()
        return future

    def is_next(self, seq: int | None) -> bool:
        """Whether outcome `seq` is the one to be handed over now, with no other on its way."""
        return seq == self.cursor and not self._settling and not self._waiting

    def frontier(self) -> asyncio.Future[None] | None:
        """What to await before an operation without a recorded outcome may act: the record has to be used up."""
        if not self.replaying and not self._settling:
            return None
        future = self._loop.create_future()
        self._held = own(self._held)
        self._held[future] = None
        self._pump()
        return future

    def skip(self, seq: int) -> None:
        """Outcome `seq` is never handed over: the code cancelled the operation."""
        self._waiting.pop(seq, None)
        self._skipped = own(self._skipped)
        self._skipped[seq] = None
        self._pass_skipped()
        self._pump()

    def fail(self, error: BaseException) -> None:
        """Wake everybody who waits with an exception."""
        waiting = [*self._waiting.values(), *self._held]
        self._waiting.clear()
        self._held.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    @property
    def stuck(self) -> bool:
        """Whether operations are held back for a recorded outcome that nobody asks for."""
        return bool(self._held) and self.replaying and self.cursor not in self._waiting

    def _advance(self) -> None:
        self.cursor += 1
        self._pass_skipped()

    def _pass_skipped(self) -> None:
        while self.cursor in self._skipped:
            self.cursor += 1

    def _pump(self) -> None:
        if self._settling:
            return
        future = self._waiting.pop(self.cursor, None)
        if future is not None:
            self._advance()
            if not future.done():
                future.set_result(None)
            self._settle(ROUNDS)
        elif not self.replaying and self._held:
            held, self._held = self._held, UNUSED
            for waiter in held:
                if not waiter.done():
                    waiter.set_result(None)

    def _settle(self, rounds: int) -> None:
        self._settling = rounds > 0
        if rounds:
            self._loop.call_soon(self._settle, rounds - 1)
        else:
            self._pump()
