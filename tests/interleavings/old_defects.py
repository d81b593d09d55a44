"""Defects that the library once had, put back into it: proof that the explorer sees what it is for.

The last two are made up: what a service and the claimer would do without the line that prevents it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

from mainspring.errors import StoreError
from mainspring.services.claimer import Reconciler
from mainspring.services.service import Service
from mainspring.store.committer import Committer, answer

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.store.committer import Ticket


def _work_before_turn(self: Any) -> None:
    """The committer's thread took writes from the line before it had the turn: a caller could commit later ones first."""
    pause, last = 0.0, False
    while not last:
        self._rest(pause)
        self._awake = False
        last = self._closing.is_set()
        tickets = self._take()
        with self._turn:
            if tickets:
                self._serve(tickets)
            pause = self._serve_all(pause, last=last)


def _retry_at_the_end(self: Any, tickets: list[Ticket], error: StoreError) -> None:
    """Writes that had failed went to the end of the line, behind later ones of the same run."""
    self._pending.extend(ticket for ticket in tickets if ticket.patient)
    impatient = [ticket for ticket in tickets if not ticket.patient]
    answer(self._clock, impatient, [error] * len(impatient))


def _work_until_the_line_is_empty(self: Any) -> None:
    """At close the thread waited for a wake-up when a write was in the line that its caller then committed: a hang."""
    pause = 0.0
    while True:
        self._rest(pause)
        self._awake = False
        with self._turn:
            pause = self._serve_all(pause, last=self._closing.is_set())
        if self._closing.is_set() and not pause and not self._pending:
            return


def _serve_inline_at_close(self: Any) -> None:
    """A caller committed inline while `close` refused: an outcome was refused, and the end of its run committed."""
    try:
        if tickets := self._take():
            self._serve(tickets)
    finally:
        self._turn.release()


def _commit_and_keep_diverted(self: Any, tickets: list[Ticket]) -> Exception | None:
    """Writes that went to the slow lane also went back to the line when their batch failed: applied and answered twice."""
    free = self._blocked.divert(tickets)
    error: Exception | None = self._try(free) if free else None
    if isinstance(error, StoreError):
        self._retry_later(tickets, error)
    return error


async def _rest_without_looking(self: Any, next_due: int | None) -> None:
    """A service that goes to sleep although it was kicked while it worked."""
    self._kicked.clear()
    await _REST(self, next_due)


def _doubt_nothing(self: Any) -> None:
    """A claim whose answer was lost is taken for one that did not happen."""


_REST = Service._wait
DEFECTS: dict[str, tuple[type[Any], dict[str, Any], str]] = {
    "the thread takes writes before it has the turn": (
        Committer,
        {"_work": _work_before_turn},
        "committer: a loop and a thread",
    ),
    "failed writes go to the end of the line": (
        Committer,
        {"_retry_later": _retry_at_the_end},
        "committer: a loop and a thread, a call fails",
    ),
    "diverted writes also go back to the line": (
        Committer,
        {"_serve": _commit_and_keep_diverted},
        "committer: held up, calls fail",
    ),
    "a caller commits inline while close refuses": (
        Committer,
        {"_serve_inline": _serve_inline_at_close},
        "committer: close, calls fail, inline",
    ),
    "close waits for a wake-up that does not come": (
        Committer,
        {"_serve_inline": _serve_inline_at_close, "_work": _work_until_the_line_is_empty},
        "committer: close in the middle, inline",
    ),
    "a kick is lost": (Service, {"_wait": _rest_without_looking}, "worker: four runs of a serial queue"),
    "a lost answer of a claim is forgotten": (Reconciler, {"compare_soon": _doubt_nothing}, "worker: a claim fails"),
}
"""Each with the class it goes into, its methods, and the case that shows it."""


@contextlib.contextmanager
def put_back(name: str) -> Generator[str]:
    """The library with one of them; the name of the case that shows it."""
    owner, methods, case = DEFECTS[name]
    with mock.patch.multiple(owner, **methods):
        yield case
