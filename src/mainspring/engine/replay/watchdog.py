"""Detecting a replay that never asks for the next recorded outcome."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

from mainspring.engine.replay.context import current

if TYPE_CHECKING:
    from mainspring.engine.replay.execution import Execution

DRY_SECONDS = 2.0
"""Seconds for a run that is only compared with its record (`mainspring replay`): a caller waits, and no run is lost by an error."""
STUCK_SECONDS = 30.0
"""Seconds, twice in a row, without a recorded outcome being asked for. Long, because the workflow's code may wait for something
that is unknown here, and because an error ends a run that could have continued.
"""


def watch_for_disagreement(ex: Execution, position: str) -> None:
    """Watch a held operation: if no recorded outcome is asked for in time, the code disagrees with the record."""
    _look_later(ex, position, suspicious=False)


def _look_later(ex: Execution, position: str, *, suspicious: bool) -> None:
    cursor = ex.history.delivery.cursor
    context = contextvars.Context()  # it is not the workflow's own timer
    patience = DRY_SECONDS if ex.dry else STUCK_SECONDS
    ex.engine.loop.call_later(patience, _perhaps_stuck, ex, position, cursor, suspicious, context=context)


def _perhaps_stuck(ex: Execution, position: str, cursor: int, suspicious: bool) -> None:  # noqa: FBT001  (called by a timer)
    if ex.signal is not None or not ex.history.delivery.stuck:
        return
    if ex.history.delivery.cursor != cursor or _in_process_time(ex):
        _look_later(ex, position, suspicious=False)
        return
    if not suspicious:  # a timer may have rung just now, and its callbacks may not have run yet
        _look_later(ex, position, suspicious=True)
        return
    unused = ex.history.unused(ex.tasks.responders.values())
    if unused is not None:
        found = f"{unused.kind} {unused.name!r} at position {unused.position}"
        ex.history.delivery.fail(
            ex.disagree(f"the record goes on with {found}, but the code asks for position {position} instead")
        )


def _in_process_time(ex: Execution) -> bool:
    """Whether a timer that the workflow's own code has set (`asyncio.timeout`, `asyncio.sleep`) may still change something."""
    for timer in getattr(ex.engine.loop, "_scheduled", ()):  # only the loops of asyncio have it
        where = timer._context.get(current)  # noqa: SLF001
        if where is not None and where.execution is ex and not timer.cancelled():
            return True
    return False
