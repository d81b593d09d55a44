"""Claim runs from queues on PostgreSQL, inside the transaction of a claim.

Queues whose limits the fleet shares are locked first, as far as they are free. Later statements count the running runs: under READ
COMMITTED each of them sees what was committed before it began, so that the previous holder of the lock is counted. A claim that has locked
a queue waits for nothing. A claim that has claimed nothing waits a moment for one queue, holding none.

Most queues are simple (`is_simple`). If such a queue had more runs than a claim could take, the next claim will find some as well. It sends
all statements at once and lets the database decide how many to claim (`Ahead`), so that the lock is held for no round trip. In all other
cases that is decided here, after a first round trip for locks and counts, and a second one claims runs and commits.

The lock is an advisory one for the name of the queue, not its row: a session that has locked the row, an operator's or that of a backup,
delays nothing. The lock ends with the transaction, and the transaction with the process (`database.py`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace
from psycopg import errors as pg

from mainspring.model.clock import CLOCK_ERROR
from mainspring.store.postgres import claim_statements as statements
from mainspring.store.postgres.database import roll_back
from mainspring.store.postgres.libpq import array
from mainspring.store.sql import queues as text
from mainspring.store.sql.records import RUN_COLUMNS
from mainspring.store.transaction import LIMIT_WAITING, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainspring.model.queues import Queue
    from mainspring.queues.admission import Recent
    from mainspring.queues.fairness import Allotment, Demands
    from mainspring.store.postgres.claim_statements import Statements
    from mainspring.store.postgres.database import Connection
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.postgres.floors import Floors, Group
    from mainspring.store.postgres.libpq import Row, Value
    from mainspring.store.protocol import ClaimRequest

Asked: TypeAlias = "tuple[str, dict[str, Value]]"
_COLUMNS = {name: number for number, name in enumerate(RUN_COLUMNS)}
_group = itemgetter(*(_COLUMNS[name] for name in ("queue", "workflow", "partition")))
_place = itemgetter(_COLUMNS["priority"], _COLUMNS["due"])


class Queued:
    """The part of one claim that claims from queues, in transactions of its own. `values` are those of the whole claim.

    `statements` search everything, or from floors.

    Queries that do not depend on each other are sent in one round trip: a thread that has waited for a response also waits for the
    interpreter's lock.
    """

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        request: ClaimRequest,
        values: dict[str, Value],
        statements: Statements,
        *,
        floors: Floors,
    ) -> None:
        self._text = statements
        self._floors = floors
        self._db = connection
        self._sql = dialect
        self.request = request
        """The claim request. After `resume`, its runs in memory include the continued ones."""
        listed = None if request.queues is None else array(request.queues)
        self._values = values | {"listed": listed, "schema": dialect.name, "rated": "{}"}
        self._begun = False
        self.more = self.short = False
        self.unpartitioned = False
        """Whether no partition waits in the queues that were searched."""
        self.passed: list[str] = []
        """Queues that another claim has locked."""

    def resume(self, room: int) -> list[Row]:
        """Claim runs that have begun before and are ready to continue."""
        (known,) = self._execute((text.QUEUES, {}))
        queues = {queue.name: queue for queue in text.to_queues(known)}
        seen: list[Row] = []
        found = self.request.policy.resumable(self.request, self._resuming(room + 1, seen), queues, room)
        taken = set(found.ids)
        left = [due for run, *_, due, _ in seen if run not in taken]
        if seen:
            self._floors.resumed(min(left, default=max(due for *_, due, _ in seen)))
        self.short = found.short
        self.request = replace(self.request, mine=found.mine)
        self.more = found.more
        return self._execute((statements.TAKE_RESUMED, {"ids": array(found.ids)}))[0] if found.ids else []

    def _resuming(self, page: int, seen: list[Row]) -> Iterator[Row]:
        """Runs to continue, first due first, without locks: this worker may have no slots for most of them."""
        due, uid = self._floors.times()["resumed_floor"] - 1, ""
        while True:
            (rows,) = self._execute((statements.RESUMED, {"due": due, "uid": uid, "page": page}))
            seen += rows
            yield from rows
            if len(rows) < page:
                return
            *_, due, uid = rows[-1]

    def begin(self, demands: Demands, room: int) -> list[Row]:
        """Claim runs that the queues admit, of those queues that no other claim has locked."""
        return self._begin(demands, room, [])

    def wait_and_begin(self, demands: Demands, room: int) -> list[Row]:
        """Claim from the first queue that was locked, after waiting a moment for its lock."""
        name, *others = self.passed
        wait: list[Asked] = [
            (LIMIT_WAITING, {"patience": PATIENCE}),
            (text.LOCK_QUEUE.postgres, {"queue": name}),
        ]
        try:
            taken = self._begin(demands, room, wait)
            self.commit()
        except pg.LockNotAvailable:
            roll_back(self._db)
            return []
        self.passed = others
        return taken

    def _begin(self, demands: Demands, room: int, wait: list[Asked]) -> list[Row]:
        found = self._lock(demands, room, wait)
        # Runs that began since an earlier moment were counted, so the count is not too low. What begins now is recorded at the present
        # time.
        self.request = self.request.at_present()
        self._values["now"] = self.request.now
        allotments = list(self._decided(demands, room, found))
        wanted = [
            {"queue": allotment.queue.name, "partition": share.partition, "count": share.count}
            for allotment in allotments
            for share in allotment.admission.shares
        ]
        taken = self._take(wanted, [allotment.queue for allotment in allotments]) if wanted else []
        self._took(allotments, taken)
        self.unpartitioned = all(facts.unpartitioned for facts in found.values())
        self.more = self.more or demands.more
        self.short = self.short or demands.short
        return taken

    def _take(self, wanted: list[dict[str, Any]], queues: list[Queue]) -> list[Row]:
        rated = {queue.name: text.swept_before(self.request.now, queue.windows) for queue in queues if queue.windows}
        values: dict[str, Value] = {"wanted": json.dumps(wanted), "rated": array(rated)}
        sweeps: list[Asked] = [
            (text.SWEEP_STARTS, {"queue": queue, "before": before}) for queue, before in rated.items()
        ]
        take = self._text.take_rated if rated else self._text.take_shares
        return self._execute(*sweeps, (take, values), last=True)[-1]

    def commit(self) -> None:
        """Commit the transaction, if it is still open."""
        if self._begun:
            self._execute(last=True)

    def _lock(self, demands: Demands, room: int, wait: list[Asked]) -> dict[str, Facts]:
        """Lock the queues whose limits the fleet shares, and read the counts and waiting partitions of all of them.

        The queries use the limits as read before. If those have changed until the lock was granted, the queries are repeated.
        """
        shared: dict[str, Value] = {"names": array(queue.name for queue in demands.queues if queue.shared)}
        found = {queue.name: self._facts(queue, demands) for queue in demands.queues}
        near = [found[queue.name] for queue in demands.queues[:room]]
        limits = [asked for facts in found.values() for asked in facts.of_limits()]
        partitions = [asked for facts in near for asked in facts.of_partitions(room)]
        asked: list[Asked] = [
            *wait,
            (statements.TRY_LOCK, shared),
            (statements.KNOWN_QUEUES, shared),
            (text.EXCEPTIONS, {}),
            *limits,
            *partitions,
        ]
        names, rows, exceptions, *rest = self._execute(*asked)[len(wait) :]
        answers = iter(rest)
        for facts in found.values():
            facts.take_limits(answers)
        for facts in near:
            facts.take_partitions(answers)
        locked = {name for name, _ in names}
        self.passed = [queue.name for queue in demands.queues if queue.shared and queue.name not in locked]
        queues = text.to_queues(row for row in rows if row[0] in locked)
        demands.refresh(queues, text.to_exceptions(exceptions))
        for queue in demands.queues:
            if found[queue.name].ahead or not found[queue.name].answers(queue):
                found[queue.name] = self._facts_at_present(queue, demands)
            if found[queue.name].ahead:
                self._execute((text.CLAMP_STARTS, {"queue": queue.name, "ahead": self.request.now + CLOCK_ERROR}))
                found[queue.name] = self._facts_at_present(queue, demands)
        return found

    def _facts_at_present(self, queue: Queue, demands: Demands) -> Facts:
        """Count again, at the present time: a claim that has waited for long takes later starts for those of a clock that is ahead."""
        self.request = self.request.at_present()
        self._values["now"] = self.request.now
        facts = self._facts(queue, demands)
        facts.take_limits(iter(self._execute(*facts.of_limits())))
        return facts

    def _facts(self, queue: Queue, demands: Demands) -> Facts:
        return Facts(queue, demands.turn_of(queue.name), self.request.now, self._text, self._floors)

    def _decided(self, demands: Demands, room: int, found: dict[str, Facts]) -> Iterable[Allotment]:
        for allotment in demands.each(room):
            facts = found[allotment.queue.name]
            most = allotment.most_partitions(facts.placed, facts.recent)
            if not facts.knows_partitions(most):
                facts.take_partitions(iter(self._execute(*facts.of_partitions(most))))
            allotment.decide(facts.partitions, facts.placed, facts.recent)
            yield allotment

    def _took(self, allotments: Iterable[Allotment], taken: list[Row]) -> None:
        partitions: dict[str, list[str]] = defaultdict(list)
        for row in taken:
            queue, partition = row[_COLUMNS["queue"]], row[_COLUMNS["partition"]]
            partitions[queue].append(partition)
        self._floors.taken(_places(taken))
        for allotment in allotments:
            order = {share.partition: number for number, share in enumerate(allotment.admission.shares)}
            allotment.took(sorted(partitions[allotment.queue.name], key=order.__getitem__))

    def _execute(self, *asked: Asked, last: bool = False) -> list[list[Row]]:
        """Execute statements and return the rows of each. The transaction begins with the first one, and is committed with the `last`."""
        begin: list[Asked] = [] if self._begun else [(each, {}) for each in self._db.begin]
        texts: list[Asked] = [*begin, *asked, *([("COMMIT", {})] if last else [])]
        answers = self._db.wire.execute(*((self._sql.raw(each), self._values | values) for each, values in texts))
        self._begun = not last
        return answers[len(begin) : len(begin) + len(asked)]


def _places(rows: list[Row]) -> Iterator[tuple[Group, int, int]]:
    """The groups, priorities and due times of claimed runs."""
    return ((_group(row), *_place(row)) for row in rows)


def is_simple(queue: Queue) -> bool:
    """Whether only numbers of runs limit the queue, in the fleet and in one worker."""
    return not (queue.limits.by_partition or queue.limits.rate or queue.exceptions)


class Ahead:
    """Claims runs without a partition from simple queues, in the same round trip in which a claim searches for waiting runs.

    `take_ahead` decides the number as `Allotment` does, by the limits as they are under the lock.
    """

    def __init__(self, request: ClaimRequest, demands: Demands, statements: Statements, floors: Floors) -> None:
        self._request = request
        self._floors = floors
        self._take = statements.take_ahead
        self._partitions = statements.partitions
        self._facts = [Facts(queue, "", request.now, statements, floors) for queue in demands.queues]
        self.demands = demands
        self.passed: list[str] = []
        """Queues that another claim has locked."""
        self.unpartitioned = True
        """Whether no partition waits in any of the queues."""

    @property
    def names(self) -> set[str]:
        return {queue.name for queue in self.demands.queues}

    def asked(self) -> list[Asked]:
        """The statements, to be sent after all others of the claim."""
        queues = self.demands.queues
        if not queues:
            return []
        shared: dict[str, Value] = {"names": array(queue.name for queue in queues if queue.shared)}
        found: list[Asked] = [(statements.ROOM, {}), (statements.TRY_LOCK, shared)]
        for number, (queue, facts) in enumerate(zip(queues, self._facts, strict=True)):
            values: dict[str, Value] = {
                "queue": queue.name,
                "queues": len(queues) - number,
                "mine": sum(self._request.mine.get(queue.name, {}).values()),
                "rated": "{}",
                "after": "",
                "most": 1,
            }
            found += [*facts.of_limits(), (self._take, values), (self._partitions, values)]
        return found

    def taken(self, rows: Iterator[list[Row]], waiting: set[str], room: int) -> list[Row]:
        """The claimed runs, from the responses. `room` is the number of free slots, `waiting` are the queues with waiting runs."""
        if not self._facts:
            return []
        _, names = next(rows), next(rows)
        locked = {name for name, _ in names}
        found: list[Row] = []
        for facts, allotment in zip_longest(self._facts, self.demands.each(room)):
            facts.take_limits(rows)
            taken, partitioned = next(rows), next(rows)
            found += taken
            self.unpartitioned = self.unpartitioned and not partitioned
            if allotment is None:
                continue
            name = allotment.queue.name
            if allotment.queue.shared and name not in locked:
                self.passed.append(name)
            elif name in waiting:
                allotment.decide([""], facts.placed, {})
            allotment.took([""] * len(taken))
            self._floors.taken(_places(taken))
        return found


class Facts:
    """The counts of one queue that its limits need, and its partitions with waiting runs.

    Responses are read in the order of the statements.
    """

    def __init__(self, queue: Queue, turn: str, now: int, statements: Statements, floors: Floors) -> None:
        self._text = statements
        self._floors = floors
        self._name = queue.name
        self._turn = turn
        self._now = now
        self._counts = queue.has_concurrency
        self._windows = sorted(queue.windows)
        self._most = 0
        self._cut_off = True
        self.placed: dict[str, int] = {}
        self.recent: dict[int, Recent] = {}
        self.ahead = False
        """Whether starts were recorded when a clock was ahead."""
        self.partitions: list[str] = []
        """In the order of turns: those after the one served last, runs without a partition, then from the beginning."""

    @property
    def unpartitioned(self) -> bool:
        """Whether no partition waits, if that was queried."""
        return not self._cut_off and self.partitions in ([], [""])

    def answers(self, queue: Queue) -> bool:
        """Whether these are the counts that the limits of the queue need."""
        return (self._counts, self._windows) == (queue.has_concurrency, sorted(queue.windows))

    def of_limits(self) -> list[Asked]:
        counted = self._floors.counted(self._name, self._now)
        counting: dict[str, Value] = {"queue": self._name, "since": counted.since, "earlier": array(counted.earlier)}
        counting["recent"] = self._now - CLOCK_ERROR
        placed: list[Asked] = [(statements.COUNT_PLACED, counting)] if self._counts else []
        recent: list[Asked] = [
            (text.COUNT_RECENT, {"queue": self._name, "after": self._now - per}) for per in self._windows
        ]
        return placed + recent

    def take_limits(self, answers: Iterator[list[Row]]) -> None:
        self.placed = {}
        if self._counts:
            rows = [row for row in next(answers) if row[0] is not None]
            for partition, _, count in rows:
                self.placed[partition] = self.placed.get(partition, 0) + count
            self._floors.count(self._name, self._now - CLOCK_ERROR, [run for _, run, _ in rows if run is not None])
        self.ahead = False
        for per in self._windows:
            rows = next(answers)
            self.recent[per] = text.recent(rows)
            self.ahead = self.ahead or text.ahead(rows, self._now)

    def knows_partitions(self, most: int) -> bool:
        """Whether the partitions are complete, or at least so many."""
        return not self._cut_off or most <= self._most

    def of_partitions(self, most: int) -> list[Asked]:
        self._most = most
        values: dict[str, Value] = {"queue": self._name, "most": most}
        after: Asked = (self._text.partitions, values | {"after": self._turn})
        none: Asked = (self._text.unpartitioned, values)
        return [after, none, (self._text.partitions, values | {"after": ""})] if self._turn else [after, none]

    def take_partitions(self, answers: Iterator[list[Row]]) -> None:
        after, none = next(answers), next(answers)
        first = next(answers) if self._turn else []
        self._cut_off = self._most <= max(len(after), len(first))
        self.partitions = [*(row[0] for row in after), *([""] if none else []), *(row[0] for row in first)]
