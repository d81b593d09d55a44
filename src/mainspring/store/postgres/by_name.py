"""The statements of a claim for workers that do not know all functions whose runs wait.

The others go through what waits in its order and leave out what does not fit, which takes long where that is nearly everything:
the runs of another team's worker, say, or those of a function that was renamed. These go by the index `runs_name`, function by
function, and put together in the right order what they find first of each. How many to take of each is found out without locks;
what is then locked and taken are so many of each, those in the hand of other claims left out. No EXISTS: PostgreSQL makes a join
of it, for which it reads everything; nor LIMIT 1 without an order: it takes its chances with reading from the beginning.
"""

from __future__ import annotations

from mainspring.store import queues as text
from mainspring.store.postgres.queued import FITTING, TAKEN

_PLAIN = "state = 'queued' AND queue IS NULL"
_WAITS = "state = 'queued' AND coalesce(since, 0) = 0"
"""As in all stores, but said so that no other index seems to do: PostgreSQL would take the one without names, and look at all."""
_ORDER = "queue, partition, priority, due, uid"
"""The queue is the same for all of them; PostgreSQL has to be told, or it sorts."""

TAKE = f"""
  WITH best AS MATERIALIZED (
    SELECT workflow, count(*) AS count FROM (
      SELECT each.* FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
        SELECT workflow, priority, due, uid FROM runs WHERE {_PLAIN} AND workflow = known.name AND {FITTING}
        ORDER BY {_ORDER} LIMIT :limit::bigint + 1) each
      ORDER BY priority, due, uid LIMIT :limit::bigint + 1) first
    GROUP BY workflow),
  ready AS MATERIALIZED (
    SELECT each.* FROM best CROSS JOIN LATERAL (
      SELECT id, priority, due, uid FROM runs WHERE {_PLAIN} AND workflow = best.workflow AND {FITTING}
      ORDER BY {_ORDER} LIMIT best.count FOR NO KEY UPDATE SKIP LOCKED) each),
  chosen AS MATERIALIZED (SELECT id FROM ready ORDER BY priority, due, uid LIMIT :limit)
  {TAKEN.format(also="(SELECT count(*) FROM ready) > :limit, ")}
"""
MORE = f"""
  SELECT 1 FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
    SELECT 1 FROM runs WHERE {_PLAIN} AND workflow = known.name AND {FITTING} ORDER BY {_ORDER} LIMIT 1) each LIMIT 1
"""
WAITING = f"""{text.WAITING}
  WHERE (
    SELECT 1 FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
      SELECT 1 FROM runs WHERE {_WAITS} AND queue = queues.name AND workflow = known.name
      ORDER BY {_ORDER} LIMIT 1) each LIMIT 1) IS NOT NULL
"""
_PARTITION_AFTER = f"""
  SELECT min(each.partition) FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
    SELECT min(runs.partition) AS partition FROM runs
    WHERE {_WAITS} AND queue = :queue AND workflow = known.name AND runs.partition > {{after}}) each
"""
_FITS = f"""(
  SELECT 1 FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
    SELECT 1 FROM runs WHERE {_WAITS} AND queue = :queue AND partition = {{partition}} AND workflow = known.name AND {FITTING}
    ORDER BY {_ORDER} LIMIT 1) each LIMIT 1)
"""
PARTITIONS = text.partitions(f"{_FITS.format(partition='found.name')} IS NOT NULL", _PARTITION_AFTER)
UNPARTITIONED = _FITS.format(partition="''")
_SHARED = f"{_WAITS} AND queue = {{of}}.queue AND partition = {{of}}.partition"
TAKE_SHARES = f"""
  WITH wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:wanted::json) AS rows (queue text, partition text, count bigint)),
  best AS MATERIALIZED (
    SELECT wanted.queue, wanted.partition, first.workflow, count(*) AS count
    FROM wanted CROSS JOIN LATERAL (
      SELECT each.* FROM unnest(:names::text[]) AS known (name) CROSS JOIN LATERAL (
        SELECT workflow, priority, due, uid FROM runs
        WHERE {_SHARED.format(of="wanted")} AND workflow = known.name AND {FITTING}
        ORDER BY priority, due, uid LIMIT wanted.count) each
      ORDER BY priority, due, uid LIMIT wanted.count) first
    GROUP BY wanted.queue, wanted.partition, first.workflow),
  chosen AS MATERIALIZED (
    SELECT each.id FROM best CROSS JOIN LATERAL (
      SELECT id FROM runs WHERE {_SHARED.format(of="best")} AND workflow = best.workflow AND {FITTING}
      ORDER BY priority, due, uid LIMIT best.count FOR NO KEY UPDATE SKIP LOCKED) each)
  {TAKEN.format(also="")}
"""
