"""The statements of a claim on PostgreSQL."""

from __future__ import annotations

from typing import NamedTuple

from mainspring.store.sql import queues as text
from mainspring.store.sql.records import RUN_COLUMNS, STEP_COLUMNS
from mainspring.store.sql.runs import ENDED, POSTGRES_INSTANCE


class Statements(NamedTuple):
    """The statements that find and claim waiting runs: runs without a queue, queues, partitions of a queue, and shares of those."""

    take: str
    more: str
    waiting: str
    partitions: str
    unpartitioned: str
    take_shares: str
    take_ahead: str


# -- conditions ----------------------------------------------------------------------------------------------------------
_FITTING = f"""(:compatible OR fingerprint = '' OR fingerprint = (SELECT :functions::jsonb) ->> workflow
        OR (SELECT :functions::jsonb) ->> workflow LIKE 'patched-%')
      AND (version IS NULL OR version = :version OR fingerprint <> '')
      AND CASE WHEN workflow = ANY(:methods::text[]) THEN coalesce({POSTGRES_INSTANCE} = ANY(:instances::text[]), true) ELSE true END
      AND (blocked IS NULL OR (json_typeof(blocked -> 'versions') = 'array'
        AND NOT jsonb_exists(blocked::jsonb -> 'versions', :version)))
"""
"""The functions are a subquery, which is evaluated once per statement. A plain parameter would be evaluated once per run."""
_CLAIMABLE = f"workflow = ANY(:names) AND {_FITTING}"
_FITS = f"""(
    SELECT 1 FROM runs WHERE {text.WAITS} AND queue = :queue AND partition = {{partition}} AND {_CLAIMABLE}
    ORDER BY queue, partition, priority, due, uid LIMIT 1)"""
"""The order is that of the index. Without it, PostgreSQL may read the table from the beginning."""
_PARTITIONS = text.partitions(f"{_FITS.format(partition='found.name')} IS NOT NULL")
_UNPARTITIONED = _FITS.format(partition="''")
_TAKEN = f"""
  UPDATE runs r SET state = 'running', owner = :worker, epoch = epoch + 1, needs_attention = false,
    kind = coalesce((SELECT :kinds::jsonb) ->> r.workflow, kind),
    blocked = CASE WHEN json_array_length(blocked -> 'versions') > 0 THEN blocked END,
    started = coalesce(started, greatest(created, :now)), attempt_started = coalesce(attempt_started, :now),
    attempts = CASE WHEN attempt_started IS NULL THEN attempts + 1 ELSE greatest(attempts, 1) END, began_epoch = CASE WHEN attempt_started IS NULL THEN epoch + 1 ELSE began_epoch END,
    version = coalesce(version, :version),
    fingerprint = CASE WHEN fingerprint = '' THEN (SELECT :functions::jsonb) ->> r.workflow ELSE fingerprint END,
    deadline = CASE WHEN attempt_started IS NULL AND timeout IS NOT NULL THEN least(deadline, :now + timeout) ELSE deadline END,
    retry = coalesce(retry, (SELECT q.retry FROM queues q WHERE q.name = r.queue))
  WHERE r.id = ANY(ARRAY(SELECT id FROM chosen))
  RETURNING {{also}}{", ".join(f"r.{column}" for column in RUN_COLUMNS)}
"""
"""Claims the `chosen` runs. An array, because for a join PostgreSQL would read all of a medium-sized table."""
_TAKEN_PLAIN = _TAKEN.format(
    also="""(SELECT count(*) FROM ready) > :limit,
    (SELECT set_config('mainspring.room', (:room::bigint - count(*))::text, true) FROM chosen), """
)
"""Claims runs without a queue. Also returns whether there are more, and stores the slots that are left for queues (`ROOM`)."""
_TAKEN_SHARES = f"""
  , taken AS ({_TAKEN.format(also="")}),
  noted AS (
    INSERT INTO queue_starts (queue, partition, at)
    SELECT queue, partition, greatest(:now, created) FROM taken WHERE queue = ANY(:rated))
  SELECT * FROM taken {{left}}
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
  WHERE (SELECT set_config('mainspring.room', (current_setting('mainspring.room')::bigint - count(*))::text, true) FROM chosen) <> ''
"""
"""Stores the slots that are left for the next queue. Always true."""
_HOW = ({"wanted": _SHARES, "left": ""}, {"wanted": _AHEAD, "left": _LEFT})
"""The parts in which `take_shares` and `take_ahead` differ."""

# -- any claim -----------------------------------------------------------------------------------------------------------
PROMOTE = """
  WITH ripe AS MATERIALIZED (
    SELECT id FROM runs WHERE owner IS NULL AND state IN ('scheduled', 'waiting') AND due >= :due_floor AND due <= :now
    ORDER BY due LIMIT :most FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE runs SET state = 'queued' WHERE id = ANY(ARRAY(SELECT id FROM ripe))
"""
"""An array, because for a join with so many rows PostgreSQL would read all of a medium-sized table."""
_TAKE = f"""
  WITH ready AS MATERIALIZED (
    SELECT id, priority, due, uid FROM runs WHERE state = 'queued' AND queue IS NULL AND {_CLAIMABLE}
    ORDER BY priority, due, uid LIMIT :limit::bigint + 1 FOR NO KEY UPDATE SKIP LOCKED),
  chosen AS MATERIALIZED (SELECT id FROM ready ORDER BY priority, due, uid LIMIT :limit)
  {_TAKEN_PLAIN}
"""
_MORE = f"SELECT 1 FROM runs WHERE state = 'queued' AND queue IS NULL AND {_CLAIMABLE} LIMIT 1"
LOOK = f"""
  SELECT
    (SELECT min(due) FROM runs WHERE owner IS NULL AND state IN ('scheduled', 'waiting') AND due >= :due_floor),
    (SELECT min(deadline) FROM runs
     WHERE deadline IS NOT NULL AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting') AND deadline >= :deadline_floor),
    EXISTS (SELECT 1 FROM runs WHERE {text.RESUMES} AND due >= :resumed_floor)
"""
NO_NAMES = "SELECT NULL WHERE false"
"""Used instead of the query for functions with waiting runs while that query is slow."""
TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
COUNT_PLACED = f"""
  WITH placed AS MATERIALIZED (
    SELECT partition, CASE WHEN attempt_started < :recent THEN id END, count(*) FROM (
      SELECT id, partition, attempt_started FROM runs WHERE {text.PLACED} AND queue = :queue AND attempt_started >= :since
      UNION ALL
      SELECT id, partition, attempt_started FROM runs
      WHERE id = ANY(:earlier) AND {text.PLACED} AND queue = :queue AND attempt_started < :since) each
    GROUP BY 1, 2)
  SELECT placed.* FROM (SELECT set_config('mainspring.placed', coalesce(sum(count), 0)::text, true) FROM placed) AS total (placed)
  LEFT JOIN placed ON total.placed IS NOT NULL
"""
"""The runs that count towards the concurrency of a queue, by partition.

Those that began before `recent` are returned by id, for the next count (`floors.py`). If there are none, one empty row is returned. The sum
is stored for `take_ahead`.
"""
STEPS_OF = f"""
  SELECT {", ".join(STEP_COLUMNS)} FROM steps WHERE run = ANY(:runs) ORDER BY run, seq IS NULL, seq, position
"""
NOTIFIED = "SELECT id FROM runs WHERE owner = :worker AND needs_attention"
TAKE_NOTIFICATIONS = f"""
  WITH mine AS MATERIALIZED (
    SELECT id FROM runs WHERE owner = :worker AND needs_attention ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE runs SET needs_attention = false, owner = CASE WHEN state IN {ENDED} THEN NULL ELSE owner END
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
PARTITIONED = f"""
  SELECT 1 FROM runs WHERE {text.WAITS} AND queue = :queue AND partition > '' ORDER BY queue, partition, priority, due, uid LIMIT 1
"""
LIMIT_WAITING = "SELECT set_config('lock_timeout', :patience, true)"
KNOWN_QUEUES = f"{text.QUEUES} WHERE name = ANY(:names)"
RESUMED = f"""
  SELECT id, queue, partition, due, uid FROM runs
  WHERE {text.RESUMES} AND {_CLAIMABLE} AND (:listed::text[] IS NULL OR queue = ANY(:listed)) AND (due, uid) > (:due::bigint, :uid)
  ORDER BY due, uid LIMIT :page
"""
TAKE_RESUMED = f"""
  WITH chosen AS MATERIALIZED (
    SELECT id FROM runs WHERE id = ANY(:ids) AND {text.RESUMES} AND {_CLAIMABLE} ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
  {_TAKEN.format(also="")}
"""
_TAKE_SHARES = f"""
  WITH {{wanted}},
  chosen AS MATERIALIZED (
    SELECT each.id FROM wanted CROSS JOIN LATERAL (
      SELECT id FROM runs WHERE {text.WAITS} AND queue = wanted.queue AND partition = wanted.partition AND {_CLAIMABLE}
      ORDER BY priority, due, uid LIMIT wanted.count FOR NO KEY UPDATE SKIP LOCKED) each)
  {_TAKEN_SHARES}
"""
IN_ORDER = Statements(
    *(_TAKE, _MORE, text.WAITING, _PARTITIONS, _UNPARTITIONED),
    *(_TAKE_SHARES.format(**how) for how in _HOW),
)

# -- searches from floors, while full searches are slow: see `floors.py` -----------------------------------------------------
# Partitions are searched from their beginnings.
_FLOORS = """floors AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:floors::json) AS f (queue text, low bigint, due bigint, high bigint)
    ORDER BY queue, low)"""


def _ranges(queue: str, which: str = "true") -> str:
    """The ranges of the index of a queue, in their order. A queue without floors has one range."""
    return f"""(
      SELECT f.low, f.due, f.high FROM floors f WHERE f.queue = {queue} AND {which}
      UNION ALL SELECT {-(2**63) + 1}, 0, {2**63 - 1} WHERE NOT ({which} AND EXISTS (SELECT 1 FROM floors f WHERE f.queue = {queue})))"""


_ABOVE = "(priority, due) >= (f.low, f.due) AND priority <= f.high"
_TAKE_ABOVE = f"""
  WITH {_FLOORS},
  ready AS MATERIALIZED (
    SELECT each.* FROM {_ranges("''")} f CROSS JOIN LATERAL (
      SELECT id, priority, due, uid FROM runs WHERE state = 'queued' AND queue IS NULL AND {_ABOVE} AND {_CLAIMABLE}
      ORDER BY priority, due, uid LIMIT :limit::bigint + 1 FOR NO KEY UPDATE SKIP LOCKED) each
    LIMIT :limit::bigint + 1),
  chosen AS MATERIALIZED (SELECT id FROM ready ORDER BY priority, due, uid LIMIT :limit)
  {_TAKEN_PLAIN}
"""
_MORE_ABOVE = f"""
  WITH {_FLOORS}
  SELECT 1 FROM {_ranges("''")} f CROSS JOIN LATERAL (
    SELECT 1 FROM runs WHERE state = 'queued' AND queue IS NULL AND {_ABOVE} AND {_CLAIMABLE}
    ORDER BY priority, due, uid LIMIT 1) each LIMIT 1
"""


def _first_above(queue: str, condition: str) -> str:
    return f"""
    SELECT 1 FROM {_ranges(queue)} f CROSS JOIN LATERAL (
      SELECT 1 FROM runs WHERE {text.WAITS} AND queue = {queue} AND partition = '' AND {_ABOVE}{condition}
      ORDER BY queue, partition, priority, due, uid LIMIT 1) each LIMIT 1"""


_WAITING_ABOVE = f"""
  WITH {_FLOORS}
  SELECT {", ".join(f"queues.{column}" for column in text.QUEUE_COLUMNS)} FROM queues
  WHERE ({_first_above("queues.name", "")}) IS NOT NULL
    OR (SELECT 1 FROM runs WHERE {text.WAITS} AND queue = queues.name AND partition > ''
        ORDER BY queue, partition, priority, due, uid LIMIT 1) IS NOT NULL
"""
_UNPARTITIONED_ABOVE = f"WITH {_FLOORS} {_first_above(':queue', f' AND {_CLAIMABLE}')}"
_TAKE_SHARES_ABOVE = f"""
  WITH {_FLOORS},
  {{wanted}},
  chosen AS MATERIALIZED (
    SELECT share.id FROM wanted CROSS JOIN LATERAL (
      SELECT each.id FROM {_ranges("wanted.queue", "wanted.partition = ''")} f CROSS JOIN LATERAL (
        SELECT id FROM runs WHERE {text.WAITS} AND queue = wanted.queue AND partition = wanted.partition AND {_ABOVE} AND {_CLAIMABLE}
        ORDER BY priority, due, uid LIMIT wanted.count FOR NO KEY UPDATE SKIP LOCKED) each
      LIMIT wanted.count) share)
  {_TAKEN_SHARES}
"""
ABOVE_FLOORS = Statements(
    *(_TAKE_ABOVE, _MORE_ABOVE, _WAITING_ABOVE, _PARTITIONS, _UNPARTITIONED_ABOVE),
    *(_TAKE_SHARES_ABOVE.format(**how) for how in _HOW),
)

# -- for workers that do not know all functions whose runs wait ------------------------------------------------------------
# The statements above scan the waiting runs in their order and skip those of unknown functions, which is slow if that is most of them: runs
# of another team's worker, or of a function that was renamed. These use the index `runs_name`, function by function, and merge the first
# runs of each in the right order. The number of runs to claim of each is found without locks. Then so many of each are locked and claimed,
# without those that other claims have locked. No EXISTS: PostgreSQL makes a join of it, for which it reads everything. No LIMIT 1 without
# an order: PostgreSQL may then read the table from the beginning.
_PLAIN = "state = 'queued' AND queue IS NULL"
_WAITS_BY_NAME = "state = 'queued' AND coalesce(attempt_started, 0) = 0"
"""The condition of all stores, written so that no other index matches. PostgreSQL would use the index without names, and read all runs."""
_ORDER = "queue, partition, priority, due, uid"
"""The queue is the same for all of them, but unless it is named, PostgreSQL sorts."""

_TAKE_BY_NAME = f"""
  WITH best AS MATERIALIZED (
    SELECT workflow, count(*) AS count FROM (
      SELECT each.* FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
        SELECT workflow, priority, due, uid FROM runs WHERE {_PLAIN} AND workflow = known.name AND {_FITTING}
        ORDER BY {_ORDER} LIMIT :limit::bigint + 1) each
      ORDER BY priority, due, uid LIMIT :limit::bigint + 1) first
    GROUP BY workflow),
  ready AS MATERIALIZED (
    SELECT each.* FROM best CROSS JOIN LATERAL (
      SELECT id, priority, due, uid FROM runs WHERE {_PLAIN} AND workflow = best.workflow AND {_FITTING}
      ORDER BY {_ORDER} LIMIT best.count FOR NO KEY UPDATE SKIP LOCKED) each),
  chosen AS MATERIALIZED (SELECT id FROM ready ORDER BY priority, due, uid LIMIT :limit)
  {_TAKEN_PLAIN}
"""
_MORE_BY_NAME = f"""
  SELECT 1 FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
    SELECT 1 FROM runs WHERE {_PLAIN} AND workflow = known.name AND {_FITTING} ORDER BY {_ORDER} LIMIT 1) each LIMIT 1
"""
_WAITING_BY_NAME = f"""{text.WAITING}
  WHERE (
    SELECT 1 FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
      SELECT 1 FROM runs WHERE {_WAITS_BY_NAME} AND queue = queues.name AND workflow = known.name
      ORDER BY {_ORDER} LIMIT 1) each LIMIT 1) IS NOT NULL
"""
_NEXT_PARTITION_BY_NAME = f"""
  SELECT min(each.partition) FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
    SELECT min(runs.partition) AS partition FROM runs
    WHERE {_WAITS_BY_NAME} AND queue = :queue AND workflow = known.name AND runs.partition > {{after}}) each
"""
_FITS_BY_NAME = f"""(
  SELECT 1 FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
    SELECT 1 FROM runs WHERE {_WAITS_BY_NAME} AND queue = :queue AND partition = {{partition}} AND workflow = known.name AND {_FITTING}
    ORDER BY {_ORDER} LIMIT 1) each LIMIT 1)
"""
_PARTITIONS_BY_NAME = text.partitions(
    f"{_FITS_BY_NAME.format(partition='found.name')} IS NOT NULL", _NEXT_PARTITION_BY_NAME
)
_UNPARTITIONED_BY_NAME = _FITS_BY_NAME.format(partition="''")
_SHARED = f"{_WAITS_BY_NAME} AND queue = {{of}}.queue AND partition = {{of}}.partition"
_TAKE_SHARES_BY_NAME = f"""
  WITH {{wanted}},
  best AS MATERIALIZED (
    SELECT wanted.queue, wanted.partition, first.workflow, count(*) AS count
    FROM wanted CROSS JOIN LATERAL (
      SELECT each.* FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
        SELECT workflow, priority, due, uid FROM runs
        WHERE {_SHARED.format(of="wanted")} AND workflow = known.name AND {_FITTING}
        ORDER BY priority, due, uid LIMIT wanted.count) each
      ORDER BY priority, due, uid LIMIT wanted.count) first
    GROUP BY wanted.queue, wanted.partition, first.workflow),
  chosen AS MATERIALIZED (
    SELECT each.id FROM best CROSS JOIN LATERAL (
      SELECT id FROM runs WHERE {_SHARED.format(of="best")} AND workflow = best.workflow AND {_FITTING}
      ORDER BY priority, due, uid LIMIT best.count FOR NO KEY UPDATE SKIP LOCKED) each)
  {_TAKEN_SHARES}
"""
BY_NAME = Statements(
    *(_TAKE_BY_NAME, _MORE_BY_NAME, _WAITING_BY_NAME, _PARTITIONS_BY_NAME, _UNPARTITIONED_BY_NAME),
    *(_TAKE_SHARES_BY_NAME.format(**how) for how in _HOW),
)
