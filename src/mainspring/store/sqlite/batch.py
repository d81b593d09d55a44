"""Applying a batch of writes on SQLite, inside a transaction that the caller has begun.

Writes of one kind go together. That tells how many rows were changed, not which; so when the number is short, the group is
rolled back to its savepoint and made again one by one, and the loser learns that it lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mainspring.store.ops import (
    Again,
    Continue,
    Finish,
    Release,
    Rest,
    Speak,
    Start,
    Tell,
    Unwind,
    Verdict,
    Void,
    Write,
    Written,
    run_of,
)
from mainspring.store.sqlite import messages
from mainspring.store.sqlite.run_writes import RunWrites
from mainspring.store.sqlite.step_writes import StepWrites
from mainspring.store.waves import waves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.ops import Op, Result

BAD_DATA = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
)
"""What SQLite says to values that it cannot take."""

Together = Callable[["Batch", list[Any]], "Sequence[Result] | None"]
"""Makes writes of one kind all at once; None: not all of them could be made."""
Alone = Callable[["Batch", Any], "Result"]


class Batch(StepWrites, RunWrites):
    """One batch in one open transaction."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        super().__init__(connection, now)
        self._lonely = False
        self._refused: dict[str, Exception] = {}
        """Runs about which the database would not take something: what comes after that is not written either."""

    def apply(self, ops: Sequence[Op]) -> list[Result | Exception]:
        """Apply all of them; writes about one run in their order, others grouped by kind."""
        self._lonely = len(ops) == 1
        answers: dict[int, Result | Exception] = {}
        for wave in waves(ops):
            kinds: dict[type, list[Any]] = {}
            for op in wave:
                kinds.setdefault(type(op), []).append(op)
            for kind, together, alone in _ORDER:
                if kind in kinds:
                    self._make(kinds[kind], answers, together, alone)
        if self.ended:
            # A worker hears of what it finished itself in memory, before any poke could reach it.
            finishes = [op for op in ops if isinstance(op, Finish)]
            self.unblock(self.ended, told={op.owner for op in finishes})
        if self.said:
            self._wake(messages.listeners(self._db, self.said))
        return [answers[id(op)] for op in ops]

    def _make(
        self, mine: list[Op], answers: dict[int, Result | Exception], together: Together | None, alone: Alone
    ) -> None:
        if together is not None and len(mine) > 1 and not self._refused:
            done = self._guarded(together, mine)
            if done is not None and not isinstance(done, Exception):
                answers.update((id(op), answer) for op, answer in zip(mine, done, strict=True))
                return
        for op in mine:
            refused = self._refused.get(run_of(op))
            answer = answers[id(op)] = self._guarded(alone, op) if refused is None else refused
            if isinstance(answer, Exception):
                self._refused[run_of(op)] = answer

    def _guarded(self, work: Callable[[Batch, Any], Any], what: object) -> Any:
        """Do it or leave no trace: None and an exception for bad data both mean that nothing was written.

        A lonely write needs no savepoint: the transaction is its own.
        """
        if self._lonely and not getattr(what, "starts", None):
            return work(self, what)
        self._db.execute("SAVEPOINT part")
        try:
            answer = work(self, what)
        except BAD_DATA as error:
            answer = error
        if (
            answer is None
            or isinstance(answer, Exception)
            or (isinstance(answer, Written) and answer.verdict is Verdict.TAKEN)
        ):
            self._db.execute("ROLLBACK TO part")
        self._db.execute("RELEASE part")
        return answer


_ORDER: tuple[tuple[type, Together | None, Alone], ...] = (
    (Start, Batch.starts, Batch.start),
    (Write, Batch.writes, Batch.write),
    (Speak, None, Batch.speak),
    (Tell, None, Batch.tell),
    (Void, Batch.voids, Batch.void),
    (Rest, Batch.rests, Batch.rest),
    (Release, None, Batch.release),
    (Again, None, Batch.again),
    (Continue, None, Batch.set_back),
    (Unwind, None, Batch.set_back),
    (Finish, Batch.finishes, Batch.finish),
)
"""The kinds of writes in the order in which they are made."""
