"""What a run has recorded, how far its replay has come, and the order in which the workflow's code gets the outcomes."""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mainspring.engine.replay.empty import UNUSED, own
from mainspring.model.retry_scope import (
    BRANCH_CREATED,
    FORGOTTEN,
    KEPT,
    ONCE,
    UNDO,
    Edition,
    branch_of,
    input_of,
    is_compensation,
    once_forgotten,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Iterable, Sequence, Sized

    from mainspring.model.runs import Step

    IsBusy = Callable[[], "bool | None"]

ROUNDS = 3
"""The least number of rounds of the loop: a future that gathers others is done one round after them, and no task is busy then."""
BLIND_ROUNDS = 12
"""The number of rounds for a run with too many tasks to inspect."""
MOST_ROUNDS = 45
"""The most rounds, for a run with a task that polls and is never idle. Fewer than those after which a virtual clock advances."""
NONE_KEPT = range(0)


class Delivery:
    """Delivers the outcomes of one run to its code one at a time, in the order in which they were recorded, live and on replay.

    Otherwise races between branches (first completed, queues, semaphores, task groups) would end differently on replay. Between two
    outcomes the loop goes round until the run is idle, so that the code has reacted to the first before it gets the second: live, much
    time may have passed between the two, and in a replay none does. A replay does so before the first one as well.

    A retry of a run forgets what one branch recorded. Other branches keep what they recorded after that, and may have asked for it only because
    of what is forgotten (an `asyncio.Event` that the other branch had set). If such an outcome is not asked for when the run is idle, it is passed
    over, and delivered when it is asked for. Of several that are asked for, the one that was recorded first is the next.

    Used on the loop only.
    """

    __slots__ = (
        "_draining",
        "_held",
        "_holds",
        "_is_busy",
        "_kept",
        "_loop",
        "_skipped",
        "_waiting",
        "cursor",
        "recorded",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        recorded: int = 0,
        skipped: Iterable[int] = (),
        kept: range = NONE_KEPT,
    ) -> None:
        self._loop = loop
        self._kept = kept
        """The `seq` of outcomes that may be passed over."""
        self.recorded = recorded
        """The number of recorded outcomes when the run was claimed."""
        self._skipped: dict[int, None] = dict.fromkeys(skipped) if skipped else UNUSED
        self._waiting: dict[int, asyncio.Future[None]] = UNUSED
        self._held: dict[asyncio.Future[None], None] = UNUSED
        self._draining = False
        self._holds = 0
        """The number of cancelled operations that are being recorded as such."""
        self._is_busy: IsBusy | None = None
        self.cursor = 0
        if self._skipped:
            self._pass_skipped()

    @property
    def is_over(self) -> bool:
        """Whether all recorded outcomes are delivered, and the code has reacted to them."""
        return self.cursor >= self.recorded and not self._draining

    @property
    def replaying(self) -> bool:
        """Whether recorded outcomes remain to be delivered."""
        return self.cursor < self.recorded

    def turn(self, seq: int, *, alone: bool, is_busy: IsBusy | None = None) -> asyncio.Future[None] | None:
        """Return a future to await before outcome `seq` may be delivered, or None if it may be delivered now.

        `is_busy` tells whether a task of the run is about to continue; None: not known.
        """
        if alone and self.is_next(seq):
            self.cursor += 1
            if self._skipped:
                self._pass_skipped()
            return None
        self._is_busy = is_busy
        self._waiting = own(self._waiting)
        future = self._waiting[seq] = self._loop.create_future()
        if self.replaying and not self._draining:
            self._begin_drain()  # live, the tasks that the code has created began while this operation executed
        else:
            self._pump()
        return future

    def is_next(self, seq: int | None) -> bool:
        """Whether outcome `seq` may be delivered now, with no other being delivered."""
        return seq == self.cursor and not self._draining and not self._waiting and not self._holds

    def frontier(self) -> asyncio.Future[None] | None:
        """Return a future to await until all recorded outcomes are delivered, or None if they are."""
        if not self.replaying and not self._draining:
            return None
        future = self._loop.create_future()
        self._held = own(self._held)
        self._held[future] = None
        self._pump()
        return future

    def skip(self, seq: int) -> None:
        """Skip outcome `seq`, which is never delivered because the code cancelled the operation."""
        self._waiting.pop(seq, None)
        self._skipped = own(self._skipped)
        self._skipped[seq] = None
        self._pass_skipped()
        self._pump()

    @contextmanager
    def held(self) -> Generator[None]:
        """Deliver nothing while it is recorded that the code cancelled an operation.

        The branch goes on after that commit. In a replay it goes on at once, before any other branch receives an outcome.
        """
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds and not self._draining:
                self._begin_drain()

    def fail(self, error: BaseException) -> None:
        """Wake all waiters with an exception."""
        waiting = self.futures
        self._waiting.clear()
        self._held.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def close(self) -> None:
        """Drop the reference to the run, which has left memory."""
        self._is_busy = None

    @property
    def stuck(self) -> bool:
        """Whether no branch asks for the next recorded outcome."""
        return self.replaying and self.cursor not in self._waiting and not self._draining and not self._holds

    @property
    def futures(self) -> list[asyncio.Future[None]]:
        """What operations await: their turn, or the end of the record."""
        return [*self._waiting.values(), *self._held]

    def _advance(self) -> None:
        self.cursor += 1
        self._pass_skipped()

    def _pass_skipped(self) -> None:
        while self.cursor in self._skipped:
            self.cursor += 1

    def _pump(self, *, idle: bool = False) -> None:
        if self._draining or self._holds:
            return
        seq = self.cursor
        if self._kept:
            if not idle and seq in self._kept and seq not in self._waiting:
                self._begin_drain()
                return
            seq = self._first_asked_for()
        future = self._waiting.pop(seq, None)
        if future is not None:
            if seq == self.cursor:
                self._advance()
            if not future.done():
                future.set_result(None)
            self._begin_drain()
        elif not self.replaying and self._held:
            held, self._held = self._held, UNUSED
            for waiter in held:
                if not waiter.done():
                    waiter.set_result(None)

    def _first_asked_for(self) -> int:
        """The `seq` of the next outcome in an idle run. Outcomes that may be passed over, and that are not asked for, are passed over."""
        first = min(self._waiting, default=self.recorded)
        while self.cursor < first and self.cursor in self._kept:
            self._advance()
        return min(first, self.cursor)

    def _begin_drain(self) -> None:
        self._draining = True
        self._loop.call_soon(self._drain, 0, 0)

    def _drain(self, rounds: int, calm: int) -> None:
        """Look once a round whether the code has reacted to the last outcome. `calm` is the number of idle rounds so far."""
        ready: Sized | None = getattr(
            self._loop, "_ready", None
        )  # the callbacks that are ready, on the loops of asyncio
        busy = self._is_busy() if self._is_busy is not None else None
        calm = 0 if busy else calm + 1
        enough = BLIND_ROUNDS if busy is None else ROUNDS
        if (ready is None or ready) and calm < enough and rounds < MOST_ROUNDS:
            self._loop.call_soon(self._drain, rounds + 1, calm)
        else:
            self._draining = False
            self._pump(idle=True)


_NOTHING_FORGOTTEN = Edition()
_NO_SEQ = 2**62
"""Greater than any seq, to compare with."""
_NOT_OPERATIONS = ("p:", "c:", BRANCH_CREATED, FORGOTTEN, ONCE, UNDO)
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
        "once",
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
        self.once: list[Step] = once_forgotten(steps) if steps else []
        """Forgotten `at_most_once` steps whose outcome no call of this attempt has received."""
        for step in self.once:
            del self.journal[step.position]
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

    def begun_before(self, position: str, name: str, key: str, *, anywhere: bool) -> Step | None:
        """Take the record of an `at_most_once` step that a retry has forgotten: the same call, with the same input.

        One at this position, else of this branch, else, if `anywhere`, of any: the code may make it after other operations than before.
        """
        same = [step for step in self.once if step.name == name and input_of(step) == key]
        places = [ONCE + position + "~"]
        if anywhere:
            places += [ONCE + branch_of(position), ONCE]
        for place in places:
            for step in same:
                if step.position.startswith(place) and is_compensation(step) == position.startswith(UNDO):
                    self.once.remove(step)
                    return step
        return None

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
