"""Writes on their way to the database, and how their senders get their answers."""

from __future__ import annotations

import threading
from asyncio import _get_running_loop as _running
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.writes import Op, Result


class Group:
    """Writes that one caller awaits together, and their answers as they come, from any thread."""

    __slots__ = ("_left", "_lock", "answers", "future", "loop")

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[list[Result | Exception | None]] = loop.create_future()
        self.answers: list[Result | Exception | None] = [None] * size
        self._left = size
        self._lock = threading.Lock()

    def answered(self, answers: int) -> bool:
        """So many answers have come; whether those were the last."""
        with self._lock:
            self._left -= answers
            return self._left == 0


class Reply(Protocol):
    """Receives an answer, on the loop where it was asked for: a future, or what is lighter than one."""

    def done(self) -> bool:
        """Whether no caller waits any more."""
        ...

    def set_result(self, answer: Any, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


class Ticket:
    """One write on its way, and who waits for it: a reply on a loop, alone or with a group, or a blocked thread."""

    __slots__ = ("_lock", "answer", "group", "loop", "op", "patient", "place", "reply")

    def __init__(
        self,
        op: Op,
        *,
        patient: bool,
        loop: asyncio.AbstractEventLoop | None = None,
        reply: Reply | None = None,
        group: Group | None = None,
        place: int = 0,
    ) -> None:
        self.op = op
        self.patient = patient
        self.loop = loop
        self.group = group
        self.answer: Result | Exception | None = None
        if group is not None:
            self.place = place
        elif reply is not None:
            self.reply = reply
        else:
            self._lock = threading.Lock()
            self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def outcome(self) -> Any:
        """Wait for the answer, which may be an exception. On the thread that made this."""
        self._lock.acquire()
        return self.answer

    def wait(self) -> Any:
        """Wait for the answer, and raise it if it is an exception."""
        answer = self.outcome()
        if isinstance(answer, Exception):
            raise answer
        return answer


def answer(clock: Clock, tickets: list[Ticket], answers: Sequence[Result | Exception]) -> None:
    """Wake all callers: threads one by one, each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    groups: dict[Group, int] = {}
    for ticket, answer in zip(tickets, answers, strict=True):
        if ticket.group is not None:
            ticket.group.answers[ticket.place] = answer
            groups[ticket.group] = groups.get(ticket.group, 0) + 1
            continue
        ticket.answer = answer
        if ticket.loop is None:
            ticket.release()
        else:
            by_loop.setdefault(ticket.loop, []).append(ticket)
    for loop, group in by_loop.items():
        _wake(clock, loop, len(group), _resolve, group)
    for together, count in groups.items():
        if together.answered(count):
            _wake(clock, together.loop, 1, _resolve_group, together)


def _wake(
    clock: Clock, loop: asyncio.AbstractEventLoop, waiting: int, resolve: Callable[[Clock, Any], None], whom: Any
) -> None:
    """Tell a loop what it waits for, at once if this is its thread."""
    if loop is _running():
        resolve(clock, whom)
        return
    try:
        loop.call_soon_threadsafe(resolve, clock, whom)
    except RuntimeError:  # the loop was closed; no caller waits there any more
        for _ in range(waiting):
            clock.idle()


def _resolve_group(clock: Clock, group: Group) -> None:
    if not group.future.done():
        group.future.set_result(group.answers)
    clock.idle()


def _resolve(clock: Clock, tickets: list[Ticket]) -> None:
    for ticket in tickets:
        if not ticket.reply.done():
            if isinstance(ticket.answer, Exception):
                ticket.reply.set_exception(ticket.answer)
            else:
                ticket.reply.set_result(ticket.answer)
        clock.idle()
