"""Apply a batch of writes on SQLite, inside a transaction that the caller has begun.

The bulk fast path: writes of one kind are one statement. SQLite returns how many rows were changed, not which. If there are too few, the
group is rolled back to its savepoint and each write is applied alone (`store/verbs/apply.py`), which finds out whether it lost a race.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store.sql.conditions import ENDED, next_wake
from mainspring.store.sql.dialect import prefixed
from mainspring.store.sql.messages import RETURN_MESSAGE
from mainspring.store.sql.records import NEW_RUN_COLUMNS, RECORDED_COLUMNS, run_values, step_values, to_ending
from mainspring.store.sql.runs import ENDINGS, STARTED_RUNS, finish, set_state, suspend
from mainspring.store.sql.steps import DISCARD_OUTCOME, ON_STEP
from mainspring.store.sqlite.dialect import DIALECT
from mainspring.store.sqlite.executor import Blocks, SqliteExecutor
from mainspring.store.transaction import Transaction, run_script
from mainspring.store.verbs.apply import apply
from mainspring.store.verbs.record import Taken
from mainspring.store.verbs.start import STOPPED, cancel_started
from mainspring.store.writes import (
    Compensate,
    ContinueAs,
    DiscardOutcome,
    Finish,
    RecordAndRevive,
    RecordAndSend,
    Recorded,
    RecordStep,
    Release,
    RetryLater,
    Send,
    Start,
    Started,
    Suspend,
    Verdict,
    layers,
    run_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.store.writes import Op, Result

BAD_DATA = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    UnicodeError,
    OverflowError,
)
"""Exceptions of SQLite for values that it refuses."""

# -- statements ----------------------------------------------------------------------------------------------------------
INSERT_RUNS = Blocks(
    f"INSERT INTO runs ({', '.join(NEW_RUN_COLUMNS)}) VALUES {{rows}} ON CONFLICT DO NOTHING",
    len(NEW_RUN_COLUMNS),
)
_OWNER = len(RECORDED_COLUMNS) + 1
_EPOCH = RECORDED_COLUMNS.index("epoch") + 1
UPSERT_STEPS = Blocks(
    f"""
  INSERT INTO steps ({", ".join(RECORDED_COLUMNS)})
  SELECT {", ".join(f"v.column{number + 1}" for number in range(len(RECORDED_COLUMNS)))} FROM (VALUES {{rows}}) v
  WHERE EXISTS (SELECT 1 FROM runs WHERE id = v.column1 AND epoch = v.column{_EPOCH} AND owner = v.column{_OWNER}
    AND state <> 'cancelling')
  {ON_STEP}
""",
    _OWNER,
)
_SET_WAITING = Blocks(
    f"""
  UPDATE runs AS r SET {set_state("v.column1", "v.column2", next_wake("r"))}
  FROM (VALUES {{rows}}) v
  WHERE id = v.column3 AND owner = v.column4 AND epoch = v.column5 AND state IN ('running', 'waiting')
""",
    5,
)
_SUSPENDED, _MAY_SUSPEND = suspend("runs", "v.column1", "v.column2", "v.column6")
_SUSPEND = Blocks(
    f"""
  UPDATE runs SET {_SUSPENDED}
  FROM (VALUES {{rows}}) v
  WHERE id = v.column3 AND owner = v.column4 AND epoch = v.column5 AND state IN ('running', 'waiting') AND {_MAY_SUSPEND}
""",
    6,
)
_DISCARD = prefixed(
    f"""
  UPDATE steps SET {DISCARD_OUTCOME}
  WHERE run = ? AND position = ? AND EXISTS (SELECT 1 FROM runs WHERE id = ? AND owner = ? AND epoch = ?)
"""
)
_FINISH = Blocks(
    f"""
  UPDATE runs AS r SET {finish(*(f"v.column{number}" for number in range(4, 9)))},
    end_unprocessed = end_unprocessed AND NOT v.column9
  FROM (VALUES {{rows}}) v
  WHERE id = v.column1 AND owner = v.column2 AND epoch = v.column3
    AND (state IN ('running', 'waiting') OR (state = 'cancelling' AND v.column4 = 'cancelled'))
""",
    9,
)
# The indexes are named because SQLite would otherwise read the whole history of the schedule.
_NOTE_SUCCESS = prefixed(
    f"""
  UPDATE schedules SET failures = 0, last_result = :output, last_failure = NULL
  WHERE id = :schedule
    AND EXISTS (SELECT 1 FROM runs
      WHERE id = :run AND owner = :owner AND epoch = :epoch AND end_unprocessed = 1 AND state IN ('running', 'waiting'))
    AND NOT EXISTS (SELECT 1 FROM ticks INDEXED BY ticks_waiting
      WHERE outcome IN ('pending', 'buffered') AND schedule = :schedule)
    AND NOT EXISTS (SELECT 1 FROM backfills WHERE completed IS NULL AND schedule = :schedule)
    AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_of_schedule
      WHERE end_unprocessed = 1 AND schedule = :schedule AND state IN {ENDED})
"""
)
_WAITER_FOR_ONE = prefixed("SELECT 1 FROM steps WHERE completed IS NULL AND child = ? LIMIT 1")


def record_alone(connection: sqlite3.Connection, op: RecordStep) -> bool:
    """Record a step in a transaction of its own. Return False if nothing was written; `Batch` finds out why."""
    return UPSERT_STEPS.run(connection, [_record_values(op)]) == 1


class Batch:
    """One batch in one open transaction."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._db = connection
        self._executor = SqliteExecutor(connection)
        self._tx = Transaction(DIALECT, now)
        self._now = now
        self.changes = self._tx.changes
        self._lone = False
        self._refused: dict[str, Exception] = {}
        """Runs with a refused write. Their later writes are not applied either."""

    def apply(self, ops: Sequence[Op]) -> list[Result | Exception]:
        """Apply all writes: those of one run in their order, the others grouped by kind."""
        self._lone = len(ops) == 1
        answers: dict[int, Result | Exception] = {}
        for layer in layers(ops):
            kinds: dict[type, list[Any]] = {}
            for op in layer:
                kinds.setdefault(type(op), []).append(op)
            for kind in _ORDER:
                if kind in kinds:
                    self._apply_kind(kind, kinds[kind], answers)
        self._close()
        return [answers[id(op)] for op in ops]

    def _apply_kind(self, kind: type, ops: list[Any], answers: dict[int, Result | Exception]) -> None:
        bulk = _BULK.get(kind)
        if bulk is not None and not self._refused:
            done = self._guarded(lambda: bulk(self, ops), ops)
            if done is not None and not isinstance(done, Exception):
                answers.update((id(op), answer) for op, answer in zip(ops, done, strict=True))
                return
        for op in ops:
            refused = self._refused.get(run_of(op))
            answer = answers[id(op)] = self._apply_one(op) if refused is None else refused
            if isinstance(answer, Exception):
                self._refused[run_of(op)] = answer

    def _apply_one(self, op: Op) -> Any:
        return self._guarded(lambda: run_script(apply(self._tx, op), self._executor), [op])

    def _guarded(self, work: Callable[[], Any], ops: Sequence[Op]) -> Any:
        """Apply writes, or roll them back: None, an exception for bad data, and TAKEN mean that nothing was written.

        A single write that starts no runs needs no savepoint: it has the transaction to itself and fails with its first statement.
        """
        if self._lone and not getattr(ops[0], "starts", None):
            return work()
        self._db.execute("SAVEPOINT part")
        try:
            answer = work()
        except BAD_DATA as error:
            answer = error
        except Taken as taken:
            self._db.execute("ROLLBACK TO part")
            answer = taken.answer
        if answer is None or isinstance(answer, Exception):
            self._db.execute("ROLLBACK TO part")
        self._db.execute("RELEASE part")
        return answer

    def _close(self) -> None:
        """Wake the runs that wait for the changes of the batch."""
        ended = self.changes.ended
        if len(ended) == 1 and not self.changes.published:
            if self._db.execute(_WAITER_FOR_ONE, tuple(ended)).fetchone() is None:
                return
        elif not ended and not self.changes.published:
            return
        run_script(self._tx.close(), self._executor)

    # -- bulk fast paths: None if not all writes could be applied -----------------------------------------------------------
    def _starts(self, ops: list[Start]) -> list[Result] | None:
        if INSERT_RUNS.run(self._db, [run_values(op.run) for op in ops]) != len(ops):
            return None
        self._note_new(op.run.owner for op in ops)
        stopped = self._cancel_started(ops)
        return [
            Started(
                created=True,
                workflow=op.run.workflow,
                state=State.CANCELLED if op.run.id in stopped else op.run.state,
            )
            for op in ops
        ]

    def _cancel_started(self, ops: list[Start]) -> set[str]:
        """Cancel the runs that steps of cancelled runs start. Return their ids."""
        askers = [op.asker for op in ops if op.asker is not None]
        if not askers:
            return set()
        rows = self._executor.execute(STARTED_RUNS, {"ids": askers})
        stopped = {run for run, _, _, state in rows if state in STOPPED}
        started = {op.run.id for op in ops if op.asker in stopped}
        if started:
            run_script(cancel_started(self._tx, sorted(started)), self._executor)
        return started

    def _note_new(self, owners: Any) -> None:
        self.changes.ready = self.changes.ready or any(owner is None for owner in owners)

    def _records(self, ops: list[RecordStep]) -> list[Result] | None:
        if UPSERT_STEPS.run(self._db, [_record_values(op) for op in ops]) != len(ops):
            return None
        answers = [Recorded() for _ in ops]
        runs = [run for op in ops for run in op.starts]
        if runs:
            if INSERT_RUNS.run(self._db, [run_values(run) for run in runs]) != len(runs):
                return None
            self._note_new(run.owner for run in runs)
        self._look_at_watched(ops, answers)
        waiting = [
            (op.run_state, op.due, op.step.run, op.owner, op.step.epoch)
            for op, answer in zip(ops, answers, strict=True)
            if op.run_state is not None and answer.ending is None
        ]
        _SET_WAITING.run(self._db, waiting)
        return list(answers)

    def _look_at_watched(self, ops: list[RecordStep], answers: list[Recorded]) -> None:
        watched = {op.watch for op in ops if op.watch is not None}
        if not watched:
            return
        found = {row[0]: to_ending(row) for row in self._executor.execute(ENDINGS, {"ids": list(watched)})}
        for op, answer in zip(ops, answers, strict=True):
            if op.watch is not None:
                answer.ending = found.get(op.watch)
                answer.missing = op.watch not in found

    def _discards(self, ops: list[DiscardOutcome]) -> Sequence[Result] | None:
        rows = [(op.run, op.position, op.run, op.owner, op.epoch) for op in ops]
        if self._db.executemany(_DISCARD, rows).rowcount != len(ops):
            return None
        for op in ops:
            self._executor.execute(RETURN_MESSAGE, {"run": op.run, "position": op.position})
        return [Verdict.DONE] * len(ops)

    def _suspends(self, ops: list[Suspend]) -> Sequence[Result] | None:
        rows = [(op.no_later_than, op.park, op.run, op.owner, op.epoch, self._now) for op in ops]
        if _SUSPEND.run(self._db, rows) != len(ops):
            return None
        self.changes.ready = self.changes.ready or any(op.park for op in ops)
        return [Verdict.DONE] * len(ops)

    def _finishes(self, ops: list[Finish]) -> Sequence[Result] | None:
        self._note_successes(ops)
        rows = [
            (op.run, op.owner, op.epoch, op.state, op.reason, op.output, op.error, op.completed, op.end_processed)
            for op in ops
        ]
        if _FINISH.run(self._db, rows) != len(ops):
            return None
        self.changes.ended.update(op.run for op in ops)
        self._tx.informed.update(op.owner for op in ops)
        return [Verdict.DONE] * len(ops)

    def _note_successes(self, ops: list[Finish]) -> None:
        """Let schedules process runs that succeed while nothing waits for their end, just before they end.

        The next pass over the schedule processes all other ends, as it does for all ends on PostgreSQL, where a run that ends waits for no
        schedule. Here a writer has the whole database locked anyway, and one pass less is one commit less. Several ended runs of one
        schedule are left to the pass, too, because the order of their ends matters.
        """
        of_schedule = Counter(op.schedule for op in ops)
        for op in ops:
            op.end_processed = (
                op.schedule is not None
                and op.state is State.SUCCEEDED
                and of_schedule[op.schedule] == 1
                and self._db.execute(_NOTE_SUCCESS, _note_values(op)).rowcount == 1
            )


def _record_values(op: RecordStep) -> tuple[Any, ...]:
    return (*step_values(op.step), op.owner)


def _note_values(op: Finish) -> dict[str, Any]:
    return {"schedule": op.schedule, "run": op.run, "owner": op.owner, "epoch": op.epoch, "output": op.output}


_ORDER = (
    *(Start, RecordStep, RecordAndSend, RecordAndRevive, Send, DiscardOutcome, Suspend, Release, RetryLater),
    *(ContinueAs, Compensate, Finish),
)
"""The kinds of writes in the order in which they are applied."""
_BULK: dict[type, Callable[[Batch, list[Any]], Sequence[Result] | None]] = {
    Start: Batch._starts,  # noqa: SLF001
    RecordStep: Batch._records,  # noqa: SLF001
    DiscardOutcome: Batch._discards,  # noqa: SLF001
    Suspend: Batch._suspends,  # noqa: SLF001
    Finish: Batch._finishes,  # noqa: SLF001
}
