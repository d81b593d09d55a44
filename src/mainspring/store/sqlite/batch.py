"""Applying a batch of writes on SQLite, inside a transaction that the caller has begun.

Writes of one kind go together. That tells how many rows were changed, not which; so when the number is short, the group is
rolled back to its savepoint and made again one by one, and the loser learns that it lost.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.attempts import try_again
from mainspring.store.conversations import carry
from mainspring.store.joining import WITH_ITS_STARTER
from mainspring.store.keyed import RECORDED, RENAME, begin_all, meet_holder, renamed
from mainspring.store.messages import heard_by
from mainspring.store.ops import (
    Again,
    Continue,
    Finish,
    Release,
    Rest,
    Speak,
    Start,
    Started,
    Tell,
    Unwind,
    Verdict,
    Void,
    Write,
    Written,
    run_of,
)
from mainspring.store.protocol import Signal
from mainspring.store.sqlite import messages
from mainspring.store.sqlite.settling import settle
from mainspring.store.sqlite.statements import (
    BORN_CANCELLED,
    ENDING,
    FINISH_RUNS,
    FORGET_CHILDREN,
    INSERT_RUNS,
    KEY_TEXTS,
    MOOD,
    RELEASE,
    REST,
    STOPPED,
    UNBLOCK,
    UPSERT_STEPS,
    VOID_STEP,
    WAITERS,
    WAITERS_FOR_ONE,
    finish_values,
    mood_values,
    rest_values,
    write_values,
)
from mainspring.store.waves import waves

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mainspring.store.messages import Heard, Say
    from mainspring.store.ops import Op, Result

BAD_DATA = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
)
"""What SQLite says to values that it cannot take."""

T = TypeVar("T", Start, Write, Speak, Tell, Void, Rest, Continue, Unwind, Release, Finish, Again)


class Batch:
    """One batch in one open transaction, and what it will have to tell the world once it is committed."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._db = connection
        self._now = now
        self._lonely = False
        self._refused: dict[str, Exception] = {}
        """Runs about which the database would not take something: what comes after that is not written either."""
        self.ready = False
        self.due = False
        """Schedules may be due."""
        self.ended: set[str] = set()
        self.poked: set[str] = set()
        self.said: set[Heard] = set()

    def signal(self) -> Signal:
        """What there is to tell once it is committed."""
        ended, poked, said = frozenset(self.ended), frozenset(self.poked), frozenset(self.said)
        return Signal(ready=self.ready, ended=ended, poked=poked, due=self.due, said=said)

    def apply(self, ops: Sequence[Op]) -> list[Result | Exception]:
        """Apply all of them; writes about one run in their order, others grouped by kind."""
        self._lonely = len(ops) == 1
        answers: dict[int, Result | Exception] = {}
        for wave in waves(ops):
            self._kind(Start, wave, answers, self._starts, self.start)
            self._kind(Write, wave, answers, self._writes, self._write)
            self._kind(Speak, wave, answers, None, self._speak)
            self._kind(Tell, wave, answers, None, self._tell)
            self._kind(Void, wave, answers, self._voids, self._void)
            self._kind(Rest, wave, answers, self._rests, self._rest)
            self._kind(Release, wave, answers, None, self._release)
            self._kind(Again, wave, answers, None, self._again)
            self._kind(Continue, wave, answers, None, self._set_back)
            self._kind(Unwind, wave, answers, None, self._set_back)
            self._kind(Finish, wave, answers, self._finishes, self._finish)
        if self.ended:
            # A worker hears of what it finished itself in memory, before any poke could reach it.
            finishes = [op for op in ops if isinstance(op, Finish)]
            self.unblock(self.ended, told={op.owner for op in finishes})
        if self.said:
            self._wake(messages.listeners(self._db, self.said))
        return [answers[id(op)] for op in ops]

    def _kind(
        self,
        kind: type[T],
        ops: Sequence[Op],
        answers: dict[int, Result | Exception],
        together: Callable[[list[T]], Sequence[Result] | None] | None,
        alone: Callable[[T], Result],
    ) -> None:
        mine = [op for op in ops if type(op) is kind]
        if not mine:
            return
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

    def _guarded(self, work: Callable[[Any], Any], what: object) -> Any:
        """Do it or leave no trace: None and an exception for bad data both mean that nothing was written.

        A lonely write needs no savepoint: the transaction is its own.
        """
        if self._lonely and not getattr(what, "starts", None):
            return work(what)
        self._db.execute("SAVEPOINT part")
        try:
            answer = work(what)
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

    # -- starts --------------------------------------------------------------------------------------------------------
    def _starts(self, ops: list[Start]) -> list[Result] | None:
        changed = INSERT_RUNS.run(self._db, [sql.run_values(op.run) for op in ops])
        if changed != len(ops):
            return None
        self._note_new(op.run.owner for op in ops)
        stopped = self._born_cancelled(ops)
        return [
            Started(
                created=True,
                workflow=op.run.workflow,
                state=State.CANCELLED if op.run.id in stopped else op.run.state,
            )
            for op in ops
        ]

    def _born_cancelled(self, ops: Sequence[Start]) -> set[str]:
        """Runs that a step of a cancelled run asks for are cancelled from the beginning; which ones are."""
        askers = json.dumps([op.asker for op in ops if op.asker is not None])
        if askers == "[]":
            return set()
        stopped = {row[0] for row in self._db.execute(STOPPED, (askers,))}
        born = {op.run.id for op in ops if op.asker in stopped}
        if born:
            self._db.execute(BORN_CANCELLED, (WITH_ITS_STARTER, self._now, json.dumps(list(born))))
        return born

    def start(self, op: Start) -> Started:
        run = op.run
        if INSERT_RUNS.run(self._db, [sql.run_values(run)]) == 1:
            self._note_new((run.owner,))
            state = State.CANCELLED if self._born_cancelled([op]) else run.state
            return Started(created=True, workflow=run.workflow, state=state)
        row = self._db.execute("SELECT uid, workflow, state FROM runs WHERE id = ?", (run.id,)).fetchone()
        if row is None:
            return self._keyed(op)
        mine = row[0] == run.uid  # made before, and only the acknowledgement was lost
        if mine:
            self._note_new((run.owner,))
        return Started(created=mine, workflow=row[1], state=State(row[2]))

    def _keyed(self, op: Start) -> Started:
        """The key is taken."""
        met = carry(meet_holder(op.run, self._now, KEY_TEXTS), self)
        if met is None:
            return self.start(op)
        self.ready = True
        return met

    def ask(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._db.execute(text, values).fetchall()

    def _note_new(self, owners: Iterable[str | None]) -> None:
        self.ready = self.ready or any(owner is None for owner in owners)

    # -- steps ---------------------------------------------------------------------------------------------------------
    def _writes(self, ops: list[Write]) -> list[Result] | None:
        changed = UPSERT_STEPS.run(self._db, [write_values(op) for op in ops])
        if changed != len(ops):
            return None
        answers = [Written() for _ in ops]
        runs = [run for op in ops for run in op.starts]
        if runs:
            if INSERT_RUNS.run(self._db, [sql.run_values(run) for run in runs]) != len(runs):
                return None
            self._note_new(run.owner for run in runs)
        watching = {op.watch for op in ops if op.watch is not None}
        if watching:
            found = {row[0]: sql.to_ending(row) for row in self._db.execute(ENDING, (json.dumps(list(watching)),))}
            for op, answer in zip(ops, answers, strict=True):
                if op.watch is not None:
                    answer.ending = found.get(op.watch)
                    answer.missing = op.watch not in found
        MOOD.run(
            self._db,
            [
                mood_values(op)
                for op, answer in zip(ops, answers, strict=True)
                if op.mood is not None and answer.ending is None
            ],
        )
        return list(answers)

    def _write(self, op: Write) -> Written:
        answer, _ = self._upsert(op)
        return self._with_step(op, answer)

    def _upsert(self, op: Write) -> tuple[Written, bool]:
        """Write the step; what came of it, and whether it is new. A run that is being cancelled may still record, but not start."""
        if UPSERT_STEPS.run(self._db, [write_values(op)]) == 1:
            return Written(), True
        verdict = self._fence(op.step.run, op.owner, op.step.epoch)
        stopping = verdict is Verdict.STOPPING
        if verdict is Verdict.FENCED and self._ended_since(op):
            return Written(), False
        if verdict is Verdict.FENCED or (stopping and op.starts and not self._started_before(op)):
            return Written(verdict), False
        if stopping and UPSERT_STEPS.run(self._db, [write_values(op, stopping=True)]) == 1:
            return Written(stopping=True), True
        verdict = Verdict.DONE if self._written_before(op) else Verdict.FENCED
        return Written(verdict, stopping=stopping and verdict is Verdict.DONE), False

    def _with_step(self, op: Write, answer: Written) -> Written:
        """What goes with a step that is written: the runs it starts, the one it watches, the run's own mood."""
        if answer.verdict is not Verdict.DONE:
            return answer
        if op.starts and not begin_all(op, self._recorded(op), lambda run: self.start(Start(run)), answer):
            return answer
        if answer.became:
            self._db.execute(RENAME, renamed(op.step, answer.became))
        if op.watch is not None:
            row = self._db.execute(ENDING, (json.dumps([op.watch]),)).fetchone()
            answer.ending = sql.to_ending(row) if row else None
            answer.missing = row is None
        if op.mood is not None and answer.ending is None:
            MOOD.run(self._db, [mood_values(op)])
        return answer

    def _recorded(self, op: Write) -> str | None:
        """What the step has recorded, if it can differ from what is being written."""
        if all(run.key is None for run in op.starts):
            return None
        found: str | None = self.ask(RECORDED, {"run": op.step.run, "position": op.step.position})[0][0]
        return found

    def _speak(self, op: Speak) -> Written:
        unknown = messages.unknown(self._db, op.says)
        if unknown:
            return Written(Verdict.UNKNOWN, unknown=unknown)
        answer, new = self._upsert(op)
        if new:
            self._say(op.says)
            if op.takes is not None:
                messages.take(self._db, op.step.run, op.takes, op.step.position, self._now)
        return self._with_step(op, answer)

    def _tell(self, op: Tell) -> Written:
        if op.owner is not None and self._fence(op.run, op.owner, op.epoch) is Verdict.FENCED:
            return Written(Verdict.FENCED)
        unknown = messages.unknown(self._db, op.says)
        if unknown:
            return Written(Verdict.UNKNOWN, unknown=unknown)
        self._say(op.says)
        return Written()

    def _say(self, says: Iterable[Say]) -> None:
        for say in says:
            messages.say(self._db, say)
            self.said.add(heard_by(say))

    def _written_before(self, op: Write) -> bool:
        """Whether it had been written and only the acknowledgement was lost."""
        there = self._db.execute(
            "SELECT epoch, seq FROM steps WHERE run = ? AND position = ?", (op.step.run, op.step.position)
        ).fetchone()
        return bool(there) and there[0] == op.step.epoch and (op.step.completed is None or there[1] == op.step.seq)

    def _ended_since(self, op: Write) -> bool:
        """Whether this very write was made before, with the end of its run right behind it, and the acknowledgement was lost."""
        row = self._db.execute("SELECT epoch, state FROM runs WHERE id = ?", (op.step.run,)).fetchone()
        return bool(row) and row[0] == op.step.epoch and State(row[1]).ended and self._written_before(op)

    def _started_before(self, op: Write) -> bool:
        """Whether this very write was made before: then the runs it starts are there, and are its own."""
        ids = json.dumps([run.id for run in op.starts])
        there = self._db.execute("SELECT uid FROM runs WHERE id IN (SELECT value FROM json_each(?))", (ids,)).fetchall()
        return {uid for (uid,) in there} == {run.uid for run in op.starts}

    def _voids(self, ops: list[Void]) -> Sequence[Result] | None:
        rows = [(op.run, op.position, op.run, op.owner, op.epoch) for op in ops]
        if self._db.executemany(VOID_STEP, rows).rowcount != len(ops):
            return None
        for op in ops:
            messages.untake(self._db, op.run, op.position)
        return [Verdict.DONE] * len(ops)

    def _void(self, op: Void) -> Verdict:
        changed = self._db.execute(VOID_STEP, (op.run, op.position, op.run, op.owner, op.epoch)).rowcount
        if changed:
            messages.untake(self._db, op.run, op.position)
        return Verdict.DONE if changed else Verdict.FENCED

    # -- runs ----------------------------------------------------------------------------------------------------------
    def _rests(self, ops: list[Rest]) -> Sequence[Result] | None:
        if REST.run(self._db, [rest_values(op) for op in ops]) != len(ops):
            return None
        self.ready = self.ready or any(op.park for op in ops)
        return [Verdict.DONE] * len(ops)

    def _rest(self, op: Rest) -> Verdict:
        if REST.run(self._db, [rest_values(op)]):
            self.ready = self.ready or op.park
            return Verdict.DONE
        verdict = self._fence(op.run, op.owner, op.epoch)
        if verdict is Verdict.FENCED and op.park:
            return self._let_go_before(op)
        return Verdict.POKED if verdict is Verdict.DONE else verdict

    def _release(self, op: Release) -> Verdict:
        values = {
            "stranded": op.stranded,
            "due": op.due,
            "now": self._now,
            "run": op.run,
            "owner": op.owner,
            "epoch": op.epoch,
        }
        if self._db.execute(RELEASE, values).rowcount:
            self.ready = True
            return Verdict.DONE
        return self._let_go_before(op)

    def _again(self, op: Again) -> Verdict:
        verdict = self._fence(op.run, op.owner, op.epoch)
        if verdict is Verdict.DONE:
            try_again(SqliteDesk(self, self._db), op, self._now)
            return verdict
        return self._let_go_before(op) if verdict is Verdict.FENCED else verdict

    def _set_back(self, op: Release) -> Verdict:
        verdict = self._fence(op.run, op.owner, op.epoch)
        if verdict is Verdict.FENCED:
            return self._let_go_before(op)
        if verdict is Verdict.STOPPING and isinstance(op, Continue):
            return verdict
        values = {"run": op.run, "now": self._now, "no": False, "long_ago": self._now - sql.LONG_AGO}
        if isinstance(op, Unwind):
            self._db.execute(sql.UNWIND, {**values, "stopping": op.stopping})
        elif isinstance(op, Continue):
            for statement in (*sql.CONTINUE, FORGET_CHILDREN):
                self._db.execute(statement, {**values, "input": op.input})
        self.ready = True
        return Verdict.DONE

    def _let_go_before(self, op: Rest | Release | Again) -> Verdict:
        """DONE when nobody has had the run in hand since: this had been written, and the acknowledgement was lost."""
        verdict = self._fence(op.run, op.owner, op.epoch)
        row = self._db.execute("SELECT owner, epoch, state FROM runs WHERE id = ?", (op.run,)).fetchone()
        if verdict is Verdict.FENCED and row and row[:2] == (None, op.epoch) and not State(row[2]).ended:
            self.ready = True
            return Verdict.DONE
        return verdict

    def _finishes(self, ops: list[Finish]) -> Sequence[Result] | None:
        settle(self._db, ops)
        if FINISH_RUNS.run(self._db, [finish_values(op) for op in ops]) != len(ops):
            return None
        self.ended.update(op.run for op in ops)
        return [Verdict.DONE] * len(ops)

    def _finish(self, op: Finish) -> Verdict:
        settle(self._db, [op])
        if FINISH_RUNS.run(self._db, [finish_values(op)]):
            self.ended.add(op.run)
            return Verdict.DONE
        row = self._db.execute("SELECT epoch, state, completed FROM runs WHERE id = ?", (op.run,)).fetchone()
        if row == (op.epoch, op.state, op.completed):  # it had been written, the acknowledgement was lost
            self.ended.add(op.run)
            return Verdict.DONE
        return self._fence(op.run, op.owner, op.epoch)

    def _fence(self, run: str, owner: str, epoch: int) -> Verdict:
        row = self._db.execute("SELECT owner, epoch, state FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None or row[:2] != (owner, epoch) or State(row[2]).ended:
            return Verdict.FENCED
        return Verdict.STOPPING if row[2] == State.CANCELLING else Verdict.DONE

    def unblock(self, ended: Collection[str], told: Iterable[str] = ()) -> None:
        """Wake the runs that wait for runs that have ended: queue the parked, poke those in a worker's hand."""
        if len(ended) == 1:
            found = self._db.execute(WAITERS_FOR_ONE, tuple(ended))
        else:
            found = self._db.execute(WAITERS, (json.dumps(list(ended)),))
        self._wake([row[0] for row in found], told)

    def _wake(self, waiters: list[str], told: Iterable[str] = ()) -> None:
        if waiters:
            for (owner,) in self._db.execute(
                UNBLOCK, (self._now, json.dumps(waiters), json.dumps(list(told)))
            ).fetchall():
                if owner is None:
                    self.ready = True
                else:
                    self.poked.add(owner)


def checkpoint(connection: sqlite3.Connection, op: Write) -> bool:
    """Make a checkpoint, outside any transaction. False means that nothing was written, for a reason that `Batch` finds."""
    return UPSERT_STEPS.run(connection, [write_values(op)]) == 1


class SqliteDesk:
    """See `mainspring.store.management.Desk`."""

    def __init__(self, batch: Batch, connection: sqlite3.Connection) -> None:
        self._batch = batch
        self._db = connection

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, values).fetchall()

    def ready(self) -> None:
        self._batch.ready = True

    def ended(self, run: str) -> None:
        self._batch.ended.add(run)
        self._batch.due = True
