"""The verbs that end or free runs from outside: retire, cancel, terminate, expire."""

from __future__ import annotations

from mainspring.store.postgres.statements import CHILD_ENDED

RETIRE_FIND = "SELECT id FROM runs WHERE owner = :worker"
RETIRE = f"""
  UPDATE runs r SET owner = NULL, poked = false,
    state = CASE state
      WHEN 'running' THEN CASE WHEN recoveries >= :most THEN 'failed' ELSE 'queued' END
      WHEN 'waiting' THEN CASE WHEN poked OR {CHILD_ENDED} THEN 'queued' ELSE 'waiting' END
      WHEN 'cancelling' THEN 'cancelled' ELSE state END,
    due = CASE WHEN state = 'running' OR (state = 'waiting' AND (poked OR {CHILD_ENDED})) THEN least(due, :now) ELSE due END,
    reason = CASE WHEN state = 'running' AND recoveries >= :most THEN 'recovery exhausted' ELSE reason END,
    error = CASE WHEN state = 'running' AND recoveries >= :most THEN :exhausted::json ELSE error END,
    completed = CASE WHEN state = 'cancelling' OR (state = 'running' AND recoveries >= :most) THEN :now ELSE completed END,
    recoveries = CASE WHEN state = 'running' THEN recoveries + 1 ELSE recoveries END
  WHERE owner = :worker RETURNING id, state
"""
_TREE = """
  WITH RECURSIVE tree (id) AS (
    SELECT id FROM runs WHERE id = ANY(:ids)
    UNION SELECT child.id FROM tree CROSS JOIN LATERAL (SELECT r.id FROM runs r WHERE r.parent = tree.id OFFSET 0) child)
"""
"""The runs and all that descend from them. OFFSET 0 keeps PostgreSQL from reading all of history to find a few children,
which it prefers until it has gathered statistics."""
TREE_FIND = f"{_TREE} SELECT id FROM tree"
CANCEL_IN_HAND = f"""{_TREE}
  UPDATE runs SET state = 'cancelling', reason = :reason, poked = true
  WHERE id = ANY(ARRAY(SELECT id FROM tree)) AND owner IS NOT NULL AND kind = 'workflow' AND state IN ('running', 'waiting')
  RETURNING id, owner
"""
CANCEL_AT_ONCE = f"""{_TREE}
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, owner = NULL, poked = false
  WHERE id = ANY(ARRAY(SELECT id FROM tree)) AND state IN ('scheduled', 'queued', 'running', 'waiting')
    AND (owner IS NULL OR kind <> 'workflow')
  RETURNING id
"""
TERMINATE = f"""{_TREE}
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, epoch = epoch + 1, poked = owner IS NOT NULL
  WHERE id = ANY(ARRAY(SELECT id FROM tree)) AND state IN ('scheduled', 'queued', 'running', 'waiting', 'cancelling')
  RETURNING id, owner
"""
EXPIRE_FIND = """
  SELECT id FROM runs WHERE deadline <= :now AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting')
"""
EXPIRE = """
  UPDATE runs SET state = 'cancelled', reason = 'timeout', completed = :now
  WHERE deadline <= :now AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting') RETURNING id
"""
