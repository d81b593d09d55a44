"""Detecting a replay that never goes on, because its code asks for something else than the next recorded outcome."""

from __future__ import annotations

import contextvars
import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.engine.replay.asyncio_sleep_warning import AwaitedKind, awaited_by
from mainspring.engine.replay.context import current

if TYPE_CHECKING:
    from mainspring.engine.replay.execution import Execution

log = logging.getLogger("mainspring.engine")

DRY_SECONDS = 2.0
"""Seconds for a run that is only compared with its record (`mainspring replay`): a caller waits, and no run is lost by an error."""
STUCK_SECONDS = 30.0
"""Seconds between two looks. Long, because an error ends a run that could have continued."""
_LOOKS = 2
"""Looks in a row without a recorded outcome being asked for, where every branch waits for operations: a timer may have rung just before one."""
_LONGER = 20
"""The same where a branch waits for an event, a lock or a queue of asyncio: another run may share it."""


class _Look(Struct, frozen=True):
    """What the last look at a replay has found."""

    cursor: int
    on: AwaitedKind | None = None
    """What the branches await."""
    times: int = 0
    """The number of looks in a row that found this."""


def watch(ex: Execution) -> None:
    """Watch the replay of a run, from its beginning to the end of its record. On the loop."""
    _look_later(ex, _Look(ex.history.delivery.cursor))


def _look_later(ex: Execution, last: _Look) -> None:
    context = contextvars.Context()  # it is not the workflow's own timer
    patience = DRY_SECONDS if ex.dry else STUCK_SECONDS
    ex.history.watch = ex.engine.loop.call_later(patience, _look, ex, last, context=context)


def _look(ex: Execution, last: _Look) -> None:
    delivery = ex.history.delivery
    if ex.signal is not None or ex.disagreement is not None or not ex.in_code or not delivery.replaying:
        return
    if not delivery.stuck or delivery.cursor != last.cursor or _in_process_time(ex):
        _look_later(ex, _Look(delivery.cursor))
        return
    asked_for = {*delivery.futures, *(wait.future for wait in ex.waits)}
    on = awaited_by(ex, asked_for)
    found = _Look(last.cursor, on, last.times + 1 if on is last.on or ex.dry else 1)
    if _is_certain(ex, on, found.times, asks=bool(asked_for)):
        _disagree(ex)
    else:
        _look_later(ex, found)


def _is_certain(ex: Execution, on: AwaitedKind, times: int, *, asks: bool) -> bool:
    """Whether nothing but a recorded outcome, which no branch asks for, can make the code continue."""
    if ex.dry or on is AwaitedKind.OPERATION:
        return times >= _LOOKS
    if on is AwaitedKind.BRANCH and asks:
        return times >= _LONGER
    if times == _LONGER:
        log.warning(
            "run %s of %s: its replay waits for something that is not an operation (%s), and its record continues with %s; if that wait "
            "never ends, neither does the run",
            *(ex.id, ex.function.name),
            "an event, a lock or a queue" if on is AwaitedKind.BRANCH else "a thread, a request or the like",
            _next(ex),
        )
    return False


def _disagree(ex: Execution) -> None:
    at = ex.history.recalled
    asks = f"the code requests position {at} instead" if at else "the code requests nothing"
    error = ex.disagree(f"the record continues with {_next(ex)}, but {asks}")
    ex.history.delivery.fail(error)


def _next(ex: Execution) -> str:
    """The recorded outcome that no branch asks for."""
    step = ex.history.next_outcome()
    return f"{step.kind} {step.name!r} at position {step.position}" if step is not None else "another outcome"


def _in_process_time(ex: Execution) -> bool:
    """Whether a timer that the workflow's own code has set (`asyncio.timeout`, `asyncio.sleep`) may still change something."""
    for timer in getattr(ex.engine.loop, "_scheduled", ()):  # only the loops of asyncio have it
        where = timer._context.get(current)  # noqa: SLF001
        if where is not None and where.execution is ex and not timer.cancelled():
            return True
    return False
