"""Claim runs, and take notifications about owned ones.

Both change rows and return what they changed. If the connection is lost while that commits, the answer is lost although the change may
have been made; the worker then looks for the runs that it owns.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.model.clock import SystemClock
from mainspring.model.runs import Claim
from mainspring.model.states import State
from mainspring.store.changes import Notice
from mainspring.store.postgres import claim_statements as sql
from mainspring.store.postgres.database import LOCKED, roll_back
from mainspring.store.postgres.executor import wait_for
from mainspring.store.postgres.floors import PLAIN, Floors
from mainspring.store.postgres.libpq import array
from mainspring.store.postgres.queue_claims import Queued
from mainspring.store.protocol import Claimed
from mainspring.store.sql.queues import EXCEPTIONS, NAMES, to_exceptions, to_queue_with, to_queues
from mainspring.store.sql.records import to_run, to_step
from mainspring.store.transaction import Blocked

if TYPE_CHECKING:
    from mainspring.model.runs import Run, Step
    from mainspring.store.postgres.database import Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.postgres.libpq import Row, Value
    from mainspring.store.protocol import ClaimRequest
    from mainspring.store.queues import Demands

_CLOCK = SystemClock()
_MOST_PROMOTED = 1_000


class Claims:
    """The two verbs of a worker that hand out what they change."""

    def __init__(self, database: Database, dialect: Dialect) -> None:
        self._db = database
        self._sql = dialect
        self._count = 0
        self._turns: dict[str, str] = {}
        self._beside_queues: set[str] = set()
        """Workers whose last claim found runs waiting in queues: their next one leaves room for those."""
        self._floors: dict[tuple[Any, ...], Floors] = {}
        self._strangers: set[tuple[str, frozenset[str]]] = set()
        """Workers, and what they asked for, whose last claim found runs of other functions waiting: their next one goes by names."""

    def drop_floors(self) -> None:
        """Have the next claims look at everything: runs became ready that may have been due for long. From any thread."""
        for floors in list(self._floors.values()):
            floors.drop()

    # -- claims --------------------------------------------------------------------------------------------------------
    def claim(self, request: ClaimRequest) -> Claimed:
        """Take runs without a queue, in one round trip, then what the queues admit: nothing that another claim holds of a queue
        holds up runs without one.

        Where the second part fails, the worker does not learn what it has taken before, as where an answer gets lost.
        """
        self._count += 1
        limit = request.limit
        plain = request.policy.half(limit, self._count) if request.worker in self._beside_queues else limit
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
        able = frozenset((method, frozenset(names)) for method, names in request.instances.items())
        floors = self._floors.setdefault((*asker, able, request.queues), Floors())
        above = floors.begin(_CLOCK.monotonic()) and not by_names
        statements = sql.BY_NAME if by_names else sql.ABOVE_FLOORS if above else sql.IN_ORDER
        values |= {"floors": floors.ranges() if above else "[]", "due_floor": floors.due}
        asked = [
            sql.PROMOTE,
            statements.take if plain else statements.more,
            sql.TIME,
            sql.LOOK,
            statements.waiting,
            EXCEPTIONS,
            sql.NO_NAMES if above else NAMES,
            sql.TIME,
        ]
        with self._db.connection() as db:
            try:
                _, rows, ((began,),), ((due, resumes),), waiting, exceptions, names, ((done,),) = db.wire.execute(
                    *((self._sql.raw(each), values) for each in asked)
                )
                if not above:
                    floors.looked_at_all(done - began, _CLOCK.monotonic())
                if due is None or due > request.now:
                    floors.promoted(request.now)
                floors.empty([*(row[0] for row in waiting), *([PLAIN] if rows or not plain else [])])
                taken = [to_run(row[1:]) for row in rows] if plain else []
                floors.taken(PLAIN, ((run.priority, run.due) for run in taken))
                more = rows[0][0] if rows and plain else bool(rows)
                queued = Queued(db, self._sql, request, values, statements, floors=floors)
                if resumes:
                    taken += map(to_run, queued.resume(limit - len(taken)))
                demands = self._demands(queued.request, waiting, exceptions)
                if demands:
                    taken += map(to_run, queued.begin(demands, limit - len(taken)))
                queued.commit()
                if queued.passed and not taken:
                    demands = demands.alone(queued.passed[0])
                    taken += map(to_run, queued.wait_and_begin(demands, limit))
            except LOCKED:
                roll_back(db)
                raise
        if not all(name in request.functions for (name,) in names):
            self._strangers.add(asker)
        elif not above:
            self._strangers.discard(asker)
        claims = self._with_steps(sorted(taken, key=lambda run: (run.priority, run.due, run.uid)))
        times = [when for when in (due, demands.again) if when is not None]
        next_due = min(times, default=None)
        return Claimed(claims, next_due, more or queued.more, queued.short, demands.held, bool(queued.passed))

    def _demands(self, request: ClaimRequest, waiting: list[Row], exceptions: list[Row]) -> Demands:
        by_queue = to_exceptions(exceptions)
        queues = [to_queue_with(queue, by_queue) for queue in to_queues(waiting)]
        demands = request.policy.divide(request, queues, self._count, self._turns)
        if demands:
            self._beside_queues.add(request.worker)
        else:
            self._beside_queues.discard(request.worker)
        return demands

    def _with_steps(self, runs: list[Run]) -> list[Claim]:
        """A run that was claimed before comes with what it recorded. Its owner before cannot add to that any more."""
        again = [run.id for run in runs if run.epoch > 1]
        steps: dict[str, list[Step]] = {}
        if again:
            with self._db.connection() as db:
                for row in db.execute(self._sql(sql.STEPS_OF), {"runs": again}):
                    steps.setdefault(row[0], []).append(to_step(row))
        return [Claim(run, steps.get(run.id, [])) for run in runs]

    # -- notices -------------------------------------------------------------------------------------------------------
    def notices(self, worker: str) -> list[Notice]:
        """One round trip, unless another transaction has one of the runs locked."""
        found: list[Notice] = []
        asked = [(self._sql.raw(each), {"worker": worker}) for each in (sql.TAKE_NOTIFICATIONS, sql.NOTIFIED)]
        with self._db.connection() as db:
            while True:
                rows, left = db.wire.execute(*asked)
                found += [Notice(run, epoch, State(state), reason) for run, epoch, state, reason in rows]
                if not left:
                    return found
                if not rows:
                    wait_for(db, self._sql, Blocked([left[0][0]]))
