"""The statements that end or free runs from outside: retire, cancel, terminate, expire."""

from __future__ import annotations

from mainspring.store import sql
from mainspring.store.sqlite.statements import STAYS_WAITING, UNDOABLE

RETIRE = f"""
  UPDATE runs SET owner = NULL, poked = 0,
    state = CASE state
      WHEN 'running' THEN CASE WHEN recoveries >= :most THEN 'failed' ELSE 'queued' END
      WHEN 'waiting' THEN CASE WHEN {STAYS_WAITING} THEN 'waiting' ELSE 'queued' END
      WHEN 'cancelling' THEN CASE WHEN {UNDOABLE} THEN 'queued' ELSE 'cancelled' END ELSE state END,
    stopping = CASE WHEN state = 'cancelling' AND {UNDOABLE} THEN coalesce(reason, '') ELSE stopping END,
    due = CASE WHEN state = 'running' THEN min(due, :now)
               WHEN state = 'waiting' THEN min(due, CASE WHEN {STAYS_WAITING} THEN {sql.next_wake("runs")} ELSE :now END)
               ELSE due END,
    reason = CASE WHEN state = 'running' AND recoveries >= :most THEN 'recovery exhausted' ELSE reason END,
    error = CASE WHEN state = 'running' AND recoveries >= :most THEN :exhausted ELSE error END,
    completed = CASE WHEN (state = 'cancelling' AND NOT {UNDOABLE}) OR (state = 'running' AND recoveries >= :most) THEN :now ELSE completed END,
    untold = (state = 'cancelling' AND NOT {UNDOABLE}) OR (state = 'running' AND recoveries >= :most),
    recoveries = CASE WHEN state = 'running' THEN recoveries + 1 ELSE recoveries END
  WHERE owner = :worker RETURNING id, state
"""
_TREES = """
  WITH RECURSIVE tree (id) AS (
    SELECT value FROM json_each(:ids) UNION SELECT runs.id FROM runs JOIN tree ON runs.parent = tree.id WHERE {which})
"""
_TREE = _TREES.replace("{which}", "coalesce(:reason, '') <> 'timeout' OR runs.deadline IS NOT NULL")
"""The runs and all that descend from them. A run that is out of time leaves children alone that were started without a deadline."""
TREE_FIND = f"{_TREES.replace('{which}', 'true')} SELECT id FROM tree"
CANCEL_IN_HAND = f"""{_TREE}
  UPDATE runs SET state = 'cancelling', reason = :reason, poked = 1
  WHERE id IN (SELECT id FROM tree) AND owner IS NOT NULL AND kind = 'workflow' AND state IN ('running', 'waiting')
  RETURNING id, owner, epoch
"""
CANCEL_UNDOABLE = f"""{_TREE}
  UPDATE runs SET state = 'queued', reason = :reason, stopping = coalesce(:reason, ''), due = :now
  WHERE id IN (SELECT id FROM tree) AND owner IS NULL AND state IN ('queued', 'waiting') AND stopping IS NULL AND {UNDOABLE}
  RETURNING id
"""
CANCEL_AT_ONCE = f"""{_TREE}
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, owner = NULL, poked = 0, untold = 1
  WHERE id IN (SELECT id FROM tree) AND state IN ('scheduled', 'queued', 'running', 'waiting')
    AND stopping IS NULL AND (owner IS NULL OR kind <> 'workflow')
  RETURNING id
"""
TERMINATE = f"""{_TREE}
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, epoch = epoch + 1, untold = 1,
    poked = CASE WHEN owner IS NULL THEN 0 ELSE 1 END
  WHERE id IN (SELECT id FROM tree) AND state IN ('scheduled', 'queued', 'running', 'waiting', 'cancelling')
  RETURNING id, owner, epoch
"""
_OVERDUE = "deadline <= :now AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting') AND stopping IS NULL"
EXPIRE_UNDOABLE = f"""
  UPDATE runs SET state = 'queued', reason = 'timeout', stopping = 'timeout', due = :now WHERE {_OVERDUE} AND {UNDOABLE}
  RETURNING id
"""
EXPIRE = f"""
  UPDATE runs SET state = 'cancelled', reason = 'timeout', completed = :now, untold = 1 WHERE {_OVERDUE} RETURNING id
"""
