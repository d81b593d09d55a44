"""Claim runs on SQLite: those without a queue, those that have begun, and those that their queues admit.

Two statements claim any number of runs: one chooses, one updates. No locks are needed: the transaction that counts is the only writer.
"""

from __future__ import annotations

import json
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mainspring.model.clock import CLOCK_ERROR
from mainspring.store.protocol import Claimed
from mainspring.store.sql import queues as text
from mainspring.store.sql.claims import CLAIMABLE, TAKEN
from mainspring.store.sql.conditions import EXPIRES, LATER, PLAIN, RESUMES, WAITS
from mainspring.store.sql.records import RUN_COLUMNS, to_claims, to_run
from mainspring.store.sql.steps import STEPS_OF
from mainspring.store.sqlite.dialect import DIALECT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Container, Iterator

    from mainspring.model.queues import Queue
    from mainspring.model.runs import Claim, Run
    from mainspring.queues.admission import Recent
    from mainspring.queues.fairness import Allotment, Demands
    from mainspring.store.protocol import ClaimRequest
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import Values

_PROMOTE = f"""
  UPDATE runs SET state = 'queued'
  WHERE {LATER} AND due <= :now
"""
_KNOWN = "WITH known (name, print) AS MATERIALIZED (SELECT key, value FROM json_each(:functions))"
_NEXT_NAME = (
    "SELECT workflow FROM runs INDEXED BY runs_waiting WHERE {waits} AND workflow > :after ORDER BY workflow LIMIT 1"
)
_QUEUED = f"{WAITS} AND queue = :queue"
_GROUP = f"""{_KNOWN}
  SELECT id, priority, due, uid FROM runs INDEXED BY runs_waiting
  WHERE {{waits}} AND workflow = :name AND partition = :partition AND {CLAIMABLE.sqlite}
  ORDER BY priority, due, uid
"""
_RESUMED = f"""{_KNOWN}
  SELECT id, queue, partition FROM runs WHERE {RESUMES} AND {CLAIMABLE.sqlite}
    AND (:listed IS NULL OR queue IN (SELECT value FROM json_each(:listed)))
  ORDER BY due, uid
"""
_TAKE = f"""{_KNOWN}, kinds (name, kind) AS MATERIALIZED (SELECT key, value FROM json_each(:kinds))
  UPDATE runs AS r SET {TAKEN.sqlite}
  WHERE id IN (SELECT value FROM json_each(:ids))
  RETURNING {", ".join(RUN_COLUMNS)}
"""
_NOTE_STARTS = """
  INSERT INTO queue_starts (queue, partition, at)
  SELECT queue, partition, max(:now, created) FROM runs WHERE id IN (SELECT value FROM json_each(:ids))
"""
_NEXT_DUE = f"""
  SELECT min(due) FROM (
    SELECT min(due) AS due FROM runs WHERE {LATER}
    UNION ALL
    SELECT min(deadline) FROM runs
    WHERE {EXPIRES})
"""
_NEXT_PARTITION = (
    f"SELECT min(partition) FROM runs INDEXED BY runs_waiting WHERE {_QUEUED} AND workflow = :name AND partition >"
)
_PARTITIONS = f"""
  WITH RECURSIVE known (name, print) AS MATERIALIZED (SELECT key, value FROM json_each(:functions)),
  found (name) AS (
    SELECT ({_NEXT_PARTITION} :after) UNION ALL SELECT ({_NEXT_PARTITION} found.name) FROM found WHERE found.name IS NOT NULL)
  SELECT found.name FROM found WHERE found.name IS NOT NULL AND EXISTS (
    SELECT 1 FROM runs INDEXED BY runs_waiting
    WHERE {_QUEUED} AND workflow = :name AND partition = found.name AND {CLAIMABLE.sqlite})
  LIMIT :most
"""
"""From partition to partition in the index. SQLite computes a row of the recursion when it is asked for one, so it stops at the limit."""
_NONE: Values = {}


class Claiming:
    """One claim inside one open transaction."""

    def __init__(self, connection: sqlite3.Connection, request: ClaimRequest, turn: int, turns: dict[str, str]) -> None:
        self._db = connection
        self._request = request
        self._turn = turn
        self._turns = turns
        self._values: dict[str, Any] = {
            "functions": json.dumps(dict(request.functions)),
            "kinds": json.dumps(dict(request.kinds)),
            "instances": json.dumps({name: list(instances) for name, instances in request.instances.items()}),
            "compatible": request.compatible,
            "version": request.version,
            "worker": request.worker,
            "now": request.now,
            "listed": None if request.queues is None else json.dumps(sorted(request.queues)),
        }
        self._more = self._short = False
        self._groups_of: dict[str | None, Groups] = {}

    def claim(self) -> Claimed:
        request = self._request
        _execute(self._db, _PROMOTE, {"now": request.now})
        waiting = text.to_queues(_execute(self._db, text.WAITING))
        waiting = [queue for queue in waiting if self._groups(queue.name).names]
        exceptions = text.to_exceptions(_execute(self._db, text.EXCEPTIONS).fetchall()) if waiting else {}
        waiting = [text.to_queue_with(queue, exceptions) for queue in waiting]
        chosen = self._resumed(request.limit)
        demands = self._request.policy.divide(self._request, waiting, self._turn, self._turns)
        chosen += self._plain(demands.room_for_plain(request.limit - len(chosen)))
        if demands:
            chosen += self._queued(demands, request.limit - len(chosen))
        claims = self._taken(chosen)
        (next_due,) = _execute(self._db, _NEXT_DUE).fetchone()
        times = [when for when in (next_due, demands.again) if when is not None]
        return Claimed(claims, min(times, default=None), self._more, self._short, demands.held)

    # -- choosing ------------------------------------------------------------------------------------------------------
    def _groups(self, queue: str | None) -> Groups:
        """Runs are claimed at the end, so until then the same runs wait."""
        if queue not in self._groups_of:
            self._groups_of[queue] = Groups(self._db, self._values, queue, self._request.functions)
        return self._groups_of[queue]

    def _plain(self, limit: int) -> list[str]:
        found = self._groups(None).first("", limit + 1)
        self._more = self._more or len(found) > limit
        return found[:limit]

    def _resumed(self, limit: int) -> list[str]:
        if _execute(self._db, f"SELECT 1 FROM runs WHERE {RESUMES} LIMIT 1").fetchone() is None:
            return []
        known = {queue.name: queue for queue in text.to_queues(_execute(self._db, text.QUEUES))}
        rows = _execute(self._db, _RESUMED, self._values)
        found = self._request.policy.resumable(self._request, rows, known, limit)
        self._short = found.short
        self._request = replace(self._request, mine=found.mine)
        self._more = self._more or found.more
        return found.ids

    def _queued(self, demands: Demands, room: int) -> list[str]:
        """Choose runs from the queues in turn."""
        chosen: list[str] = []
        for allotment in demands.each(room):
            placed, recent = self._placed(allotment), self._recent(allotment)
            admission = allotment.decide(self._partitions(allotment, placed, recent), placed, recent)
            taken: list[tuple[str, str]] = []
            groups = self._groups(allotment.queue.name)
            for share in admission.shares:
                taken += [(run, share.partition) for run in groups.first(share.partition, share.count)]
            runs = [run for run, _ in taken]
            chosen += runs
            allotment.took([partition for _, partition in taken])
            self._note_starts(allotment.queue, runs)
        self._more = self._more or demands.more
        self._short = self._short or demands.short
        return chosen

    def _partitions(self, allotment: Allotment, placed: dict[str, int], recent: dict[int, Recent]) -> list[str]:
        groups, most = self._groups(allotment.queue.name), allotment.most_partitions(placed, recent)
        found = groups.partitions(allotment.turn, most)
        if groups.first("", 1):
            found.append("")
        if allotment.turn:
            found += groups.partitions("", most)
        return found

    def _placed(self, allotment: Allotment) -> dict[str, int]:
        if not allotment.queue.has_concurrency:
            return {}
        return dict(_execute(self._db, text.COUNT_PLACED, {"queue": allotment.queue.name}).fetchall())

    def _recent(self, allotment: Allotment) -> dict[int, Recent]:
        queue, now = allotment.queue.name, self._request.now
        found: dict[int, Recent] = {}
        for per in allotment.queue.windows:
            values = {"queue": queue, "after": now - per}
            rows = _execute(self._db, text.COUNT_RECENT, values).fetchall()
            if text.ahead(rows, now):
                _execute(self._db, text.CLAMP_STARTS, {"queue": queue, "now": now, "ahead": now + CLOCK_ERROR})
                rows = _execute(self._db, text.COUNT_RECENT, values).fetchall()
            found[per] = text.recent(rows)
        return found

    def _note_starts(self, queue: Queue, runs: list[str]) -> None:
        if queue.windows and runs:
            now = self._request.now
            before = text.swept_before(now, queue.windows)
            _execute(self._db, text.SWEEP_STARTS, {"queue": queue.name, "before": before})
            _execute(self._db, _NOTE_STARTS, {"now": now, "ids": json.dumps(runs)})

    # -- claiming ------------------------------------------------------------------------------------------------------
    def _taken(self, chosen: list[str]) -> list[Claim]:
        if not chosen:
            return []
        rows = _execute(self._db, _TAKE, self._values | {"ids": json.dumps(chosen)}).fetchall()
        runs: dict[str, Run] = {row[0]: to_run(row) for row in rows}
        return to_claims([runs[run] for run in chosen], self._steps)

    def _steps(self, runs: list[str]) -> sqlite3.Cursor:
        return _execute(self._db, STEPS_OF, {"runs": json.dumps(runs)})


def _execute(db: sqlite3.Connection, sql: Sql, values: Values = _NONE) -> sqlite3.Cursor:
    return db.execute(DIALECT.spelled(sql), values)


class Groups:
    """Waiting runs of a queue, or of none, of the functions that a worker knows.

    The index `runs_waiting` has them by function and partition, so runs of other functions are not read. The first runs of all functions are
    merged in the right order. The index is named, because by its statistics SQLite may prefer another one.
    """

    def __init__(
        self, connection: sqlite3.Connection, values: dict[str, Any], queue: str | None, known: Container[str]
    ) -> None:
        self._db = connection
        self._values = values | {"queue": queue}
        self._waits = PLAIN if queue is None else _QUEUED
        self.names = [name for name in self._waiting() if name in known]
        """The functions that the worker knows and of which runs wait."""

    def _waiting(self) -> Iterator[str]:
        """The functions of which runs wait, from name to name in the index."""
        statement, name = DIALECT.spelled(_NEXT_NAME.format(waits=self._waits)), ""
        while (row := self._db.execute(statement, self._values | {"after": name}).fetchone()) is not None:
            (name,) = row
            yield name

    def partitions(self, after: str, most: int) -> list[str]:
        """The partitions with runs to claim, in order, after a given one.

        Partitions without such a run are skipped: a slot offered to them would stay empty.
        """
        statement = DIALECT.spelled(_PARTITIONS)
        each = (
            self._db.execute(statement, self._values | {"name": name, "after": after, "most": most})
            for name in self.names
        )
        return sorted({partition for rows in each for (partition,) in rows})[:most]

    def first(self, partition: str, limit: int) -> list[str]:
        """The ids of the first runs of a partition. No more of them are read than needed."""
        statement = DIALECT.spelled(_GROUP.format(waits=self._waits))
        groups = [
            self._db.execute(statement, self._values | {"name": name, "partition": partition}) for name in self.names
        ]
        found = [run for run, *_ in islice(merge(*groups, key=lambda row: row[1:]), limit)]
        for group in groups:
            group.close()
        return found
