"""Delivering outcomes to a workflow's code one at a time, in the order in which they were recorded, live and on replay.

Otherwise races between branches (first completed, queues, semaphores, task groups) would end differently on replay. Between two
outcomes the loop goes round until the run is idle, so that the code has reacted to the first before it gets the second: live, much
time may have passed between the two, and in a replay none does. A replay does so before the first one as well.

A retry of a run forgets what one branch recorded. Other branches keep what they recorded after that, and may have asked for it only because
of what is forgotten (an `asyncio.Event` that the other branch had set). If such an outcome is not asked for when the run is idle, it is passed
over, and delivered when it is asked for. Of several that are asked for, the one that was recorded first is the next.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainspring.engine.replay.empty import UNUSED, own

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Iterable, Sized

    IsBusy = Callable[[], "bool | None"]

ROUNDS = 3
"""The least number of rounds of the loop: a future that gathers others is done one round after them, and no task is busy then."""
BLIND_ROUNDS = 12
"""The number of rounds for a run with too many tasks to inspect."""
MOST_ROUNDS = 45
"""The most rounds, for a run with a task that polls and is never idle. Fewer than those after which a virtual clock advances."""
NONE_KEPT = range(0)


class Delivery:
    """The order of the outcomes of one run. Used on the loop only."""

    __slots__ = (
        "_draining",
        "_held",
        "_holds",
        "_is_busy",
        "_kept",
        "_loop",
        "_skipped",
        "_waiting",
        "cursor",
        "recorded",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        recorded: int = 0,
        skipped: Iterable[int] = (),
        kept: range = NONE_KEPT,
    ) -> None:
        self._loop = loop
        self._kept = kept
        """The `seq` of outcomes that may be passed over."""
        self.recorded = recorded
        """The number of recorded outcomes when the run was claimed."""
        self._skipped: dict[int, None] = dict.fromkeys(skipped) if skipped else UNUSED
        self._waiting: dict[int, asyncio.Future[None]] = UNUSED
        self._held: dict[asyncio.Future[None], None] = UNUSED
        self._draining = False
        self._holds = 0
        """The number of cancelled operations that are being recorded as such."""
        self._is_busy: IsBusy | None = None
        self.cursor = 0
        if self._skipped:
            self._pass_skipped()

    @property
    def is_over(self) -> bool:
        """Whether all recorded outcomes are delivered, and the code has reacted to them."""
        return self.cursor >= self.recorded and not self._draining

    @property
    def replaying(self) -> bool:
        """Whether recorded outcomes remain to be delivered."""
        return self.cursor < self.recorded

    def turn(self, seq: int, *, alone: bool, is_busy: IsBusy | None = None) -> asyncio.Future[None] | None:
        """Return a future to await before outcome `seq` may be delivered, or None if it may be delivered now.

        `is_busy` tells whether a task of the run is about to continue; None: not known.
        """
        if alone and self.is_next(seq):
            self.cursor += 1
            if self._skipped:
                self._pass_skipped()
            return None
        self._is_busy = is_busy
        self._waiting = own(self._waiting)
        future = self._waiting[seq] = self._loop.create_future()
        if self.replaying and not self._draining:
            self._begin_drain()  # live, the tasks that the code has created began while this operation executed
        else:
            self._pump()
        return future

    def is_next(self, seq: int | None) -> bool:
        """Whether outcome `seq` may be delivered now, with no other being delivered."""
        return seq == self.cursor and not self._draining and not self._waiting and not self._holds

    def frontier(self) -> asyncio.Future[None] | None:
        """Return a future to await until all recorded outcomes are delivered, or None if they are."""
        if not self.replaying and not self._draining:
            return None
        future = self._loop.create_future()
        self._held = own(self._held)
        self._held[future] = None
        self._pump()
        return future

    def skip(self, seq: int) -> None:
        """Skip outcome `seq`, which is never delivered because the code cancelled the operation."""
        self._waiting.pop(seq, None)
        self._skipped = own(self._skipped)
        self._skipped[seq] = None
        self._pass_skipped()
        self._pump()

    @contextmanager
    def held(self) -> Generator[None]:
        """Deliver nothing while it is recorded that the code cancelled an operation.

        The branch goes on after that commit. In a replay it goes on at once, before any other branch receives an outcome.
        """
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds and not self._draining:
                self._begin_drain()

    def fail(self, error: BaseException) -> None:
        """Wake all waiters with an exception."""
        waiting = self.futures
        self._waiting.clear()
        self._held.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def close(self) -> None:
        """Drop the reference to the run, which has left memory."""
        self._is_busy = None

    @property
    def stuck(self) -> bool:
        """Whether no branch asks for the next recorded outcome."""
        return self.replaying and self.cursor not in self._waiting and not self._draining and not self._holds

    @property
    def futures(self) -> list[asyncio.Future[None]]:
        """What operations await: their turn, or the end of the record."""
        return [*self._waiting.values(), *self._held]

    def _advance(self) -> None:
        self.cursor += 1
        self._pass_skipped()

    def _pass_skipped(self) -> None:
        while self.cursor in self._skipped:
            self.cursor += 1

    def _pump(self, *, idle: bool = False) -> None:
        if self._draining or self._holds:
            return
        seq = self.cursor
        if self._kept:
            if not idle and seq in self._kept and seq not in self._waiting:
                self._begin_drain()
                return
            seq = self._first_asked_for()
        future = self._waiting.pop(seq, None)
        if future is not None:
            if seq == self.cursor:
                self._advance()
            if not future.done():
                future.set_result(None)
            self._begin_drain()
        elif not self.replaying and self._held:
            held, self._held = self._held, UNUSED
            for waiter in held:
                if not waiter.done():
                    waiter.set_result(None)

    def _first_asked_for(self) -> int:
        """The `seq` of the next outcome in an idle run. Outcomes that may be passed over, and that are not asked for, are passed over."""
        first = min(self._waiting, default=self.recorded)
        while self.cursor < first and self.cursor in self._kept:
            self._advance()
        return min(first, self.cursor)

    def _begin_drain(self) -> None:
        self._draining = True
        self._loop.call_soon(self._drain, 0, 0)

    def _drain(self, rounds: int, calm: int) -> None:
        """Look once a round whether the code has reacted to the last outcome. `calm` is the number of idle rounds so far."""
        ready: Sized | None = getattr(
            self._loop, "_ready", None
        )  # the callbacks that are ready, on the loops of asyncio
        busy = self._is_busy() if self._is_busy is not None else None
        calm = 0 if busy else calm + 1
        enough = BLIND_ROUNDS if busy is None else ROUNDS
        if (ready is None or ready) and calm < enough and rounds < MOST_ROUNDS:
            self._loop.call_soon(self._drain, rounds + 1, calm)
        else:
            self._draining = False
            self._pump(idle=True)
