"""The verbs that end or free runs from outside: retire, cancel, terminate, expire."""

from __future__ import annotations

from mainspring.store import sql
from mainspring.store.postgres.statements import STAYS_WAITING, UNDOABLE

RETIRE_FIND = "SELECT id FROM runs WHERE owner = :worker"
RETIRE = f"""
  UPDATE runs r SET owner = NULL, poked = false,
    state = CASE state
      WHEN 'running' THEN CASE WHEN recoveries >= :most THEN 'failed' ELSE 'queued' END
      WHEN 'waiting' THEN CASE WHEN {STAYS_WAITING} THEN 'waiting' ELSE 'queued' END
      WHEN 'cancelling' THEN CASE WHEN {UNDOABLE} THEN 'queued' ELSE 'cancelled' END ELSE state END,
    stopping = CASE WHEN state = 'cancelling' AND {UNDOABLE} THEN coalesce(reason, '') ELSE stopping END,
    due = CASE WHEN state = 'running' THEN least(due, :now)
               WHEN state = 'waiting' THEN least(due, CASE WHEN {STAYS_WAITING} THEN {sql.next_wake("r")} ELSE :now END)
               ELSE due END,
    reason = CASE WHEN state = 'running' AND recoveries >= :most THEN 'recovery exhausted' ELSE reason END,
    error = CASE WHEN state = 'running' AND recoveries >= :most THEN :exhausted::json ELSE error END,
    completed = CASE WHEN (state = 'cancelling' AND NOT {UNDOABLE}) OR (state = 'running' AND recoveries >= :most) THEN :now ELSE completed END,
    untold = (state = 'cancelling' AND NOT {UNDOABLE}) OR (state = 'running' AND recoveries >= :most),
    recoveries = CASE WHEN state = 'running' THEN recoveries + 1 ELSE recoveries END
  WHERE owner = :worker AND id = ANY(:locked) RETURNING id, state
"""
_TREES = """
  WITH RECURSIVE tree (id) AS (
    SELECT id FROM runs WHERE id = ANY(:ids)
    UNION SELECT child.id FROM tree CROSS JOIN LATERAL (
      SELECT r.id FROM runs r WHERE r.parent = tree.id AND {which} OFFSET 0) child)
"""
"""The runs and all that descend from them. OFFSET 0 keeps PostgreSQL from reading all of history to find a few children,
which it prefers until it has gathered statistics."""
_TREE = _TREES.replace("{which}", "(:reason::text IS DISTINCT FROM 'timeout' OR r.deadline IS NOT NULL)")
"""A run that is out of time leaves children alone that were started without a deadline."""
TREE_FIND = f"{_TREES.replace('{which}', 'true')} SELECT id FROM tree"
CANCEL_IN_HAND = f"""{_TREE}
  UPDATE runs SET state = 'cancelling', reason = :reason, poked = true
  WHERE id = ANY(ARRAY(SELECT id FROM tree)) AND owner IS NOT NULL AND kind = 'workflow' AND state IN ('running', 'waiting')
  RETURNING id, owner, epoch
"""
CANCEL_UNDOABLE = f"""{_TREE}
  UPDATE runs r SET state = 'queued', reason = :reason, stopping = coalesce(:reason, ''), due = :now
  WHERE id = ANY(ARRAY(SELECT id FROM tree)) AND owner IS NULL AND state IN ('queued', 'waiting') AND stopping IS NULL
    AND {UNDOABLE}
  RETURNING id
"""
CANCEL_AT_ONCE = f"""{_TREE}
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, owner = NULL, poked = false, untold = true
  WHERE id = ANY(ARRAY(SELECT id FROM tree)) AND state IN ('scheduled', 'queued', 'running', 'waiting')
    AND stopping IS NULL AND (owner IS NULL OR kind <> 'workflow')
  RETURNING id
"""
TERMINATE = f"""{_TREE}
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, epoch = epoch + 1, untold = true, poked = owner IS NOT NULL
  WHERE id = ANY(ARRAY(SELECT id FROM tree)) AND state IN ('scheduled', 'queued', 'running', 'waiting', 'cancelling')
  RETURNING id, owner, epoch
"""
_OVERDUE = "deadline <= :now AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting') AND stopping IS NULL"
EXPIRE_FIND = f"SELECT id FROM runs WHERE {_OVERDUE}"
EXPIRE_UNDOABLE = f"""
  UPDATE runs r SET state = 'queued', reason = 'timeout', stopping = 'timeout', due = :now
  WHERE id = ANY(:locked) AND {_OVERDUE} AND {UNDOABLE}
  RETURNING id
"""
EXPIRE = f"""
  UPDATE runs SET state = 'cancelled', reason = 'timeout', completed = :now, untold = true
  WHERE id = ANY(:locked) AND {_OVERDUE} RETURNING id
"""
