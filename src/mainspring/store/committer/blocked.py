"""Writes that are blocked by a row lock, retried until they succeed.

A row can be locked for as long as a user's own transaction lasts. The writes that need it come here, so that all other
go on; later writes about the same run line up behind them.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.store.committer.tickets import answer
from mainspring.store.writes import Verdict, run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.committer.tickets import Ticket
    from mainspring.store.writes import Op, Result

log = logging.getLogger("mainspring.store")

_PAUSE = 0.05


class BlockedWrites:
    """Takes writes that are held up. Its thread exists only while there are any."""

    def __init__(self, apply: Callable[[Sequence[Op], int], list[Result | Exception]], clock: Clock) -> None:
        self._apply = apply
        self._clock = clock
        self._lock = threading.Lock()
        self._lines: dict[str, deque[Ticket]] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def take(self, tickets: list[Ticket]) -> None:
        """Take over writes that were held up."""
        with self._lock:
            for ticket in tickets:
                self._lines.setdefault(run_of(ticket.op), deque()).append(ticket)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mainspring-blocked-writes", daemon=True)
                self._thread.start()

    def divert(self, tickets: list[Ticket]) -> list[Ticket]:
        """The writes that may go ahead; those about a run that is held up are kept here, behind the earlier ones."""
        if not self._lines:
            return tickets
        with self._lock:
            free = [ticket for ticket in tickets if run_of(ticket.op) not in self._lines]
            for ticket in tickets:
                if run_of(ticket.op) in self._lines:
                    self._lines[run_of(ticket.op)].append(ticket)
        return free

    def close(self) -> None:
        """Try once more, then give up on what is still held up."""
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
        except Exception as error:  # the waiters must learn of it, whatever it is
            log.exception("%d writes that had been held up failed", len(heads))
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
        """Who lines up behind a head, and is not patient, does not wait for the database to come back."""
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
