"""Operator verbs on runs: resume, retry, complete, fail, reschedule, fork, delete, export and load them.

Each verb is one transaction that locks the runs and all their descendants.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from mainspring.errors import Conflict
from mainspring.model.runs import error_record
from mainspring.model.states import State
from mainspring.store.sql.dialect import TABLES, insert_one
from mainspring.store.sql.schedules import LOCK_SCHEDULES_OF_RUNS
from mainspring.store.verbs import revive
from mainspring.store.verbs.export import LOG_COLUMNS, dump, load
from mainspring.store.verbs.fork import fork
from mainspring.store.verbs.lookup import find_all, find_some, tree_of
from mainspring.store.verbs.prune import delete_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mainspring.model.runs import Run
    from mainspring.store.transaction import Script, Transaction, Transactor
    from mainspring.store.verbs.fork import Fork

T = TypeVar("T")

_LOG = insert_one("logs", LOG_COLUMNS)
_LOGS = f"SELECT {', '.join(LOG_COLUMNS)} FROM logs WHERE run = :run ORDER BY number DESC LIMIT :limit"
_FORCE = "UPDATE runs SET fingerprint = '', blocked = NULL, version = :version WHERE id = :id"
_END = """
  UPDATE runs SET state = :state, reason = :reason, output = :output::json, error = :error::json, completed = :now, needs_attention = false,
    blocked = NULL, end_unreported = true
  WHERE id = :id
"""
_MARK = "UPDATE runs SET reason = :reason WHERE id = :id"
_MOVE = "UPDATE runs SET state = :state, due = :due, priority = :priority, attempts = :attempts WHERE id = :id"
_SET_ATTRIBUTES = "UPDATE runs SET attributes = :attributes WHERE id = :id"
_INTO_QUEUE = "UPDATE runs SET queue = :queue, partition = '' WHERE id = :id"
_NO_DEADLINE = "UPDATE runs SET deadline = NULL WHERE id = :id"
"""A run that has not begun gets its deadline when it begins."""
_END_UNPROCESSED = "SELECT id FROM runs WHERE id = :id AND end_unprocessed"
_AWAITED = """
  SELECT w.id FROM steps s JOIN runs w ON w.id = s.run WHERE s.child = :id AND s.completed IS NULL AND w.completed IS NULL
"""
_MANY_NAMED = 5


_EMPTIED = tuple(table for table in TABLES if table not in {"migrations", "meta", "actions"})
_ALIVE = "SELECT id, host, pid FROM workers WHERE seen >= :since ORDER BY id"


class Move(Struct, frozen=True):
    """A new due time, priority or number of attempts for a run that has not begun or has failed. None keeps a value."""

    due: int | None = None
    priority: int | None = None
    attempts: int | None = None


class Management:
    """The operator verbs, in transactions of a `Transactor`."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self._read = transactor.read

    def _change(self, work: Callable[[Transaction], Script[T]], now: int) -> T:
        with revive.key_conflicts():
            return self._transactor.change(work, now)

    def _change_each(
        self,
        ids: Sequence[str],
        now: int,
        act: Callable[[Transaction, Run], Script[bool]],
        *,
        required: bool = False,
        revives: bool = False,
    ) -> dict[str, bool]:
        """Change runs in one transaction. For an unknown run the answer is False, or with `required` `NotFound` is raised.

        With `revives`, ended runs may become unfinished. Their schedules are written then, and so locked before the runs.
        """

        def work(tx: Transaction) -> Script[dict[str, bool]]:
            if revives:
                yield from tx.lock(LOCK_SCHEDULES_OF_RUNS, ids=list(ids))
            yield from tx.lock_tree(ids)
            if required:
                yield from find_all(tx, ids)
            done = dict.fromkeys(ids, False)
            for run_id, run in (yield from find_some(tx, ids)).items():
                done[run_id] = yield from act(tx, run)
            return done

        return self._change(work, now)

    # -- reading -------------------------------------------------------------------------------------------------------
    def logs(self, run_id: str, limit: int) -> list[tuple[Any, ...]]:
        """The last lines that were logged inside a run, in their order, as the columns of an export."""
        return self._read(_LOGS, run=run_id, limit=limit)[::-1]

    def dump(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Runs with their children and everything they recorded, all from one snapshot, as records for `load`.

        Raises `NotFound` if one of the ids is unknown.
        """
        return self._transactor.snapshot(dump(ids), ids)

    # -- changing ------------------------------------------------------------------------------------------------------
    def keep_logs(self, lines: Sequence[dict[str, Any]], now: int) -> None:
        """Store lines that runs logged."""

        def work(tx: Transaction) -> Script[None]:
            for line in lines:
                yield from tx.execute(_LOG, **line)

        self._change(work, now)

    def load(self, records: Iterable[dict[str, Any]], now: int) -> tuple[int, int]:
        """Load exported runs, all of them or none. Return the number of new runs, and the number of those that already existed."""
        kept = list(records)  # the transaction may be retried
        return self._change(lambda tx: load(tx, kept), now)

    def force(self, ids: Sequence[str], version: str | None, now: int) -> dict[str, bool]:
        """Let stranded runs be continued by any source, or by that of a version. The answer is False for a run that is not stranded."""

        def act(tx: Transaction, run: Run) -> Script[bool]:
            if run.blocked is None or run.state is not State.QUEUED:
                return False
            yield from tx.execute(_FORCE, id=run.id, version=version)
            tx.changes.ready = True
            return True

        return self._change_each(ids, now, act, required=True)

    def resume(self, ids: Sequence[str], now: int, queue: str | None = None) -> dict[str, bool]:
        """Resume cancelled runs, and those that were recovered too often. The answer is False for a run that cannot be resumed.

        Children that were cancelled with a run are resumed as well. With a `queue`, the runs themselves wait in it. If one of the ids is
        unknown, `NotFound` is raised and nothing is changed.
        """

        def act(tx: Transaction, run: Run) -> Script[bool]:
            resumed = yield from revive.resume(tx, run)
            if resumed and queue is not None:
                yield from tx.execute(_INTO_QUEUE, id=run.id, queue=queue)
            return resumed

        return self._change_each(ids, now, act, required=True, revives=True)

    def retry(self, ids: Sequence[str], now: int) -> dict[str, bool]:
        """Retry failed runs from what they have recorded. The answer is False for a run that has not failed.

        The recorded exception that ended a run is deleted, with what was recorded after it. If a child raised the exception, the child is
        retried. If one of the ids is unknown, `NotFound` is raised and nothing is changed.
        """
        return self._change_each(ids, now, revive.retry, required=True, revives=True)

    def complete(self, ids: Sequence[str], output: Callable[[str], str], reason: str, now: int) -> dict[str, bool]:
        """End unowned or failed runs as succeeded. The answer is False for a run that has ended otherwise, is owned, or is unknown.

        `output` returns the value to store for runs of a function. If it raises, nothing is changed.
        """

        def act(tx: Transaction, run: Run) -> Script[bool]:
            if not _can_be_ended(run):
                return False
            yield from _end(tx, run, State.SUCCEEDED, reason, output=output(run.workflow))
            return True

        return self._change_each(ids, now, act)

    def fail(self, ids: Sequence[str], reason: str, now: int) -> dict[str, bool]:
        """End unowned runs as failed, and write the reason to runs that have failed.

        The answer is False for a run that has ended otherwise, is owned, or is unknown.
        """

        def act(tx: Transaction, run: Run) -> Script[bool]:
            if not _can_be_ended(run):
                return False
            if run.state is State.FAILED:
                yield from tx.execute(_MARK, id=run.id, reason=reason)
            else:
                yield from _end(tx, run, State.FAILED, reason, error=error_record("RunEnded", reason))
            return True

        return self._change_each(ids, now, act)

    def reschedule(self, ids: Sequence[str], move: Move, now: int) -> dict[str, bool]:
        """Change the time of runs that have not begun or wait for another attempt, and retry failed ones at that time.

        The answer is False for a run that has begun, has ended otherwise, or is unknown.
        """
        return self._change_each(ids, now, lambda tx, run: _reschedule(tx, run, move), revives=True)

    def set_attributes(self, ids: Sequence[str], attributes: Mapping[str, Any], now: int) -> dict[str, bool]:
        """Set attributes of runs by name. Other attributes stay, and None deletes one. The answer is False for an unknown run."""

        def act(tx: Transaction, run: Run) -> Script[bool]:
            merged = {**json.loads(run.attributes), **attributes}
            kept = {name: value for name, value in merged.items() if value is not None}
            yield from tx.execute(_SET_ATTRIBUTES, id=run.id, attributes=json.dumps(kept, ensure_ascii=False))
            return True

        return self._change_each(ids, now, act)

    def fork(self, forks: Sequence[Fork], now: int) -> None:
        """Create forks of runs, all of them or none."""
        sources = [each.source for each in forks]

        def work(tx: Transaction) -> Script[None]:
            yield from tx.lock_tree(sources)
            yield from find_all(tx, sources)
            for each in forks:
                yield from fork(tx, each)
            tx.changes.ready = True

        self._change(work, now)

    def empty(self, since: int, now: int) -> dict[str, int]:
        """Delete all rows except the audit log of operators. Return the number of deleted rows by table.

        If a worker has been seen since a time, `Conflict` is raised and nothing is deleted.
        """

        def work(tx: Transaction) -> Script[dict[str, int]]:
            alive = yield from tx.execute(_ALIVE, since=since)
            if alive:
                shown = ", ".join(f"{worker} (process {pid} on {host})" for worker, host, pid in alive[:_MANY_NAMED])
                raise Conflict(f"workers live: {shown}. Stop them first. Nothing was deleted")
            found: dict[str, int] = {}
            for table in _EMPTIED:
                found[table] = (yield from tx.execute(f"SELECT count(*) FROM {table}"))[0][0]
                yield from tx.execute(f"DELETE FROM {table}")
            return found

        return self._change(work, now)

    def delete(self, ids: Sequence[str], now: int) -> dict[str, bool]:
        """Delete ended runs, their children and all that they recorded. The answer is False for an unknown run.

        `Conflict` is raised if one of them or a descendant has not ended, or if its schedule or a waiting run has not processed its end.
        """
        return self._change(lambda tx: _delete(tx, ids), now)


def _can_be_ended(run: Run) -> bool:
    """Whether an operator may end a run: no worker owns it, and it has failed or not ended."""
    return run.owner is None and (not run.state.ended or run.state is State.FAILED)


def _end(
    tx: Transaction, run: Run, state: State, reason: str, *, output: str | None = None, error: str | None = None
) -> Script[None]:
    values = {"id": run.id, "state": str(state), "reason": reason, "output": output, "error": error, "now": tx.now}
    yield from tx.execute(_END, **values)
    tx.changes.end([run.id])


def _reschedule(tx: Transaction, run: Run, move: Move) -> Script[bool]:
    """Change the time of a run that waits to begin or for another attempt. A failed run is retried at that time."""
    if run.state is State.FAILED and run.owner is None:
        yield from revive.retry(tx, run)
        yield from tx.execute(_NO_DEADLINE, id=run.id)
        run.state, run.due, run.attempts = State.QUEUED, tx.now, 0
    elif run.state not in {State.SCHEDULED, State.QUEUED} or run.attempt_started is not None or run.owner is not None:
        return False
    due = run.due if move.due is None else move.due
    values = {
        "state": str(State.SCHEDULED if due is None or due > tx.now else State.QUEUED),
        "due": due,
        "priority": run.priority if move.priority is None else move.priority,
        "attempts": run.attempts if move.attempts is None else move.attempts,
    }
    yield from tx.execute(_MOVE, id=run.id, **values)
    tx.changes.ready = True
    return True


# -- deleting ------------------------------------------------------------------------------------------------------------
def _delete(tx: Transaction, ids: Sequence[str]) -> Script[dict[str, bool]]:
    yield from tx.lock_tree(ids)
    there = yield from find_some(tx, ids)
    doomed: dict[str, Run] = {}
    for run in there.values():
        doomed |= {each.id: each for each in (yield from tree_of(tx, run))}
    yield from _refuse_needed(tx, list(doomed.values()))
    yield from delete_runs(tx, list(doomed))
    return {run_id: run_id in there for run_id in ids}


def _refuse_needed(tx: Transaction, runs: list[Run]) -> Script[None]:
    """Raise `Conflict` if a run has not ended, or if its schedule or a waiting run has not processed its end."""
    live = [run for run in runs if not run.state.ended]
    if live:
        shown = ", ".join(f"{run.id} ({run.state})" for run in live[:_MANY_NAMED])
        raise Conflict(
            f"only runs that have ended can be deleted; not so {shown}. Cancel them first. Nothing was deleted"
        )
    for run in runs:
        if run.schedule is not None and (yield from tx.execute(_END_UNPROCESSED, id=run.id)):
            raise Conflict(
                f"the schedule of {run.id} has not processed its end yet; "
                "try again when a worker has. Nothing was deleted"
            )
        waiters = yield from tx.execute(_AWAITED, id=run.id)
        if waiters:
            raise Conflict(
                f"run {waiters[0][0]!r} waits for {run.id!r} and has not processed its end yet; try again when it has. "
                "Nothing was deleted"
            )
