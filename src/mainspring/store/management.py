"""What an operator may do to runs that have ended, and to the records of runs: resume, retry, fork, delete, take out, bring in.

Each verb is one transaction that holds the runs concerned and all that descend from them. The statements are the same in every
store; how a transaction is had is the store's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.model.states import LIVE, State
from mainspring.store import by_hand, forking, reviving
from mainspring.store.deleting import delete
from mainspring.store.desk import all_of, there
from mainspring.store.exports import LOG_COLUMNS, dump, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.store.by_hand import Move
    from mainspring.store.desk import Change, Desk, Snapshot
    from mainspring.store.forking import Fork
    from mainspring.store.message_sql import Rows
    from mainspring.store.protocol import RunFilter
    from mainspring.store.run_filters import Filters

T = TypeVar("T")

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


class Management:
    """The verbs of a store, which says how a transaction is had."""

    def __init__(self, change: Change, rows: Rows, snapshot: Snapshot, filters: Filters) -> None:
        self._act = change
        self._rows = rows
        self._snapshot = snapshot
        self._filters = filters

    def _change(self, ids: Sequence[str], now: int, act: Callable[[Desk], T]) -> T:
        with reviving.key_conflicts():
            return self._act(ids, now, act)

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
            for run in all_of(desk, ids):
                done[run.id] = run.stranded is not None and run.state is State.QUEUED
                if done[run.id]:
                    desk.rows(_FORCE, id=run.id, version=version)
                    desk.ready()
            return done

        return self._change(ids, now, act)

    def dump(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Runs with their children and everything they recorded, all as of one moment, as records for `load`.

        `NotFound` if one of the ids is unknown.
        """
        with self._snapshot(ids) as rows:
            return [record for run_id in ids for record in dump(rows, run_id)]

    def load(self, records: Iterable[dict[str, Any]], now: int) -> tuple[int, int]:
        """Bring runs in that were taken out elsewhere, all of them or none: how many are new, how many were there already."""
        kept = list(records)  # a transaction may have to be made again
        return self._change((), now, lambda desk: load(desk, kept, now))

    def resume(self, ids: Sequence[str], now: int) -> dict[str, bool]:
        """Let cancelled runs, and those that were recovered too often, go on where they stopped. False: nothing to resume.

        Children that were cancelled along go on as well. `NotFound` if one of the ids is unknown; then nothing is done.
        """

        def act(desk: Desk) -> dict[str, bool]:
            found = all_of(desk, ids)
            return {run.id: reviving.resume(desk, run, now) for run in found}

        return self._change(ids, now, act)

    def retry(self, ids: Sequence[str], now: int) -> dict[str, bool]:
        """Let failed runs go on from what they have achieved. False: it has not failed.

        The recorded exception that ended a run is forgotten, with what was recorded after it; if that was a child's, the child
        is retried. `NotFound` if one of the ids is unknown; then nothing is done.
        """

        def act(desk: Desk) -> dict[str, bool]:
            found = all_of(desk, ids)
            return {run.id: reviving.retry(desk, run, now) for run in found}

        return self._change(ids, now, act)

    def complete(self, ids: Sequence[str], output: Callable[[str], str], reason: str, now: int) -> dict[str, bool]:
        """End runs that no worker owns, or that have failed, as if they had succeeded. False: ended otherwise, owned, or unknown.

        `output` says what is stored for runs of a function. If it raises, nothing is done.
        """

        def act(desk: Desk) -> dict[str, bool]:
            return by_hand.each(ids, there(desk, ids), lambda run: by_hand.complete(desk, run, output, reason, now))

        return self._change(ids, now, act)

    def fail(self, ids: Sequence[str], reason: str, now: int) -> dict[str, bool]:
        """End runs that no worker owns as failed; mark those that have failed with the reason. False: ended otherwise, owned, or
        unknown.
        """

        def act(desk: Desk) -> dict[str, bool]:
            return by_hand.each(ids, there(desk, ids), lambda run: by_hand.fail(desk, run, reason, now))

        return self._change(ids, now, act)

    def reschedule(self, ids: Sequence[str], move: Move, now: int) -> dict[str, bool]:
        """Change when runs begin that have not, or are to be tried again; retry failed ones then. False: begun, ended otherwise, or
        unknown.
        """

        def act(desk: Desk) -> dict[str, bool]:
            return by_hand.each(ids, there(desk, ids), lambda run: by_hand.reschedule(desk, run, move, now))

        return self._change(ids, now, act)

    def fork(self, forks: Sequence[Fork], now: int) -> None:
        """Make new runs that have done what others had done up to a point. All of them, or none."""

        def act(desk: Desk) -> None:
            all_of(desk, [fork.source for fork in forks])
            for fork in forks:
                forking.make(desk, fork, now)
            desk.ready()

        self._change([fork.source for fork in forks], now, act)

    def delete(self, ids: Sequence[str], now: int) -> dict[str, bool]:
        """Delete ended runs, their children and all they have recorded. False: there is no such run.

        `Conflict` if one of them, or a descendant, has not ended, or its schedule or a run that waits for it has yet to take note
        of its end.
        """
        return self._change(ids, now, lambda desk: delete(desk, ids))
