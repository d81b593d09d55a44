"""Applying one write in a transaction of its own, step by step: the spelled-out form of what a batch does in bulk.

What a batch could not settle in bulk (a lost race, a repetition after a lost acknowledgement, a locked row, bad data) comes
here. Nothing here ever waits for a row while it holds another: whoever finds a row locked lets go of everything, waits for
that row alone and begins anew. So no two of these can wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.attempts import try_again
from mainspring.store.conversations import carry
from mainspring.store.joining import STOPPED, WITH_ITS_STARTER
from mainspring.store.keyed import HOLDER, RECORDED, KeyTexts, begin_all, meet_holder, renamed
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
)
from mainspring.store.postgres import messages
from mainspring.store.postgres import statements as text
from mainspring.store.postgres.wire import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.model.records import NewRun
    from mainspring.store.messages import Say
    from mainspring.store.ops import Op, Result
    from mainspring.store.postgres.database import Connection
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.postgres.news import News


KEY_TEXTS = KeyTexts(lambda column: f":{column}::{text.cast(column)}", f"{HOLDER} FOR NO KEY UPDATE SKIP LOCKED")


class Held(Exception):
    """Rows that this needs are locked by somebody else."""

    def __init__(self, runs: Iterable[str]) -> None:
        super().__init__()
        self.runs = sorted(runs)


class One:
    """One write inside an open transaction, which an exception rolls back."""

    def __init__(self, connection: Connection, dialect: Dialect, now: int, news: News) -> None:
        self._db = connection
        self._sql = dialect
        self._now = now
        self._news = news

    def apply(self, op: Op) -> Result:
        appliers: dict[type, Callable[[Any], Result]] = {
            Start: self.start,
            Write: self._write,
            Speak: self._write,
            Tell: self._tell,
            Void: self._void,
            Again: self._again,
            Rest: self._rest,
            Release: self._release,
            Continue: self._set_back,
            Unwind: self._set_back,
            Finish: self._finish,
        }
        return appliers[type(op)](op)

    def _all(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return self._db.execute(self._sql(statement), values).fetchall()

    def _do(self, statement: str, **values: object) -> None:
        self._db.execute(self._sql(statement), values)

    # -- locks ---------------------------------------------------------------------------------------------------------
    def _locked(self, runs: Sequence[str], how: str) -> dict[str, tuple[Any, ...]]:
        """The rows of the runs that exist, locked, by id. Raises `Held` when somebody else has one of them.

        A claim that comes by meanwhile passes over those that are ready, so it has to come again.
        """
        found = {row[0]: row for row in self._all(how, ids=list(runs))}
        self._news.ready = self._news.ready or any(row[3] == State.QUEUED for row in found.values())
        missing = [run for run in runs if run not in found]
        if missing:
            held = self._all(text.THERE, ids=missing)
            if held:
                raise Held(row[0] for row in held)
        return found

    def _fence(self, row: tuple[Any, ...] | None, owner: str, epoch: int) -> Verdict:
        """Whether a locked run is still this owner's in this epoch."""
        if row is None:
            return Verdict.FENCED
        _, its_owner, its_epoch, state, *_ = row
        if (its_owner, its_epoch) != (owner, epoch) or State(state).ended:
            return Verdict.FENCED
        return Verdict.STOPPING if state == State.CANCELLING else Verdict.DONE

    # -- starts --------------------------------------------------------------------------------------------------------
    def start(self, op: Start) -> Started:
        run = op.run
        stopped = False
        if op.asker is not None:
            row = self._locked([op.asker], text.SHARE).get(op.asker)
            stopped = row is not None and row[3] in STOPPED
        while True:
            values = dict(zip(sql.NEW_RUN_COLUMNS, sql.run_values(run), strict=True))
            if self._all(text.START_ONE, patience=text.PATIENCE, **values):
                if stopped:
                    self._all(text.BORN_CANCELLED, id=run.id, reason=WITH_ITS_STARTER, now=self._now)
                    return Started(created=True, workflow=run.workflow, state=State.CANCELLED)
                self._news.ready = self._news.ready or run.owner is None
                return Started(created=True, workflow=run.workflow, state=run.state)
            rows = self._all("SELECT uid, workflow, state FROM runs WHERE id = :id", id=run.id)
            met = self._keyed(run) if not rows and run.key is not None else None
            if met is not None:
                return met
            if rows:
                uid, workflow, state = rows[0]
                mine = uid == run.uid  # made before, and only the acknowledgement was lost
                self._news.ready = self._news.ready or (mine and run.owner is None)
                return Started(created=mine, workflow=workflow, state=State(state))

    def _keyed(self, run: NewRun) -> Started | None:
        """The key is taken, unless this answers None. Raises `Held` when somebody is busy with the run that has it."""
        met = carry(meet_holder(run, self._now, KEY_TEXTS), self)
        if met is None:
            held = self._all(HOLDER, key=run.key)
            if held:
                raise Held([held[0][0]])
        else:
            self._news.ready = True
        return met

    def ask(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        done = self._db.execute(self._sql(text), values)
        return done.fetchall() if done.description else []

    # -- steps ---------------------------------------------------------------------------------------------------------
    def _write(self, op: Write) -> Written:
        step = op.step
        says = op.says if isinstance(op, Speak) else ()
        concerned = [step.run] if op.watch is None else [step.run, op.watch]
        moving = op.mood is not None or isinstance(op, Speak)
        rows = self._locked([*concerned, *messages.destinations(says)], text.LOCK if moving else text.SHARE)
        unknown = [run for run in messages.destinations(says) if run not in rows]
        if unknown:
            return Written(Verdict.UNKNOWN, unknown=unknown)
        verdict = self._fence(rows.get(step.run), op.owner, step.epoch)
        stopping = verdict is Verdict.STOPPING
        if stopping and not self._comes_too_late(op):
            verdict = Verdict.DONE  # a run that is being cancelled may still record, but not start
        if verdict is Verdict.FENCED and self._ended_since(rows.get(step.run), step.epoch):
            return Written(self._written_before(op))
        if verdict is Verdict.DONE:
            if self._all(text.WRITE_ONE, **dict(zip(sql.STEP_COLUMNS, sql.step_values(step), strict=True))):
                self._speak(op)
            else:
                verdict = self._written_before(op)
                if verdict is Verdict.DONE and isinstance(op, Speak):
                    self._rouse(op.says)  # whoever waits for it may not have been told, as we were not
        return self._with_step(op, rows, Written(verdict, stopping=stopping and verdict is Verdict.DONE))

    def _comes_too_late(self, op: Write) -> bool:
        """Whether the run is being cancelled since before this was written for the first time, and this is not to be written then."""
        if op.unless_stopping and self._written_before(op) is not Verdict.DONE:
            return True
        return bool(op.starts) and not self._started_before(op)

    def _with_step(self, op: Write, rows: dict[str, tuple[Any, ...]], answer: Written) -> Written:
        """What goes with a step that is written: the runs it starts, the one it watches, the run's own mood."""
        if answer.verdict is not Verdict.DONE:
            return answer
        if op.starts and not begin_all(op, self._recorded(op), lambda run: self.start(Start(run)), answer):
            raise Taken(answer)
        if answer.became:
            self.ask(text.RENAME, renamed(op.step, answer.became))
        if op.watch is not None:
            if op.watch not in rows:  # perhaps it has begun just now
                rows |= self._locked([op.watch], text.SHARE)
            row = rows.get(op.watch)
            answer.missing = row is None
            answer.ending = sql.to_ending((row[0], *row[3:7])) if row else None
        if op.mood is not None and answer.ending is None:
            self._all(text.MOOD_ONE, run=op.step.run, mood=op.mood, due=op.due)
        return answer

    def _recorded(self, op: Write) -> str | None:
        """What the step has recorded, if it can differ from what is being written."""
        if all(run.key is None for run in op.starts):
            return None
        found: str | None = self._all(RECORDED, run=op.step.run, position=op.step.position)[0][0]
        return found

    # -- what is said ----------------------------------------------------------------------------------------------------
    def _speak(self, op: Write) -> None:
        if isinstance(op, Speak):
            if op.takes is not None:
                row = {"run": op.step.run, "number": op.takes, "position": op.step.position}
                self._all(messages.TAKES, takes=to_json([row]), now=self._now)
            self._say(op.says)

    def _tell(self, op: Tell) -> Written:
        concerned = dict.fromkeys(say.run for say in op.says)
        rows = self._locked([op.run, *concerned], text.LOCK)
        if op.owner is not None and self._fence(rows.get(op.run), op.owner, op.epoch) is Verdict.FENCED:
            return Written(Verdict.FENCED)
        unknown = [run for run in messages.destinations(op.says) if run not in rows]
        if unknown:
            return Written(Verdict.UNKNOWN, unknown=unknown)
        self._say(op.says)
        return Written()

    def _say(self, says: Sequence[Say]) -> None:
        """Say it, and wake those who wait for it: in a later statement than the one that locked the runs concerned."""
        if not says:
            return
        for statement, values in messages.statements(says):
            self._all(statement, **values)
        self._rouse(says)

    def _rouse(self, says: Sequence[Say]) -> None:
        said = {heard_by(say) for say in says}
        self._news.said |= said
        self._wake([row[0] for row in self._all(messages.LISTENERS, said=messages.listening(said))])

    def _started_before(self, op: Write) -> bool:
        """Whether this very write was made before: then the runs it starts are there, and are its own."""
        uids = {
            row[0] for row in self._all("SELECT uid FROM runs WHERE id = ANY(:ids)", ids=[run.id for run in op.starts])
        }
        return uids == {run.uid for run in op.starts}

    def _written_before(self, op: Write) -> Verdict:
        """DONE when it had been written before and only the acknowledgement was lost."""
        rows = self._all(
            "SELECT epoch, seq FROM steps WHERE run = :run AND position = :position",
            run=op.step.run,
            position=op.step.position,
        )
        same = bool(rows) and rows[0][0] == op.step.epoch and (op.step.completed is None or rows[0][1] == op.step.seq)
        return Verdict.DONE if same else Verdict.FENCED

    def _ended_since(self, row: tuple[Any, ...] | None, epoch: int) -> bool:
        """Whether a run has ended in this epoch: what it wrote right before may be made again, after a lost acknowledgement."""
        return row is not None and row[2] == epoch and State(row[3]).ended

    def _void(self, op: Void) -> Verdict:
        rows = self._locked([op.run], text.SHARE)
        if self._fence(rows.get(op.run), op.owner, op.epoch) is Verdict.FENCED:
            return Verdict.FENCED
        self._all(messages.UNTAKE, run=op.run, position=op.position)
        return Verdict.DONE if self._all(text.VOID_ONE, run=op.run, position=op.position) else Verdict.FENCED

    # -- runs ----------------------------------------------------------------------------------------------------------
    def _rest(self, op: Rest) -> Verdict:
        row = self._locked([op.run], text.LOCK).get(op.run)
        verdict = self._fence(row, op.owner, op.epoch)
        if verdict is Verdict.FENCED and op.park:
            return self._let_go_before(row, op.epoch)
        if verdict is not Verdict.DONE:
            return verdict
        # In a statement of its own, after the lock: `UNBLOCK` says why a child's end cannot slip in between.
        if not self._all(text.REST, ops=to_json([text.rest_row(0, op)]), now=self._now):
            return Verdict.POKED
        self._news.ready = self._news.ready or op.park
        return Verdict.DONE

    def _release(self, op: Release) -> Verdict:
        row = self._locked([op.run], text.LOCK).get(op.run)
        verdict = self._fence(row, op.owner, op.epoch)
        if verdict is Verdict.FENCED:
            return self._let_go_before(row, op.epoch)
        if not self._all(text.RELEASE, ops=to_json([text.release_row(0, op)]), now=self._now):
            return verdict
        self._news.ready = True
        return Verdict.DONE

    def _again(self, op: Again) -> Verdict:
        row = self._locked([op.run], text.LOCK).get(op.run)
        verdict = self._fence(row, op.owner, op.epoch)
        if verdict is Verdict.DONE:
            self.ask("SELECT set_config('lock_timeout', :patience, true)", {"patience": text.PATIENCE})
            return try_again(self, op, self._now, error=":error::json")
        return self._let_go_before(row, op.epoch) if verdict is Verdict.FENCED else verdict

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """For those who work at this as at a desk."""
        return self.ask(statement, values)

    def ready(self) -> None:
        self._news.ready = True

    def ended(self, run: str) -> None:
        self._news.ended.add(run)

    def _set_back(self, op: Continue | Unwind) -> Verdict:
        row = self._locked([op.run], text.LOCK).get(op.run)
        verdict = self._fence(row, op.owner, op.epoch)
        if verdict is Verdict.FENCED:
            return self._let_go_before(row, op.epoch)
        if verdict is Verdict.STOPPING and isinstance(op, Continue):
            return verdict
        values = {"run": op.run, "now": self._now, "no": False, "long_ago": self._now - sql.LONG_AGO}
        if isinstance(op, Unwind):
            self._do(sql.UNWIND, stopping=op.stopping, **values)
        else:
            for statement in text.CONTINUE:
                self._do(statement, input=op.input, **values)
        self._news.ready = True
        return Verdict.DONE

    def _let_go_before(self, row: tuple[Any, ...] | None, epoch: int) -> Verdict:
        """DONE when nobody has had the run in hand since: this had been written, and the acknowledgement was lost."""
        if row is not None and row[1] is None and row[2] == epoch and not State(row[3]).ended:
            self._news.ready = True
            return Verdict.DONE
        return Verdict.FENCED

    def _finish(self, op: Finish) -> Verdict:
        row = self._locked([op.run], text.LOCK).get(op.run)
        verdict = self._fence(row, op.owner, op.epoch)
        if verdict is Verdict.STOPPING and op.state is State.CANCELLED:
            verdict = Verdict.DONE
        if verdict is Verdict.DONE:
            self._all(
                text.FINISH_ONE,
                id=op.run,
                state=op.state,
                reason=op.reason,
                output=op.output,
                error=op.error,
                completed=op.completed,
            )
        elif row is not None and (row[2], row[3], row[7]) == (op.epoch, op.state, op.completed):
            verdict = Verdict.DONE  # it had been written, the acknowledgement was lost
        if verdict is Verdict.DONE:
            self._news.ended.add(op.run)
            self.unblock({op.run}, told=(op.owner,))
        return verdict

    def unblock(self, ended: Iterable[str], told: Iterable[str] = ()) -> None:
        """Wake the runs that wait for runs that have ended. To be called in a later statement than the one that locked them."""
        self._wake([row[0] for row in self._all(text.WAITERS, ended=list(ended))], told)

    def _wake(self, waiters: list[str], told: Iterable[str] = ()) -> None:
        if waiters:
            self._locked(waiters, text.LOCK)
            self._news.woken(row[0] for row in self._all(text.WAKE, ids=waiters, told=list(told), now=self._now))


class Taken(Exception):
    """A run that a write was to start is another workflow's, or has a key that is taken. Raised, so that nothing of the write stays."""

    def __init__(self, answer: Written) -> None:
        super().__init__()
        self.answer = Written(Verdict.TAKEN, taken=answer.taken, refused=answer.refused)
