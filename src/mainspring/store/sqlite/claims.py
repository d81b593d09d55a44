"""Claim runs on SQLite: those without a queue, those that have begun, and those that their queues admit.

Two statements claim any number of runs: one chooses, one updates. No locks are needed: the transaction that counts is the only writer.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mainspring.model.runs import Claim
from mainspring.store.protocol import Claimed
from mainspring.store.sql import queues as text
from mainspring.store.sql.records import RUN_COLUMNS, STEP_COLUMNS, to_run, to_step
from mainspring.store.sql.runs import SQLITE_INSTANCE
from mainspring.store.sqlite.dialect import DIALECT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from mainspring.model.queues import Queue
    from mainspring.model.runs import Run, Step
    from mainspring.store.protocol import ClaimRequest
    from mainspring.store.queues import Allotment, Demands, Recent

_PROMOTE = """
  UPDATE runs SET state = 'queued'
  WHERE owner IS NULL AND state IN ('scheduled', 'waiting') AND due <= ?
"""
_KNOWN = "WITH known (name, print) AS MATERIALIZED (SELECT key, value FROM json_each(:functions))"
_CLAIMABLE = f"""
    EXISTS (SELECT 1 FROM known WHERE name = workflow AND (:compatible OR fingerprint = '' OR fingerprint = print OR print LIKE 'patched-%'))
    AND (version IS NULL OR version = :version OR fingerprint <> '')
    AND CASE WHEN workflow IN (SELECT key FROM json_each(:instances)) THEN coalesce({SQLITE_INSTANCE} IN (
      SELECT i.value FROM json_each(:instances) m, json_each(m.value) i), 1) ELSE 1 END
    AND CASE WHEN blocked IS NULL THEN 1 WHEN NOT json_valid(blocked) THEN 0
      ELSE NOT EXISTS (SELECT 1 FROM json_each(blocked, '$.versions') v WHERE v.value = :version) END
"""
_READY = f"""{_KNOWN}
  SELECT id FROM runs WHERE state = 'queued' AND queue IS NULL AND {_CLAIMABLE} ORDER BY priority, due, uid LIMIT :limit
"""
_READY_OF_NAME = f"""{_KNOWN}
  SELECT id, priority, due, uid FROM runs INDEXED BY runs_name
  WHERE state = 'queued' AND queue IS NULL AND workflow = :name AND partition = ''
    AND {_CLAIMABLE}
  ORDER BY priority, due, uid LIMIT :limit
"""
_RESUMED = f"""{_KNOWN}
  SELECT id, queue, partition FROM runs WHERE {text.RESUMES} AND {_CLAIMABLE}
    AND (:listed IS NULL OR queue IN (SELECT value FROM json_each(:listed)))
  ORDER BY due, uid
"""
_SHARE = f"""{_KNOWN}
  SELECT id FROM runs WHERE {text.WAITS} AND queue = :queue AND partition = :partition AND {_CLAIMABLE}
  ORDER BY priority, due, uid LIMIT :limit
"""
_SHARE_OF_NAME = f"""{_KNOWN}
  SELECT id, priority, due, uid FROM runs INDEXED BY runs_name
  WHERE {text.WAITS} AND queue = :queue AND workflow = :name AND partition = :partition AND {_CLAIMABLE}
  ORDER BY priority, due, uid LIMIT :limit
"""
_FITS = (
    f"(SELECT 1 FROM runs WHERE {text.WAITS} AND queue = :queue AND partition = {{partition}} AND {_CLAIMABLE} LIMIT 1)"
)
_PARTITIONS = text.partitions(f"{_FITS.format(partition='found.name')} IS NOT NULL").replace(
    "WITH RECURSIVE", f"{_KNOWN},", 1
)
_UNPARTITIONED = f"{_KNOWN} SELECT {_FITS.format(partition=chr(39) * 2)}"
_TAKE = f"""{_KNOWN}, kinds (name, kind) AS MATERIALIZED (SELECT key, value FROM json_each(:kinds))
  UPDATE runs SET state = 'running', owner = :worker, epoch = epoch + 1, needs_attention = 0,
    kind = coalesce((SELECT kinds.kind FROM kinds WHERE name = workflow), kind),
    blocked = CASE WHEN json_array_length(blocked, '$.versions') > 0 THEN blocked END,
    started = coalesce(started, max(created, :now)), attempt_started = coalesce(attempt_started, :now),
    attempts = CASE WHEN attempt_started IS NULL THEN attempts + 1 ELSE max(attempts, 1) END, began_epoch = CASE WHEN attempt_started IS NULL THEN epoch + 1 ELSE began_epoch END,
    version = coalesce(version, :version),
    fingerprint = CASE WHEN fingerprint = '' THEN (SELECT print FROM known WHERE name = workflow) ELSE fingerprint END,
    deadline = CASE WHEN attempt_started IS NULL AND timeout IS NOT NULL THEN min(coalesce(deadline, :now + timeout), :now + timeout)
                    ELSE deadline END,
    retry = coalesce(retry, (SELECT q.retry FROM queues q WHERE q.name = runs.queue))
  WHERE id IN (SELECT value FROM json_each(:ids))
  RETURNING {", ".join(RUN_COLUMNS)}
"""
_NOTE_STARTS = """
  INSERT INTO queue_starts (queue, partition, at)
  SELECT queue, partition, max(:now, created) FROM runs WHERE id IN (SELECT value FROM json_each(:ids))
"""
_STEPS = f"""
  SELECT {", ".join(STEP_COLUMNS)} FROM steps WHERE run IN (SELECT value FROM json_each(?))
  ORDER BY run, seq IS NULL, seq, position
"""
_NEXT_DUE = """
  SELECT min(due) FROM (
    SELECT min(due) AS due FROM runs WHERE owner IS NULL AND state IN ('scheduled', 'waiting')
    UNION ALL
    SELECT min(deadline) FROM runs
    WHERE deadline IS NOT NULL AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting'))
"""
_ANY = f"SELECT 1 FROM runs INDEXED BY runs_name WHERE {text.WAITS} AND queue = :queue AND workflow = :name LIMIT 1"
_PARTITION_AFTER = f"""
  SELECT min(partition) FROM runs INDEXED BY runs_name WHERE {text.WAITS} AND queue = :queue AND workflow = :name AND partition > :after
"""


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
        self._by_name: ByName | None = None
        """The lookup by function, if runs wait whose functions the worker does not know."""

    def claim(self) -> Claimed:
        request = self._request
        self._db.execute(DIALECT.spelled(_PROMOTE), (request.now,))
        names = [name for (name,) in self._db.execute(DIALECT.spelled(text.NAMES))]
        known = [name for name in names if name in request.functions]
        self._by_name = None if len(known) == len(names) else ByName(self._db, known)
        waiting = text.to_queues(self._db.execute(DIALECT.spelled(text.WAITING)))
        if self._by_name is not None:
            waiting = [queue for queue in waiting if self._by_name.waits_in(queue.name)]
        exceptions = (
            text.to_exceptions(self._db.execute(DIALECT.spelled(text.EXCEPTIONS)).fetchall()) if waiting else {}
        )
        waiting = [text.to_queue_with(queue, exceptions) for queue in waiting]
        chosen = self._resumed(request.limit)
        demands = self._request.policy.divide(self._request, waiting, self._turn, self._turns)
        chosen += self._plain(demands.room_for_plain(request.limit - len(chosen)))
        if demands:
            chosen += self._queued(demands, request.limit - len(chosen))
        claims = self._taken(chosen)
        (next_due,) = self._db.execute(DIALECT.spelled(_NEXT_DUE)).fetchone()
        times = [when for when in (next_due, demands.again) if when is not None]
        return Claimed(claims, min(times, default=None), self._more, self._short, demands.held)

    # -- choosing ------------------------------------------------------------------------------------------------------
    def _ids(self, statement: str, limit: int, **values: Any) -> list[str]:
        """The ids that a statement finds, and whether it found more than the limit."""
        found = self._db.execute(DIALECT.spelled(statement), self._values | values | {"limit": limit + 1}).fetchall()
        self._more = self._more or len(found) > limit
        return [row[0] for row in found[:limit]]

    def _plain(self, limit: int) -> list[str]:
        if self._by_name is None:
            return self._ids(_READY, limit)
        found = self._by_name.first(_READY_OF_NAME, self._values, limit + 1)
        self._more = self._more or len(found) > limit
        return found[:limit]

    def _resumed(self, limit: int) -> list[str]:
        if self._db.execute(DIALECT.spelled(f"SELECT 1 FROM runs WHERE {text.RESUMES} LIMIT 1")).fetchone() is None:
            return []
        known = {queue.name: queue for queue in text.to_queues(self._db.execute(DIALECT.spelled(text.QUEUES)))}
        rows = self._db.execute(DIALECT.spelled(_RESUMED), self._values)
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
            for share in admission.shares:
                values = {"queue": allotment.queue.name, "partition": share.partition, "limit": share.count}
                taken += [(run, share.partition) for run in self._share(self._values | values, share.count)]
            runs = [run for run, _ in taken]
            chosen += runs
            allotment.took([partition for _, partition in taken])
            self._note_starts(allotment.queue, runs)
        self._more = self._more or demands.more
        self._short = self._short or demands.short
        return chosen

    def _share(self, values: dict[str, Any], count: int) -> list[str]:
        if self._by_name is not None:
            return self._by_name.first(_SHARE_OF_NAME, values, count)
        return [row[0] for row in self._db.execute(DIALECT.spelled(_SHARE), values)]

    def _partitions(self, allotment: Allotment, placed: dict[str, int], recent: dict[int, Recent]) -> list[str]:
        queue, most = allotment.queue.name, allotment.most_partitions(placed, recent)
        found = self._partitions_after(queue, allotment.turn, most)
        if self._unpartitioned(queue):
            found.append("")
        if allotment.turn:
            found += self._partitions_after(queue, "", most)
        return found

    def _partitions_after(self, queue: str, after: str, most: int) -> list[str]:
        if self._by_name is not None:
            return self._by_name.partitions(_SHARE_OF_NAME, self._values | {"queue": queue}, after, most)
        values = self._values | {"queue": queue, "after": after, "most": most}
        return [row[0] for row in self._db.execute(DIALECT.spelled(_PARTITIONS), values)]

    def _unpartitioned(self, queue: str) -> bool:
        if self._by_name is not None:
            return self._by_name.fits(_SHARE_OF_NAME, self._values | {"queue": queue, "partition": ""})
        return (
            self._db.execute(DIALECT.spelled(_UNPARTITIONED), self._values | {"queue": queue}).fetchone()[0] is not None
        )

    def _placed(self, allotment: Allotment) -> dict[str, int]:
        if not allotment.queue.has_concurrency:
            return {}
        return dict(self._db.execute(DIALECT.spelled(text.COUNT_PLACED), {"queue": allotment.queue.name}).fetchall())

    def _recent(self, allotment: Allotment) -> dict[int, Recent]:
        queue, now = allotment.queue.name, self._request.now
        found: dict[int, Recent] = {}
        for per in allotment.queue.windows:
            values = {"queue": queue, "after": now - per}
            rows = self._db.execute(DIALECT.spelled(text.COUNT_RECENT), values).fetchall()
            if text.ahead(rows, now):
                self._db.execute(
                    DIALECT.spelled(text.CLAMP_STARTS), {"queue": queue, "now": now, "ahead": now + text.AHEAD}
                )
                rows = self._db.execute(DIALECT.spelled(text.COUNT_RECENT), values).fetchall()
            found[per] = text.recent(rows)
        return found

    def _note_starts(self, queue: Queue, runs: list[str]) -> None:
        if queue.windows and runs:
            now = self._request.now
            before = text.swept_before(now, queue.windows)
            self._db.execute(DIALECT.spelled(text.SWEEP_STARTS), {"queue": queue.name, "before": before})
            self._db.execute(DIALECT.spelled(_NOTE_STARTS), {"now": now, "ids": json.dumps(runs)})

    # -- claiming ------------------------------------------------------------------------------------------------------
    def _taken(self, chosen: list[str]) -> list[Claim]:
        if not chosen:
            return []
        rows = self._db.execute(DIALECT.spelled(_TAKE), self._values | {"ids": json.dumps(chosen)}).fetchall()
        runs: dict[str, Run] = {row[0]: to_run(row) for row in rows}
        again = [run.id for run in runs.values() if run.epoch > 1]
        steps: dict[str, list[Step]] = {}
        if again:
            for row in self._db.execute(DIALECT.spelled(_STEPS), (json.dumps(again),)):
                steps.setdefault(row[0], []).append(to_step(row))
        return [Claim(runs[run], steps.get(run, [])) for run in chosen]


class ByName:
    """Finds waiting runs of the functions that a worker knows, `names`, among runs of other functions.

    A scan of the waiting runs in their order is slow if most of them are of other functions. So the runs are looked up function by
    function, in the index `runs_name`, and the first of each are merged in the right order. The index is named, because by its statistics
    SQLite may prefer another one.
    """

    def __init__(self, connection: sqlite3.Connection, names: Sequence[str]) -> None:
        self._db = connection
        self._names = names

    def waits_in(self, queue: str) -> bool:
        return self._any(_ANY, queue)

    def partitions(self, statement: str, values: dict[str, Any], after: str, most: int) -> list[str]:
        """The partitions of a queue with runs to claim, in order. `statement` finds those of one function."""
        found: list[str] = []
        while len(found) < most:
            each = [
                self._db.execute(
                    DIALECT.spelled(_PARTITION_AFTER), {**values, "name": name, "after": after}
                ).fetchone()[0]
                for name in self._names
            ]
            there = [partition for partition in each if partition is not None]
            if not there:
                break
            after = min(there)
            if self.fits(statement, {**values, "partition": after}):
                found.append(after)
        return found

    def fits(self, statement: str, values: dict[str, Any]) -> bool:
        """Whether a statement finds runs of any of the functions."""
        return any(
            self._db.execute(DIALECT.spelled(statement), {**values, "name": name, "limit": 1}).fetchone()
            for name in self._names
        )

    def first(self, statement: str, values: dict[str, Any], limit: int) -> list[str]:
        """The ids of the first runs of all functions. `statement` finds those of one `name`, with their sort keys."""
        rows = [
            row
            for name in self._names
            for row in self._db.execute(DIALECT.spelled(statement), values | {"name": name, "limit": limit})
        ]
        return [run for run, *_ in islice(sorted(rows, key=lambda row: row[1:]), limit)]

    def _any(self, statement: str, queue: str) -> bool:
        return any(
            self._db.execute(DIALECT.spelled(statement), {"queue": queue, "name": name}).fetchone()
            for name in self._names
        )
