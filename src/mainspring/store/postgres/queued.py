"""Taking runs from queues on PostgreSQL, inside the transaction of a claim.

Queues whose limits the fleet shares are locked first, those that are free. What is under way is counted in later statements:
under READ COMMITTED each of them sees what was committed before it began, so that the claim that had the lock before is counted.
A claim that holds a queue waits for nothing, and one that has taken nothing waits a moment for one queue, holding none.

The lock is an advisory one for the name of the queue, not its row: a session that has the row open, an operator's or that of a
backup, holds up nothing. It ends with the transaction, and the transaction with the process (`database.py`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace
from psycopg import errors as pg

from mainspring.store import queues as text
from mainspring.store import sql
from mainspring.store.demands import resumable
from mainspring.store.postgres.database import roll_back
from mainspring.store.postgres.queue_facts import Facts
from mainspring.store.postgres.queues import LOCK, lock_key, to_queues
from mainspring.store.postgres.statements import PATIENCE
from mainspring.store.postgres.wire import array

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainspring.model.queues import Queue
    from mainspring.store.demands import Allotment, Demands
    from mainspring.store.postgres.database import Connection
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.postgres.queue_facts import Asked, Statements
    from mainspring.store.postgres.wire import Row, Value
    from mainspring.store.protocol import ClaimRequest

FITTING = f"""(:compatible OR fingerprint = '' OR fingerprint = (SELECT :functions::jsonb) ->> workflow
        OR (SELECT :functions::jsonb) ->> workflow LIKE 'patched-%')
      AND (version IS NULL OR version = :version OR fingerprint <> '')
      AND CASE WHEN workflow = ANY(:methods::text[]) THEN coalesce({sql.POSTGRES_INSTANCE} = ANY(:instances::text[]), true) ELSE true END
      AND (stranded IS NULL OR (json_typeof(stranded -> 'versions') = 'array'
        AND NOT jsonb_exists(stranded::jsonb -> 'versions', :version)))
"""
"""The functions are read once for a statement, because they are a subquery; as a mere parameter once for each run."""
CLAIMABLE = f"workflow = ANY(:names) AND {FITTING}"
_FITS = f"""(
    SELECT 1 FROM runs WHERE {text.WAITS} AND queue = :queue AND partition = {{partition}} AND {CLAIMABLE}
    ORDER BY queue, partition, priority, due, uid LIMIT 1)"""
"""The order is that of the index: PostgreSQL has to be told, or it takes its chances with reading from the beginning."""
PARTITIONS = text.partitions(f"{_FITS.format(partition='found.name')} IS NOT NULL")
UNPARTITIONED = _FITS.format(partition="''")
TAKEN = f"""
  UPDATE runs r SET state = 'running', owner = :worker, epoch = epoch + 1, poked = false,
    kind = coalesce((SELECT :kinds::jsonb) ->> r.workflow, kind),
    stranded = CASE WHEN json_array_length(stranded -> 'versions') > 0 THEN stranded END,
    started = coalesce(started, greatest(created, :now)), since = coalesce(since, :now),
    attempts = CASE WHEN since IS NULL THEN attempts + 1 ELSE greatest(attempts, 1) END, began_epoch = CASE WHEN since IS NULL THEN epoch + 1 ELSE began_epoch END,
    version = coalesce(version, :version),
    fingerprint = CASE WHEN fingerprint = '' THEN (SELECT :functions::jsonb) ->> r.workflow ELSE fingerprint END,
    deadline = CASE WHEN since IS NULL AND timeout IS NOT NULL THEN least(deadline, :now + timeout) ELSE deadline END,
    retry = coalesce(retry, (SELECT q.retry FROM queues q WHERE q.name = r.queue))
  WHERE r.id = ANY(ARRAY(SELECT id FROM chosen))
  RETURNING {{also}}{", ".join(f"r.{column}" for column in sql.RUN_COLUMNS)}
"""
"""Takes what is `chosen`. An array, because for a join PostgreSQL would read all of a table of medium size."""
_TRY_LOCK = f"""
  SELECT name FROM unnest(:names::text[]) AS wanted (name) WHERE pg_try_advisory_xact_lock({lock_key("name")})
"""
_PATIENCE = "SELECT set_config('lock_timeout', :patience, true)"
_KNOWN = f"{text.QUEUES} WHERE name = ANY(:names)"
_RESUMED = f"""
  SELECT id, queue, partition, due, uid FROM runs
  WHERE {text.RESUMES} AND {CLAIMABLE} AND (:heard::text[] IS NULL OR queue = ANY(:heard)) AND (due, uid) > (:due::bigint, :uid)
  ORDER BY due, uid LIMIT :page
"""
_TAKE_RESUMED = f"""
  WITH chosen AS MATERIALIZED (
    SELECT id FROM runs WHERE id = ANY(:ids) AND {text.RESUMES} AND {CLAIMABLE} ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
  {TAKEN.format(also="")}
"""
TAKE_SHARES = f"""
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
    """The part of one claim that is about queues, in transactions of its own. `values` are those of the whole claim.

    `statements` are for taking from queues: by the order in which runs wait, or by the names of their functions.

    Questions that do not depend on each other's answers are asked in one round trip: a thread that has waited for an answer
    waits once more for its turn among the others of its process.
    """

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        request: ClaimRequest,
        values: dict[str, Value],
        statements: Statements,
    ) -> None:
        self._text = statements
        self._db = connection
        self._sql = dialect
        self.request = request
        """As it was asked; once runs go on, with those among what the worker has."""
        heard = None if request.queues is None else array(request.queues)
        self._values = values | {"heard": heard, "schema": dialect.name}
        self._begun = False
        self.more = self.short = False
        self.passed: list[str] = []
        """Queues that another claim has locked."""

    def resume(self, room: int) -> list[Row]:
        """Take runs that have begun before and want to go on."""
        (known,) = self._execute((text.QUEUES, {}))
        found = resumable(
            self.request, self._resuming(room + 1), {queue.name: queue for queue in to_queues(known)}, room
        )
        self.short = found.short
        self.request = replace(self.request, mine=found.mine)
        self.more = found.more
        return self._execute((_TAKE_RESUMED, {"ids": array(found.ids)}))[0] if found.ids else []

    def _resuming(self, page: int) -> Iterator[Row]:
        """What wants to go on, first due first, without locks: most of it may be beyond what this worker has places for."""
        due, uid = -1, ""
        while True:
            (rows,) = self._execute((_RESUMED, {"due": due, "uid": uid, "page": page}))
            yield from rows
            if len(rows) < page:
                return
            *_, due, uid = rows[-1]

    def begin(self, demands: Demands, room: int) -> list[Row]:
        """Take runs that the queues admit, of those queues that no other claim has locked."""
        return self._begin(demands, room, [])

    def wait_and_begin(self, demands: Demands, room: int) -> list[Row]:
        """The same of the first queue that was passed over, after a moment of waiting for it."""
        name, *others = self.passed
        wait: list[Asked] = [(_PATIENCE, {"patience": PATIENCE}), (LOCK, {"queue": name})]
        try:
            taken = self._begin(demands, room, wait)
            self.commit()
        except pg.LockNotAvailable:
            roll_back(self._db)
            return []
        self.passed = others
        return taken

    def _begin(self, demands: Demands, room: int, wait: list[Asked]) -> list[Row]:
        allotments = list(self._decided(demands, room, self._lock(demands, room, wait)))
        wanted = [
            {"queue": allotment.queue.name, "partition": share.partition, "count": share.count}
            for allotment in allotments
            for share in allotment.admission.shares
        ]
        rated = any(allotment.queue.windows for allotment in allotments)
        taken = (
            self._execute((self._text.take_shares, {"wanted": json.dumps(wanted)}), last=not rated)[0] if wanted else []
        )
        self._note(allotments, taken)
        self.more = self.more or demands.more
        self.short = self.short or demands.short
        return taken

    def commit(self) -> None:
        """End the transaction, if it is still open."""
        if self._begun:
            self._execute(last=True)

    def _lock(self, demands: Demands, room: int, wait: list[Asked]) -> dict[str, Facts]:
        """Lock the queues whose limits the fleet shares, and find out what is under way and what waits in all of them.

        What is asked goes by what they were like before; where that has changed until they were locked, it is asked again.
        """
        shared: dict[str, Value] = {"names": array(queue.name for queue in demands.queues if queue.shared)}
        found = {queue.name: self._facts(queue, demands) for queue in demands.queues}
        near = [found[queue.name] for queue in demands.queues[:room]]
        limits = [asked for facts in found.values() for asked in facts.of_limits()]
        partitions = [asked for facts in near for asked in facts.of_partitions(room)]
        asked: list[Asked] = [*wait, (_TRY_LOCK, shared), (_KNOWN, shared), (text.EXCEPTIONS, {}), *limits, *partitions]
        names, rows, exceptions, *rest = self._execute(*asked)[len(wait) :]
        answers = iter(rest)
        for facts in found.values():
            facts.hear_limits(answers)
        for facts in near:
            facts.hear_partitions(answers)
        locked = {name for (name,) in names}
        self.passed = [queue.name for queue in demands.queues if queue.shared and queue.name not in locked]
        demands.refresh(to_queues(row for row in rows if row[0] in locked), exceptions)
        for queue in demands.queues:
            if found[queue.name].ahead:
                self._execute((text.CLAMP_STARTS, {"queue": queue.name, "ahead": self.request.now + text.AHEAD}))
            if found[queue.name].ahead or not found[queue.name].answers(queue):
                found[queue.name] = facts = self._facts(queue, demands)
                facts.hear_limits(iter(self._execute(*facts.of_limits())))
        return found

    def _facts(self, queue: Queue, demands: Demands) -> Facts:
        return Facts(queue, demands.turn_of(queue.name), self.request.now, self._text)

    def _decided(self, demands: Demands, room: int, found: dict[str, Facts]) -> Iterable[Allotment]:
        for allotment in demands.each(room):
            facts = found[allotment.queue.name]
            most = allotment.most_partitions(facts.placed, facts.recent)
            if not facts.knows_partitions(most):
                facts.hear_partitions(iter(self._execute(*facts.of_partitions(most))))
            allotment.decide(facts.partitions, facts.placed, facts.recent)
            yield allotment

    def _note(self, allotments: list[Allotment], taken: list[Row]) -> None:
        partitions: dict[str, list[str]] = defaultdict(list)
        for row in taken:
            partitions[row[_COLUMNS["queue"]]].append(row[_COLUMNS["partition"]])
        asked: list[Asked] = []
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
            self._execute(*asked, last=True)

    def _execute(self, *asked: Asked, last: bool = False) -> list[list[Row]]:
        """The rows of each statement. The transaction begins with the first one, and is committed with the `last`."""
        begin: list[Asked] = [] if self._begun else [(each, {}) for each in self._db.begin]
        texts: list[Asked] = [*begin, *asked, *([("COMMIT", {})] if last else [])]
        answers = self._db.wire.execute(*((self._sql.raw(each), self._values | values) for each, values in texts))
        self._begun = not last
        return answers[len(begin) : len(begin) + len(asked)]
