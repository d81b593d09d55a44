"""The overlap policies, one function each: what to do with a tick whose time has come.

They work at a desk: it knows the runs that are unfinished and the places there are, and takes note of what is decided. Ticks
come in the order in which they wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.schedules import Overlap, TickOutcome
from mainspring.model.states import State
from mainspring.schedules.actions import stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.schedules import RunOf, Tick

OUT_OF_ACTIONS = "it had no actions left"
STOPPING = frozenset({Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER})


class Desk:
    """The places of one schedule while its ticks are decided on."""

    def __init__(
        self,
        running: list[RunOf],
        slots: Callable[[Overlap], int | None],
        *,
        buffer_limit: int | None = None,
        newest: Tick | None = None,
        remaining: int | None = None,
    ) -> None:
        self.running = running
        self._slots = slots
        self.buffer_limit = buffer_limit
        self.remaining = remaining
        """How many ticks of the clock may still start a run."""
        self.newest = newest
        """The last of the ticks that stop others: only that one of them begins."""
        self.starts: list[Tick] = []
        self.kept: list[Tick] = []
        self.left: list[Tick] = []
        self.older: list[Tick] = []
        self.cancels: list[RunOf] = []
        self.terminates: list[RunOf] = []

    def free(self, overlap: Overlap) -> bool:
        """Whether there is a place. Runs started here count, those ended here do not."""
        return self.in_the_way(overlap) <= 0

    def in_the_way(self, overlap: Overlap) -> int:
        """How many would have to go so that there is a place: more than one after a time of another policy."""
        slots = self._slots(overlap)
        return 0 if slots is None else len(self.running) - len(self.terminates) + len(self.starts) - slots + 1

    def start(self, tick: Tick) -> None:
        if not tick.source.manual and self.remaining is not None:
            if self.remaining == 0:
                self.leave(tick, TickOutcome.PAUSED, OUT_OF_ACTIONS)
                return
            self.remaining -= 1
        self.starts.append(tick)

    def keep(self, tick: Tick) -> None:
        tick.reason = f"waits for {self.someone()}"
        self.kept.append(tick)

    def leave(self, tick: Tick, outcome: TickOutcome, reason: str) -> None:
        tick.outcome, tick.reason = outcome, reason
        self.left.append(tick)

    def someone(self) -> str:
        """The run that is in the way, in words."""
        if self.running:
            return f"run {self.running[0].id}"
        return f"the run of {stamp(self.starts[0].nominal)}" if self.starts else "its turn"

    def retract(self) -> bool:
        """Take back the first start of this very moment, which would be stopped at once. False if there is none."""
        if not self.starts:
            return False
        tick = self.starts.pop(0)
        if not tick.source.manual and self.remaining is not None:
            self.remaining += 1
        self.leave(tick, TickOutcome.REPLACED, "a later tick of the same moment would have stopped it at once")
        return True


def skip(desk: Desk, tick: Tick) -> None:
    if desk.free(Overlap.SKIP):
        desk.start(tick)
    else:
        desk.leave(tick, TickOutcome.SKIPPED_OVERLAP, f"{desk.someone()} was unfinished")


def buffer_one(desk: Desk, tick: Tick) -> None:
    if desk.free(Overlap.BUFFER_ONE):
        desk.start(tick)
    elif not desk.kept:
        desk.keep(tick)
    else:
        desk.leave(
            tick, TickOutcome.SKIPPED_OVERLAP, f"{desk.someone()} was unfinished, and another tick waited already"
        )


def buffer_all(desk: Desk, tick: Tick) -> None:
    limit = desk.buffer_limit
    if desk.free(Overlap.BUFFER_ALL):
        desk.start(tick)
    elif limit is not None and not tick.source.manual and len(desk.kept) >= limit:
        desk.leave(tick, TickOutcome.DROPPED, f"{desk.someone()} was unfinished, and {limit} ticks waited already")
    else:
        desk.keep(tick)


def cancel_other(desk: Desk, tick: Tick) -> None:
    if tick is not desk.newest:
        desk.older.append(tick)
    elif desk.free(Overlap.CANCEL_OTHER) or (not desk.running and desk.retract()):
        desk.start(tick)
    else:
        asked = sum(run.state is State.CANCELLING for run in desk.running)
        others = [run for run in desk.running if run.state is not State.CANCELLING]
        desk.cancels += others[: max(0, desk.in_the_way(Overlap.CANCEL_OTHER) - asked)]
        desk.keep(tick)


def terminate_other(desk: Desk, tick: Tick) -> None:
    if tick is not desk.newest:
        desk.older.append(tick)
        return
    while not desk.free(Overlap.TERMINATE_OTHER):
        if len(desk.running) > len(desk.terminates):
            desk.terminates.append(desk.running[len(desk.terminates)])
        else:
            desk.retract()
    desk.start(tick)


def allow_all(desk: Desk, tick: Tick) -> None:
    if desk.free(Overlap.ALLOW_ALL):
        desk.start(tick)
    else:
        desk.leave(tick, TickOutcome.SKIPPED_OVERLAP, f"{len(desk.running) + len(desk.starts)} runs were unfinished")


POLICIES: dict[Overlap, Callable[[Desk, Tick], None]] = {
    Overlap.SKIP: skip,
    Overlap.BUFFER_ONE: buffer_one,
    Overlap.BUFFER_ALL: buffer_all,
    Overlap.CANCEL_OTHER: cancel_other,
    Overlap.TERMINATE_OTHER: terminate_other,
    Overlap.ALLOW_ALL: allow_all,
}


def decide(desk: Desk, ticks: list[Tick], overlap_of: Callable[[Tick], Overlap]) -> None:
    """Decide on all ticks whose time has come, in their order."""
    for tick in ticks:
        POLICIES[overlap_of(tick)](desk, tick)
    begun = desk.newest is not None and any(tick is desk.newest for tick in desk.starts)
    for tick in desk.older:
        if begun:
            desk.leave(tick, TickOutcome.REPLACED, "a later tick took its place while it waited")
        else:
            desk.keep(tick)
