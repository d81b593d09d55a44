"""What a run has recorded, and how far its replay has come."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from mainspring.engine.replay.delivery import NONE_KEPT, Delivery
from mainspring.engine.replay.empty import UNUSED, own
from mainspring.model.retry_scope import BRANCH_CREATED, FORGOTTEN, KEPT, UNDO, Edition

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.model.runs import Step

_NOTHING_FORGOTTEN = Edition()
_NO_SEQ = 2**62
"""Greater than any seq, to compare with."""
_NOT_OPERATIONS = ("p:", "c:", BRANCH_CREATED, FORGOTTEN, UNDO)
"""How positions begin that say nothing about how far the code had come."""


class History:
    """The record of one run. An operation takes its entry out when it is reached, so what is left was not asked for yet."""

    __slots__ = (
        "_seqs",
        "beside",
        "delivery",
        "failed_at",
        "journal",
        "kept",
        "landmark",
        "last_time",
        "open_records",
        "recalled",
        "unreached",
        "watch",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, steps: Sequence[Step], begun: int, *, unwinds: bool) -> None:
        """`begun` is the time at which the run began. `unwinds`: this execution makes the compensations of a stop."""
        self.journal: dict[str, Step] = {step.position: step for step in steps} if steps else UNUSED
        """By position: what is recorded and was not asked for."""
        self.unreached: dict[str, Step] = (
            {step.position: step for step in steps if step.completed is None} if steps else UNUSED
        )
        """By position: operations that are recorded as begun, and that this replay has not reached. They are in the journal, too."""
        self.beside = _beside(steps) if unwinds else _NO_SEQ
        """The `seq` from which on outcomes of compensations have no place in the order of outcomes: they may be those of a stop."""
        self.kept = _kept(self.journal.pop(KEPT, None)) if steps else NONE_KEPT
        """The `seq` of outcomes that a retry or resume kept, while it forgot some that were recorded before them."""
        self.delivery = _delivery(loop, steps, self.beside, self.kept) if steps else Delivery(loop)
        self._seqs = itertools.count(self.delivery.recorded)
        self.last_time = begun
        """The time of the last outcome that was delivered to the workflow's code."""
        self.failed_at: int | None = None
        """The time of the last exception that was delivered to the workflow's code."""
        self.landmark = 0
        """The time of the last outcome from which a retry or resume may start over. Later operations get a later time."""
        self.open_records: dict[str, Step] = UNUSED
        """By position: operations under way that are recorded as begun. Waits are not among them."""
        self.recalled = ""
        """The position that was last looked up."""
        self.watch: asyncio.TimerHandle | None = None
        """The next look at how far the replay has come, or at whether the code of a run that disagrees has ended."""

    def take(self, position: str) -> Step | None:
        """Take the record of an operation that the code has reached. None: nothing is recorded at this position."""
        self.recalled = position
        step = self.journal.pop(position, None)
        if step is not None and step.completed is None:
            self.unreached.pop(position, None)
            self.note_open(step)
        return step

    def take_seq(self) -> int:
        """Take the `seq` of the next outcome. From any thread of the run."""
        return next(self._seqs)

    def mark(self, position: str) -> Any:
        """Take the value of a mark: a record beside the operations. None: there is no such mark."""
        step = self.journal.pop(position, None)
        return None if step is None else json.loads(step.output or "null")

    def edition(self, position: str) -> Edition:
        """What a retry or resume has forgotten at a position."""
        note = self.journal.get(f"{FORGOTTEN}{position}") if self.journal else None
        return _NOTHING_FORGOTTEN if note is None else Edition.decode(note.output)

    def place(self, position: str, name: str) -> str:
        """The position of an operation as it is used for ids and keys: never that of an operation which the run has forgotten."""
        number = self.edition(position).number(name)
        return f"{position}~{number}" if number else position

    def note_open(self, record: Step) -> None:
        """Remember an operation that is recorded as begun: if the code cancels it, that must be recorded."""
        self.open_records = own(self.open_records)
        self.open_records[record.position] = record

    def note_closed(self, position: str) -> None:
        """Forget an operation that has an outcome, or whose wait records a cancellation itself."""
        if self.open_records.pop(position, None) is not None and not self.open_records:
            self.open_records = UNUSED  # thousands of runs may wait

    def take_unreached(self, given_up: Callable[[str], bool] | None = None) -> list[Step]:
        """Remove operations that were begun and that the replay no longer reaches: all, or those at given-up positions."""
        left = [step for step in self.unreached.values() if given_up is None or given_up(step.position)]
        for step in left:
            del self.unreached[step.position], self.journal[step.position]
        return left

    @property
    def goes_on(self) -> bool:
        """Whether operations are recorded that the code has not asked for.

        An outcome that waits for its turn is not among them: its branch is not past this point.
        """
        return any(not position.startswith(_NOT_OPERATIONS) for position in self.journal)

    @property
    def will_leave_scope(self) -> bool:
        """Whether the record has the leaving of a `run.undo` block that this replay has not reached."""
        return any(step.kind == "undo" and step.position.startswith(UNDO) for step in self.journal.values())

    def next_outcome(self) -> Step | None:
        """The recorded outcome whose turn it is, if the code has not asked for it."""
        return next((step for step in self.journal.values() if step.seq == self.delivery.cursor), None)

    def unused(self, responders: Iterable[str]) -> Step | None:
        """The first recorded outcome that the code never asked for. `responders`: positions of the branches that answer questions."""
        if not self.delivery.replaying:
            return None
        # The run may end before it answers its last question, also before the task that answers has begun.
        asked = (step.position for step in self.journal.values() if step.kind == "question")
        serving = (*(at for at in responders if at), *(f"{at.rpartition('.')[0]}." for at in asked))
        left = [
            step
            for step in self.journal.values()
            if step.seq is not None
            and not step.interrupted
            and not step.position.startswith(serving)
            and not (step.position.startswith(UNDO) and step.seq >= self.beside)
            and step.seq not in self.kept
        ]
        return min(left, key=lambda step: step.seq or 0, default=None)


def _beside(steps: Sequence[Step]) -> int:
    """The `seq` after the last outcome that is not of a compensation. The code of a stopped run begins no other operation."""
    return 1 + max(
        (step.seq for step in steps if step.seq is not None and not step.position.startswith(UNDO)), default=-1
    )


def _delivery(loop: asyncio.AbstractEventLoop, steps: Sequence[Step], beside: int, kept: range) -> Delivery:
    """The order of the recorded outcomes, without those that no code awaits in it."""
    seen = {
        step.seq
        for step in steps
        if step.seq is not None and not step.interrupted and not (step.position.startswith(UNDO) and step.seq >= beside)
    }
    recorded = max((step.seq for step in steps if step.seq is not None), default=-1) + 1
    recorded = max(recorded, kept.stop)  # a fork may have few of the kept outcomes, and new ones are not among them
    return Delivery(loop, recorded, set(range(recorded)) - seen, kept)


def _kept(mark: Step | None) -> range:
    return NONE_KEPT if mark is None else range(*json.loads(mark.output or "[0]"))
