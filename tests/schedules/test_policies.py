"""The overlap decision by itself: one pass over the ticks of one schedule whose time has come, in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from mainspring import Overlap
from mainspring.model.schedules import ScheduleRun, Tick, TickOutcome, TickSource
from mainspring.model.states import State
from mainspring.schedules.policies import STOPPING, Decisions, decide

if TYPE_CHECKING:
    from collections.abc import Sequence

SKIP, ONE, ALL = Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL
CANCEL, TERMINATE, ALLOW = Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER, Overlap.ALLOW_ALL


@dataclass
class Case:
    """Ticks 1, 2, 3 … with these policies, while so many runs are unfinished; and what is to come of them."""

    ticks: Sequence[Overlap]
    running: int = 0
    starts: list[int] = field(default_factory=list[int])
    keeps: list[int] = field(default_factory=list[int])
    leaves: dict[int, TickOutcome] = field(default_factory=dict[int, TickOutcome])
    cancels: int = 0
    terminates: int = 0
    slots: int | None = 1
    buffer_limit: int | None = None
    remaining: int | None = None


SKIPPED, REPLACED, DROPPED, PAUSED = (
    TickOutcome.SKIPPED_OVERLAP,
    TickOutcome.REPLACED,
    TickOutcome.DROPPED,
    TickOutcome.PAUSED,
)
CASES = {
    "nothing to decide": Case([]),
    "skip, busy": Case([SKIP] * 3, 1, leaves=dict.fromkeys((1, 2, 3), SKIPPED)),
    "skip, free": Case([SKIP] * 3, starts=[1], leaves=dict.fromkeys((2, 3), SKIPPED)),
    "skip, two places": Case([SKIP] * 3, 1, starts=[1], leaves=dict.fromkeys((2, 3), SKIPPED), slots=2),
    "buffer one, busy": Case([ONE] * 3, 1, keeps=[1], leaves=dict.fromkeys((2, 3), SKIPPED)),
    "buffer one, free": Case([ONE] * 3, starts=[1], keeps=[2], leaves={3: SKIPPED}),
    "buffer all, busy": Case([ALL] * 3, 1, keeps=[1, 2, 3]),
    "buffer all, free": Case([ALL] * 3, starts=[1], keeps=[2, 3]),
    "buffer all, full": Case([ALL] * 3, 1, keeps=[1], leaves=dict.fromkeys((2, 3), DROPPED), buffer_limit=1),
    "buffer all, no room to wait": Case([ALL] * 2, starts=[1], leaves={2: DROPPED}, buffer_limit=0),
    "cancel, free: the newest only": Case([CANCEL] * 3, starts=[3], leaves=dict.fromkeys((1, 2), REPLACED)),
    "cancel, busy: waits for the old one": Case([CANCEL], 1, keeps=[1], cancels=1),
    "cancel, busy: all wait until one begins": Case([CANCEL] * 3, 1, keeps=[1, 2, 3], cancels=1),
    "terminate, free: the newest only": Case([TERMINATE] * 3, starts=[3], leaves=dict.fromkeys((1, 2), REPLACED)),
    "terminate, busy: at once": Case([TERMINATE] * 2, 1, starts=[2], leaves={1: REPLACED}, terminates=1),
    "terminate hits the oldest": Case([TERMINATE], 2, starts=[1], terminates=1, slots=2),
    "cancel, three places: all begin": Case([CANCEL] * 3, starts=[1, 2, 3], slots=3),
    "cancel, two of three places: the newest two": Case([CANCEL] * 3, 1, starts=[2, 3], leaves={1: REPLACED}, slots=3),
    "terminate, one of two places": Case([TERMINATE] * 2, 1, starts=[2], leaves={1: REPLACED}, slots=2),
    "terminate: as many as are too many": Case([TERMINATE], 4, starts=[1], terminates=3, slots=2),
    "cancel: as many as are too many": Case([CANCEL], 4, keeps=[1], cancels=3, slots=2),
    "allow all": Case([ALLOW] * 3, 1, starts=[1, 2, 3], slots=None),
    "allow all, capped": Case([ALLOW] * 3, 1, starts=[1], leaves=dict.fromkeys((2, 3), SKIPPED), slots=2),
    "mixed: skip and buffer": Case([SKIP, ALL, SKIP], 1, keeps=[2], leaves=dict.fromkeys((1, 3), SKIPPED)),
    "mixed: buffer one behind another": Case([ALL, ONE], 1, keeps=[1], leaves={2: SKIPPED}),
    "mixed: a start that would be stopped at once": Case([SKIP, CANCEL], starts=[2], leaves={1: REPLACED}),
    "mixed: a start that can wait": Case([ALL, CANCEL], starts=[2], keeps=[1]),
    "mixed: several starts that can wait": Case([ALL, ALL, TERMINATE], starts=[3], keeps=[1, 2], slots=1),
    "mixed: a slot is taken in between": Case([CANCEL, SKIP, CANCEL], starts=[2, 3], leaves={1: REPLACED}, slots=2),
    "out of actions in the middle": Case([ALLOW] * 3, starts=[1, 2], leaves={3: PAUSED}, slots=None, remaining=2),
}


@pytest.mark.parametrize("name", CASES)
def test_decisions(name: str) -> None:
    case = CASES[name]
    ticks = [
        Tick("s", number, "", TickSource.CLOCK, number, TickOutcome.PENDING, overlap=overlap)
        for number, overlap in enumerate(case.ticks, 1)
    ]
    runs = [ScheduleRun(f"r{number}", f"u{number}", State.RUNNING) for number in range(case.running)]
    decisions = Decisions(
        runs,
        lambda _overlap: case.slots,
        buffer_limit=case.buffer_limit,
        stopping=[tick for tick in ticks if tick.overlap in STOPPING],
        remaining=case.remaining,
    )
    decide(decisions, ticks, lambda tick: tick.overlap or SKIP)
    assert [tick.nominal for tick in decisions.starts] == case.starts
    assert sorted(tick.nominal for tick in decisions.kept) == case.keeps
    assert {tick.nominal: tick.outcome for tick in decisions.left} == case.leaves
    assert [run.id for run in decisions.cancels] == [f"r{number}" for number in range(case.cancels)]
    assert [run.id for run in decisions.terminates] == [f"r{number}" for number in range(case.terminates)]
    assert all(tick.reason for tick in [*decisions.kept, *decisions.left])
