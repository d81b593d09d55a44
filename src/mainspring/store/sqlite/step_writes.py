"""Starting runs and recording what they do, on SQLite: alone, or many writes of one kind together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.conversations import carry
from mainspring.store.joining import WITH_ITS_STARTER
from mainspring.store.keyed import RECORDED, RENAME, begin_all, meet_holder, renamed
from mainspring.store.messages import heard_by
from mainspring.store.ops import Start, Started, Verdict, Written
from mainspring.store.sqlite import messages
from mainspring.store.sqlite.doing import Doing
from mainspring.store.sqlite.statements import (
    BORN_CANCELLED,
    ENDING,
    INSERT_RUNS,
    KEY_TEXTS,
    MOOD,
    STOPPED,
    UPSERT_STEPS,
    VOID_STEP,
    mood_values,
    write_values,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from mainspring.store.messages import Say
    from mainspring.store.ops import Result, Speak, Tell, Void, Write


def checkpoint(connection: sqlite3.Connection, op: Write) -> bool:
    """Make a checkpoint, outside any transaction. False means that nothing was written, for a reason that `Batch` finds."""
    return UPSERT_STEPS.run(connection, [write_values(op)]) == 1


class StepWrites(Doing):
    """New runs, outcomes of operations, and what goes with them."""

    def starts(self, ops: list[Start]) -> list[Result] | None:
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

    def writes(self, ops: list[Write]) -> list[Result] | None:
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

    def write(self, op: Write) -> Written:
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
        if verdict is Verdict.FENCED or (stopping and self._comes_too_late(op)):
            return Written(verdict), False
        if stopping and UPSERT_STEPS.run(self._db, [write_values(op, stopping=True)]) == 1:
            return Written(stopping=True), True
        verdict = Verdict.DONE if self._written_before(op) else Verdict.FENCED
        return Written(verdict, stopping=stopping and verdict is Verdict.DONE), False

    def _comes_too_late(self, op: Write) -> bool:
        """Whether the run is being cancelled since before this was written for the first time, and this is not to be written then."""
        if op.unless_stopping and not self._written_before(op):
            return True
        return bool(op.starts) and not self._started_before(op)

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

    def speak(self, op: Speak) -> Written:
        unknown = messages.unknown(self._db, op.says)
        if unknown:
            return Written(Verdict.UNKNOWN, unknown=unknown)
        answer, new = self._upsert(op)
        if new:
            self._say(op.says)
            if op.takes is not None:
                messages.take(self._db, op.step.run, op.takes, op.step.position, self._now)
        return self._with_step(op, answer)

    def tell(self, op: Tell) -> Written:
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

    def voids(self, ops: list[Void]) -> Sequence[Result] | None:
        rows = [(op.run, op.position, op.run, op.owner, op.epoch) for op in ops]
        if self._db.executemany(VOID_STEP, rows).rowcount != len(ops):
            return None
        for op in ops:
            messages.untake(self._db, op.run, op.position)
        return [Verdict.DONE] * len(ops)

    def void(self, op: Void) -> Verdict:
        changed = self._db.execute(VOID_STEP, (op.run, op.position, op.run, op.owner, op.epoch)).rowcount
        if changed:
            messages.untake(self._db, op.run, op.position)
        return Verdict.DONE if changed else Verdict.FENCED
