"""Apply a batch of writes on PostgreSQL: in bulk those that meet no obstacle, one by one the others.

A single write is one statement, or one round trip of two. A batch is one statement for each kind of write, all sent together and committed
together. A write that a bulk statement does not return was fenced, locked, a repetition or bad data. It has changed nothing, and is retried
alone (`store/verbs/apply.py`), which finds out the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.clock import SystemClock
from mainspring.store.changes import Changes
from mainspring.store.postgres.bulk import Bulk
from mainspring.store.postgres.database import BAD_DATA, LOCKED, roll_back
from mainspring.store.postgres.executor import PostgresExecutor, wait_for
from mainspring.store.transaction import Blocked, Transaction, run_script
from mainspring.store.verbs.apply import apply
from mainspring.store.verbs.record import Taken
from mainspring.store.writes import (
    Finish,
    RecordAndSend,
    RecordStep,
    Release,
    Send,
    Start,
    Suspend,
    Verdict,
    layers,
    run_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.postgres.database import Connection
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.writes import Op, Result

_CLOCK = SystemClock()
_RELEASES, _SENDS = frozenset({Suspend, Release}), frozenset({RecordAndSend, Send})
_MOMENT = 0.3
"""How long, in seconds, a write waits here for a row that another transaction has locked. After that it is HELD."""


class Batch:
    """One batch on one connection. `here` are the workers of this store, which are notified in memory of messages sent through it."""

    def __init__(
        self, connection: Connection, dialect: Dialect, origin: str, now: int, changes: Changes, *, here: frozenset[str]
    ) -> None:
        self._db = connection
        self._sql = dialect
        self._origin = origin
        self._now = now
        self._changes = changes
        self._here = here
        self._stuck: dict[str, Verdict | Exception] = {}
        """Runs with a blocked or refused write. Their later writes are not applied, and get the same answer."""
        self._outcomes: dict[str, int] = {}
        """Writes of steps in the present part of the batch, by run."""
        self._answers: dict[int, Result | Exception] = {}

    def apply(self, ops: Sequence[Op]) -> list[Result | Exception]:
        """Apply all writes, and answer them in their order."""
        for layer in layers(ops):
            self._apply_layer(layer)
        return [self._answers[id(op)] for op in ops]

    def _apply_layer(self, layer: list[Op]) -> None:
        ready = [op for op in layer if run_of(op) not in self._stuck] if self._stuck else layer
        types = {type(op) for op in ready}
        self._outcomes = {op.step.run: id(op) for op in ready if isinstance(op, RecordStep)} if types != {Start} else {}
        # Runs that a step starts are stored alone, because that looks up the starting run.
        self._together([op for op in ready if type(op) not in _RELEASES and not (type(op) is Start and op.asker)])
        if not types.isdisjoint(_SENDS):
            self._send([op for op in ready if isinstance(op, (RecordAndSend, Send))])
        if not types.isdisjoint(_RELEASES):
            self._together([op for op in ready if type(op) in _RELEASES])
        for op in self._left(layer):
            self._resolve(op)

    def _send(self, ops: Sequence[Op]) -> None:
        """Apply writes that send messages. They lock each other's runs, so that many at once often wait for each other's commit.

        The first of those left is applied alone, which waits for that commit. Then the others are tried together once more.
        """
        left, before = self._left(ops), -1
        while 1 < len(left) != before:
            self._resolve(left[0])
            before = len(left) - 1
            self._together([op for op in self._left(ops) if run_of(op) not in self._stuck])
            left = self._left(ops)

    def _left(self, ops: Sequence[Op]) -> list[Op]:
        return [op for op in ops if id(op) not in self._answers]

    def _resolve(self, op: Op) -> None:
        """Answer a write that the bulk statements did not apply."""
        answer = self._stuck.get(run_of(op)) or self._alone(op)
        if answer is Verdict.HELD or isinstance(answer, Exception):
            self._stuck[run_of(op)] = answer
        self._answers[id(op)] = answer

    def _together(self, ops: list[Op]) -> None:
        """Apply writes in bulk and answer those that succeeded. A write that fails the whole statement is found by halving."""
        if self._outcomes:
            made = self._answers.keys() | {id(op) for op in ops}
            ops = [op for op in ops if type(op) is not Finish or self._outcomes.get(op.run, id(op)) in made]
        if not ops:
            return
        changes = Changes()
        try:
            answers = Bulk(self._db, self._sql, self._origin, self._now, changes, here=self._here).apply(ops)
        except (*LOCKED, *BAD_DATA):
            roll_back(self._db)
            if len(ops) > 1:
                self._together(ops[: len(ops) // 2])
                self._together(ops[len(ops) // 2 :])
        else:
            self._changes.add(changes)
            self._answers.update(answers)

    def _alone(self, op: Op) -> Result | Exception:
        """Apply one write in a transaction of its own. Bad data is answered with its exception."""
        give_up = _CLOCK.monotonic() + _MOMENT
        executor = PostgresExecutor(self._db, self._sql)
        while True:
            tx = Transaction(self._sql, self._now)
            try:
                with self._db.transaction():
                    answer = run_script(apply(tx, op), executor)
                    run_script(tx.close(self._origin), executor)
            except Taken as taken:
                return taken.answer
            except (Blocked, *LOCKED) as blocked:
                if _CLOCK.monotonic() > give_up:
                    return Verdict.HELD
                if isinstance(blocked, Blocked):
                    wait_for(self._db, self._sql, blocked)
            except BAD_DATA as error:
                return error
            else:
                self._changes.add(tx.changes)
                return answer
