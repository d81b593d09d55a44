"""Taking runs, and learning what happened to those in hand.

Both change rows and hand out what they changed. If the connection is lost while that commits, the answer is lost although the
change may have been made; whoever asked then looks at what it has in hand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mainspring.model.records import Claim
from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.demands import Demands, half
from mainspring.store.ops import FAR
from mainspring.store.postgres import by_name
from mainspring.store.postgres import statements as text
from mainspring.store.postgres.database import LOCKED, roll_back
from mainspring.store.postgres.queue_facts import Statements
from mainspring.store.postgres.queued import CLAIMABLE, PARTITIONS, TAKE_SHARES, TAKEN, UNPARTITIONED, Queued
from mainspring.store.postgres.queues import to_queues
from mainspring.store.postgres.wire import array
from mainspring.store.protocol import Claimed, Poke
from mainspring.store.queue_rows import to_exceptions, to_queue_with
from mainspring.store.queues import EXCEPTIONS, NAMES, RESUMES, WAITING

if TYPE_CHECKING:
    from mainspring.model.records import Run, Step
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.postgres.wire import Row, Value
    from mainspring.store.protocol import ClaimRequest

_MOST_PROMOTED = 1_000

_PROMOTE = """
  WITH ripe AS MATERIALIZED (
    SELECT id FROM runs WHERE owner IS NULL AND state IN ('scheduled', 'waiting') AND due <= :now
    ORDER BY due LIMIT :most FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE runs SET state = 'queued' WHERE id = ANY(ARRAY(SELECT id FROM ripe))
"""
"""An array, because a join with up to so many rows would make PostgreSQL read all of a table of medium size."""
_TAKE = f"""
  WITH ready AS MATERIALIZED (
    SELECT id, priority, due, uid FROM runs WHERE state = 'queued' AND queue IS NULL AND {CLAIMABLE}
    ORDER BY priority, due, uid LIMIT :limit::bigint + 1 FOR NO KEY UPDATE SKIP LOCKED),
  chosen AS MATERIALIZED (SELECT id FROM ready ORDER BY priority, due, uid LIMIT :limit)
  {TAKEN.format(also="(SELECT count(*) FROM ready) > :limit, ")}
"""
_MORE = f"SELECT 1 FROM runs WHERE state = 'queued' AND queue IS NULL AND {CLAIMABLE} LIMIT 1"
_IN_ORDER = Statements(WAITING, PARTITIONS, UNPARTITIONED, TAKE_SHARES)
_BY_NAME = Statements(by_name.WAITING, by_name.PARTITIONS, by_name.UNPARTITIONED, by_name.TAKE_SHARES)
_LOOK = f"""
  SELECT least(
    (SELECT min(due) FROM runs WHERE owner IS NULL AND state IN ('scheduled', 'waiting') AND due < {FAR}),
    (SELECT min(deadline) FROM runs
     WHERE deadline IS NOT NULL AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting'))),
    EXISTS (SELECT 1 FROM runs WHERE {RESUMES})
"""
_STEPS = f"""
  SELECT {", ".join(sql.STEP_COLUMNS)} FROM steps WHERE run = ANY(:runs) ORDER BY run, seq IS NULL, seq, position
"""
_POKED = "SELECT id FROM runs WHERE owner = :worker AND poked"
_LOOKED_AT = f"""
  WITH mine AS MATERIALIZED (
    SELECT id FROM runs WHERE owner = :worker AND poked ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE runs SET poked = false, owner = CASE WHEN state IN {text.ENDED} THEN NULL ELSE owner END
  FROM mine WHERE runs.id = mine.id
  RETURNING runs.id, epoch, state, reason
"""


class Claims:
    """The two verbs of a worker that hand out what they change."""

    def __init__(self, database: Database, dialect: Dialect) -> None:
        self._db = database
        self._sql = dialect
        self._count = 0
        self._turns: dict[str, str] = {}
        self._beside_queues: set[str] = set()
        """Workers whose last claim found runs waiting in queues: their next one leaves room for those."""
        self._strangers: set[tuple[str, frozenset[str]]] = set()
        """Workers, and what they asked for, whose last claim found runs of other functions waiting: their next one goes by names."""

    # -- claims --------------------------------------------------------------------------------------------------------
    def claim(self, request: ClaimRequest) -> Claimed:
        """Take runs without a queue, in one round trip, then what the queues admit: nothing that another claim holds of a queue
        holds up runs without one.

        Where the second part fails, the worker does not learn what it has taken before, as where an answer gets lost.
        """
        self._count += 1
        limit = request.limit
        plain = half(limit, self._count) if request.worker in self._beside_queues else limit
        values: dict[str, Value] = {
            "names": array(request.functions),
            "functions": json.dumps(dict(request.functions)),
            "kinds": json.dumps(dict(request.kinds)),
            "methods": array(request.instances),
            "instances": array({name for names in request.instances.values() for name in names}),
            "compatible": "true" if request.compatible else "false",
            "version": request.version,
            "limit": plain,
            "worker": request.worker,
            "now": request.now,
            "most": max(_MOST_PROMOTED, request.limit + 1),
        }
        asker = request.worker, frozenset(request.functions)
        by_names = asker in self._strangers
        statements = _BY_NAME if by_names else _IN_ORDER
        take, more_ = (by_name.TAKE, by_name.MORE) if by_names else (_TAKE, _MORE)
        asked = [_PROMOTE, take if plain else more_, _LOOK, statements.waiting, EXCEPTIONS, NAMES]
        with self._db.connection() as db:
            try:
                _, rows, ((due, resumes),), waiting, exceptions, names = db.wire.execute(
                    *((self._sql.raw(each), values) for each in asked)
                )
                taken = [sql.to_run(row[1:]) for row in rows] if plain else []
                more = rows[0][0] if rows and plain else bool(rows)
                queued = Queued(db, self._sql, request, values, statements)
                if resumes:
                    taken += map(sql.to_run, queued.resume(limit - len(taken)))
                demands = self._demands(queued.request, waiting, exceptions)
                if demands:
                    taken += map(sql.to_run, queued.begin(demands, limit - len(taken)))
                queued.commit()
                if queued.passed and not taken:
                    demands = demands.alone(queued.passed[0])
                    taken += map(sql.to_run, queued.wait_and_begin(demands, limit))
            except LOCKED:
                roll_back(db)
                raise
        if all(name in request.functions for (name,) in names):
            self._strangers.discard(asker)
        else:
            self._strangers.add(asker)
        claims = self._with_steps(sorted(taken, key=lambda run: (run.priority, run.due, run.uid)))
        times = [when for when in (due, demands.again) if when is not None]
        next_due = min(times, default=None)
        return Claimed(claims, next_due, more or queued.more, queued.short, demands.held, bool(queued.passed))

    def _demands(self, request: ClaimRequest, waiting: list[Row], exceptions: list[Row]) -> Demands:
        by_queue = to_exceptions(exceptions)
        queues = [to_queue_with(queue, by_queue) for queue in to_queues(waiting)]
        demands = Demands(request, queues, self._count, self._turns)
        if demands:
            self._beside_queues.add(request.worker)
        else:
            self._beside_queues.discard(request.worker)
        return demands

    def _with_steps(self, runs: list[Run]) -> list[Claim]:
        """A run that was in hand before comes with what it recorded. Whoever had it cannot add to that any more."""
        again = [run.id for run in runs if run.epoch > 1]
        steps: dict[str, list[Step]] = {}
        if again:
            with self._db.connection() as db:
                for row in db.execute(self._sql(_STEPS), {"runs": again}):
                    steps.setdefault(row[0], []).append(sql.to_step(row))
        return [Claim(run, steps.get(run.id, [])) for run in runs]

    # -- pokes ---------------------------------------------------------------------------------------------------------
    def pokes(self, worker: str) -> list[Poke]:
        """One round trip, unless somebody has one of the runs just now."""
        found: list[Poke] = []
        asked = [(self._sql.raw(each), {"worker": worker}) for each in (_LOOKED_AT, _POKED)]
        with self._db.connection() as db:
            while True:
                rows, left = db.wire.execute(*asked)
                found += [Poke(run, epoch, State(state), reason) for run, epoch, state, reason in rows]
                if not left:
                    return found
                if not rows:
                    wait_for(db, self._sql, left[0][0])


def wait_for(connection: Connection, dialect: Dialect, run: str) -> None:
    """Wait a moment for somebody to let go of a run, holding nothing meanwhile."""
    try:
        connection.execute(dialect(text.WAIT), {"patience": text.PATIENCE, "id": run})
    except LOCKED:
        return
