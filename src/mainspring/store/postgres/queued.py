"""Taking runs from queues on PostgreSQL, inside the transaction of a claim.

Queues whose limits the fleet shares are locked first, all at once and in order of their names. What is under way is counted in
later statements: under READ COMMITTED each of them sees what was committed before it began, so whoever had the lock before is
counted. Whoever holds a queue never waits for a run, and nobody waits for a queue with another one in hand.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.store import queues as text
from mainspring.store import sql
from mainspring.store.demands import resumable
from mainspring.store.postgres.queues import to_queue
from mainspring.store.postgres.wire import array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainspring.model.queues import Queue
    from mainspring.store.demands import Allotment, Demands
    from mainspring.store.postgres.database import Connection
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.postgres.wire import Row, Value
    from mainspring.store.protocol import ClaimRequest
    from mainspring.store.queues import Recent

CLAIMABLE = """workflow = ANY(:names)
      AND (:compatible OR fingerprint = '' OR fingerprint = :functions::jsonb ->> workflow
        OR :functions::jsonb ->> workflow LIKE 'patched-%')
      AND (version IS NULL OR version = :version OR fingerprint <> '')
      AND (stranded IS NULL OR NOT coalesce(jsonb_exists(stranded::jsonb -> 'versions', :version), false))
"""
TAKEN = f"""
  UPDATE runs r SET state = 'running', owner = :worker, epoch = epoch + 1, poked = false,
    kind = coalesce(:kinds::jsonb ->> r.workflow, kind),
    stranded = CASE WHEN json_array_length(stranded -> 'versions') > 0 THEN stranded END,
    started = coalesce(started, :now), since = coalesce(since, :now), version = coalesce(version, :version),
    fingerprint = CASE WHEN fingerprint = '' THEN :functions::jsonb ->> r.workflow ELSE fingerprint END,
    deadline = CASE WHEN since IS NULL AND timeout IS NOT NULL THEN least(deadline, :now + timeout) ELSE deadline END,
    retry = coalesce(retry, (SELECT q.retry FROM queues q WHERE q.name = r.queue))
  FROM chosen WHERE r.id = chosen.id
  RETURNING {{also}}{", ".join(f"r.{column}" for column in sql.RUN_COLUMNS)}
"""
_LOCK = f"{text.QUEUES} WHERE name = ANY(:names) ORDER BY name FOR NO KEY UPDATE"
_KNOWN = f"{text.QUEUES} WHERE name = ANY(:names)"
_RESUMED = f"""
  SELECT id, queue, partition FROM runs WHERE {text.RESUMES} AND {CLAIMABLE} AND (:heard::text[] IS NULL OR queue = ANY(:heard))
  ORDER BY due, uid LIMIT :limit::bigint + 1 FOR NO KEY UPDATE SKIP LOCKED
"""
_TAKE_RESUMED = f"WITH chosen AS MATERIALIZED (SELECT unnest(:ids::text[]) AS id) {TAKEN.format(also='')}"
_TAKE_SHARES = f"""
  WITH wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:wanted::json) AS rows (queue text, partition text, count bigint)),
  chosen AS MATERIALIZED (
    SELECT each.id FROM wanted CROSS JOIN LATERAL (
      SELECT id FROM runs WHERE {text.WAITS} AND queue = wanted.queue AND partition = wanted.partition AND {CLAIMABLE}
      ORDER BY priority, due, uid LIMIT wanted.count FOR NO KEY UPDATE SKIP LOCKED) each)
  {TAKEN.format(also="")}
"""
_NOTE_STARTS = """
  INSERT INTO queue_starts (queue, partition, at)
  SELECT queue, partition, :now FROM json_to_recordset(:started::json) AS rows (queue text, partition text)
"""
_COLUMNS = {name: number for number, name in enumerate(sql.RUN_COLUMNS)}


class Queued:
    """The part of one claim that is about queues. `values` are those of the whole claim."""

    def __init__(
        self, connection: Connection, dialect: Dialect, request: ClaimRequest, values: dict[str, Value]
    ) -> None:
        self._db = connection
        self._sql = dialect
        self.request = request
        """As it was asked; once runs go on, with those among what the worker has."""
        heard = None if request.queues is None else array(request.queues)
        self._values = values | {"heard": heard}
        self.more = self.short = False

    def resume(self, room: int) -> list[Row]:
        """Take runs that have begun before and want to go on."""
        (rows,) = self._execute((_RESUMED, {"limit": room}))
        (known,) = self._execute((_KNOWN, {"names": array({row[1] or "" for row in rows})}))
        found = resumable(self.request, rows[:room], {row[0] or "": to_queue(row) for row in known})
        self.short = found.short
        self.request = replace(self.request, mine=found.mine)
        self.more = len(rows) > room and len(found.ids) == room
        return self._execute((_TAKE_RESUMED, {"ids": array(found.ids)}))[0] if found.ids else []

    def begin(self, demands: Demands, room: int) -> list[Row]:
        """Take runs that the queues admit."""
        shared = [queue.name for queue in demands.queues if queue.shared]
        locked, exceptions = self._execute((_LOCK, {"names": array(shared)}), (text.EXCEPTIONS, {}))
        demands.refresh((to_queue(row) for row in locked), exceptions)
        facts = self._facts(demands.queues)
        allotments = list(self._decided(demands, room, facts))
        wanted = [
            {"queue": allotment.queue.name, "partition": share.partition, "count": share.count}
            for allotment in allotments
            for share in allotment.admission.shares
        ]
        taken = self._execute((_TAKE_SHARES, {"wanted": json.dumps(wanted)}))[0] if wanted else []
        self._note(allotments, taken)
        self.more = self.more or demands.more
        self.short = self.short or demands.short
        return taken

    def _decided(self, demands: Demands, room: int, facts: dict[str, Facts]) -> Iterable[Allotment]:
        for allotment in demands.each(room):
            known = facts[allotment.queue.name]
            allotment.decide(self._partitions(allotment, known), known.placed, known.recent)
            yield allotment

    def _partitions(self, allotment: Allotment, known: Facts) -> list[str]:
        """Partitions in their turn: those after the one served last, the runs without one, then from the beginning."""
        values: dict[str, Value] = {
            "queue": allotment.queue.name,
            "most": allotment.most_partitions(known.placed, known.recent),
        }
        after, none, first = self._execute(
            (text.PARTITIONS, values | {"after": allotment.turn}),
            (text.UNPARTITIONED, values),
            (text.PARTITIONS, values | {"after": ""}),
        )
        return [*(row[0] or "" for row in after), *([""] if none else []), *(row[0] or "" for row in first)]

    def _facts(self, queues: list[Queue]) -> dict[str, Facts]:
        """What is under way in each queue, as far as its limits ask: all questions in one round trip."""
        found = {queue.name: Facts() for queue in queues}
        asked: list[tuple[str, dict[str, Value]]] = []
        told: list[Callable[[list[Row]], None]] = []
        for queue in queues:
            facts = found[queue.name]
            if queue.counts_places:
                asked.append((text.COUNT_PLACED, {"queue": queue.name}))
                told.append(facts.note_placed)
            for per in queue.windows:
                asked.append((text.COUNT_RECENT, {"queue": queue.name, "after": self.request.now - per}))
                told.append(facts.note_recent(per))
        for tell, rows in zip(told, self._execute(*asked) if asked else [], strict=True):
            tell(rows)
        return found

    def _note(self, allotments: list[Allotment], taken: list[Row]) -> None:
        partitions: dict[str, list[str]] = defaultdict(list)
        for row in taken:
            partitions[row[_COLUMNS["queue"]] or ""].append(row[_COLUMNS["partition"]] or "")
        asked: list[tuple[str, dict[str, Value]]] = []
        for allotment in allotments:
            queue = allotment.queue
            mine = partitions[queue.name]
            order = {share.partition: number for number, share in enumerate(allotment.admission.shares)}
            allotment.took(sorted(mine, key=order.__getitem__))
            if mine and queue.windows:
                started = json.dumps([{"queue": queue.name, "partition": partition} for partition in mine])
                asked.append(
                    (text.SWEEP_STARTS, {"queue": queue.name, "before": self.request.now - max(queue.windows)})
                )
                asked.append((_NOTE_STARTS, {"started": started}))
        if asked:
            self._execute(*asked)

    def _execute(self, *asked: tuple[str, dict[str, Value]]) -> list[list[Row]]:
        return self._db.wire.execute(*((self._sql.raw(each), self._values | values) for each, values in asked))


class Facts:
    """What was found out about one queue."""

    def __init__(self) -> None:
        self.placed: dict[str, int] = {}
        self.recent: dict[int, Recent] = {}

    def note_placed(self, rows: list[Row]) -> None:
        self.placed = {row[0] or "": int(row[1] or 0) for row in rows}

    def note_recent(self, per: int) -> Callable[[list[Row]], None]:
        def note(rows: list[Row]) -> None:
            self.recent[per] = {row[0] or "": (int(row[1] or 0), int(row[2] or 0)) for row in rows}

        return note
