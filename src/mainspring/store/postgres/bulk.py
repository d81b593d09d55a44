"""Apply many writes at once: one statement for each kind, sent together, committed together."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mainspring.store.changes import FRESH, READY, SOME_ENDED, started
from mainspring.store.postgres import bulk_statements as text
from mainspring.store.postgres.bulk_messages import BulkMessages, watched_by, write_row
from mainspring.store.postgres.libpq import array, to_json
from mainspring.store.sql.records import NEW_RUN_COLUMNS, RECORDED_COLUMNS, run_values, step_values, to_ending
from mainspring.store.sql.runs import LOCK_RUNS, SKIP_LOCKED
from mainspring.store.writes import (
    DiscardOutcome,
    Finish,
    RecordAndSend,
    Recorded,
    RecordStep,
    Release,
    Send,
    Start,
    Started,
    Suspend,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mainspring.model.runs import NewRun
    from mainspring.model.states import State
    from mainspring.store.changes import Changes
    from mainspring.store.postgres.database import Connection
    from mainspring.store.postgres.dialect import Dialect, Statement
    from mainspring.store.postgres.libpq import Row, Value
    from mainspring.store.writes import Op, Result

    Part = tuple[Statement, dict[str, Value]]
    Later = Callable[[list[Row]], None]

_PATIENCE = "50ms"
_MANY = 100
"""So many runs of `start_many` are looked at for what they have in common."""
_LOCK = f"{LOCK_RUNS}{SKIP_LOCKED}"
_OWNED = {"running", "waiting"}


class Bulk:
    """One batch of writes that do not depend on each other. Returns the answers of those that were applied, by `id(op)`."""

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        origin: str,
        now: int,
        changes: Changes,
        *,
        here: Collection[str],
    ) -> None:
        self._db = connection
        self._sql = dialect
        self._origin = origin
        self._here = here
        self._now = now
        self._changes = changes
        self._parts: list[Part] = []
        self._later: list[Later] = []
        self._answers: dict[int, Result | Exception] = {}
        self._outcomes: dict[str, str] = {}
        """The positions at which runs record an outcome in this batch, which may also contain their end."""
        self._plans: tuple[tuple[frozenset[type], Callable[[list[Any]], None]], ...] = (
            (frozenset({Start}), self._starts),
            (frozenset({RecordStep}), self._records),
            (frozenset({DiscardOutcome}), self._discards),
            (frozenset({Finish}), self._finishes),
            (frozenset({RecordAndSend, Send}), self._messages),
            (frozenset({Suspend, Release}), self._releases),
        )

    def apply(self, ops: list[Op]) -> dict[int, Result | Exception]:
        types = {type(op) for op in ops}
        for kind, plan in self._plans:
            if not types.isdisjoint(kind):
                plan(ops if types <= kind else [op for op in ops if type(op) in kind])
        for later, rows in zip(self._later, self._db.wire.execute(*self._parts), strict=True):
            later(rows)
        return self._answers

    def _add(self, statement: str, values: dict[str, Value], later: Later, *, payload: str = READY) -> None:
        values |= {"channel": self._sql.channel, "payload": f"{self._origin} {payload}", "patience": _PATIENCE}
        self._parts.append((self._sql.raw(statement), values))
        self._later.append(later)

    # -- starts --------------------------------------------------------------------------------------------------------
    def _starts(self, ops: list[Start]) -> None:
        ops = _first_of_each_key(ops)
        runs = [op.run for op in ops]
        asked = started(runs, self._now)
        ready = asked.ready_payload
        common = _common_values(runs) if len(runs) >= _MANY else None

        def stored(done: list[Start]) -> None:
            self._answers |= {id(op): _created(op.run.workflow, op.run.state) for op in done}
            self._changes.add(asked if done is ops else started([op.run for op in done], self._now))

        def returned(rows: list[Row]) -> None:
            made = {row[0] for row in rows}
            stored(ops if len(made) == len(ops) else [op for op in ops if op.run.uid in made])

        if len(ops) == 1:
            lone: dict[str, Value] = dict(zip(NEW_RUN_COLUMNS, run_values(runs[0]), strict=True))
            self._add(text.start(lone=True, notify=bool(ready)), lone, returned, payload=ready)
        elif common is not None:
            alike = common | {"ids": array(run.id for run in runs), "inputs": array(run.input for run in runs)}
            self._add(text.start_alike(notify=bool(ready)), alike, lambda _: stored(ops), payload=ready)
        else:
            self._add(text.start(lone=False, notify=bool(ready)), {"ops": to_json(runs)}, returned, payload=ready)

    # -- steps ---------------------------------------------------------------------------------------------------------
    def _records(self, ops: list[RecordStep]) -> None:
        self._outcomes = {op.step.run: op.step.position for op in ops}
        if len(ops) == 1 and not (ops[0].starts or ops[0].run_state or ops[0].watch):
            lone = dict(zip(RECORDED_COLUMNS, step_values(ops[0].step), strict=True), owner=ops[0].owner)
            self._add(text.CHECKPOINT, lone, lambda rows: self._recorded(ops, rows))
            return
        runs = [(number, run) for number, op in enumerate(ops) for run in op.starts]
        values = _parameters([write_row(number, op) for number, op in enumerate(ops)])
        if runs:
            values["starts"] = to_json(
                [dict(zip(NEW_RUN_COLUMNS, run_values(run), strict=True), n=number) for number, run in runs]
            )
        ready = started((run for _, run in runs), self._now).ready_payload
        statement = text.write(
            lone=len(ops) == 1,
            starts=bool(runs),
            run_state=any(op.run_state is not None for op in ops),
            watch=any(watched_by(op) is not None for op in ops),
            notify=bool(ready),
        )
        self._add(statement, values, lambda rows: self._recorded(ops, rows), payload=ready)

    def _recorded(self, ops: list[RecordStep], rows: list[Row]) -> None:
        """Answer the writes. Rows with a number are applied writes, rows without one are watched runs."""
        watched = {row[2]: to_ending(row[2:]) for row in rows if row[0] is None}
        # A claim skips ready runs while they are locked, so workers must claim again.
        self._changes.ready = self._changes.ready or any(row[0] is None and row[3] == "queued" for row in rows)
        for row in rows:
            if row[0] is None:
                continue
            op = ops[_number(row)]
            answer = Recorded()
            watch = watched_by(op)
            if watch is not None:
                answer.missing = watch not in watched
                answer.ending = watched.get(watch)
            self._answers[id(op)] = answer
            self._changes.start(op.starts, self._now)

    def _discards(self, ops: list[DiscardOutcome]) -> None:
        rows = [
            {"n": number, "run": op.run, "owner": op.owner, "epoch": op.epoch, "position": op.position}
            for number, op in enumerate(ops)
        ]
        self._add(text.DISCARD, {"ops": to_json(rows)}, lambda rows: self._done(ops, rows))

    def _done(self, ops: Sequence[Op], rows: list[Row]) -> None:
        for row in rows:
            self._answers[id(ops[_number(row)])] = Verdict.DONE

    # -- messages --------------------------------------------------------------------------------------------------------
    def _messages(self, ops: list[RecordAndSend | Send]) -> None:
        messages = BulkMessages(ops, self._here, self._now, self._changes, self._answers)
        for statement, values, later in messages.parts():
            self._add(statement, values, later, payload=messages.payload)

    # -- ends ----------------------------------------------------------------------------------------------------------
    def _finishes(self, ops: list[Finish]) -> None:
        def ended(rows: list[Row]) -> None:
            found = {row[0] for row in rows}
            self._answers |= {id(op): Verdict.DONE for op in ops if op.run in found}
            self._changes.ended |= found

        def unblocked(rows: list[Row]) -> None:
            tokens = (rows[0][0] or "").split()
            text.woken(self._changes, tokens)

        for op in ops:
            op.after = self._outcomes.get(op.run)
        if len(ops) == 1:
            self._add(text.FINISH_ONE, {column: getattr(ops[0], column) for column in text.FINISH_COLUMNS}, ended)
        elif _end_alike(ops):
            self._add(text.FINISH_ALIKE, ends_alike(ops), ended)
        else:
            self._add(text.FINISH, {"ops": to_json(ops)}, ended)
        values: dict[str, Value] = {
            "ended": array(op.run for op in ops),
            # A worker learns in memory of runs that it finished itself, before a notification could arrive.
            "informed": array({op.owner for op in ops}),
            "now": self._now,
        }
        self._add(text.UNBLOCK, values, unblocked, payload=SOME_ENDED)

    # -- suspending and releasing --------------------------------------------------------------------------------------
    def _releases(self, ops: Sequence[Suspend | Release]) -> None:
        """Suspend and release runs in two round trips: a new statement after the locks checks whether a child has ended."""
        begin: Part = (self._sql.raw("BEGIN"), {})
        lock: Part = (self._sql.raw(_LOCK), {"ids": array(op.run for op in ops)})
        _, locked = self._db.wire.execute(begin, lock)
        mine = {(run, owner, int(epoch or 0)) for run, owner, epoch, state, *_ in locked if state in _OWNED}
        clean = [(number, op) for number, op in enumerate(ops) if (op.run, op.owner, op.epoch) in mine]
        suspended = [
            {"n": number, "run": op.run, "no_later_than": op.no_later_than, "park": op.park}
            for number, op in clean
            if isinstance(op, Suspend)
        ]
        releases = [
            {"n": number, "run": op.run, "unbegun": op.unbegun, "blocked": op.blocked}
            for number, op in clean
            if isinstance(op, Release)
        ]
        ready = bool(releases) or any(row["park"] for row in suspended)
        if suspended:
            statement = text.SUSPEND_AND_NOTIFY if ready else text.SUSPEND
            suspending: dict[str, Value] = {"ops": to_json(suspended), "now": self._now}
            self._add(statement, suspending, lambda rows: self._done(ops, rows), payload=FRESH)
        if releases:
            values: dict[str, Value] = {"ops": to_json(releases), "now": self._now}
            self._add(text.RELEASE_AND_NOTIFY, values, lambda rows: self._done(ops, rows))
        self._add("COMMIT", {}, lambda _: None)
        self._changes.ready = self._changes.ready or bool(releases)
        self._changes.fresh = self._changes.fresh or ready


def _first_of_each_key(ops: list[Start]) -> list[Start]:
    """Leave out starts whose key an earlier start has: they would fail the statement for all. They are applied one by one."""
    keys = [op.run.key for op in ops if op.run.key is not None]
    if len(set(keys)) == len(keys):
        return ops
    first = {op.run.key: op for op in reversed(ops)}
    return [op for op in ops if op.run.key is None or first[op.run.key] is op]


def _common_values(runs: list[NewRun]) -> dict[str, Value] | None:
    """The columns of runs that differ in their new ids and inputs only, or None for other runs."""
    first = text.common_values(run_values(runs[0]))
    if any(run.id != run.uid or text.common_values(run_values(run)) != first for run in runs):
        return None
    return dict(zip(text.COMMON_COLUMNS, first, strict=True))


def _end_alike(ops: list[Finish]) -> bool:
    """Whether these are ends of one worker's runs in one state, without a reason or an error."""
    owner, state = ops[0].owner, ops[0].state
    return all(op.owner == owner and op.state is state and op.reason is None and op.error is None for op in ops)


def ends_alike(ops: Sequence[Finish]) -> dict[str, Value]:
    """The parameters of `FINISH_ALIKE`."""
    return {
        "owner": ops[0].owner,
        "state": ops[0].state,
        "runs": array([op.run for op in ops]),
        "epochs": _numbers([op.epoch for op in ops]),
        "completed": _numbers([op.completed for op in ops]),
        "outputs": array([op.output for op in ops]),
        "after": array([op.after for op in ops]) if any(op.after for op in ops) else None,
    }


def _numbers(values: list[int]) -> str:
    return f"{{{','.join(map(str, values))}}}"


def _parameters(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The parameters of rows: a single row as it is, several as one JSON text."""
    return rows[0] if len(rows) == 1 else {"ops": to_json(rows)}


@lru_cache(maxsize=1_000)
def _created(workflow: str, state: State) -> Started:
    """The answer to most starts, created once."""
    return Started(created=True, workflow=workflow, state=state)


def _number(row: Row) -> int:
    return int(row[0] or 0)
