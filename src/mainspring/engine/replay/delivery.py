"""Outcomes reach a workflow's code one at a time, in the order in which they were recorded: live and on replay alike.

Without this, races between branches (first completed, queues, semaphores, task groups) come out differently on replay. Between two
outcomes the loop goes round until the run is idle, so that whatever the first one sets off has happened before the second arrives:
live, much time may have passed between them, and in a replay none does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.engine.replay.empty import UNUSED, own

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sized

    IsBusy = Callable[[], "bool | None"]

ROUNDS = 3
"""How often the loop goes round at least: a future that gathers others is done a round after them, with no task at work."""
BLIND_ROUNDS = 12
"""The same where it would take too long to look whether any task of the run is at work."""
MOST_ROUNDS = 45
"""After so many, the run has a task that polls: it is never idle. Fewer than make a virtual clock believe that nothing goes on."""


class Delivery:
    """The order of one run's outcomes. Only used on the run's loop."""

    __slots__ = ("_draining", "_held", "_is_busy", "_loop", "_skipped", "_waiting", "cursor", "recorded")

    def __init__(self, loop: asyncio.AbstractEventLoop, recorded: int = 0, skipped: Iterable[int] = ()) -> None:
        self._loop = loop
        self.recorded = recorded
        """How many outcomes there were when the run was claimed."""
        self._skipped: dict[int, None] = dict.fromkeys(skipped) or UNUSED
        self._waiting: dict[int, asyncio.Future[None]] = UNUSED
        self._held: dict[asyncio.Future[None], None] = UNUSED
        self._draining = False
        self._is_busy: IsBusy | None = None
        self.cursor = 0
        self._pass_skipped()

    @property
    def replaying(self) -> bool:
        """Whether there are recorded outcomes that the code has not had yet."""
        return self.cursor < self.recorded

    def turn(self, seq: int, *, alone: bool, is_busy: IsBusy | None = None) -> asyncio.Future[None] | None:
        """What to await before outcome `seq` may be handed to the code; None: nothing.

        `is_busy` tells whether code of the run is about to go on; None: that is not known.
        """
        if alone and self.is_next(seq):
            self.cursor += 1
            if self._skipped:
                self._pass_skipped()
            return None
        self._is_busy = is_busy
        self._waiting = own(self._waiting)
        future = self._waiting[seq] = self._loop.create_future()
        self._pump()
        return future

    def is_next(self, seq: int | None) -> bool:
        """Whether outcome `seq` is the one to be handed over now, with no other on its way."""
        return seq == self.cursor and not self._draining and not self._waiting

    def frontier(self) -> asyncio.Future[None] | None:
        """What to await before an operation without a recorded outcome may act: the record has to be used up."""
        if not self.replaying and not self._draining:
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
        """Wake all waiters with an exception."""
        waiting = [*self._waiting.values(), *self._held]
        self._waiting.clear()
        self._held.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def close(self) -> None:
        """The run has left: nothing is to keep it in memory."""
        self._is_busy = None

    @property
    def stuck(self) -> bool:
        """Whether operations are held back for a recorded outcome that no branch asks for."""
        return bool(self._held) and self.replaying and self.cursor not in self._waiting

    def _advance(self) -> None:
        self.cursor += 1
        self._pass_skipped()

    def _pass_skipped(self) -> None:
        while self.cursor in self._skipped:
            self.cursor += 1

    def _pump(self) -> None:
        if self._draining:
            return
        future = self._waiting.pop(self.cursor, None)
        if future is not None:
            self._advance()
            if not future.done():
                future.set_result(None)
            self._draining = True
            self._loop.call_soon(self._drain, 0, 0)
        elif not self.replaying and self._held:
            held, self._held = self._held, UNUSED
            for waiter in held:
                if not waiter.done():
                    waiter.set_result(None)

    def _drain(self, rounds: int, calm: int) -> None:
        """Called once a round: whether what the last outcome has set off is over. `calm` rounds have passed without the run at work."""
        ready: Sized | None = getattr(
            self._loop, "_ready", None
        )  # asyncio's own loops tell what they have still to call
        busy = self._is_busy() if self._is_busy is not None else None
        calm = 0 if busy else calm + 1
        enough = BLIND_ROUNDS if busy is None else ROUNDS
        if (ready is None or ready) and calm < enough and rounds < MOST_ROUNDS:
            self._loop.call_soon(self._drain, rounds + 1, calm)
        else:
            self._draining = False
            self._pump()
