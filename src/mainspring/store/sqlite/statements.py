"""The statements of writes on SQLite, and the values they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store import sql
from mainspring.store.keyed import KeyTexts
from mainspring.store.message_sql import heard
from mainspring.store.sqlite.bulk import Bulk

if TYPE_CHECKING:
    from mainspring.store.ops import Finish, Rest, Write

KEY_TEXTS = KeyTexts(lambda column: f":{column}")

_FENCE = "id = ? AND owner = ? AND epoch = ?"

AWAITED_END = sql.awaited_end("runs")
AWAITED = f"({AWAITED_END} OR {heard('runs')})"
"""Whether what the run at hand waits for has happened."""

ON_STEP = """ON CONFLICT (run, position) DO UPDATE SET
    seq = excluded.seq, output = excluded.output, error = excluded.error, completed = excluded.completed,
    attempts = excluded.attempts, epoch = excluded.epoch, child = excluded.child, due = excluded.due, trail = excluded.trail
  WHERE steps.completed IS NULL"""
STOPPED = """
  SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('cancelling', 'cancelled')
"""
BORN_CANCELLED = """
  UPDATE runs SET state = 'cancelled', reason = ?, completed = ?, owner = NULL, untold = 1
  WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('scheduled', 'queued', 'running')
"""
INSERT_RUNS = Bulk(
    f"INSERT INTO runs ({', '.join(sql.NEW_RUN_COLUMNS)}) VALUES {{rows}} ON CONFLICT DO NOTHING",
    len(sql.NEW_RUN_COLUMNS),
)
UPSERT_STEPS = Bulk(
    f"""
  INSERT INTO steps ({", ".join(sql.STEP_COLUMNS)})
  SELECT {", ".join(f"v.column{number + 1}" for number in range(len(sql.STEP_COLUMNS)))} FROM (VALUES {{rows}}) v
  WHERE EXISTS (SELECT 1 FROM runs WHERE id = v.column1 AND epoch = v.column11 AND owner = v.column15
    AND (state <> 'cancelling' OR v.column16))
  {ON_STEP}
""",
    len(sql.STEP_COLUMNS) + 2,
)
MOOD = Bulk(
    """
  UPDATE runs SET state = v.column1,
    due = CASE WHEN v.column1 = 'waiting' THEN min(v.column2, {next_wake}) ELSE v.column2 END
  FROM (VALUES {rows}) v
  WHERE id = v.column3 AND owner = v.column4 AND epoch = v.column5 AND state IN ('running', 'waiting')
""".replace("{next_wake}", sql.next_wake("runs")),
    5,
)
VOID_STEP = f"""
  UPDATE steps SET {sql.VOID}
  WHERE run = ? AND position = ? AND EXISTS (SELECT 1 FROM runs WHERE {_FENCE})
"""
REST = Bulk(
    f"""
  UPDATE runs SET state = 'waiting', due = min(v.column1, {sql.next_wake("runs")}),
    owner = CASE WHEN v.column2 THEN NULL ELSE owner END
  FROM (VALUES {{rows}}) v
  WHERE id = v.column3 AND owner = v.column4 AND epoch = v.column5
    AND state IN ('running', 'waiting') AND poked = 0 AND {sql.has_wait("runs")} AND NOT {AWAITED_END}
    AND NOT (v.column2 AND ({heard("runs")} OR min(v.column1, {sql.next_wake("runs")}) <= v.column6))
""",
    6,
)
"""A poke may have been taken note of a moment ago without the run having looked yet, and once it is parked it will not: so nobody
is parked for whom there is something to hear, or whose time has come."""
STAYS_WAITING = f"state = 'waiting' AND poked = 0 AND NOT {AWAITED} AND {sql.has_wait('runs')}"
"""Whether a run that loses its owner goes on waiting: it is recorded so, and an open step can wake it."""
UNDOABLE = sql.undoable("runs")
UNBEGUN = "(:unbegun IS NOT NULL AND epoch = began_epoch)"
"""Whether a run that is handed back has not begun its present attempt: its next claim begins it."""
RELEASE = f"""
  UPDATE runs SET owner = NULL, poked = 0, stranded = :stranded,
    state = CASE WHEN :stranded IS NULL AND {STAYS_WAITING} THEN 'waiting' ELSE 'queued' END,
    due   = CASE WHEN :stranded IS NULL AND {STAYS_WAITING} THEN min(due, {sql.next_wake("runs")}) ELSE min(due, :now) END,
    stopping = CASE WHEN state = 'cancelling' THEN coalesce(reason, '') ELSE stopping END,
    attempts = CASE WHEN {UNBEGUN} THEN max(attempts - 1, 0) ELSE attempts END,
    started = CASE WHEN {UNBEGUN} AND attempts <= 1 THEN NULL ELSE started END,
    since = CASE WHEN {UNBEGUN} THEN NULL ELSE since END
  WHERE id = :run AND owner = :owner AND epoch = :epoch AND (:unbegun IS NULL OR uid = :unbegun)
    AND (state IN ('running', 'waiting') OR (state = 'cancelling' AND {UNDOABLE}))
"""
FINISH_RUNS = Bulk(
    """
  UPDATE runs SET state = v.column4, reason = coalesce(v.column5, reason), output = v.column6, error = v.column7,
    completed = v.column8, owner = NULL, poked = 0, stranded = NULL, unsettled = unsettled AND NOT v.column9
  FROM (VALUES {rows}) v
  WHERE id = v.column1 AND owner = v.column2 AND epoch = v.column3
    AND (state IN ('running', 'waiting') OR (state = 'cancelling' AND v.column4 = 'cancelled'))
""",
    9,
)
CONTINUE = (
    *sql.continue_as("messages INDEXED BY messages_over"),
    """
  UPDATE runs SET parent = NULL, scheduled_by = :run
  WHERE parent = :run AND state IN ('succeeded', 'failed', 'cancelled')
""",
)
"""Without the hint SQLite takes the primary key, and reads the keys of all the messages that the run ever received."""
WAITERS = """
  SELECT DISTINCT run FROM steps WHERE completed IS NULL AND child IN (SELECT value FROM json_each(?))
"""
WAITERS_FOR_ONE = "SELECT DISTINCT run FROM steps WHERE completed IS NULL AND child = ?"
UNBLOCK = """
  UPDATE runs SET
    poked = CASE WHEN owner IS NULL THEN 0 ELSE 1 END,
    state = CASE WHEN owner IS NULL THEN 'queued' ELSE state END,
    due   = CASE WHEN owner IS NULL THEN ?1 ELSE due END
  WHERE id IN (SELECT value FROM json_each(?2))
    AND ((owner IS NULL AND state = 'waiting') OR
         (state IN ('running', 'waiting', 'cancelling') AND owner NOT IN (SELECT value FROM json_each(?3))))
  RETURNING owner
"""
ENDING = "SELECT id, state, reason, output, error FROM runs WHERE id IN (SELECT value FROM json_each(?))"


def write_values(op: Write, *, stopping: bool = False) -> tuple[Any, ...]:
    """The values of `UPSERT_STEPS`; `stopping` says whether to write also in a run that is being cancelled."""
    return (*sql.step_values(op.step), op.owner, stopping)


def mood_values(op: Write) -> tuple[Any, ...]:
    return (op.mood, op.due, op.step.run, op.owner, op.step.epoch)


def rest_values(op: Rest, now: int) -> tuple[Any, ...]:
    return (op.no_later_than, op.park, op.run, op.owner, op.epoch, now)


def finish_values(op: Finish) -> tuple[Any, ...]:
    return (op.run, op.owner, op.epoch, op.state, op.reason, op.output, op.error, op.completed, op.settled)
