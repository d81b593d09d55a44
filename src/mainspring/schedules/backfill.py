"""Taking the actions of a stretch of time, a few at a time.

One nominal time has one run, whichever source takes it first, unless a backfill says `again`:

- A backfill leaves out times that have a run or wait for one, and a time that the clock is about to act on.
- The clock leaves out times that a backfill has taken: those ticks end `replaced` (see `plan.py`).
- Backfills of one schedule take turns in the order in which they were asked for: the next begins when the one before has made
  its last tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from mainspring.model.schedules import Overlap, Tick, TickOutcome, TickSource
from mainspring.store.schedules import MOST_TAKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.schedules import Backfill
    from mainspring.schedules.due_ticks import Times
    from mainspring.store.schedules import Situation

ABREAST = 100
"""How many ticks of backfills may wait or run at once. The schedule's own ticks queue behind no more than these."""


class Reach(NamedTuple):
    """How far backfills may go in one pass."""

    times: Times
    now: int
    waiting: int
    """How many ticks wait or are being decided on: they have places in the buffer."""
    undecided: int | None
    """The first nominal time of the clock that is being decided on. What becomes of it is known in the next pass."""


def advance(
    situation: Situation, reach: Reach, buffer_limit: int | None, is_the_clocks: Callable[[int], bool]
) -> tuple[list[Tick], list[Backfill]]:
    """The next ticks of backfills, and how far that brings those that have made some or have come to their end."""
    made: list[Tick] = []
    progress: list[Backfill] = []
    for backfill in situation.backfills:
        room = _room(backfill, situation)
        if buffer_limit is not None and backfill.overlap is Overlap.BUFFER_ALL:
            room = min(room, max(1, buffer_limit) - reach.waiting)
        if len(made) >= room:
            break
        known = situation.made.get(backfill.id, [])
        until = known[-1] if len(known) >= MOST_TAKEN else backfill.until
        if reach.undecided is not None:
            until = min(until, reach.undecided - 1)
        taken = {*known, *(tick.nominal for tick in made)}
        after = structs.replace(backfill)
        due = _place(backfill, situation, made, reach.now)
        nominal = reach.times.next(backfill.cursor)
        while nominal is not None and nominal <= until and len(made) < room:
            after.cursor = nominal
            if not backfill.again and (nominal in taken or is_the_clocks(nominal)):
                after.skipped += 1
            else:
                made.append(_tick(backfill, nominal, due))
                after.started += 1
            nominal = reach.times.next(nominal)
        progress.append(after)
        if nominal is not None and nominal <= backfill.until:
            if nominal > until:
                after.cursor = max(after.cursor, until)
            break
        after.completed = reach.now
    return made, progress


def _room(backfill: Backfill, situation: Situation) -> int:
    waiting = sum(tick.source is TickSource.BACKFILL for tick in situation.waiting)
    return ABREAST - waiting - sum(run.request == backfill.id and not run.state.ended for run in situation.runs)


def _place(backfill: Backfill, situation: Situation, made: list[Tick], now: int) -> int:
    """The time to act for ticks of a backfill: now, and after those of backfills that were asked for before."""
    waiting = [tick for tick in (*situation.waiting, *made) if tick.source is TickSource.BACKFILL]
    return max([now, *(tick.due + (tick.request != backfill.id) for tick in waiting)])


def _tick(backfill: Backfill, nominal: int, due: int) -> Tick:
    return Tick(
        backfill.schedule, nominal, backfill.id, TickSource.BACKFILL, due, TickOutcome.PENDING, overlap=backfill.overlap
    )
