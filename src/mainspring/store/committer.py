"""Group commit: the writes of all callers, committed in batches, one database transaction per batch.

Writes wait in one line, in the order of hand-over. Only the holder of the turn takes writes from the front of that line, and it puts writes
that must be retried back at the front. So the writes of a run commit in the order in which the run made them, whichever thread commits and
however often a batch fails.

The committer's own thread drains the line. While one batch commits, the next one collects, so a single write waits for one commit, and ten
thousand concurrent writes share one. A blocking caller that finds the turn free commits on its own thread, without a change of thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from asyncio import _get_running_loop as _running
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.store.writes import Verdict, run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.protocol import AtOnce
    from mainspring.store.writes import Op, Result


class Group:
    """Writes that one caller awaits together, with their answers. Thread-safe.

    `then` is called with the answers on the loop, before the caller wakes, and also if the caller waits no longer.
    """

    __slots__ = ("_left", "_lock", "answers", "future", "loop", "then")

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop, then: Callable[[list[Any]], None] | None) -> None:
        self.loop = loop
        self.future: asyncio.Future[list[Result | Exception | None]] = loop.create_future()
        self.answers: list[Result | Exception | None] = [None] * size
        self.then = then
        self._left = size
        self._lock = threading.Lock()

    def answered(self, answers: int) -> bool:
        """Count answers that have arrived. Return True if those were the last."""
        with self._lock:
            self._left -= answers
            return self._left == 0

    def deliver(self) -> None:
        """Give the answers to the caller. On its loop."""
        if self.then is not None:
            try:
                self.then(self.answers)
            except Exception as error:  # noqa: BLE001  (other callers are to get their answers all the same)
                _report(self.loop, "an answered start could not be followed", error)
        if not self.future.done():
            self.future.set_result(self.answers)


def _report(loop: asyncio.AbstractEventLoop | None, what: str, error: Exception) -> None:
    if loop is not None:
        loop.call_exception_handler({"message": what, "exception": error})


class Reply(Protocol):
    """Receives an answer on the event loop that asked for it: a future, or a lighter object."""

    def done(self) -> bool:
        """Whether no caller waits any more."""
        ...

    def set_result(self, answer: Any, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


class Receiver(Protocol):
    """Receives the answers to writes of many callers together, on the event loop that asked for them."""

    def receive(self, answered: Sequence[Answered], /) -> None: ...


class Answered(Protocol):
    """An answered write, with the object that the receiver gave to the committer with it."""

    op: Any
    reply: Any
    answer: Result | Exception | None


class Ticket(Struct, eq=False):
    """A write that is not yet answered, and its waiter: a reply on a loop, alone or with a group or receiver, or a blocked thread."""

    op: Op
    patient: bool = True
    loop: asyncio.AbstractEventLoop | None = None
    reply: Any = None
    receiver: Receiver | None = None
    group: Group | None = None
    place: int = 0
    """The place of the answer in the group."""
    lock: threading.Lock | None = None
    """Held until the answer is there, if a thread waits for it."""
    answer: Result | Exception | None = None

    @classmethod
    def blocking(cls, op: Op, *, patient: bool = True) -> Ticket:
        """Make a ticket for a thread that waits for the answer."""
        lock = threading.Lock()
        lock.acquire()
        return cls(op, patient, lock=lock)

    def deliver(self) -> None:
        """Give the answer to the reply. On its loop."""
        if self.reply.done():
            return
        try:
            if isinstance(self.answer, Exception):
                self.reply.set_exception(self.answer)
            else:
                self.reply.set_result(self.answer)
        except Exception as error:  # noqa: BLE001  (other callers are to get their answers all the same)
            _report(self.loop, "an answered write could not be followed", error)

    def outcome(self) -> Any:
        """Wait for the answer, and return it even if it is an exception. Call it on the thread that created the ticket."""
        assert self.lock is not None  # noqa: S101
        self.lock.acquire()
        return self.answer

    def wait(self) -> Any:
        """Wait for the answer. Raise it if it is an exception."""
        answer = self.outcome()
        if isinstance(answer, Exception):
            raise answer
        return answer


def answer(clock: Clock, tickets: list[Ticket], answers: Sequence[Result | Exception]) -> None:
    """Wake all callers: threads one by one, each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket | Group]] = {}
    groups: dict[Group, int] = {}
    for ticket, answer in zip(tickets, answers, strict=True):
        ticket.answer = answer
        if ticket.loop is not None:
            by_loop.setdefault(ticket.loop, []).append(ticket)
        elif ticket.group is not None:
            ticket.group.answers[ticket.place] = answer
            groups[ticket.group] = groups.get(ticket.group, 0) + 1
        elif ticket.lock is not None:
            ticket.lock.release()
    for group, count in groups.items():
        if group.answered(count):
            by_loop.setdefault(group.loop, []).append(group)
    for loop, callers in by_loop.items():
        _wake(clock, loop, callers)


def _wake(clock: Clock, loop: asyncio.AbstractEventLoop, callers: list[Ticket | Group]) -> None:
    if loop is _running():
        _deliver(clock, callers)
        return
    try:
        loop.call_soon_threadsafe(_deliver, clock, callers)
    except RuntimeError:  # the loop was closed; no caller waits there any more
        for _ in callers:
            clock.idle()


def _deliver(clock: Clock, callers: list[Ticket | Group]) -> None:
    received: dict[Receiver, list[Ticket]] = {}
    for caller in callers:
        if isinstance(caller, Ticket) and caller.receiver is not None:
            received.setdefault(caller.receiver, []).append(caller)
        else:
            caller.deliver()
            clock.idle()
    for receiver, tickets in received.items():
        try:
            receiver.receive(tickets)
        except Exception as error:  # noqa: BLE001  (others are to get their answers all the same)
            _report(tickets[0].loop, "answered writes could not be followed", error)
        for _ in tickets:
            clock.idle()


log = logging.getLogger("mainspring.store")

_LARGEST_BATCH = 1_000
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Committer:
    """Takes writes from coroutines (`commit`) and from threads (`commit_sync`) and commits them in groups.

    While the database cannot be reached, patient writes are retried, and all others fail at once.
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
        """Writes in the order of hand-over. Any thread appends; only the holder of `_turn` takes from the front."""
        self._turn = threading.Lock()
        self._queue: SimpleQueue[None] = SimpleQueue()
        """Wake-ups for the committer's thread."""
        self._awake = False
        """Whether a wake-up is on its way to the committer's thread."""
        self._failing = False
        """Whether the last batch failed because of the database. Then only the committer's thread retries, after a pause."""
        self._planned: set[asyncio.AbstractEventLoop] = set()
        """Loops on which a commit is scheduled (see `_commit_here`)."""
        self._closing = threading.Event()
        self._blocked = BlockedWrites(apply, clock)
        self._thread = threading.Thread(target=self._work, name="mainspring-committer", daemon=True)
        self._thread.start()
        self.batches = 0
        self.committed = 0

    # -- handing over --------------------------------------------------------------------------------------------------
    def commit(self, op: Op, *, patient: bool = True) -> asyncio.Future[Any]:
        """Hand over a write. The future resolves with its answer after the commit. Cancelling the future does not withdraw the write."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.hand_over(op, loop, future, patient=patient)
        return future

    def hand_over(self, op: Op, loop: asyncio.AbstractEventLoop, reply: Reply, *, patient: bool = True) -> None:
        """Hand over a write. `reply` receives the answer after the commit, on `loop`, which is the running loop."""
        self._clock.busy()
        self._pending.append(Ticket(op, patient, loop, reply))
        self._plan(loop)

    def hand_over_for(self, receiver: Receiver, op: Op, caller: object, loop: asyncio.AbstractEventLoop) -> None:
        """Hand over a write of one of many callers. After the commit `receiver` gets the answer, with `caller`, among those of others."""
        self._clock.busy()
        self._pending.append(Ticket(op, loop=loop, reply=caller, receiver=receiver))
        self._plan(loop)

    def hand_over_both(
        self, first: tuple[Op, Reply], second: tuple[Op, Reply], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Hand over two writes together, so that both are in one batch. See `hand_over`."""
        for _ in range(2):
            self._clock.busy()
        tickets = [Ticket(op, loop=loop, reply=reply) for op, reply in (first, second)]
        self._pending.extend(tickets)  # a list: no other thread takes the first one alone
        self._plan(loop)

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._at_once is None:
            self._wake_thread()
        elif loop not in self._planned:
            self._planned.add(loop)
            loop.call_soon(self._commit_here, loop, self._at_once)

    def _commit_here(self, loop: asyncio.AbstractEventLoop, at_once: AtOnce) -> None:
        """Commit the collected writes of a loop on the loop itself, where a commit waits for nothing. That avoids a change of thread."""
        self._planned.discard(loop)
        with at_once() as free:
            if free and not self._failing and self._turn.acquire(blocking=False):
                self._serve_inline()
        # Not inside `at_once`: this may wait for another holder of the turn, which may wait for the database.
        self._leave_rest_to_thread()

    def commit_all(
        self, ops: Sequence[Op], *, patient: bool = True, then: Callable[[list[Any]], None] | None = None
    ) -> asyncio.Future[list[Any]]:
        """Hand over many writes. The future resolves with all answers in order; failed writes have their exception.

        `then` gets the answers first, on the loop, also if the future was cancelled by then.
        """
        group = Group(len(ops), asyncio.get_running_loop(), then)
        if not ops:
            group.future.set_result([])
            return group.future
        self._clock.busy()
        self._pending.extend(Ticket(op, patient=patient, group=group, place=place) for place, op in enumerate(ops))
        self._wake_thread()
        return group.future

    def commit_sync(self, op: Op, *, patient: bool = True) -> Any:
        """Commit a write and return its answer."""
        ticket = Ticket.blocking(op, patient=patient)
        self._pending.append(ticket)
        self._commit_on_this_thread()
        return ticket.wait()

    def commit_all_sync(self, ops: Sequence[Op]) -> list[Result | Exception]:
        """Commit writes together and return their answers in order; failed writes have their exception."""
        tickets = [Ticket.blocking(op) for op in ops]
        self._pending.extend(tickets)
        self._commit_on_this_thread()
        return [ticket.outcome() for ticket in tickets]

    def _commit_on_this_thread(self) -> None:
        if not self._failing and self._turn.acquire(blocking=False):
            self._serve_inline()
        self._leave_rest_to_thread()

    def close(self) -> None:
        """Commit the writes in the line, then stop. Writes that the database does not accept within a moment fail as unavailable."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()
        self._blocked.close()
        self._refuse_rest()

    def _wake_thread(self) -> None:
        if self._awake:
            return
        self._awake = True
        self._queue.put(None)
        if not self._thread.is_alive():
            self._refuse_rest()

    def _refuse_rest(self) -> None:
        """Refuse writes that are handed over after `close`. A write that comes too late for this finds no wake-up, and calls it again."""
        self._awake = False
        with self._turn:
            self._refuse(StoreUnavailable("the connection to the database is closed"))

    def _refuse(self, error: StoreError) -> None:
        """Refuse all writes in the line. Nothing is committed from then on: it could be the end of a run without its last outcome."""
        while late := self._take():
            answer(self._clock, late, [error] * len(late))

    # -- committing: only by the holder of the turn ----------------------------------------------------------------------
    def _work(self) -> None:
        pause, last = 0.0, False
        while not last:
            self._rest(pause)
            # Both are read before the line: a write that is appended from now on sends another wake-up, and every write that was handed
            # over before `close` is in the line.
            self._awake = False
            last = self._closing.is_set()
            with self._turn:
                pause = self._serve_all(pause, last=last)

    def _rest(self, pause: float) -> None:
        """Wait for a wake-up. After a failure, wait for at most so many seconds, and only an impatient write ends the pause early."""
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
        """Commit until the line is empty. Return the seconds until the next attempt if the database does not accept writes."""
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
            log.warning("the database does not accept writes; retrying in %.2g s: %s", pause, error)
            return pause
        self._failing = False
        return 0.0

    def _serve_inline(self) -> None:
        """Commit a batch on the thread of a caller that holds the turn, and release the turn. Not after `close` began: see `_refuse`."""
        try:
            if not self._closing.is_set() and (tickets := self._take()):
                self._serve(tickets)
        finally:
            self._turn.release()

    def _leave_rest_to_thread(self) -> None:
        """Wake the committer's thread for writes in the line: those that failed, did not fit, or were appended in the meantime."""
        if self._pending:
            self._wake_thread()

    def _take(self) -> list[Ticket]:
        """Take the next batch from the front of the line."""
        pending = self._pending
        return [pending.popleft() for _ in range(min(len(pending), _LARGEST_BATCH))]

    def _put_back(self, tickets: Sequence[Ticket]) -> None:
        """Put writes back at the front of the line, so that no later write commits first."""
        self._pending.extendleft(reversed(tickets))

    def _serve(self, tickets: list[Ticket]) -> StoreError | None:
        """Commit a batch and answer it. If the database does not accept it, put patient writes back in the line and return the error."""
        tickets = self._blocked.divert(tickets)  # blocked writes have left this batch, whatever its outcome
        if not tickets:
            return None
        error = self._try(tickets)
        if isinstance(error, StoreError):
            self._retry_later(tickets, error)
            return error
        if error is None:
            return None
        for number, ticket in enumerate(tickets):
            if not self._blocked.divert([ticket]):  # an earlier write of its run was blocked just now
                continue
            alone = self._try([ticket])
            if isinstance(alone, StoreError):
                self._retry_later(tickets[number:], alone)
                return alone
            if alone is not None:
                # A defect of the write or of the store: only its caller must fail, and no other write.
                log.error("a write failed: %r", ticket.op, exc_info=alone)
                answer(self._clock, [ticket], [alone])
        return None

    def _try(self, tickets: list[Ticket]) -> Exception | None:
        """Apply writes and answer them. Return the exception if none was applied."""
        try:
            answers = self._apply([ticket.op for ticket in tickets], self._clock.now())
        except Exception as error:  # noqa: BLE001  (the caller decides what it means)
            return error
        self.batches += 1
        self.committed += len(tickets)
        self._resolve(tickets, answers)
        return None

    def _retry_later(self, tickets: list[Ticket], error: StoreError) -> None:
        """Put patient writes back at the front of the line. Fail all impatient writes in it."""
        line = [*tickets, *(self._pending.popleft() for _ in range(len(self._pending)))]
        self._put_back([ticket for ticket in line if ticket.patient])
        impatient = [ticket for ticket in line if not ticket.patient]
        answer(self._clock, impatient, [error] * len(impatient))

    def _resolve(self, tickets: list[Ticket], answers: Sequence[Result | Exception]) -> None:
        """Answer the applied writes. Hand those that wait for a lock to `BlockedWrites`, so that they do not delay the rest."""
        if Verdict.HELD not in answers:
            answer(self._clock, tickets, answers)
            return
        pairs = list(zip(tickets, answers, strict=True))
        self._blocked.take([ticket for ticket, result in pairs if result is Verdict.HELD])
        resolved = [(ticket, result) for ticket, result in pairs if result is not Verdict.HELD]
        answer(self._clock, [ticket for ticket, _ in resolved], [result for _, result in resolved])


_PAUSE = 0.05


class BlockedWrites:
    """Retries writes that wait for locked rows. Its thread exists only while there are any."""

    def __init__(self, apply: Callable[[Sequence[Op], int], list[Result | Exception]], clock: Clock) -> None:
        self._apply = apply
        self._clock = clock
        self._lock = threading.Lock()
        self._lines: dict[str, deque[Ticket]] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def take(self, tickets: list[Ticket]) -> None:
        """Take over blocked writes."""
        with self._lock:
            for ticket in tickets:
                self._lines.setdefault(run_of(ticket.op), deque()).append(ticket)
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="mainspring-blocked-writes", daemon=True)
                thread.start()  # raises if the process may have no more
                self._thread = thread

    def divert(self, tickets: list[Ticket]) -> list[Ticket]:
        """Return the writes that may commit. Those of a run with a blocked write are kept here, behind it."""
        if not self._lines:
            return tickets
        with self._lock:
            free = [ticket for ticket in tickets if run_of(ticket.op) not in self._lines]
            for ticket in tickets:
                if run_of(ticket.op) in self._lines:
                    self._lines[run_of(ticket.op)].append(ticket)
        return free

    def close(self) -> None:
        """Retry once more, then fail the writes that are still blocked."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            closing = self._closing.is_set()
            with self._lock:
                heads = [line[0] for line in self._lines.values()]
                if not heads:
                    self._thread = None
                    return
            self._resolve(heads, self._try(heads))
            if closing:
                self._give_up()
            self._closing.wait(_PAUSE)

    def _try(self, heads: list[Ticket]) -> list[Result | Exception]:
        try:
            return self._apply([ticket.op for ticket in heads], self._clock.now())
        except StoreError as error:
            self._keep_patient(error)
            return [Verdict.HELD if ticket.patient else error for ticket in heads]
        except Exception as error:  # the waiters must receive the exception, whatever it is
            log.exception("%d delayed writes failed", len(heads))
            return [error for _ in heads]

    def _resolve(self, heads: list[Ticket], answers: Sequence[Result | Exception]) -> None:
        resolved = [
            (ticket, result) for ticket, result in zip(heads, answers, strict=True) if result is not Verdict.HELD
        ]
        with self._lock:
            for ticket, _ in resolved:
                line = self._lines[run_of(ticket.op)]
                line.popleft()
                if not line:
                    del self._lines[run_of(ticket.op)]
        answer(self._clock, [ticket for ticket, _ in resolved], [result for _, result in resolved])

    def _keep_patient(self, error: StoreError) -> None:
        """Fail impatient writes behind a blocked one: they do not wait for the database to recover."""
        with self._lock:
            late = [ticket for line in self._lines.values() for ticket in list(line)[1:] if not ticket.patient]
            for ticket in late:
                self._lines[run_of(ticket.op)].remove(ticket)
        answer(self._clock, late, [error] * len(late))

    def _give_up(self) -> None:
        with self._lock:
            late = [ticket for line in self._lines.values() for ticket in line]
            self._lines.clear()
        error = StoreUnavailable(
            "another transaction holds a lock on this run, and the connection to the database is being closed"
        )
        answer(self._clock, late, [error] * len(late))
