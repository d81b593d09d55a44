"""The statements of a claim on PostgreSQL."""

from __future__ import annotations

from typing import NamedTuple

from mainspring.store.sql import queues as text
from mainspring.store.sql.claims import CLAIMABLE, TAKEN
from mainspring.store.sql.conditions import EXPIRES, LATER, PLACED, PLAIN, RESUMES, WAITS
from mainspring.store.sql.records import RUN_COLUMNS
from mainspring.store.sql.runs import NOTICE_READ


class Statements(NamedTuple):
    """The statements that find and claim waiting runs: runs without a queue, queues, partitions of a queue, and shares of those."""

    known: str
    take: str
    more: str
    waiting: str
    partitions: str
    unpartitioned: str
    take_shares: str
    take_rated: str
    take_ahead: str


# -- conditions ----------------------------------------------------------------------------------------------------------
_CLAIMABLE = f"workflow = ANY(:names) AND {CLAIMABLE.postgres}"
_TAKEN = f"""
  UPDATE runs r SET {TAKEN.postgres}
  WHERE r.ctid = ANY(ARRAY(SELECT place FROM chosen)){{condition}}
  RETURNING {{also}}{", ".join(f"r.{column}" for column in RUN_COLUMNS)}
"""
"""Claims the `chosen` runs, which this statement has locked, so that they stay in their place. A version that was committed since the
statement began is not claimed by it: the next claim finds the run."""
_PLACE = "ctid AS place"
_TAKEN_PLAIN = _TAKEN.format(
    also="""(SELECT count(*) FROM ready) > :limit,
    (SELECT set_config('mainspring.room', (:room::bigint - count(*))::text, true) FROM chosen), """,
    condition="",
)
"""Claims runs without a queue. Also returns whether there are more, and stores the slots that are left for queues (`ROOM`)."""
_TAKEN_SHARES = _TAKEN.format(also="", condition="")
"""Claims runs of queues without a rate."""
_TAKEN_RATED = f"""
  , taken AS ({_TAKEN_SHARES}),
  noted AS (
    INSERT INTO queue_starts (queue, partition, at)
    SELECT queue, partition, greatest(:now, created) FROM taken WHERE queue = ANY(:rated))
  SELECT * FROM taken
"""
"""Claims runs of queues, and records the starts in queues with a rate."""
_SHARES = """wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:wanted::json) AS rows (queue text, partition text, count bigint))"""
"""The shares that the claim policy decided on."""
_AHEAD = """wanted AS MATERIALIZED (
    SELECT q.name AS queue, '' AS partition, greatest(0, least(
      CASE WHEN room.left > 0 THEN greatest(1, room.left / :queues::bigint) ELSE 0 END,
      (q.limits ->> 'worker_concurrency')::bigint - :mine::bigint,
      (q.limits ->> 'concurrency')::bigint - current_setting('mainspring.placed')::bigint)) AS count
    FROM queues q, (SELECT current_setting('mainspring.room')::bigint AS left) room
    WHERE q.name = :queue AND NOT q.paused
      AND ((q.limits ->> 'concurrency') IS NULL OR jsonb_exists(current_setting('mainspring.locked')::jsonb, q.name))
      AND coalesce(q.limits ->> 'rate', q.limits ->> 'partition_concurrency', q.limits ->> 'partition_worker_concurrency',
        q.limits ->> 'partition_rate') IS NULL
      AND NOT EXISTS (SELECT 1 FROM queue_partitions p WHERE p.queue = q.name))"""
"""The shares of runs without a partition, decided here as in `queues/admission.py`, by the limits as they are under the lock."""
_LEFT = """
  AND (SELECT set_config('mainspring.room', (current_setting('mainspring.room')::bigint - count(*))::text, true) FROM chosen) <> ''
"""
"""Stores the slots that are left for the next queue. Always true."""
_HOW = (
    {"wanted": _SHARES, "taken": _TAKEN_SHARES},
    {"wanted": _SHARES, "taken": _TAKEN_RATED},
    {"wanted": _AHEAD, "taken": _TAKEN.format(also="", condition=_LEFT)},
)
"""The parts in which `take_shares`, `take_rated` and `take_ahead` differ."""

# -- any claim -----------------------------------------------------------------------------------------------------------
PROMOTE = f"""
  WITH ripe AS MATERIALIZED (
    SELECT id FROM runs WHERE {LATER} AND due >= :due_floor AND due <= :now
    ORDER BY due LIMIT :most FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE runs SET state = 'queued' WHERE id = ANY(ARRAY(SELECT id FROM ripe))
"""
"""An array, because for a join with so many rows PostgreSQL would read all of a medium-sized table."""
LOOK = f"""
  SELECT
    (SELECT min(due) FROM runs WHERE {LATER} AND due >= :due_floor),
    (SELECT min(deadline) FROM runs
     WHERE {EXPIRES} AND deadline >= :deadline_floor),
    EXISTS (SELECT 1 FROM runs WHERE {RESUMES} AND due >= :resumed_floor)
"""
TIME = """
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint WHERE set_config('plan_cache_mode', 'force_generic_plan', true) <> ''
"""
"""The time. The statements that follow are not planned anew for their parameters, which takes longer than some of them."""
COUNT_PLACED = f"""
  WITH placed AS MATERIALIZED (
    SELECT partition, CASE WHEN attempt_started < :recent THEN id END, count(*) FROM (
      SELECT id, partition, attempt_started FROM runs WHERE {PLACED} AND queue = :queue AND attempt_started >= :since
      UNION ALL
      SELECT id, partition, attempt_started FROM (SELECT * FROM runs WHERE id = ANY(:earlier) OFFSET 0) known
      WHERE {PLACED} AND queue = :queue AND attempt_started < :since) each
    GROUP BY 1, 2)
  SELECT placed.* FROM (SELECT set_config('mainspring.placed', coalesce(sum(count), 0)::text, true) FROM placed) AS total (placed)
  LEFT JOIN placed ON total.placed IS NOT NULL
"""
"""The runs that count towards the concurrency of a queue, by partition.

Those that began before `recent` are returned by id, for the next count (`floors.py`). If there are none, one empty row is returned. The sum
is stored for `take_ahead`. OFFSET makes PostgreSQL find known runs by their ids: by the index of the others it would pass over every run
that has begun since the oldest snapshot.
"""
NOTIFIED = "SELECT id FROM runs WHERE owner = :worker AND needs_attention"
TAKE_NOTIFICATIONS = f"""
  WITH mine AS MATERIALIZED (
    SELECT id FROM runs WHERE owner = :worker AND needs_attention ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE runs SET {NOTICE_READ}
  FROM mine WHERE runs.id = mine.id
  RETURNING runs.id, epoch, state, reason
"""

# -- queues --------------------------------------------------------------------------------------------------------------
TRY_LOCK = f"""
  SELECT name, set_config('mainspring.locked', jsonb_agg(name) OVER ()::text, true) FROM (
    SELECT name FROM unnest(:names::text[]) AS wanted (name) WHERE pg_try_advisory_xact_lock({text.lock_key("name")})
    OFFSET 0) locked
"""
ROOM = """
  SELECT set_config('mainspring.room', coalesce(nullif(current_setting('mainspring.room', true), ''), :room), true),
    set_config('mainspring.locked', '[]', true), set_config('mainspring.placed', '0', true)
"""
"""Stores the number of free slots, unless the claim of runs without a queue has stored it. Locks and counts nothing.

These are settings of the transaction, by which statements that are sent together learn what earlier ones have found.
"""
KNOWN_QUEUES = f"{text.QUEUES} WHERE name = ANY(:names)"
RESUMED = f"""
  SELECT id, queue, partition, due, uid FROM runs
  WHERE {RESUMES} AND {_CLAIMABLE} AND (:listed::text[] IS NULL OR queue = ANY(:listed)) AND (due, uid) > (:due::bigint, :uid)
  ORDER BY due, uid LIMIT :page
"""
TAKE_RESUMED = f"""
  WITH chosen AS MATERIALIZED (
    SELECT {_PLACE} FROM runs WHERE id = ANY(:ids) AND {RESUMES} AND {_CLAIMABLE} ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
  {_TAKEN_SHARES}
"""

# -- waiting runs ----------------------------------------------------------------------------------------------------------
# Waiting runs are in one index, by queue, function and partition: a group. A worker reads the groups of the functions that it knows, so runs of
# other functions, of another team's worker or of one that was renamed, are not in its way. The first runs of each group are merged in the
# right order without locks. Then so many of each are locked and claimed, without those that other claims have locked. No EXISTS: PostgreSQL
# makes a join of it, for which it reads everything. No LIMIT 1 without an order: PostgreSQL may then read the table from the beginning.
_ORDER = "queue, workflow, partition, priority, due, uid"
"""The order of the index. The queue is the same for all rows of a search, but unless it is named, PostgreSQL sorts."""
_LAST = "E'\\U0010FFFF'"
"""Sorts after all names."""
_FULL = f"(SELECT {-(2**63) + 1} AS low, 0 AS since, {2**63 - 1} AS high)"
"""The range of a whole group."""
_ABOVE = "(priority, due) >= ({group}.low, {group}.since) AND priority <= {group}.high"
_FLOORS = """floors AS MATERIALIZED (
    SELECT queue COLLATE "C" AS queue, workflow COLLATE "C" AS workflow, partition COLLATE "C" AS partition, low, since, high
    FROM json_to_recordset(:floors::json)
      AS f (queue text, workflow text, partition text, low bigint, since bigint, high bigint)),
  """
"""The ranges of groups that have floors: see `floors.py`."""
_MOST_PARTITIONS = 1_000


def _walk(column: str, condition: str, low: str = "''", high: str = _LAST) -> str:
    """The distinct values of a column between two others, from value to value in the index."""
    following = f"""
        SELECT {column} AS name FROM runs WHERE {condition} AND {column} > {{after}} AND {column} < {high} ORDER BY {_ORDER} LIMIT 1"""
    return f"""
      WITH RECURSIVE walked (name) AS (
        SELECT * FROM ({following.format(after=low)}) first
        UNION ALL SELECT following.name FROM walked CROSS JOIN LATERAL ({following.format(after="walked.name")}) following)
      SELECT name FROM walked"""


def _between(column: str, known: str, begin: str = "''") -> str:
    """The ranges between known values: from `low` to `high`, without these two."""
    return f"""(
      SELECT name AS low, lead(name, 1, {_LAST}) OVER (ORDER BY name) AS high
      FROM (SELECT {begin} COLLATE "C" AS name UNION ALL SELECT DISTINCT {column} FROM floors WHERE {known}) known)"""


_KNOWN = """known AS MATERIALIZED (
    SELECT queue COLLATE "C" AS queue, name COLLATE "C" AS name
    FROM json_to_recordset(coalesce(:known, current_setting('mainspring.known', true))::json) AS k (queue text, name text))"""
"""What `known` has found: stored in this transaction, or passed from an earlier one."""
_KEY = "priority, due, uid"
_FEW = 4
_LOCK = " FOR NO KEY UPDATE SKIP LOCKED"


class _Search(NamedTuple):
    """How waiting runs are searched for: everything, or from floors."""

    above: bool

    @property
    def begin(self) -> str:
        return _FLOORS if self.above else ""

    def names(self, condition: str, queue: str) -> str:
        """The functions with runs in a queue. With floors: those with a floor, and those found between them."""
        if not self.above:
            return _walk("workflow", condition)
        known = f"queue = {queue}"
        return f"""
      SELECT DISTINCT workflow AS name FROM floors WHERE {known}
      UNION ALL SELECT others.name FROM {_between("workflow", known)} gap
        CROSS JOIN LATERAL ({_walk("workflow", condition, "gap.low", "gap.high")}) others"""

    def ranges(self, queue: str, workflow: str, partition: str) -> str:
        """The ranges of one group, in their order."""
        if not self.above:
            return _FULL
        group = f"FROM floors f WHERE f.queue = {queue} AND f.workflow = {workflow} AND f.partition = {partition}"
        return f"""(
        SELECT f.low, f.since, f.high {group}
        UNION ALL SELECT full_range.* FROM {_FULL} full_range WHERE NOT EXISTS (SELECT 1 {group}))"""

    def known(self) -> str:
        """The functions of the worker with waiting runs, by queue, stored for the statements that are sent together with this one."""
        queues = "queues" if self.above else f"(SELECT queues.name FROM ({_walk('queue', WAITS)}) queues)"
        return f"""
  WITH {self.begin}found AS (
    SELECT '' AS queue, plain.name FROM ({self.names(PLAIN, "''")}) plain
    UNION ALL SELECT each.name, queued.name FROM {queues} each
      CROSS JOIN LATERAL ({self.names(f"{WAITS} AND queue = each.name", "each.name")}) queued)
  SELECT set_config('mainspring.known', coalesce(json_agg(found), '[]')::text, true) FROM found WHERE found.name = ANY(:names::text[])
"""

    # -- runs without a queue ----------------------------------------------------------------------------------------------
    def take(self) -> str:
        return f"""
  WITH {self.begin}{_KNOWN},
  wanted AS MATERIALIZED (SELECT '' AS queue, '' AS partition, :limit::bigint + 1 AS count),
  {self._best(PLAIN)},
  ready AS MATERIALIZED (
    SELECT each.* FROM best
      CROSS JOIN LATERAL {self._first(PLAIN, "best", f"{_PLACE}, {_KEY}", "best.count", lock=_LOCK)} each),
  chosen AS MATERIALIZED (SELECT place FROM ready ORDER BY {_KEY} LIMIT :limit)
  {_TAKEN_PLAIN}
"""

    def more(self) -> str:
        return f"""
  WITH {self.begin}{_KNOWN}
  SELECT 1 FROM (SELECT queue, '' AS partition, name AS workflow FROM known WHERE queue = '') groups
    CROSS JOIN LATERAL {self._first(PLAIN, "groups", "1", "1")} each LIMIT 1
"""

    def _first(self, waits: str, group: str, columns: str, limit: str, *, also: str = "", lock: str = "") -> str:
        """The first runs of a group that the worker can claim, range by range."""
        return f"""(
        SELECT run.* FROM {self.ranges(f"{group}.queue", f"{group}.workflow", f"{group}.partition")} f CROSS JOIN LATERAL (
          SELECT {columns} FROM runs WHERE {waits} AND workflow = {group}.workflow AND partition = {group}.partition
            AND {_ABOVE.format(group="f")} AND {CLAIMABLE.postgres}{also}
          ORDER BY {_ORDER} LIMIT {limit}{lock}) run
        LIMIT {limit})"""

    def _best(self, waits: str) -> str:
        """How many runs of each group are among the first that are `wanted` in a partition, all groups of it together.

        If there is one group, nothing is read. Of many groups, some more than its equal part of each is read first. The last that would be taken of those is a bound
        for what may come of the rest, so that no more of each group are read than needed.
        """
        after = f" AND ({_KEY}) > (ends.priority, ends.due, ends.uid)"
        bound = (
            f" AND ({_KEY}) < (coalesce(bound.priority, {2**63 - 1}), coalesce(bound.due, 0), coalesce(bound.uid, ''))"
        )
        return f"""wanted_of AS MATERIALIZED (
    SELECT wanted.*, array_agg(known.name) AS workflows FROM wanted JOIN known USING (queue)
    WHERE wanted.count > 0 GROUP BY wanted.queue, wanted.partition, wanted.count),
  best AS MATERIALIZED (
    SELECT queue, partition, workflows[1] AS workflow, count FROM wanted_of WHERE cardinality(workflows) = 1
    UNION ALL
    SELECT first.queue, first.partition, first.workflow, count(*)
    FROM wanted_of wanted CROSS JOIN LATERAL (
      WITH mine AS MATERIALIZED (
        SELECT wanted.queue, wanted.partition, workflow,
          CASE WHEN cardinality(wanted.workflows) > {_FEW} THEN 5 * wanted.count / (4 * cardinality(wanted.workflows)) + 4 ELSE wanted.count END AS chunk
        FROM unnest(wanted.workflows) AS each (workflow)),
      begun AS MATERIALIZED (
        SELECT mine.*, each.* FROM mine CROSS JOIN LATERAL {self._first(waits.format("mine"), "mine", _KEY, "mine.chunk")} each),
      bound AS MATERIALIZED (SELECT {_KEY} FROM begun ORDER BY {_KEY} OFFSET wanted.count - 1 LIMIT 1),
      ends AS MATERIALIZED (
        SELECT DISTINCT ON (workflow) begun.*, count(*) OVER (PARTITION BY workflow) AS found
        FROM begun ORDER BY workflow, priority DESC, due DESC, uid DESC),
      further AS MATERIALIZED (
        SELECT ends.queue, ends.partition, ends.workflow, each.* FROM ends LEFT JOIN bound ON true
          CROSS JOIN LATERAL {self._first(waits.format("ends"), "ends", _KEY, "wanted.count", also=after + bound)} each
        WHERE ends.found = ends.chunk AND coalesce((ends.priority, ends.due, ends.uid) < (bound.priority, bound.due, bound.uid), true))
      SELECT queue, partition, workflow FROM (
        SELECT queue, partition, workflow, {_KEY} FROM begun UNION ALL SELECT * FROM further) all_of_them
      ORDER BY {_KEY} LIMIT wanted.count) first
    WHERE cardinality(wanted.workflows) > 1
    GROUP BY 1, 2, 3)"""

    # -- queues --------------------------------------------------------------------------------------------------------------
    def _fits(self, partition: str) -> str:
        """Whether there is a run that the worker can claim in a partition of `:queue`."""
        return f"""(
    SELECT 1 FROM known CROSS JOIN LATERAL {self.ranges(":queue", "known.name", partition)} f CROSS JOIN LATERAL (
      SELECT 1 FROM runs WHERE {WAITS} AND queue = :queue AND workflow = known.name AND runs.partition = {partition}
        AND {_ABOVE.format(group="f")} AND {CLAIMABLE.postgres}
      ORDER BY {_ORDER} LIMIT 1) each WHERE known.queue = :queue LIMIT 1)"""

    def waiting(self) -> str:
        """The queues with waiting runs."""
        if not self.above:
            return f"WITH {_KNOWN} {text.QUEUES} WHERE name IN (SELECT queue FROM known)"
        waits = f"SELECT 1 FROM runs WHERE {WAITS} AND queue = queues.name AND"
        return f"""
  WITH {self.begin}gaps AS MATERIALIZED (
    SELECT queue, workflow, partition, lead(workflow, 1, {_LAST}) OVER in_order AS next_workflow, lead(partition, 1, '') OVER in_order AS next_partition
    FROM (SELECT DISTINCT queue, workflow, partition FROM floors UNION ALL SELECT name, '', '' FROM queues) known
    WINDOW in_order AS (PARTITION BY queue ORDER BY workflow, partition))
  SELECT {", ".join(f"queues.{column}" for column in text.QUEUE_COLUMNS)} FROM queues
  WHERE (SELECT 1 FROM floors f CROSS JOIN LATERAL (
      {waits} workflow = f.workflow AND partition = f.partition AND {_ABOVE.format(group="f")} ORDER BY {_ORDER} LIMIT 1) each
    WHERE f.queue = queues.name LIMIT 1) IS NOT NULL
  OR (SELECT 1 FROM gaps CROSS JOIN LATERAL (
      {waits} (workflow, partition) > (gaps.workflow, gaps.partition)
        AND (workflow, partition) < (gaps.next_workflow, gaps.next_partition) ORDER BY {_ORDER} LIMIT 1) each
    WHERE gaps.queue = queues.name LIMIT 1) IS NOT NULL
"""

    def partitions(self) -> str:
        """The partitions of a queue with runs that the worker can claim, after a given one, in order.

        Partitions without such a run are skipped: a slot offered to them would stay empty. Without floors, rows are produced as they are
        read, so that no more partitions are searched than needed.
        """
        if not self.above:
            following = f"""
        SELECT partition AS name FROM runs WHERE {WAITS} AND queue = :queue AND workflow = known.name AND partition > {{after}}
          AND {CLAIMABLE.postgres} ORDER BY {_ORDER} LIMIT 1"""
            return f"""
  WITH {_KNOWN}
  SELECT DISTINCT each.name FROM known CROSS JOIN LATERAL (
    WITH RECURSIVE found (name) AS (
      SELECT * FROM ({following.format(after=":after")}) first
      UNION ALL SELECT following.name FROM found CROSS JOIN LATERAL ({following.format(after="found.name")}) following)
    SELECT name FROM found LIMIT :most) each
  WHERE known.queue = :queue ORDER BY each.name LIMIT :most
"""
        group = "queue = :queue AND workflow = known.name AND partition > :after"
        others = _walk("partition", f"{WAITS} AND queue = :queue AND workflow = known.name", "gap.low", "gap.high")
        return f"""
  WITH {self.begin}{_KNOWN},
  found AS MATERIALIZED (
    SELECT partition AS name FROM floors WHERE queue = :queue AND partition > :after
    UNION SELECT others.name FROM known CROSS JOIN LATERAL {_between("partition", group, ":after::text")} gap
      CROSS JOIN LATERAL ({others} LIMIT {_MOST_PARTITIONS}) others WHERE known.queue = :queue)
  SELECT name FROM (SELECT name FROM found ORDER BY name OFFSET 0) found WHERE {self._fits("found.name")} IS NOT NULL LIMIT :most
"""

    def unpartitioned(self) -> str:
        return f"WITH {self.begin}{_KNOWN} {self._fits(chr(39) * 2)}"

    def take_shares(self, wanted: str, taken: str) -> str:
        waits = f"{WAITS} AND queue = {{}}.queue"
        return f"""
  WITH {self.begin}{_KNOWN},
  {wanted},
  {self._best(waits)},
  chosen AS MATERIALIZED (
    SELECT each.place FROM best CROSS JOIN LATERAL {self._first(waits.format("best"), "best", _PLACE, "best.count", lock=_LOCK)} each)
  {taken}
"""

    def statements(self) -> Statements:
        return Statements(
            *(self.known(), self.take(), self.more(), self.waiting(), self.partitions(), self.unpartitioned()),
            *(self.take_shares(**how) for how in _HOW),
        )


FULL = _Search(above=False).statements()
ABOVE_FLOORS = _Search(above=True).statements()
"""For use while full searches are slow."""
