"""The statements that end or free runs from outside: retire, cancel, terminate, expire."""

from __future__ import annotations

from mainspring.store.sqlite.batch import AWAITED_END

RETIRE = f"""
  UPDATE runs SET owner = NULL, poked = 0,
    state = CASE state
      WHEN 'running' THEN CASE WHEN recoveries >= :most THEN 'failed' ELSE 'queued' END
      WHEN 'waiting' THEN CASE WHEN poked OR {AWAITED_END} THEN 'queued' ELSE 'waiting' END
      WHEN 'cancelling' THEN 'cancelled' ELSE state END,
    due = CASE WHEN state = 'running' OR (state = 'waiting' AND (poked OR {AWAITED_END})) THEN min(due, :now) ELSE due END,
    reason = CASE WHEN state = 'running' AND recoveries >= :most THEN 'recovery exhausted' ELSE reason END,
    error = CASE WHEN state = 'running' AND recoveries >= :most THEN :exhausted ELSE error END,
    completed = CASE WHEN state = 'cancelling' OR (state = 'running' AND recoveries >= :most) THEN :now ELSE completed END,
    recoveries = CASE WHEN state = 'running' THEN recoveries + 1 ELSE recoveries END
  WHERE owner = :worker RETURNING id, state
"""
TREE = """
  WITH RECURSIVE tree (id) AS (
    SELECT value FROM json_each(:ids) UNION SELECT runs.id FROM runs JOIN tree ON runs.parent = tree.id)
"""
CANCEL_IN_HAND = f"""{TREE}
  UPDATE runs SET state = 'cancelling', reason = :reason, poked = 1
  WHERE id IN (SELECT id FROM tree) AND owner IS NOT NULL AND kind = 'workflow' AND state IN ('running', 'waiting')
  RETURNING id, owner
"""
CANCEL_AT_ONCE = f"""{TREE}
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, owner = NULL, poked = 0
  WHERE id IN (SELECT id FROM tree) AND state IN ('scheduled', 'queued', 'running', 'waiting')
    AND (owner IS NULL OR kind <> 'workflow')
  RETURNING id
"""
TERMINATE = f"""{TREE}
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, epoch = epoch + 1,
    poked = CASE WHEN owner IS NULL THEN 0 ELSE 1 END
  WHERE id IN (SELECT id FROM tree) AND state IN ('scheduled', 'queued', 'running', 'waiting', 'cancelling')
  RETURNING id, owner
"""
EXPIRE = """
  UPDATE runs SET state = 'cancelled', reason = 'timeout', completed = :now
  WHERE deadline <= :now AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting') RETURNING id
"""
