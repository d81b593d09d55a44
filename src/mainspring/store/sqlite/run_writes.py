"""Letting go of runs and ending them, on SQLite: alone, or many writes of one kind together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.attempts import try_again
from mainspring.store.ops import Continue, Release, Unwind, Verdict
from mainspring.store.sqlite.doing import Doing
from mainspring.store.sqlite.settling import settle
from mainspring.store.sqlite.statements import CONTINUE, FINISH_RUNS, RELEASE, REST, finish_values, rest_values

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from mainspring.store.ops import Again, Finish, Rest, Result


class RunWrites(Doing):
    """What becomes of runs as a whole."""

    def rests(self, ops: list[Rest]) -> Sequence[Result] | None:
        if REST.run(self._db, [rest_values(op, self._now) for op in ops]) != len(ops):
            return None
        self.ready = self.ready or any(op.park for op in ops)
        return [Verdict.DONE] * len(ops)

    def rest(self, op: Rest) -> Verdict:
        if REST.run(self._db, [rest_values(op, self._now)]):
            self.ready = self.ready or op.park
            return Verdict.DONE
        verdict = self._fence(op.run, op.owner, op.epoch)
        if verdict is Verdict.FENCED and op.park:
            return self._let_go_before(op)
        return Verdict.POKED if verdict is Verdict.DONE else verdict

    def release(self, op: Release) -> Verdict:
        values = {
            "stranded": op.stranded,
            "unbegun": op.unbegun,
            "now": self._now,
            "run": op.run,
            "owner": op.owner,
            "epoch": op.epoch,
        }
        if self._db.execute(RELEASE, values).rowcount:
            self.ready = True
            return Verdict.DONE
        return self._let_go_before(op)

    def again(self, op: Again) -> Verdict:
        verdict = self._fence(op.run, op.owner, op.epoch)
        if verdict is Verdict.DONE:
            return try_again(SqliteDesk(self, self._db), op, self._now)
        return self._let_go_before(op) if verdict is Verdict.FENCED else verdict

    def set_back(self, op: Release) -> Verdict:
        verdict = self._fence(op.run, op.owner, op.epoch)
        if verdict is Verdict.FENCED:
            return self._let_go_before(op)
        if verdict is Verdict.STOPPING and isinstance(op, Continue):
            return verdict
        values = {"run": op.run, "now": self._now, "no": False, "long_ago": self._now - sql.LONG_AGO}
        if isinstance(op, Unwind):
            self._db.execute(sql.UNWIND, {**values, "stopping": op.stopping})
        elif isinstance(op, Continue):
            for statement in CONTINUE:
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

    def finishes(self, ops: list[Finish]) -> Sequence[Result] | None:
        settle(self._db, ops)
        if FINISH_RUNS.run(self._db, [finish_values(op) for op in ops]) != len(ops):
            return None
        self.ended.update(op.run for op in ops)
        return [Verdict.DONE] * len(ops)

    def finish(self, op: Finish) -> Verdict:
        settle(self._db, [op])
        if FINISH_RUNS.run(self._db, [finish_values(op)]):
            self.ended.add(op.run)
            return Verdict.DONE
        row = self._db.execute("SELECT epoch, state, completed FROM runs WHERE id = ?", (op.run,)).fetchone()
        if row == (op.epoch, op.state, op.completed):  # it had been written, the acknowledgement was lost
            self.ended.add(op.run)
            return Verdict.DONE
        return self._fence(op.run, op.owner, op.epoch)


class SqliteDesk:
    """See `mainspring.store.management.Desk`."""

    def __init__(self, doing: Doing, connection: sqlite3.Connection) -> None:
        self._doing = doing
        self._db = connection

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, values).fetchall()

    def ready(self) -> None:
        self._doing.ready = True

    def ended(self, run: str) -> None:
        self._doing.ended.add(run)
        self._doing.due = True
