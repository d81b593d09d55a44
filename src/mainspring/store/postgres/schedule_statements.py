"""The statements about schedules on PostgreSQL. Rows of a plan travel as one JSON parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.schedules import MOVED
from mainspring.store import schedule_sql as sql
from mainspring.store import sql as runs_sql
from mainspring.store.postgres.statements import cast

if TYPE_CHECKING:
    from collections.abc import Sequence

_BOOLEANS = {"paused", "again", "unsettled"}
_JSON = {"spec", "canonical", "action", "input", "policy", "skips", "last_result", "last_failure", "tick", "declared"}
_WORDS = {
    "id",
    "workflow",
    "note",
    "pause_note",
    "stopped",
    "app",
    "version",
    "made_by",
    "fault",
    "schedule",
    "request",
    "source",
    "outcome",
    "reason",
    "run",
    "overlap",
}


def _kind(column: str, table: str) -> str:
    if column in _BOOLEANS or (table == "backfills" and column == "stopped"):
        return "boolean"
    if column in _JSON:
        return "json"
    if column == "attributes":
        return "jsonb"
    if table == "runs":
        return cast(column) if column != "schedule" else "text"
    return "text" if column in _WORDS else "bigint"


def _rows(columns: Sequence[str], table: str) -> str:
    """JSON is text until it is stored, so that it is stored as it was written."""
    typed = ", ".join(f"{column} {'text' if 'json' in (kind := _kind(column, table)) else kind}" for column in columns)
    return f"json_to_recordset(:rows::json) AS v ({typed})"


def _values(columns: Sequence[str], table: str) -> str:
    return ", ".join(f"v.{column}::{_kind(column, table)}" for column in columns)


def _insert(columns: Sequence[str], table: str) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {_values(columns, table)} FROM {_rows(columns, table)}"


def _update(columns: Sequence[str]) -> str:
    changes = ", ".join(f"{column} = v.{column}::{_kind(column, 'schedules')}" for column in columns)
    return f"UPDATE schedules s SET {changes} FROM {_rows(('id', *columns), 'schedules')} WHERE s.id = v.id"


DUE = f"""
  SELECT id FROM (
    (SELECT id, due FROM schedules WHERE due <= :now AND NOT id = ANY(:held) ORDER BY due LIMIT :limit)
    UNION ALL
    (SELECT schedule, completed FROM runs WHERE unsettled AND state IN {sql.ENDED} AND NOT schedule = ANY(:held)
     ORDER BY completed LIMIT :limit)) found
  GROUP BY id ORDER BY min(due) LIMIT :limit
"""
NEXT = f"""
  SELECT (SELECT min(due) FROM schedules), (SELECT min(due) FROM schedules WHERE due > :now),
    EXISTS (SELECT 1 FROM runs WHERE unsettled AND state IN {sql.ENDED})
"""
PRESENT = f"""
  SELECT EXISTS (SELECT 1 FROM ticks WHERE outcome IN ('pending', 'buffered')),
    EXISTS (SELECT 1 FROM backfills WHERE completed IS NULL), EXISTS (SELECT 1 FROM hooks),
    ARRAY(SELECT s.id FROM schedules s WHERE s.id = ANY(:ids) AND {sql.REACHES_AHEAD})
"""
"""Whether there is any of what most schedules have none of: one question instead of four."""
LOOK = f"SELECT {', '.join(sql.SCHEDULE)} FROM schedules WHERE id = ANY(:ids) ORDER BY id"
LOCK_FREE = f"{LOOK} FOR NO KEY UPDATE SKIP LOCKED"
LOCK_AND_WAIT = f"{LOOK} FOR NO KEY UPDATE"
RUNS = f"""
  SELECT id, uid, state, reason, completed, CASE WHEN state IN {sql.ENDED} THEN output END,
    CASE WHEN state IN {sql.ENDED} THEN error END, coalesce(tick ->> 'request', ''), schedule
  FROM runs WHERE unsettled AND schedule = ANY(:ids) ORDER BY uid
"""
WAITING = f"""
  SELECT {", ".join(sql.TICK)} FROM ticks WHERE outcome IN ('pending', 'buffered') AND schedule = ANY(:ids)
  ORDER BY due, nominal, request
"""
BACKFILLS = f"""
  SELECT {", ".join(sql.BACKFILL)} FROM backfills WHERE completed IS NULL AND schedule = ANY(:ids)
  ORDER BY created, id
"""
MADE = """
  SELECT DISTINCT nominal FROM ticks WHERE schedule = :schedule AND nominal > :after AND nominal <= :until
    AND source <> 'trigger' AND (run IS NOT NULL OR outcome IN ('pending', 'buffered')) ORDER BY nominal LIMIT :most
"""
LISTED = """
  SELECT DISTINCT entry FROM workers, json_object_keys(crontab::json) AS entry WHERE crontab <> '{}' AND entry = ANY(:ids)
"""
IS_LISTED = "EXISTS (SELECT 1 FROM workers, json_object_keys(crontab::json) AS entry WHERE crontab <> '{}' AND entry = schedules.id)"
FORGET = """
  UPDATE runs SET unsettled = false
  WHERE unsettled AND schedule = ANY(:ids) AND NOT EXISTS (SELECT 1 FROM schedules s WHERE s.id = runs.schedule)
  RETURNING 1
"""
CREATE = f"{_insert(sql.SCHEDULE, 'schedules')} ON CONFLICT (id) DO NOTHING RETURNING id"
RELEASE = "UPDATE runs SET state = 'queued', due = :due, tick = :tick::json WHERE id = :id AND state = 'scheduled'"
OF_SCHEDULE = "UPDATE runs SET schedule = :schedule, tick = :tick::json, unsettled = true WHERE id = :id"
START = f"{_insert(sql.SCHEDULED_RUN, 'runs')} ON CONFLICT (id) DO NOTHING RETURNING 1"
ALERT = f"{_insert(runs_sql.NEW_RUN_COLUMNS, 'runs')} ON CONFLICT (id) DO NOTHING"
TICKS = f"""
  {_insert(sql.TICK, "ticks")}
  ON CONFLICT (schedule, nominal, request) DO UPDATE SET source = excluded.source, due = excluded.due,
    outcome = excluded.outcome, reason = excluded.reason, acted = excluded.acted, run = excluded.run,
    until = excluded.until, count = excluded.count
  WHERE ticks.outcome IN ('pending', 'buffered')
"""
KEEP_BACKFILLS = f"""
  {_insert(sql.BACKFILL, "backfills")}
  ON CONFLICT (id) DO UPDATE SET cursor = excluded.cursor, completed = excluded.completed, stopped = excluded.stopped,
    started = excluded.started, skipped = excluded.skipped
"""
MOVE, LEARN, REDEFINE = _update(MOVED), _update(sql.LEARNED), _update(sql.REDEFINED)
DELETE = (
    "DELETE FROM schedules WHERE id = ANY(:ids)",
    "DELETE FROM ticks WHERE schedule = ANY(:ids)",
    "DELETE FROM backfills WHERE schedule = ANY(:ids)",
    "UPDATE runs SET unsettled = false WHERE unsettled AND schedule = ANY(:ids)",
)
PRUNE = f"DELETE FROM ticks WHERE (schedule, nominal, request) IN ({sql.PRUNABLE})"
