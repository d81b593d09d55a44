"""Claim runs, and take notifications about owned ones.

Both change rows and return the changed rows. If the connection is lost during the commit, the response is lost although the change may have
been committed. The worker then looks up the runs that it owns.
"""

from __future__ import annotations

import json
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from mainspring.model.clock import SystemClock
from mainspring.store.postgres import claim_statements as sql
from mainspring.store.postgres.database import LOCKED, roll_back
from mainspring.store.postgres.executor import wait_for
from mainspring.store.postgres.floors import PLAIN, Floors
from mainspring.store.postgres.libpq import array
from mainspring.store.postgres.queue_claims import Ahead, Queued, is_simple
from mainspring.store.protocol import Claimed
from mainspring.store.sql.queues import EXCEPTIONS, to_exceptions, to_queue_with, to_queues
from mainspring.store.sql.records import to_claims, to_notices, to_run
from mainspring.store.sql.steps import STEPS_OF
from mainspring.store.transaction import Blocked

if TYPE_CHECKING:
    from mainspring.model.queues import Queue
    from mainspring.model.runs import Run
    from mainspring.queues.fairness import Demands
    from mainspring.store.changes import Notice
    from mainspring.store.postgres.database import Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.postgres.libpq import Value
    from mainspring.store.protocol import ClaimRequest
    from mainspring.store.transaction import Rows

_CLOCK = SystemClock()
_MOST_PROMOTED = 1_000
_MOST_AHEAD = 5

Kind: TypeAlias = tuple[Any, ...]
"""The key of claims that search the same runs: the worker, and the functions and queues that it can execute."""


_turn = attrgetter("priority", "due", "uid")
"""The order in which claimed runs begin."""


class Claims:
    """The two verbs of a worker that change rows and return them."""

    def __init__(self, database: Database, dialect: Dialect) -> None:
        self._db = database
        self._sql = dialect
        self._count: Counter[Kind] = Counter()
        """The number of claims of each kind. Claims of two kinds may take turns, and each kind serves all queues."""
        self._turns: dict[str, str] = {}
        self._beside_queues: set[Kind] = set()
        """The kinds of claims of which the last one found runs in queues that the worker serves. The next one leaves slots for those."""
        self._floors: dict[Kind, Floors] = {}
        self._busy: dict[Kind, list[Queue]] = {}
        """Queues in which the next claim of a kind will find runs."""
        self._simple: dict[str, Queue] = {}
        """Queues in which claims found only runs without a partition, and only limits that `Ahead` can apply."""
        self._left_none: set[Kind] = set()
        """The kinds of claims of which the last one left no run in a queue."""

    def drop_floors(self) -> None:
        """Let the next claims search everything, because runs became ready that may have been due for long. Thread-safe."""
        for floors in list(self._floors.values()):
            floors.drop()

    # -- claims --------------------------------------------------------------------------------------------------------
    def claim(self, request: ClaimRequest) -> Claimed:
        """Claim runs without a queue and from queues known to be busy, in one round trip, then those that other queues admit.

        A queue that another claim has locked does not delay runs without a queue. If the second part fails, the worker does not learn which
        runs it has claimed, as after a lost response.
        """
        able = frozenset((method, frozenset(names)) for method, names in request.instances.items())
        kind: Kind = (request.worker, frozenset(request.functions), able, request.queues)
        self._count[kind] += 1
        limit, turn = request.limit, self._count[kind]
        plain = request.policy.half(limit, turn) if kind in self._beside_queues else limit
        floors = self._floors.setdefault(kind, Floors())
        above = floors.begin(_CLOCK.monotonic())
        statements = sql.ABOVE_FLOORS if above else sql.FULL
        values = self._values(request, plain) | {
            "floors": floors.ranges() if above else "[]",
            **floors.times(),
        }
        expected = self._busy.pop(kind, None) or self._announced(request, kind)
        busy = request.policy.divide(request, expected, turn, self._turns)
        ahead = Ahead(request, busy, statements, floors)
        asked = [
            sql.PROMOTE,
            sql.TIME,
            statements.known,
            sql.LOOK,
            statements.waiting,
            EXCEPTIONS,
            sql.TIME,
            statements.take if plain else statements.more,
        ]
        with self._db.connection() as db:
            try:
                (
                    _,
                    ((began,),),
                    ((known,),),
                    ((due, deadline, resumes),),
                    waiting,
                    exceptions,
                    ((done,),),
                    rows,
                    *rest,
                ) = db.wire.execute(
                    *((self._sql.raw(each), values) for each in asked),
                    *((self._sql.raw(each), values | own) for each, own in ahead.asked()),
                )
                if not above:
                    floors.searched_all(done - began, _CLOCK.monotonic())
                floors.waiting(due, deadline, request.now)
                floors.empty([*(row[0] for row in waiting), *([PLAIN] if rows or not plain else [])])
                taken = [to_run(row[2:]) for row in rows] if plain else []
                floors.taken(((PLAIN, run.workflow, ""), run.priority, run.due or 0) for run in taken)
                more = rows[0][0] if rows and plain else bool(rows)
                by_queue = to_exceptions(exceptions)
                queues = [to_queue_with(queue, by_queue) for queue in to_queues(waiting)]
                taken += map(to_run, ahead.taken(iter(rest), {queue.name for queue in queues}, limit - len(taken)))
                queued = Queued(db, self._sql, request, values | {"known": known}, statements, floors=floors)
                demands = self._claim_queued(queued, queues, ahead, taken, kind if not resumes else None, turn=turn)
            except LOCKED:
                roll_back(db)
                raise
        if request.policy.divide(request, queues, turn, self._turns):
            self._beside_queues.add(kind)
        else:
            self._beside_queues.discard(kind)
        claims = to_claims(sorted(taken, key=_turn), self._steps)
        times = [when for when in (due, deadline, demands.again) if when is not None]
        found = Claimed(
            claims,
            min(times, default=None),
            more=more or queued.more or busy.more,
            short=queued.short or busy.short,
            held=demands.held or busy.held,
            # Runs of partitions that wait in a queue that was claimed from ahead are for the next claim.
            passed=bool(queued.passed) or not ahead.unpartitioned,
        )
        self._remember(kind, queues, found, unpartitioned=ahead.unpartitioned and (queued.unpartitioned or not demands))
        return found

    def _announced(self, request: ClaimRequest, kind: Kind) -> list[Queue]:
        """Queues to claim from ahead because runs were announced in them, if no other queue may have runs waiting."""
        known = [self._simple[name] for name in request.announced if name in self._simple]
        return known if kind in self._left_none and len(known) <= _MOST_AHEAD else []

    def _remember(self, kind: Kind, queues: list[Queue], found: Claimed, *, unpartitioned: bool) -> None:
        """Remember what the next claim needs to know about queues in which runs are announced."""
        for queue in queues:
            if unpartitioned and is_simple(queue):
                self._simple[queue.name] = queue
            else:
                self._simple.pop(queue.name, None)
        rated = any(queue.windows for queue in queues)  # a rate may have held runs back
        if found.more or found.short or found.held or found.passed or rated:
            self._left_none.discard(kind)
        else:
            self._left_none.add(kind)

    def _values(self, request: ClaimRequest, plain: int) -> dict[str, Value]:
        return {
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
            "room": request.limit,
            "known": None,
            "schema": self._sql.name,
        }

    def _claim_queued(
        self, queued: Queued, queues: list[Queue], ahead: Ahead, taken: list[Run], kind: Kind | None, *, turn: int
    ) -> Demands:
        """Claim the runs of queues that were not claimed ahead, beginning with runs to continue. `kind` is None if there are such runs."""
        request, limit = queued.request, queued.request.limit
        if kind is None:
            taken += map(to_run, queued.resume(limit - len(taken)))
        others = [queue for queue in queues if queue.name not in ahead.names or not is_simple(queue)]
        demands = request.policy.divide(queued.request, others, turn, self._turns)
        if demands:
            taken += map(to_run, queued.begin(demands, limit - len(taken)))
        queued.commit()
        if kind is not None:
            self._to_go_ahead(kind, queues, ahead, demands, queued)
        queued.passed = ahead.passed + queued.passed
        if queued.passed and not taken:
            demands = request.policy.divide(queued.request, queues, turn, self._turns).alone(queued.passed[0])
            taken += map(to_run, queued.wait_and_begin(demands, limit))
        return demands

    def _to_go_ahead(self, kind: Kind, queues: list[Queue], ahead: Ahead, others: Demands, queued: Queued) -> None:
        """Remember queues in which the next claim will find runs, if it can claim from all queues in the same way."""
        found = not others or (queued.unpartitioned and (others.held or queued.more or queued.short))
        if found and ahead.unpartitioned and 0 < len(queues) <= _MOST_AHEAD and all(map(is_simple, queues)):
            self._busy[kind] = queues

    def _steps(self, runs: list[str]) -> Rows:
        """The recorded steps of runs that were claimed before. The previous owner can no longer add to them."""
        with self._db.connection() as db:
            return db.execute(self._sql(STEPS_OF), {"runs": runs}).fetchall()

    # -- notices -------------------------------------------------------------------------------------------------------
    def notices(self, worker: str) -> list[Notice]:
        """Take notifications in one round trip, unless another transaction has locked one of the runs."""
        found: list[Notice] = []
        asked = [(self._sql.raw(each), {"worker": worker}) for each in (sql.TAKE_NOTIFICATIONS, sql.NOTIFIED)]
        with self._db.connection() as db:
            while True:
                rows, left = db.wire.execute(*asked)
                found += to_notices(rows)
                if not left:
                    return found
                if not rows:
                    wait_for(db, self._sql, Blocked([left[0][0]]))
