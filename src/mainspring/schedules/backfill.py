"""Taking the actions of a stretch of time, a few at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from mainspring.model.schedules import Outcome, Overlap, Source, Tick
from mainspring.store.schedules import MOST_TAKEN

if TYPE_CHECKING:
    from mainspring.model.schedules import Backfill
    from mainspring.schedules.elapsed import Times
    from mainspring.schedules.policy import Policy
    from mainspring.store.schedules import Situation

ABREAST = 100
"""How many ticks of one backfill may wait or run at once. The schedule's own ticks queue behind no more than these."""


def advance(
    backfill: Backfill, situation: Situation, times: Times, policy: Policy, now: int
) -> tuple[list[Tick], Backfill | None]:
    """The next ticks of a backfill, and how far that brings it; None if it has to wait."""
    room = ABREAST - _under_way(backfill, situation)
    if policy.buffer_limit is not None and backfill.overlap is Overlap.BUFFER_ALL:
        room = min(room, max(1, policy.buffer_limit) - len(situation.waiting))
    if room <= 0:
        return [], None
    after = structs.replace(backfill)
    made = situation.made.get(backfill.id, [])
    have = frozenset(made)
    known_until = made[-1] if len(made) >= MOST_TAKEN else backfill.until
    ticks: list[Tick] = []
    nominal = times.next(backfill.cursor)
    while nominal is not None and nominal <= known_until and len(ticks) < room:
        after.cursor = nominal
        if nominal in have and not backfill.again:
            after.skipped += 1
        else:
            ticks.append(
                Tick(
                    backfill.schedule,
                    nominal,
                    backfill.id,
                    Source.BACKFILL,
                    now,
                    Outcome.PENDING,
                    overlap=backfill.overlap,
                )
            )
            after.started += 1
        nominal = times.next(nominal)
    if nominal is None or nominal > backfill.until:
        after.completed = now
    elif not ticks and after.cursor == backfill.cursor:
        after.cursor = known_until
    return ticks, after


def _under_way(backfill: Backfill, situation: Situation) -> int:
    waiting = sum(tick.request == backfill.id for tick in situation.waiting)
    return waiting + sum(run.request == backfill.id and not run.state.ended for run in situation.runs)
