"""Applying many writes at once: a statement for each kind, sent together, committed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store import sql
from mainspring.store.ops import Finish, Release, Rest, Start, Started, Verdict, Void, Write, Written
from mainspring.store.postgres import bulk_statements as text
from mainspring.store.postgres.one import to_json
from mainspring.store.postgres.statements import LOCK, RELEASE_AND_TELL, REST, REST_AND_TELL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from mainspring.store.ops import Op, Result
    from mainspring.store.postgres.database import Connection
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.postgres.news import News

    Answers = dict[int, Result | Exception]
    Later = Callable[[list[tuple[Any, ...]]], None]

_PATIENCE = "50ms"
_IN_HAND = {"running", "waiting"}


class Bulk:
    """One batch of writes, no two of which build on each other. Answers those that were clean, by `id(op)`."""

    def __init__(self, connection: Connection, dialect: Dialect, origin: str, now: int, news: News) -> None:
        self._db = connection
        self._sql = dialect
        self._now = now
        self._news = news
        self._common = {"channel": dialect.channel, "payload": f"{origin} r", "patience": _PATIENCE}
        self._origin = origin
        self._parts: list[tuple[bytes, dict[str, Any], Later]] = []
        self._answers: Answers = {}

    def apply(self, ops: Sequence[Op]) -> Answers:
        self._let_go([op for op in ops if isinstance(op, (Rest, Release))])
        self._starts([op for op in ops if isinstance(op, Start)])
        self._writes([op for op in ops if isinstance(op, Write)])
        self._voids([op for op in ops if isinstance(op, Void)])
        self._finishes([op for op in ops if isinstance(op, Finish)])
        self._execute()
        return self._answers

    def _add(self, statement: str, values: dict[str, Any], later: Later) -> None:
        self._parts.append((self._sql(statement), values | self._common, later))

    def _execute(self) -> None:
        """One statement commits by itself. Several in one pipeline are one transaction: it ends where the pipeline does."""
        if len(self._parts) == 1:
            statement, values, later = self._parts[0]
            later(_rows(self._db.execute(statement, values)))
        elif self._parts:
            with self._db.pipeline():
                cursors = [self._db.execute(statement, values) for statement, values, _ in self._parts]
            for cursor, (_, _, later) in zip(cursors, self._parts, strict=True):
                later(_rows(cursor))

    # -- starts --------------------------------------------------------------------------------------------------------
    def _starts(self, ops: list[Start]) -> None:
        if not ops:
            return
        ready = any(op.run.owner is None for op in ops)

        def later(rows: list[tuple[Any, ...]]) -> None:
            made = {row[0] for row in rows}
            for op in ops:
                if op.run.uid in made:
                    self._answers[id(op)] = Started(created=True, workflow=op.run.workflow, state=op.run.state)
                    self._news.ready = self._news.ready or op.run.owner is None

        rows = [dict(zip(sql.NEW_RUN_COLUMNS, sql.run_values(op.run), strict=True)) for op in ops]
        self._add(text.START_AND_TELL if ready else text.START, {"ops": to_json(rows)}, later)

    # -- steps ---------------------------------------------------------------------------------------------------------
    def _writes(self, ops: list[Write]) -> None:
        if not ops:
            return
        if len(ops) == 1 and not (ops[0].starts or ops[0].mood or ops[0].watch) and not self._parts:
            self._lone_write(ops[0])
            return
        runs = [(number, run) for number, op in enumerate(ops) for run in op.starts]
        ready = any(run.owner is None for _, run in runs)
        watch = any(op.watch is not None for op in ops)
        statement = text.write(starts=bool(runs), mood=any(op.mood is not None for op in ops), watch=watch, tell=ready)

        def later(rows: list[tuple[Any, ...]]) -> None:
            for row in rows:
                op = ops[int(row[0])]
                answer = Written()
                if op.watch is not None:
                    answer.missing = row[1] is None
                    answer.ending = None if answer.missing else sql.to_ending(row[1:6])
                self._answers[id(op)] = answer
                self._news.ready = self._news.ready or any(run.owner is None for run in op.starts)

        values = {"ops": to_json([_write_row(number, op) for number, op in enumerate(ops)])}
        if runs:
            values["starts"] = to_json(
                [
                    {"n": number, **dict(zip(sql.NEW_RUN_COLUMNS, sql.run_values(run), strict=True))}
                    for number, run in runs
                ]
            )
        self._add(statement, values, later)

    def _lone_write(self, op: Write) -> None:
        values = dict(zip(sql.STEP_COLUMNS, sql.step_values(op.step), strict=True))
        values["owner"] = op.owner
        if self._db.execute(self._sql(text.WRITE_LONE), values).rowcount == 1:
            self._answers[id(op)] = Written()

    def _voids(self, ops: list[Void]) -> None:
        if ops:
            rows = [
                {"n": number, "run": op.run, "owner": op.owner, "epoch": op.epoch, "position": op.position}
                for number, op in enumerate(ops)
            ]
            self._add(text.VOID, {"ops": to_json(rows)}, lambda rows: self._done(ops, rows))

    def _done(self, ops: Sequence[Op], rows: list[tuple[Any, ...]]) -> None:
        for row in rows:
            self._answers[id(ops[int(row[0])])] = Verdict.DONE

    # -- ends ----------------------------------------------------------------------------------------------------------
    def _finishes(self, ops: list[Finish]) -> None:
        if not ops:
            return

        def later(rows: list[tuple[Any, ...]]) -> None:
            self._done(ops, rows)
            self._news.ended.update(ops[int(row[0])].run for row in rows)

        rows = [
            {
                "n": number,
                "run": op.run,
                "owner": op.owner,
                "epoch": op.epoch,
                "state": op.state,
                "completed": op.completed,
                "reason": op.reason,
                "output": op.output,
                "error": op.error,
            }
            for number, op in enumerate(ops)
        ]
        self._add(text.FINISH, {"ops": to_json(rows)}, later)

        def unblocked(rows: list[tuple[Any, ...]]) -> None:
            ready, owners, _ = rows[0]
            self._news.ready = self._news.ready or ready
            self._news.poked.update(owners or ())

        # A worker hears of what it finished itself in memory, before any poke could reach it.
        values = {"ended": [op.run for op in ops], "told": list({op.owner for op in ops}), "now": self._now}
        self._add(text.UNBLOCK, values, unblocked)
        self._parts[-1][1]["payload"] = f"{self._origin} e"

    # -- letting go ----------------------------------------------------------------------------------------------------
    def _let_go(self, ops: Sequence[Rest | Release]) -> None:
        """Two round trips in one transaction: whether a child has ended is asked after the locks, in a new statement."""
        if not ops:
            return
        with self._db.pipeline():
            self._db.execute(b"BEGIN")
            cursor = self._db.execute(self._sql(LOCK), {"ids": [op.run for op in ops]})
        mine = {(run, owner, epoch) for run, owner, epoch, state, *_ in cursor if state in _IN_HAND}
        clean = [(number, op) for number, op in enumerate(ops) if (op.run, op.owner, op.epoch) in mine]
        rests = [
            {"n": number, "run": op.run, "due": op.due, "park": op.park} for number, op in clean if isinstance(op, Rest)
        ]
        releases = [
            {"n": number, "run": op.run, "due": op.due, "stranded": op.stranded}
            for number, op in clean
            if isinstance(op, Release)
        ]
        ready = bool(releases) or any(row["park"] for row in rests)
        if rests:
            self._add(REST_AND_TELL if ready else REST, {"ops": to_json(rests)}, lambda rows: self._done(ops, rows))
        if releases:
            values = {"ops": to_json(releases), "now": self._now}
            self._add(RELEASE_AND_TELL, values, lambda rows: self._done(ops, rows))
        self._parts.append((b"COMMIT", {}, lambda _: None))
        self._execute()
        self._news.ready = self._news.ready or ready


def _write_row(number: int, op: Write) -> dict[str, Any]:
    row = dict(zip(sql.STEP_COLUMNS, sql.step_values(op.step), strict=True))
    row["n"] = number
    row["owner"] = op.owner
    row["mood"] = op.mood
    row["wake"] = op.due
    row["watch"] = op.watch
    row["starting"] = bool(op.starts)
    return row


def _rows(cursor: psycopg.Cursor[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.description else []
