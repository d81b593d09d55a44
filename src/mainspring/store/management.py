"""What an operator may do to runs that have ended, and to the records of runs: resume, retry, fork, delete, take out, bring in.

Each verb is one transaction that holds the runs concerned and all that descend from them. The statements are the same in every
store; how a transaction is had is the store's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from mainspring.errors import Conflict, NotFound
from mainspring.model.forgetting import forgotten_from, last_recorded, undone_from
from mainspring.model.states import LIVE, State
from mainspring.store import by_hand, sql
from mainspring.store.exports import LOG_COLUMNS, dump, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mainspring.model.records import Run, Step
    from mainspring.store.by_hand import Move
    from mainspring.store.message_sql import Rows
    from mainspring.store.protocol import RunFilter
    from mainspring.store.run_filters import Filters

T = TypeVar("T")

EXHAUSTED = "recovery exhausted"
_MANY_NAMED = 5

_AGAIN = """
  UPDATE runs SET state = :state, reason = NULL, output = NULL, error = NULL, completed = NULL, owner = NULL, poked = :no,
    due = :due, since = NULL, attempts = 0, recoveries = 0, stranded = NULL, stopping = NULL, unsettled = (schedule IS NOT NULL),
    deadline = CAST(:now AS bigint) + timeout
  WHERE id = :id
"""
_CHILDREN = f"SELECT {', '.join(sql.RUN_COLUMNS)} FROM runs WHERE parent = :id ORDER BY uid"
_SEEN_TO_END = "SELECT child FROM steps WHERE run = :id AND kind IN ('call', 'result') AND completed IS NOT NULL"
_FORGET = "DELETE FROM steps WHERE run = :id AND position = :position"
_UNTAKE = """
  UPDATE messages SET received = NULL, position = NULL WHERE run = :id AND position = :position AND answered IS NULL
"""
_UNSAY = tuple(f"DELETE FROM {table} WHERE run = :id AND position = :position" for table in ("events", "streams"))
_FORK_COLUMNS = (
    *("id", "uid", "workflow", "kind", "input", "state", "due", "created", "timeout", "version", "epoch"),
    *("attributes", "forked_from", "forked_at", "queue", "priority", "partition", "retry"),
)
_FORK = f"""
  INSERT INTO runs ({", ".join(_FORK_COLUMNS)}) VALUES ({", ".join(f":{column}" for column in _FORK_COLUMNS)})
"""
_COPIED = ", ".join(column for column in sql.STEP_COLUMNS if column not in {"run", "epoch"})
_COPY_STEP = f"""
  INSERT INTO steps (run, epoch, {_COPIED})
  SELECT CAST(:new AS text), 1, {_COPIED} FROM steps WHERE run = :id AND position = :position
"""
_COPY_SAID = tuple(
    f"""
  INSERT INTO {table} (run, key, number, value, said, position)
  SELECT CAST(:new AS text), key, number, value, said, position FROM {table} WHERE run = :id AND position = :position
"""
    for table in ("events", "streams")
)
TABLES_OF_RUN = ("steps", "messages", "events", "streams", "logs")
_KEY_TAKEN = f"""
  SELECT id FROM runs WHERE key = :key AND id <> :id AND state IN ({", ".join(f"'{state}'" for state in sorted(LIVE))})
"""
_UNSETTLED = "SELECT id FROM runs WHERE id = :id AND unsettled = :yes"


_LIVE = ", ".join(f"'{state}'" for state in sorted(LIVE))
_LIVE_BY_VERSION = f"""
  SELECT version, CASE WHEN state = 'queued' THEN CAST(stranded AS text) END, count(*) FROM runs
  WHERE version IS NOT NULL AND state IN ({_LIVE}) GROUP BY 1, 2 ORDER BY 1, 2
"""
_PATCHES = f"""
  WITH taken AS (
    SELECT s.name AS name, r.workflow AS workflow, count(*) AS new FROM steps s JOIN runs r ON r.id = s.run
    WHERE s.kind = 'patch' AND r.state IN ({_LIVE}) GROUP BY s.name, r.workflow)
  SELECT name, workflow, new, (
    SELECT count(*) FROM runs r WHERE r.workflow = taken.workflow AND r.state IN ({_LIVE}) AND r.started IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.run = r.id AND s.kind = 'patch' AND s.name = taken.name))
  FROM taken ORDER BY name, workflow
"""
_OLDEST_READY = "SELECT min(due) FROM runs WHERE state = 'queued' AND stranded IS NULL"
_LOG = f"""
  INSERT INTO logs ({", ".join(LOG_COLUMNS)}) VALUES ({", ".join(f":{column}" for column in LOG_COLUMNS)})
"""
_LOGS = f"SELECT {', '.join(LOG_COLUMNS)} FROM logs WHERE run = :run ORDER BY number DESC LIMIT :limit"
_FORCE = "UPDATE runs SET fingerprint = '', stranded = NULL, version = :version WHERE id = :id"


class Fork(Struct, frozen=True):
    """A new run that begins where another one was. `step` is the position of the first operation to be made anew.

    None: all of them are. What is left None otherwise is as it was in the original.
    """

    source: str
    id: str
    uid: str
    step: str | None = None
    after_failure: bool = False
    """Begin with what ended the original, or else with the last thing it recorded."""
    version: str | None = None
    queue: str | None = None
    timeout: int | None = None


class Desk(Protocol):
    """An open transaction that holds the runs concerned."""

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement; the rows it answers with, if it does."""
        ...

    def ready(self) -> None:
        """There are runs to claim once this is committed."""
        ...

    def ended(self, run: str) -> None:
        """A run has ended: those that wait for it are woken."""
        ...


class Change(Protocol):
    """Does something in one transaction that holds runs and all that descend from them."""

    def __call__(self, ids: Sequence[str], now: int, act: Callable[[Desk], T]) -> T: ...


class Management:
    """The verbs of a store, which says how a transaction is had."""

    def __init__(self, change: Change, rows: Rows, filters: Filters) -> None:
        self._change = change
        self._rows = rows
        self._filters = filters

    def aggregate(self, wanted: RunFilter, by: Sequence[str], bucket: int | None) -> list[tuple[Any, ...]]:
        """Figures of runs by columns, and by spans of `bucket` microseconds of when they were created.

        Each row: the keys; how many; the longest wait before the first claim; the average and the longest time from there to
        the end. Times in microseconds.
        """
        statement, values = self._filters.aggregate(wanted, by, bucket)
        return self._rows(statement, **values)

    def oldest_ready(self) -> int | None:
        """Since when the run that has waited longest for a worker has been ready; None: none waits."""
        found: int | None = self._rows(_OLDEST_READY)[0][0]
        return found

    def keep_logs(self, lines: Sequence[dict[str, Any]], now: int) -> None:
        """Store lines that were logged inside runs."""

        def act(desk: Desk) -> None:
            for line in lines:
                desk.rows(_LOG, **line)

        self._change((), now, act)

    def logs(self, run_id: str, limit: int) -> list[tuple[Any, ...]]:
        """The last lines that were logged inside a run, in their order, as the columns of an export."""
        return self._rows(_LOGS, run=run_id, limit=limit)[::-1]

    def versions(self) -> dict[str, int]:
        """The versions that have executed, and when each was first seen."""
        return dict(self._rows("SELECT version, first_seen FROM versions"))

    def live_by_version(self) -> list[tuple[str, str | None, int]]:
        """Unfinished runs that have begun: their version, why they are stranded, how many."""
        return [(version, reason, count) for version, reason, count in self._rows(_LIVE_BY_VERSION)]

    def patches(self) -> list[tuple[str, str, int, int]]:
        """Patches that unfinished runs have asked for: name, workflow, how many took the new path, how many began without it."""
        return [(name, workflow, new, old) for name, workflow, new, old in self._rows(_PATCHES)]

    def force(self, ids: Sequence[str], version: str | None, now: int) -> dict[str, bool]:
        """Let stranded runs be continued by any source, or by that of a version. False: it is not stranded."""

        def act(desk: Desk) -> dict[str, bool]:
            done: dict[str, bool] = {}
            for run in _all(desk, ids):
                done[run.id] = run.stranded is not None and run.state is State.QUEUED
                if done[run.id]:
                    desk.rows(_FORCE, id=run.id, version=version)
                    desk.ready()
            return done

        return self._change(ids, now, act)

    def dump(self, run_id: str) -> Iterator[dict[str, Any]]:
        """A run with its children and everything they recorded, as records for `load`."""
        return dump(self._rows, run_id)

    def load(self, records: Iterable[dict[str, Any]], now: int) -> tuple[int, int]:
        """Bring runs in that were taken out elsewhere, all of them or none: how many are new, how many were there already."""
        kept = list(records)  # a transaction may have to be made again
        return self._change((), now, lambda desk: load(desk, kept))

    def resume(self, ids: Sequence[str], now: int) -> dict[str, bool]:
        """Let cancelled runs, and those that were recovered too often, go on where they stopped. False: nothing to resume.

        Children that were cancelled along go on as well. `NotFound` if one of the ids is unknown; then nothing is done.
        """

        def act(desk: Desk) -> dict[str, bool]:
            found = _all(desk, ids)
            return {run.id: _resume(desk, run, now) for run in found}

        return self._change(ids, now, act)

    def retry(self, ids: Sequence[str], now: int) -> dict[str, bool]:
        """Let failed runs go on from what they have achieved. False: it has not failed.

        The recorded exception that ended a run is forgotten, with what was recorded after it; if that was a child's, the child
        is retried. `NotFound` if one of the ids is unknown; then nothing is done.
        """

        def act(desk: Desk) -> dict[str, bool]:
            found = _all(desk, ids)
            return {run.id: _retry(desk, run, now) for run in found}

        return self._change(ids, now, act)

    def complete(self, ids: Sequence[str], now: int) -> dict[str, bool]:
        """End runs that nobody has in hand as if they had succeeded. False: ended already, in hand, or unknown."""

        def act(desk: Desk) -> dict[str, bool]:
            return by_hand.each(ids, _there(desk, ids), lambda run: by_hand.complete(desk, run, now))

        return self._change(ids, now, act)

    def fail(self, ids: Sequence[str], reason: str, now: int) -> dict[str, bool]:
        """End runs that nobody has in hand as failed. False: ended already, in hand, or unknown."""

        def act(desk: Desk) -> dict[str, bool]:
            return by_hand.each(ids, _there(desk, ids), lambda run: by_hand.fail(desk, run, reason, now))

        return self._change(ids, now, act)

    def reschedule(self, ids: Sequence[str], move: Move, now: int) -> dict[str, bool]:
        """Change when runs begin that have not, or are to be tried again. False: begun, ended, or unknown."""

        def act(desk: Desk) -> dict[str, bool]:
            return by_hand.each(ids, _there(desk, ids), lambda run: by_hand.reschedule(desk, run, move, now))

        return self._change(ids, now, act)

    def fork(self, forks: Sequence[Fork], now: int) -> None:
        """Make new runs that have done what others had done up to a point. All of them, or none."""

        def act(desk: Desk) -> None:
            _all(desk, [fork.source for fork in forks])
            for fork in forks:
                _fork(desk, fork, now)
            desk.ready()

        self._change([fork.source for fork in forks], now, act)

    def delete(self, ids: Sequence[str], now: int) -> dict[str, bool]:
        """Delete ended runs, their children and all they have recorded. False: there is no such run.

        `Conflict` if one of them, or a descendant, has not ended, or has a schedule that has yet to take note of its end.
        """

        def act(desk: Desk) -> dict[str, bool]:
            there = {run_id: _run(desk, run_id) for run_id in ids}
            doomed = {each.id: each for run in there.values() if run is not None for each in tree(desk, run)}
            _refuse_live(desk, list(doomed.values()))
            for run_id in doomed:
                for table in TABLES_OF_RUN:
                    desk.rows(f"DELETE FROM {table} WHERE run = :id", id=run_id)
                desk.rows("DELETE FROM runs WHERE id = :id", id=run_id)
            return {run_id: run is not None for run_id, run in there.items()}

        return self._change(ids, now, act)


def tree(desk: Desk, run: Run) -> list[Run]:
    """A run and all that descend from it, parents first."""
    found = [run]
    for each in found:
        found += [sql.to_run(row) for row in desk.rows(_CHILDREN, id=each.id)]
    return found


def steps_of(desk: Desk, run_id: str) -> list[Step]:
    return [sql.to_step(row) for row in desk.rows(sql.STEPS, run=run_id)]


def _run(desk: Desk, run_id: str) -> Run | None:
    rows = desk.rows(sql.RUN, id=run_id)
    return sql.to_run(rows[0]) if rows else None


def _there(desk: Desk, ids: Sequence[str]) -> dict[str, Run]:
    found = {run_id: _run(desk, run_id) for run_id in ids}
    return {run_id: run for run_id, run in found.items() if run is not None}


def _all(desk: Desk, ids: Sequence[str]) -> list[Run]:
    found = {run_id: _run(desk, run_id) for run_id in ids}
    missing = [repr(run_id) for run_id, run in found.items() if run is None]
    if missing:
        raise NotFound(f"there is no run {', '.join(missing)}, or no longer; nothing was done")
    return [run for run in found.values() if run is not None]


def _again(desk: Desk, run: Run, now: int, *, as_it_was: bool) -> None:
    """Make an ended run live again: at once, or at its time if it never began and that has not come."""
    taken = desk.rows(_KEY_TAKEN, key=run.key, id=run.id) if run.key is not None else []
    if taken:
        raise Conflict(
            f"run {run.id!r} has the key {run.key!r}, which run {taken[0][0]!r} has now; wait for its end, or cancel it"
        )
    later = as_it_was and run.started is None and run.due > now
    state = State.SCHEDULED if later else State.QUEUED
    desk.rows(_AGAIN, id=run.id, state=str(state), due=run.due if later else now, now=now, no=False)
    desk.ready()


def _resume(desk: Desk, run: Run, now: int) -> bool:
    if run.state is not State.CANCELLED and not (run.state is State.FAILED and run.reason == EXHAUSTED):
        return False
    steps = steps_of(desk, run.id)
    _forget_from(desk, run, steps, undone_from(steps), now)
    seen = {row[0] for row in desk.rows(_SEEN_TO_END, id=run.id)}
    for row in desk.rows(_CHILDREN, id=run.id):
        child = sql.to_run(row)
        if child.state is State.CANCELLED and child.reason == run.reason and child.id not in seen:
            _resume(desk, child, now)
    _again(desk, run, now, as_it_was=True)
    return True


def _retry(desk: Desk, run: Run, now: int) -> bool:
    if run.state is not State.FAILED:
        return False
    steps = steps_of(desk, run.id)
    _forget_from(desk, run, steps, forgotten_from(steps, run.error), now)
    _again(desk, run, now, as_it_was=False)
    return True


def _forget_from(desk: Desk, run: Run, steps: list[Step], first: int | None, now: int) -> None:
    """Forget what was recorded from a seq on, and what has begun since."""
    for step in steps:
        if first is not None and ((step.seq is not None and step.seq >= first) or step.completed is None):
            forget(desk, run, step, now)


def forget(desk: Desk, run: Run, step: Step, now: int) -> None:
    """Undo what was recorded with an operation, so that it can be made anew. What it told others stays told."""
    for statement in (_FORGET, _UNTAKE, *_UNSAY):
        desk.rows(statement, id=run.id, position=step.position)
    child = _run(desk, step.child) if step.child is not None and step.kind in {"call", "result"} else None
    if child is not None and child.parent == run.id:
        _retry(desk, child, now)
        _resume(desk, child, now)


def _fork(desk: Desk, fork: Fork, now: int) -> None:
    source = _run(desk, fork.source)
    assert source is not None  # noqa: S101  (looked for before)
    steps = steps_of(desk, source.id)
    first = _first_anew(source, steps, fork)
    copied = _copied(steps, first)
    values = {
        "id": fork.id,
        "uid": fork.uid,
        "workflow": source.workflow,
        "kind": source.kind,
        "input": source.input,
        "state": State.QUEUED.value,
        "due": now,
        "created": now,
        "timeout": fork.timeout if fork.timeout is not None else source.timeout,
        "version": fork.version,
        "epoch": 1,  # as if claimed before: whoever takes it takes its steps along
        "attributes": source.attributes,
        "forked_from": source.id,
        "forked_at": first.position if first is not None else None,
        "queue": fork.queue if fork.queue is not None else source.queue,
        "priority": source.priority,
        "partition": source.partition,
        "retry": source.retry,
    }
    there = _run(desk, fork.id)
    if there is not None and there.uid == fork.uid:
        return  # made before, and the answer was lost
    if there is not None:
        raise Conflict(f"run id {fork.id!r} is taken, so a fork of {source.id!r} cannot have it; choose another id")
    desk.rows(_FORK, **values)
    for step in copied:
        for statement in (_COPY_STEP, *_COPY_SAID):
            desk.rows(statement, id=source.id, new=fork.id, position=step.position)


def _first_anew(source: Run, steps: list[Step], fork: Fork) -> Step | None:
    """The first operation that the fork makes anew; None: all of them."""
    if fork.after_failure:
        seq = forgotten_from(steps, source.error)
        seq = last_recorded(steps) if seq is None else seq
        return next((step for step in steps if step.seq == seq and seq is not None), None)
    if fork.step is None:
        return None
    at = [step for step in steps if step.position == fork.step]
    named = [step for step in steps if step.name == fork.step and step.seq is not None]
    if not at and not named:
        places = [f"{step.position} ({step.name})" for step in steps[:20] if step.seq is not None]
        raise NotFound(
            f"run {source.id!r} has recorded nothing at {fork.step!r}; it has {', '.join(places) or 'recorded nothing yet'}"
        )
    return at[0] if at else named[-1]


def _copied(steps: list[Step], first: Step | None) -> list[Step]:
    """The outcomes that came before, with the marks that were set until then. Of an unfinished one: all outcomes there are."""
    if first is None:
        return []
    before = [step for step in steps if step.seq is not None and (first.seq is None or step.seq < first.seq)]
    last = max((step.completed or 0 for step in before), default=-1)
    marks = [step for step in steps if step.seq is None and step.completed is not None and step.completed <= last]
    return before + marks


def _refuse_live(desk: Desk, runs: list[Run]) -> None:
    live = [run for run in runs if not run.state.ended]
    if live:
        shown = ", ".join(f"{run.id} ({run.state})" for run in live[:_MANY_NAMED])
        raise Conflict(
            f"only runs that have ended can be deleted; not so {shown}. Cancel them first. Nothing was deleted"
        )
    waiting = [run.id for run in runs if run.schedule is not None and desk.rows(_UNSETTLED, id=run.id, yes=True)]
    if waiting:
        raise Conflict(
            f"the schedule of {', '.join(waiting[:_MANY_NAMED])} has not taken note of its end yet; "
            "try again when a worker has. Nothing was deleted"
        )
