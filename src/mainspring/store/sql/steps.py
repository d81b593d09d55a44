"""Statements about the table `steps`."""

from __future__ import annotations

from mainspring.store.sql.conditions import ENDED
from mainspring.store.sql.dialect import column_type, typed
from mainspring.store.sql.records import RECORDED_COLUMNS, STEP_COLUMNS
from mainspring.store.sql.retention import ended_runs

GET_STEP = f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE run = :run AND position = :position"
LIST_STEPS = f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE run = :run ORDER BY seq IS NULL, seq, position"
STEPS_OF = f"""
  SELECT {", ".join(STEP_COLUMNS)} FROM steps WHERE run = ANY(:runs) ORDER BY run, seq IS NULL, seq, position
"""
STEP_OUTPUT = "SELECT output FROM steps WHERE run = :run AND position = :position"
STEP_WRITTEN = "SELECT epoch, seq FROM steps WHERE run = :run AND position = :position"

_OUTCOME = ("seq", "output", "error", "completed", "attempts", "child", "due", "trail")


def outcome(source: str) -> str:
    """The SET clause, without the epoch, that gives a step the outcome of another row."""
    return ", ".join(f"{column} = {source}.{column}::{column_type(column)}" for column in _OUTCOME)


_ON_STEP = f"ON CONFLICT (run, position) DO UPDATE SET {outcome('excluded')}, epoch ="
ON_STEP = f"{_ON_STEP} excluded.epoch WHERE steps.completed IS NULL"
"""A completed step is never changed."""
ON_STEP_OR_FAIL = f"{_ON_STEP} CASE WHEN steps.completed IS NULL THEN excluded.epoch END"
"""Like `ON_STEP`, but an error if the step is completed: its epoch must not be NULL."""
RECORD_STEP = f"""
  INSERT INTO steps ({", ".join(RECORDED_COLUMNS)})
  VALUES ({", ".join(typed(column) for column in RECORDED_COLUMNS)}) {ON_STEP} RETURNING run
"""
DISCARD_OUTCOME = "discarded = true, output = CASE WHEN kind IN ('step', 'transaction') AND error IS NULL THEN output END, error = NULL"
"""Marks an operation that the workflow's code has cancelled. A transaction keeps its outcome, for an attempt that does not cancel it."""
DISCARD_STEP = f"UPDATE steps SET {DISCARD_OUTCOME} WHERE run = :run AND position = :position RETURNING run"
RENAME_STARTED = f"""
  UPDATE steps SET output = {typed("output")}, child = :child WHERE run = :run AND position = :position
"""
WAITERS = f"""
  SELECT DISTINCT s.run FROM steps s JOIN runs c ON c.id = s.child
  WHERE s.completed IS NULL AND s.child = ANY(:ids) AND c.state IN {ENDED}
"""
"""Runs that wait for ended runs."""
RECORDED_TRANSACTIONS = """
  SELECT run, position, CASE WHEN kind = 'mark' THEN CAST(output AS text) END FROM steps
  WHERE completed IS NOT NULL AND kind IN ('transaction', 'mark') AND run = ANY(:ids)
"""


def _latest_steps(function: int) -> str:
    """The steps of the runs of a function that ended last."""
    return f"""
  SELECT s.name, s.kind, s.completed - s.started, s.attempts, s.error IS NOT NULL
  FROM (SELECT r.id FROM runs r WHERE r.workflow = :workflow AND {ended_runs("r", str(function))}
    ORDER BY r.completed DESC LIMIT :runs) AS latest JOIN steps s ON s.run = latest.id
  WHERE s.kind IN ('step', 'transaction') AND s.completed IS NOT NULL AND s.started IS NOT NULL
"""


LATEST_STEPS = f"{_latest_steps(0)} UNION ALL {_latest_steps(1)} LIMIT :most"
