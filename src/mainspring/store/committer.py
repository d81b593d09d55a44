"""Group commit: small writes from everywhere, one database transaction per batch.

One thread drains a queue. While a batch commits, the next one collects, so a lonely write waits for exactly one commit and ten
thousand concurrent ones share it. A blocking caller that finds nobody committing does it itself, without a change of thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.store.lane import SlowLane
from mainspring.store.ops import Verdict
from mainspring.store.tickets import Group, Ticket, answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.ops import Op, Result
    from mainspring.store.protocol import AtOnce
    from mainspring.store.tickets import Reply

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
        self._gathered: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
        self._queue: SimpleQueue[list[Ticket] | None] = SimpleQueue()
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._lane = SlowLane(apply, clock)
        self._thread = threading.Thread(target=self._work, name="mainspring-committer", daemon=True)
        self._thread.start()
        self.batches = 0
        self.committed = 0

    def commit(self, op: Op, *, patient: bool = True) -> asyncio.Future[Any]:
        """Hand over a write; the future has its answer when it is committed. Cancelling the future does not take it back."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.hand_over(op, loop, future, patient=patient)
        return future

    def hand_over(self, op: Op, loop: asyncio.AbstractEventLoop, reply: Reply, *, patient: bool = True) -> None:
        """Hand over a write whose answer `reply` is told when it is committed, on `loop`, which is the one that is running."""
        ticket = Ticket(op, patient=patient, loop=loop, reply=reply)
        self._clock.busy()
        if self._at_once is None:
            self._queue.put([ticket])
        elif (together := self._gathered.get(loop)) is not None:
            together.append(ticket)
        else:
            self._gathered[loop] = [ticket]
            loop.call_soon(self._commit_gathered, loop, self._at_once)
        if not self._thread.is_alive():
            self._refuse_rest()

    def _commit_gathered(self, loop: asyncio.AbstractEventLoop, at_once: AtOnce) -> None:
        """Where committing waits for nothing, what has come together on a loop is committed there, without a change of thread."""
        tickets = self._gathered.pop(loop)
        with at_once() as free:
            mine = free and self._turn.acquire(blocking=False)
            if mine:
                try:
                    self._serve([*self._drain(), *tickets], wait=False)
                finally:
                    self._turn.release()
        if not mine:
            self._queue.put(tickets)
        if not self._thread.is_alive():
            self._refuse_rest()

    def commit_all(self, ops: Sequence[Op], *, patient: bool = True) -> asyncio.Future[list[Any]]:
        """Hand over many writes; the future has all their answers, exceptions among them, in order."""
        group = Group(len(ops), asyncio.get_running_loop())
        if not ops:
            group.future.set_result([])
            return group.future
        self._clock.busy()
        tickets = [Ticket(op, patient=patient, group=group, place=place) for place, op in enumerate(ops)]
        for begin in range(0, len(tickets), _LARGEST_BATCH):
            self._queue.put(tickets[begin : begin + _LARGEST_BATCH])
        if not self._thread.is_alive():
            self._refuse_rest()
        return group.future

    def commit_sync(self, op: Op, *, patient: bool = True) -> Any:
        """Commit a write and return its answer."""
        ticket = Ticket(op, patient=patient)
        if self._turn.acquire(blocking=False):
            try:
                self._serve([*self._drain(), ticket], wait=False)
            finally:
                self._turn.release()
        else:
            self._queue.put([ticket])
        if not self._thread.is_alive():
            self._refuse_rest()
        return ticket.wait()

    def close(self) -> None:
        """Commit what is queued, then stop. What the database does not take within a moment fails as unavailable."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()
        self._lane.close()
        self._refuse_rest()

    def _refuse_rest(self) -> None:
        """What comes after the end is answered, not forgotten."""
        while late := self._drain():
            answer(self._clock, late, [StoreUnavailable("the connection to the database is closed")] * len(late))

    # -- the thread ----------------------------------------------------------------------------------------------------
    def _work(self) -> None:
        while True:
            first = self._queue.get()
            if first is None:
                return
            with self._turn:
                self._serve([*first, *self._drain(len(first))], wait=True)

    def _drain(self, taken: int = 0) -> list[Ticket]:
        """What else there is, up to about a batch with what is `taken` already."""
        found: list[Ticket] = []
        try:
            while taken + len(found) < _LARGEST_BATCH:
                tickets = self._queue.get_nowait()
                if tickets is None:
                    if self._thread.is_alive():
                        self._queue.put(None)
                    break
                found += tickets
        except Empty:
            pass
        return found

    def _serve(self, tickets: list[Ticket], *, wait: bool) -> None:
        """Commit a batch. Without `wait`, what must be made again later goes back to the thread's queue."""
        pause = _FIRST_PAUSE
        while tickets := self._lane.divert(tickets):
            batch = tickets[:_LARGEST_BATCH]
            try:
                answers = self._apply([ticket.op for ticket in batch], self._clock.now())
            except StoreError as error:
                tickets = self._keep_patient(tickets, error)
                if not wait:
                    if tickets:
                        self._queue.put(tickets)
                    return
                if tickets and self._pause(tickets, pause, error):
                    answer(self._clock, tickets, [error] * len(tickets))
                    return
                pause = min(pause * 2, _LONGEST_PAUSE)
            except Exception as error:  # noqa: BLE001
                self._isolate(batch, error, wait=wait)
                tickets = tickets[len(batch) :]
            else:
                self.batches += 1
                self.committed += len(batch)
                self._settle(batch, answers)
                tickets = tickets[len(batch) :]

    def _settle(self, tickets: list[Ticket], answers: Sequence[Result | Exception]) -> None:
        """Answer what is answered. What somebody holds up must not hold up the rest."""
        if Verdict.HELD not in answers:
            answer(self._clock, tickets, answers)
            return
        pairs = list(zip(tickets, answers, strict=True))
        self._lane.take([ticket for ticket, result in pairs if result is Verdict.HELD])
        settled = [(ticket, result) for ticket, result in pairs if result is not Verdict.HELD]
        answer(self._clock, [ticket for ticket, _ in settled], [result for _, result in settled])

    def _pause(self, tickets: list[Ticket], seconds: float, error: StoreError) -> bool:
        """Wait before the next try; whether there is to be none.

        What comes meanwhile lines up behind `tickets`, and who is not patient does not have to wait for the end of a pause.
        """
        log.warning("the database does not take writes, trying again in %.2g s: %s", seconds, error)
        until = self._clock.monotonic() + seconds
        while not self._closing.is_set() and (left := until - self._clock.monotonic()) > 0:
            try:
                found = self._queue.get(timeout=left)
            except Empty:
                break
            if found is None:
                self._queue.put(None)  # for the thread, when it is through with this
                break
            tickets += found
            if not all(ticket.patient for ticket in found):
                break
        return self._closing.is_set()

    def _isolate(self, tickets: list[Ticket], error: Exception, *, wait: bool) -> None:
        """A defect, of a write or of the store: its writer must learn of it, and nobody else suffer from it."""
        if len(tickets) > 1:
            for ticket in tickets:
                self._serve([ticket], wait=wait)
        else:
            log.error("a write failed: %r", tickets[0].op, exc_info=error)
            answer(self._clock, tickets, [error])

    def _keep_patient(self, tickets: list[Ticket], error: Exception) -> list[Ticket]:
        impatient = [ticket for ticket in tickets if not ticket.patient]
        answer(self._clock, impatient, [error] * len(impatient))
        return [ticket for ticket in tickets if ticket.patient]
