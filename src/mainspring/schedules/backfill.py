"""Start the runs of a span of time, a few at a time.

One nominal time has one run, whichever source takes it first, unless a backfill has `again`:

- A backfill leaves out times that have a run or wait for one, and a time that the clock is about to act on.
- The clock leaves out times that a backfill has taken: those ticks end `replaced` (see `plan.py`).
- Backfills of one schedule take turns in the order of their requests: the next begins when the one before has made its last tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from mainspring.model.schedules import Overlap, Tick, TickOutcome, TickSource
from mainspring.store.schedules import MOST_TAKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainspring.model.schedules import Backfill
    from mainspring.schedules.due_ticks import Times
    from mainspring.store.schedules import Situation

MOST_OPEN = 100
"""How many ticks of backfills may wait or run at once. The schedule's own ticks queue behind no more than these."""


class PassLimits(NamedTuple):
    """The limits of backfills in one pass."""

    times: Times
    now: int
    waiting: int
    """The number of ticks that wait or are being decided: they occupy the buffer."""
    undecided: int | None
    """The first nominal time of the clock that is being decided. Its outcome is known in the next pass."""


def advance(
    situation: Situation, limits: PassLimits, buffer_limit: int | None, is_left_to_clock: Callable[[int], bool]
) -> tuple[list[Tick], list[Backfill]]:
    """Return the next ticks of backfills, and the progress of the backfills that made some or have ended."""
    made: list[Tick] = []
    progress: list[Backfill] = []
    for backfill in situation.backfills:
        room = _room(backfill, situation)
        if buffer_limit is not None and backfill.overlap is Overlap.BUFFER_ALL:
            room = min(room, max(1, buffer_limit) - limits.waiting)
        if len(made) >= room:
            break
        known = situation.made.get(backfill.id, [])
        until = known[-1] if len(known) >= MOST_TAKEN else backfill.until
        if limits.undecided is not None:
            until = min(until, limits.undecided - 1)
        taken = {*known, *(tick.nominal for tick in made)}
        after = structs.replace(backfill)
        due = due_behind((*situation.waiting, *made), backfill.id, limits.now)
        nominal = limits.times.next(backfill.cursor)
        while nominal is not None and nominal <= until and len(made) < room:
            after.cursor = nominal
            if not backfill.again and (nominal in taken or is_left_to_clock(nominal)):
                after.skipped += 1
            else:
                made.append(_tick(backfill, nominal, due))
                after.started += 1
            nominal = limits.times.next(nominal)
        progress.append(after)
        if nominal is not None and nominal <= backfill.until:
            if nominal > until:
                after.cursor = max(after.cursor, until)
            break
        after.completed = limits.now
    return made, progress


def _room(backfill: Backfill, situation: Situation) -> int:
    waiting = sum(tick.source is TickSource.BACKFILL for tick in situation.waiting)
    return MOST_OPEN - waiting - sum(run.request == backfill.id and not run.state.ended for run in situation.runs)


def due_behind(waiting: Iterable[Tick], request: str, now: int) -> int:
    """Return the time to act for the ticks of a request: now, and after those of earlier requests, also of the same microsecond."""
    return max([now, *(tick.due + (tick.request != request) for tick in waiting if tick.source.manual)])


def _tick(backfill: Backfill, nominal: int, due: int) -> Tick:
    return Tick(
        backfill.schedule, nominal, backfill.id, TickSource.BACKFILL, due, TickOutcome.PENDING, overlap=backfill.overlap
    )
