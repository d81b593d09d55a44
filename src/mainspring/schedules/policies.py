"""The overlap policies, one function each: decide about a tick whose time has come.

Each writes to the `Decisions` of a schedule, which have the unfinished runs and the free slots. Ticks come in the order in which they
wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.schedules import Overlap, TickOutcome
from mainspring.model.states import State
from mainspring.schedules.actions import stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.schedules import ScheduleRun, Tick

OUT_OF_ACTIONS = "it had no actions left"
STOPPING = frozenset({Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER})


class Decisions:
    """The slots of one schedule, and the decisions about its ticks."""

    def __init__(
        self,
        running: list[ScheduleRun],
        slots: Callable[[Overlap], int | None],
        *,
        buffer_limit: int | None = None,
        stopping: Sequence[Tick] = (),
        remaining: int | None = None,
    ) -> None:
        self.running = running
        self._slots = slots
        self.buffer_limit = buffer_limit
        self.remaining = remaining
        """How many ticks of the clock may still start a run."""
        self._stopping = list(stopping)
        """The ticks that stop others, and that are not decided yet."""
        self.newest = stopping[-1] if stopping else None
        """The last of the ticks that stop others: only this one of them makes room for itself."""
        self.starts: list[Tick] = []
        self._can_wait: set[int] = set()
        """Starts whose policy would have let them wait, by the identity of their ticks."""
        self.kept: list[Tick] = []
        self.left: list[Tick] = []
        self.older: list[Tick] = []
        self.cancels: list[ScheduleRun] = []
        self.terminates: list[ScheduleRun] = []

    def free(self, overlap: Overlap) -> bool:
        """Whether there is a free slot. Runs started here count, those ended here do not."""
        return self.excess(overlap) <= 0

    def excess(self, overlap: Overlap) -> int:
        """Return how many runs have to end for a free slot. More than one if another policy was in force before."""
        slots = self._slots(overlap)
        return 0 if slots is None else len(self.running) - len(self.terminates) + len(self.starts) - slots + 1

    def start_older(self, tick: Tick, overlap: Overlap) -> None:
        """Decide about a tick that stops others, but is not the newest. It starts if there are free slots for it and for all that follow.

        One that has waited does not: what has waited for the slot of a stopped run is replaced by the newest.
        """
        self._stopping = [each for each in self._stopping if each is not tick]
        if tick.outcome is not TickOutcome.BUFFERED and self.excess(overlap) + len(self._stopping) <= 0:
            self.start(tick)
        else:
            self.older.append(tick)

    def start(self, tick: Tick, *, can_wait: bool = False) -> None:
        """Start the run of a tick, if there are actions left."""
        if can_wait:
            self._can_wait.add(id(tick))
        if not tick.source.manual and self.remaining is not None:
            if self.remaining == 0:
                self.leave(tick, TickOutcome.PAUSED, OUT_OF_ACTIONS)
                return
            self.remaining -= 1
        self.starts.append(tick)

    def keep(self, tick: Tick) -> None:
        """Keep a tick in the buffer."""
        tick.reason = f"waits for {self.blocking_run()}"
        self.kept.append(tick)

    def leave(self, tick: Tick, outcome: TickOutcome, reason: str) -> None:
        """Leave out a tick."""
        tick.outcome, tick.reason = outcome, reason
        self.left.append(tick)

    def blocking_run(self) -> str:
        """Return a description of the run that occupies the slot."""
        if self.running:
            return f"run {self.running[0].id}"
        return f"the run of {stamp(self.starts[0].nominal)}" if self.starts else "its turn"

    def retract_waiting(self, overlap: Overlap) -> bool:
        """Let starts of this pass wait again until there is a free slot. Return False if there is none even then."""
        waiting = [tick for tick in self.starts if id(tick) in self._can_wait]
        while waiting and not self.free(overlap):
            self._retract(waiting.pop())
        return self.free(overlap)

    def retract(self) -> bool:
        """Take back the first start of this pass, which would be stopped at once. Return False if there is none.

        A start that can wait, as that of a backfill, waits for its turn.
        """
        if not self.starts:
            return False
        self._retract(self.starts[0])
        return True

    def _retract(self, tick: Tick) -> None:
        self.starts = [each for each in self.starts if each is not tick]
        if not tick.source.manual and self.remaining is not None:
            self.remaining += 1
        if id(tick) in self._can_wait:
            self.keep(tick)
        else:
            self.leave(tick, TickOutcome.REPLACED, "a later tick of the same moment would have stopped it at once")


def skip(decisions: Decisions, tick: Tick) -> None:
    if decisions.free(Overlap.SKIP):
        decisions.start(tick)
    else:
        decisions.leave(tick, TickOutcome.SKIPPED_OVERLAP, f"{decisions.blocking_run()} was unfinished")


def buffer_one(decisions: Decisions, tick: Tick) -> None:
    if decisions.free(Overlap.BUFFER_ONE):
        decisions.start(tick, can_wait=True)
    elif not decisions.kept:
        decisions.keep(tick)
    else:
        decisions.leave(
            tick,
            TickOutcome.SKIPPED_OVERLAP,
            f"{decisions.blocking_run()} was unfinished, and another tick waited already",
        )


def buffer_all(decisions: Decisions, tick: Tick) -> None:
    limit = decisions.buffer_limit
    if decisions.free(Overlap.BUFFER_ALL):
        decisions.start(tick, can_wait=True)
    elif limit is not None and not tick.source.manual and len(decisions.kept) >= limit:
        decisions.leave(
            tick, TickOutcome.DROPPED, f"{decisions.blocking_run()} was unfinished, and {limit} ticks waited already"
        )
    else:
        decisions.keep(tick)


def cancel_other(decisions: Decisions, tick: Tick) -> None:
    if tick is not decisions.newest:
        decisions.start_older(tick, Overlap.CANCEL_OTHER)
    elif decisions.free(Overlap.CANCEL_OTHER) or (not decisions.running and decisions.retract()):
        decisions.start(tick)
    elif tick.outcome is TickOutcome.BUFFERED and decisions.retract_waiting(Overlap.CANCEL_OTHER):
        # The slot is that of a run cancelled for this tick. Another that waits must not take it, and be cancelled in its turn.
        decisions.start(tick)
    else:
        asked = sum(run.state is State.CANCELLING for run in decisions.running)
        others = [run for run in decisions.running if run.state is not State.CANCELLING]
        decisions.cancels += others[: max(0, decisions.excess(Overlap.CANCEL_OTHER) - asked)]
        decisions.keep(tick)


def terminate_other(decisions: Decisions, tick: Tick) -> None:
    if tick is not decisions.newest:
        decisions.start_older(tick, Overlap.TERMINATE_OTHER)
        return
    while not decisions.free(Overlap.TERMINATE_OTHER):
        if len(decisions.running) > len(decisions.terminates):
            decisions.terminates.append(decisions.running[len(decisions.terminates)])
        else:
            decisions.retract()
    decisions.start(tick)


def allow_all(decisions: Decisions, tick: Tick) -> None:
    if decisions.free(Overlap.ALLOW_ALL):
        decisions.start(tick)
    else:
        decisions.leave(
            tick, TickOutcome.SKIPPED_OVERLAP, f"{len(decisions.running) + len(decisions.starts)} runs were unfinished"
        )


POLICIES: dict[Overlap, Callable[[Decisions, Tick], None]] = {
    Overlap.SKIP: skip,
    Overlap.BUFFER_ONE: buffer_one,
    Overlap.BUFFER_ALL: buffer_all,
    Overlap.CANCEL_OTHER: cancel_other,
    Overlap.TERMINATE_OTHER: terminate_other,
    Overlap.ALLOW_ALL: allow_all,
}


def decide(decisions: Decisions, ticks: list[Tick], overlap_of: Callable[[Tick], Overlap]) -> None:
    """Decide about all due ticks, in their order."""
    for tick in ticks:
        POLICIES[overlap_of(tick)](decisions, tick)
    begun = decisions.newest is not None and any(tick is decisions.newest for tick in decisions.starts)
    for tick in decisions.older:
        if begun:
            decisions.leave(tick, TickOutcome.REPLACED, "a later tick took its place while it waited")
        else:
            decisions.keep(tick)
