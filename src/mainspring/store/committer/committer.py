"""Group commit: small writes from everywhere, one database transaction per batch.

Writes wait in one line, in the order in which they were handed over. Only the holder of the turn takes writes from the front of
that line, and it puts writes that must be retried back at the front. So the writes of a run commit in the order in which the run
made them, whichever thread commits and however often a batch fails.

A thread of the committer's own drains the line. While a batch commits, the next one collects, so a lone write waits for exactly
one commit and ten thousand concurrent ones share it. A blocking caller that finds the turn free commits on its own thread,
without a change of thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.store.committer.blocked import BlockedWrites
from mainspring.store.committer.tickets import Group, Ticket, answer
from mainspring.store.writes import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.committer.tickets import Reply
    from mainspring.store.protocol import AtOnce
    from mainspring.store.writes import Op, Result

log = logging.getLogger("mainspring.store")

_LARGEST_BATCH = 1_000
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Committer:
    """Takes writes from coroutines (`commit`) and from threads (`commit_sync`) and commits them in groups.

    While the database is out of reach, patient writes wait for it to come back; the others fail at once.
    """

    def __init__(
        self,
        apply: Callable[[Sequence[Op], int], list[Result | Exception]],
        clock: Clock,
        at_once: AtOnce | None = None,
    ) -> None:
        self._apply = apply
        self._clock = clock
        self._at_once = at_once
        self._pending: deque[Ticket] = deque()
        """Writes in the order of their hand-over. Any thread appends; only the holder of `_turn` takes from the front."""
        self._turn = threading.Lock()
        self._queue: SimpleQueue[None] = SimpleQueue()
        """Wake-ups for the thread."""
        self._awake = False
        """The thread has been sent a wake-up that it has not received yet."""
        self._failing = False
        """The database did not take the last batch: only the thread tries again, after a pause."""
        self._planned: set[asyncio.AbstractEventLoop] = set()
        """Loops on which a commit is about to be made (see `_commit_here`)."""
        self._closing = threading.Event()
        self._blocked = BlockedWrites(apply, clock)
        self._thread = threading.Thread(target=self._work, name="mainspring-committer", daemon=True)
        self._thread.start()
        self.batches = 0
        self.committed = 0

    # -- handing over --------------------------------------------------------------------------------------------------
    def commit(self, op: Op, *, patient: bool = True) -> asyncio.Future[Any]:
        """Hand over a write; the future has its answer when it is committed. Cancelling the future does not take it back."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.hand_over(op, loop, future, patient=patient)
        return future

    def hand_over(self, op: Op, loop: asyncio.AbstractEventLoop, reply: Reply, *, patient: bool = True) -> None:
        """Hand over a write whose answer `reply` is given when it is committed, on `loop`, which is the one that is running."""
        self._clock.busy()
        self._pending.append(Ticket(op, patient=patient, loop=loop, reply=reply))
        self._plan(loop)

    def commit_both(self, first: Op, reply: Reply, second: Op) -> asyncio.Future[Any]:
        """Hand over two writes in one piece, so that no batch ends between them: `reply` for the first, the future for the second."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        for _ in range(2):
            self._clock.busy()
        tickets = (
            Ticket(first, patient=True, loop=loop, reply=reply),
            Ticket(second, patient=True, loop=loop, reply=future),
        )
        self._pending.extend(tickets)
        self._plan(loop)
        return future

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._at_once is None:
            self._wake_thread()
        elif loop not in self._planned:
            self._planned.add(loop)
            loop.call_soon(self._commit_here, loop, self._at_once)

    def _commit_here(self, loop: asyncio.AbstractEventLoop, at_once: AtOnce) -> None:
        """Where committing waits for nothing, what has come together on a loop is committed there, without a change of thread."""
        self._planned.discard(loop)
        with at_once() as free:
            if free and not self._failing and self._turn.acquire(blocking=False):
                self._serve_inline()
        # Not before `at_once` is left: this may wait for a holder of the turn, who may wait for the database.
        self._leave_rest_to_thread()

    def commit_all(self, ops: Sequence[Op], *, patient: bool = True) -> asyncio.Future[list[Any]]:
        """Hand over many writes; the future has all their answers, exceptions among them, in order."""
        group = Group(len(ops), asyncio.get_running_loop())
        if not ops:
            group.future.set_result([])
            return group.future
        self._clock.busy()
        self._pending.extend(Ticket(op, patient=patient, group=group, place=place) for place, op in enumerate(ops))
        self._wake_thread()
        return group.future

    def commit_sync(self, op: Op, *, patient: bool = True) -> Any:
        """Commit a write and return its answer."""
        ticket = Ticket(op, patient=patient)
        self._pending.append(ticket)
        self._commit_on_this_thread()
        return ticket.wait()

    def commit_all_sync(self, ops: Sequence[Op]) -> list[Result | Exception]:
        """Commit writes together and return their answers, exceptions among them, in order."""
        tickets = [Ticket(op, patient=True) for op in ops]
        self._pending.extend(tickets)
        self._commit_on_this_thread()
        return [ticket.outcome() for ticket in tickets]

    def _commit_on_this_thread(self) -> None:
        if not self._failing and self._turn.acquire(blocking=False):
            self._serve_inline()
        self._leave_rest_to_thread()

    def close(self) -> None:
        """Commit what was handed over, then stop. What the database does not take within a moment fails as unavailable."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()
        self._blocked.close()
        self._refuse_rest()

    def _wake_thread(self) -> None:
        if not self._awake:
            self._awake = True
            self._queue.put(None)
        if not self._thread.is_alive():
            self._refuse_rest()

    def _refuse_rest(self) -> None:
        """Answer what is handed over after the end."""
        with self._turn:
            self._refuse(StoreUnavailable("the connection to the database is closed"))

    def _refuse(self, error: StoreError) -> None:
        """Answer everything in the line. From then on nothing is committed: it could be the end of a run without its last outcome."""
        while late := self._take():
            answer(self._clock, late, [error] * len(late))

    # -- committing: only by the holder of the turn ----------------------------------------------------------------------
    def _work(self) -> None:
        pause, last = 0.0, False
        while not last:
            self._rest(pause)
            # Both before the line is looked at: a write that is appended from now on sends another wake-up, and every write that
            # was handed over before `close` is in the line.
            self._awake = False
            last = self._closing.is_set()
            with self._turn:
                pause = self._serve_all(pause, last=last)

    def _rest(self, pause: float) -> None:
        """Wait for a wake-up; after a failure for so many seconds at most, and for those only, unless an impatient write comes."""
        if not pause:
            self._queue.get()
            return
        until = self._clock.monotonic() + pause
        while not self._closing.is_set() and (left := until - self._clock.monotonic()) > 0:
            try:
                self._queue.get(timeout=left)
            except Empty:
                return
            self._awake = False
            if any(not ticket.patient for ticket in self._pending.copy()):
                return

    def _serve_all(self, pause: float, *, last: bool) -> float:
        """Commit until the line is empty. Seconds until the next try, if the database does not take writes."""
        while tickets := self._take():
            error = self._serve(tickets)
            if error is None:
                pause = 0.0
                continue
            if last:
                self._refuse(error)
                return 0.0
            self._failing = True
            pause = min(pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
            log.warning("the database does not take writes, trying again in %.2g s: %s", pause, error)
            return pause
        self._failing = False
        return 0.0

    def _serve_inline(self) -> None:
        """Commit a batch on the thread of a caller, which has the turn and gives it back. Not once `close` has begun: see `_refuse`."""
        try:
            if not self._closing.is_set() and (tickets := self._take()):
                self._serve(tickets)
        finally:
            self._turn.release()

    def _leave_rest_to_thread(self) -> None:
        """Wake the thread for what is in the line: writes that failed, that did not fit, or that came meanwhile."""
        if self._pending:
            self._wake_thread()

    def _take(self) -> list[Ticket]:
        """The next batch, from the front of the line."""
        pending = self._pending
        return [pending.popleft() for _ in range(min(len(pending), _LARGEST_BATCH))]

    def _put_back(self, tickets: Sequence[Ticket]) -> None:
        """Back to the front of the line: nothing that was handed over later may commit first."""
        self._pending.extendleft(reversed(tickets))

    def _serve(self, tickets: list[Ticket]) -> StoreError | None:
        """Commit a batch and answer it. If the database does not take it, patient writes go back to the line; the error says why."""
        tickets = self._blocked.divert(tickets)  # writes that stay there have left this batch, whatever becomes of it
        if not tickets:
            return None
        error = self._try(tickets)
        if isinstance(error, StoreError):
            self._retry_later(tickets, error)
            return error
        if error is None:
            return None
        for number, ticket in enumerate(tickets):
            if not self._blocked.divert([ticket]):  # an earlier one of its run was held up just now
                continue
            alone = self._try([ticket])
            if isinstance(alone, StoreError):
                self._retry_later(tickets[number:], alone)
                return alone
            if (
                alone is not None
            ):  # a defect, of the write or of the store: its writer must learn of it, and no other write suffer
                log.error("a write failed: %r", ticket.op, exc_info=alone)
                answer(self._clock, [ticket], [alone])
        return None

    def _try(self, tickets: list[Ticket]) -> Exception | None:
        """Apply writes and answer them; the exception if none of them was applied."""
        try:
            answers = self._apply([ticket.op for ticket in tickets], self._clock.now())
        except Exception as error:  # noqa: BLE001  (what it means is the caller's to say)
            return error
        self.batches += 1
        self.committed += len(tickets)
        self._resolve(tickets, answers)
        return None

    def _retry_later(self, tickets: list[Ticket], error: StoreError) -> None:
        """Put patient writes back to the front of the line; impatient ones, wherever they stand in it, fail."""
        line = [*tickets, *(self._pending.popleft() for _ in range(len(self._pending)))]
        self._put_back([ticket for ticket in line if ticket.patient])
        impatient = [ticket for ticket in line if not ticket.patient]
        answer(self._clock, impatient, [error] * len(impatient))

    def _resolve(self, tickets: list[Ticket], answers: Sequence[Result | Exception]) -> None:
        """Answer what is answered. A write that waits for a lock must not hold up the rest."""
        if Verdict.HELD not in answers:
            answer(self._clock, tickets, answers)
            return
        pairs = list(zip(tickets, answers, strict=True))
        self._blocked.take([ticket for ticket, result in pairs if result is Verdict.HELD])
        resolved = [(ticket, result) for ticket, result in pairs if result is not Verdict.HELD]
        answer(self._clock, [ticket for ticket, _ in resolved], [result for _, result in resolved])
