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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.ops import Op, Result

log = logging.getLogger("mainspring.store")

_LARGEST_BATCH = 1_000
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class _Ticket:
    """One write on its way, and who waits for it: a future on a loop, or a blocked thread."""

    __slots__ = ("_lock", "answer", "future", "loop", "op", "patient")

    def __init__(self, op: Op, *, patient: bool, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.op = op
        self.patient = patient
        self.loop = loop
        self.answer: Result | Exception | None = None
        if loop is not None:
            self.future: asyncio.Future[Any] = loop.create_future()
        else:
            self._lock = threading.Lock()
            self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def wait(self) -> Any:
        self._lock.acquire()
        return self.take()

    def take(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Committer:
    """Takes writes from coroutines (`commit`) and from threads (`commit_sync`) and commits them in groups.

    While the database is out of reach, patient writes wait for it to come back; the others fail at once.
    """

    def __init__(self, apply: Callable[[Sequence[Op], int], list[Result | Exception]], clock: Clock) -> None:
        self._apply = apply
        self._clock = clock
        self._queue: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mainspring-committer", daemon=True)
        self._thread.start()
        self.batches = 0
        self.committed = 0

    def commit(self, op: Op, *, patient: bool = True) -> asyncio.Future[Any]:
        """Hand over a write; the future has its answer when it is committed. Cancelling the future does not take it back."""
        ticket = _Ticket(op, patient=patient, loop=asyncio.get_running_loop())
        self._clock.busy()
        self._queue.put(ticket)
        if not self._thread.is_alive():
            self._refuse_rest()
        return ticket.future

    def commit_sync(self, op: Op, *, patient: bool = True) -> Any:
        """Commit a write and return its answer."""
        ticket = _Ticket(op, patient=patient)
        if self._turn.acquire(blocking=False):
            try:
                self._serve([ticket, *self._drain()], wait=False)
            finally:
                self._turn.release()
        else:
            self._queue.put(ticket)
        if not self._thread.is_alive():
            self._refuse_rest()
        return ticket.wait()

    def close(self) -> None:
        """Commit what is queued, then stop. What the database does not take within a moment fails as unavailable."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()
        self._refuse_rest()

    def _refuse_rest(self) -> None:
        """What comes after the end is answered, not forgotten."""
        late = self._drain()
        _answer(self._clock, late, [StoreUnavailable("the connection to the database is closed")] * len(late))

    # -- the thread ----------------------------------------------------------------------------------------------------
    def _work(self) -> None:
        while True:
            first = self._queue.get()
            if first is None:
                return
            with self._turn:
                self._serve([first, *self._drain()], wait=True)

    def _drain(self) -> list[_Ticket]:
        found: list[_Ticket] = []
        try:
            while len(found) < _LARGEST_BATCH:
                ticket = self._queue.get_nowait()
                if ticket is None:
                    if self._thread.is_alive():
                        self._queue.put(None)
                    break
                found.append(ticket)
        except Empty:
            pass
        return found

    def _serve(self, tickets: list[_Ticket], *, wait: bool) -> None:
        """Commit a batch. Without `wait`, what must be made again later goes back to the thread's queue."""
        pause = _FIRST_PAUSE
        while tickets:
            try:
                answers = self._apply([ticket.op for ticket in tickets], self._clock.now())
            except StoreError as error:
                tickets = self._keep_patient(tickets, error)
                if not wait:
                    for ticket in tickets:
                        self._queue.put(ticket)
                    return
                if tickets and self._pause(pause, error):
                    _answer(self._clock, tickets, [error] * len(tickets))
                    return
                pause = min(pause * 2, _LONGEST_PAUSE)
            except Exception as error:  # noqa: BLE001
                self._isolate(tickets, error, wait=wait)
                return
            else:
                self.batches += 1
                self.committed += len(tickets)
                _answer(self._clock, tickets, answers)
                return

    def _pause(self, seconds: float, error: StoreError) -> bool:
        """Wait before the next try; whether there is to be none."""
        log.warning("the database does not take writes, trying again in %.2g s: %s", seconds, error)
        return self._closing.wait(seconds)

    def _isolate(self, tickets: list[_Ticket], error: Exception, *, wait: bool) -> None:
        """A defect, of a write or of the store: its writer must learn of it, and nobody else suffer from it."""
        if len(tickets) > 1:
            for ticket in tickets:
                self._serve([ticket], wait=wait)
        else:
            log.error("a write failed: %r", tickets[0].op, exc_info=error)
            _answer(self._clock, tickets, [error])

    def _keep_patient(self, tickets: list[_Ticket], error: Exception) -> list[_Ticket]:
        impatient = [ticket for ticket in tickets if not ticket.patient]
        _answer(self._clock, impatient, [error] * len(impatient))
        return [ticket for ticket in tickets if ticket.patient]


def _answer(clock: Clock, tickets: list[_Ticket], answers: Sequence[Result | Exception]) -> None:
    """Wake everybody: threads one by one, each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Ticket]] = {}
    for ticket, answer in zip(tickets, answers, strict=True):
        ticket.answer = answer
        if ticket.loop is None:
            ticket.release()
        else:
            by_loop.setdefault(ticket.loop, []).append(ticket)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, clock, group)
        except RuntimeError:  # the loop was closed; nobody waits there any more
            for _ in group:
                clock.idle()


def _resolve(clock: Clock, tickets: list[_Ticket]) -> None:
    for ticket in tickets:
        if not ticket.future.done():
            if isinstance(ticket.answer, Exception):
                ticket.future.set_exception(ticket.answer)
            else:
                ticket.future.set_result(ticket.answer)
        clock.idle()
