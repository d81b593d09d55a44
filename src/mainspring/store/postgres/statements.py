"""The statements for runs and steps on PostgreSQL. `dialect.py` says how the texts are read.

Rows are taken with SKIP LOCKED wherever something else is held at the same time, so that nobody waits while somebody may be
waiting for them. FOR SHARE is the fence of a checkpoint: a takeover, which updates the row, cannot happen between the look at
the run's epoch and the commit of the step. FOR NO KEY UPDATE is what an update takes anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store import sql
from mainspring.store.message_sql import heard

if TYPE_CHECKING:
    from mainspring.store.ops import Release, Rest

PATIENCE = "100ms"
"""How long a transaction that holds something waits for somebody else's row."""

ENDED = "('succeeded', 'failed', 'cancelled')"
_JSON = {"input", "output", "error", "trail", "stranded", "retry"}
_RUN_NUMBERS = {
    "created",
    "started",
    "completed",
    "timeout",
    "deadline",
    "scheduled_time",
    "epoch",
    "recoveries",
    "priority",
    "since",
    "latest",
    "generation",
    "began_epoch",
}
_NUMBERS = {"due", "seq", "attempts"} | _RUN_NUMBERS


def cast(column: str) -> str:
    """The type of a column of runs or steps."""
    if column in _NUMBERS:
        return "bigint"
    return "json" if column in _JSON else "jsonb" if column == "attributes" else "text"


# -- locks ---------------------------------------------------------------------------------------------------------------
_LOCK_COLUMNS = "id, owner, epoch, state, reason, output, error, completed"
LOCK = f"SELECT {_LOCK_COLUMNS} FROM runs WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"
SHARE = f"SELECT {_LOCK_COLUMNS} FROM runs WHERE id = ANY(:ids) ORDER BY id FOR SHARE SKIP LOCKED"
THERE = "SELECT id FROM runs WHERE id = ANY(:ids)"
WAIT = """
  SELECT 1 FROM set_config('lock_timeout', :patience, true) CROSS JOIN runs WHERE id = :id FOR NO KEY UPDATE OF runs
"""

# -- starts --------------------------------------------------------------------------------------------------------------
START_ONE = f"""
  INSERT INTO runs ({", ".join(sql.NEW_RUN_COLUMNS)})
  SELECT {", ".join(f":{column}::{cast(column)}" for column in sql.NEW_RUN_COLUMNS)}
  FROM set_config('lock_timeout', :patience, true)
  ON CONFLICT DO NOTHING RETURNING uid
"""

BORN_CANCELLED = """
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, owner = NULL, untold = true
  WHERE id = :id RETURNING id
"""

# -- steps ---------------------------------------------------------------------------------------------------------------
_ON_STEP = """
  ON CONFLICT (run, position) DO UPDATE SET
    seq = excluded.seq, output = excluded.output, error = excluded.error, completed = excluded.completed,
    attempts = excluded.attempts, child = excluded.child, due = excluded.due, trail = excluded.trail, epoch ="""
ON_STEP = f"{_ON_STEP} excluded.epoch WHERE steps.completed IS NULL"
ON_STEP_OR_FAIL = f"{_ON_STEP} CASE WHEN steps.completed IS NULL THEN excluded.epoch END"
WRITE_ONE = f"""
  INSERT INTO steps ({", ".join(sql.STEP_COLUMNS)})
  VALUES ({", ".join(f":{column}::{cast(column)}" for column in sql.STEP_COLUMNS)})
  {ON_STEP} RETURNING run
"""
MOOD_ONE = f"""
  UPDATE runs r SET state = :mood, due = CASE WHEN :mood = 'waiting' THEN least(:due, {sql.next_wake("r")}) ELSE :due END
  WHERE id = :run AND state IN ('running', 'waiting') RETURNING id
"""
VOID_ONE = f"UPDATE steps SET {sql.VOID} WHERE run = :run AND position = :position RETURNING run"

# -- runs, after their rows are locked -------------------------------------------------------------------------------------
CHILD_ENDED = sql.awaited_end("r")
AWAITED = f"({CHILD_ENDED} OR {heard('r')})"
"""Whether what the run at hand waits for has happened."""
NOTIFY = "(SELECT pg_notify(:channel, :payload))"
"""Not correlated with anything, so it is called once, and only if there is a row to return."""
REST = f"""
  UPDATE runs r SET state = 'waiting', due = least(a.no_later_than, {sql.next_wake("r")}),
    owner = CASE WHEN a.park THEN NULL ELSE r.owner END
  FROM json_to_recordset(:ops::json) AS a (n integer, run text, no_later_than bigint, park boolean)
  WHERE r.id = a.run AND NOT r.poked AND {sql.has_wait("r")} AND NOT {CHILD_ENDED}
    AND NOT (a.park AND ({heard("r")} OR least(a.no_later_than, {sql.next_wake("r")}) <= :now))
  RETURNING a.n
"""
"""A poke may have been taken note of a moment ago without the run having looked yet, and once it is parked it will not: so nobody
is parked for whom there is something to hear, or whose time has come."""
STAYS_WAITING = f"r.state = 'waiting' AND NOT r.poked AND NOT {AWAITED} AND {sql.has_wait('r')}"
"""Whether a run that loses its owner goes on waiting: it is recorded so, and an open step can wake it."""
UNDOABLE = sql.undoable("r")
REST_AND_TELL = f"{REST}, {NOTIFY}"
UNBEGUN = "(a.unbegun IS NOT NULL AND r.epoch = r.began_epoch)"
"""Whether a run that is handed back has not begun its present attempt: its next claim begins it."""
RELEASE = f"""
  UPDATE runs r SET owner = NULL, poked = false, stranded = a.stranded::json,
    state = CASE WHEN a.stranded IS NULL AND {STAYS_WAITING} THEN 'waiting' ELSE 'queued' END,
    due = least(r.due, CASE WHEN a.stranded IS NULL AND {STAYS_WAITING} THEN {sql.next_wake("r")} ELSE :now END),
    stopping = CASE WHEN r.state = 'cancelling' THEN coalesce(r.reason, '') ELSE r.stopping END,
    attempts = CASE WHEN {UNBEGUN} THEN greatest(r.attempts - 1, 0) ELSE r.attempts END,
    started = CASE WHEN {UNBEGUN} AND r.attempts <= 1 THEN NULL ELSE r.started END,
    since = CASE WHEN {UNBEGUN} THEN NULL ELSE r.since END
  FROM json_to_recordset(:ops::json) AS a (n integer, run text, unbegun text, stranded text)
  WHERE r.id = a.run AND (a.unbegun IS NULL OR r.uid = a.unbegun) AND (r.state <> 'cancelling' OR {UNDOABLE})
  RETURNING a.n
"""
RELEASE_AND_TELL = f"{RELEASE}, {NOTIFY}"
FINISH_ONE = """
  UPDATE runs SET state = :state, reason = coalesce(:reason, reason), output = :output, error = :error,
    completed = :completed, owner = NULL, poked = false, stranded = NULL
  WHERE id = :id RETURNING id
"""
CONTINUE = (
    *sql.continue_as("messages"),
    f"""
  UPDATE runs SET parent = NULL, scheduled_by = :run WHERE id IN (
    SELECT id FROM runs WHERE parent = :run AND state IN {ENDED} FOR NO KEY UPDATE SKIP LOCKED)
""",
)
WAITERS = f"""
  SELECT DISTINCT s.run FROM steps s JOIN runs c ON c.id = s.child
  WHERE s.completed IS NULL AND s.child = ANY(:ended) AND c.state IN {ENDED}
"""
WAKE = """
  UPDATE runs SET
    poked = owner IS NOT NULL,
    state = CASE WHEN owner IS NULL THEN 'queued' ELSE state END,
    due   = CASE WHEN owner IS NULL THEN :now ELSE due END
  WHERE id = ANY(:ids)
    AND ((owner IS NULL AND state = 'waiting') OR
         (state IN ('running', 'waiting', 'cancelling') AND owner <> ALL(:told)))
  RETURNING owner
"""
RENAME = "UPDATE steps SET output = :output::json, child = :child WHERE run = :run AND position = :position"
ENDINGS = "SELECT id, state, reason, output, error FROM runs WHERE id = ANY(:ids)"


def rest_row(number: int, op: Rest) -> dict[str, Any]:
    """A row of what `REST` is given."""
    return {"n": number, "run": op.run, "no_later_than": op.no_later_than, "park": op.park}


def release_row(number: int, op: Release) -> dict[str, Any]:
    """A row of what `RELEASE` is given."""
    return {"n": number, "run": op.run, "unbegun": op.unbegun, "stranded": op.stranded}
