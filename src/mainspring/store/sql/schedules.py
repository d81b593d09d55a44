"""Statements about the tables `schedules`, `ticks`, `backfills` and `hooks`, and the decoding of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.model.clock import SECOND
from mainspring.model.schedules import (
    CRONTAB,
    LEARNED_FIELDS,
    PLANNED_FIELDS,
    Backfill,
    Hook,
    Overlap,
    Schedule,
    ScheduleRun,
    Tick,
    TickOutcome,
    TickSource,
)
from mainspring.model.states import State
from mainspring.store.sql.bulk import insert, update
from mainspring.store.sql.conditions import ENDED
from mainspring.store.sql.dialect import NO_TIME, PerDatabase, Where, column_types, insert_one, per_database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.schedules import ScheduleFilter, TickFilter
    from mainspring.store.sql.dialect import Sql

SCHEDULE_COLUMNS = Schedule.__struct_fields__
TICK_COLUMNS = Tick.__struct_fields__
BACKFILL_COLUMNS = Backfill.__struct_fields__
HOOK_COLUMNS = Hook.__struct_fields__
REDEFINED = (
    *("spec", "canonical", "workflow", "action", "input", "policy", "attributes", "note", "updated", "app", "version"),
    "declared",
)

_JSON = {"spec", "canonical", "action", "input", "policy", "skips", "last_result", "last_failure", "declared"}
_schedule_type, _tick_type, _backfill_type = (
    column_types(_JSON, record).__getitem__ for record in (Schedule, Tick, Backfill)
)
"""The type of a column on PostgreSQL."""


_PARTS = {
    "ended_runs": PerDatabase("runs", "runs INDEXED BY runs_end_unhandled"),
    "runs_of_schedules": PerDatabase("runs", "runs INDEXED BY runs_of_schedule"),
    "waiting_ticks": PerDatabase("ticks", "ticks INDEXED BY ticks_waiting"),
    "end_unprocessed": PerDatabase("end_unprocessed", "end_unprocessed = 1"),
}
"""Parts of statements about unprocessed ends and waiting ticks.

SQLite compares the condition of a partial index as text. The index is named: by its statistics SQLite may prefer another one, with the
whole history of a schedule or all ended runs.
"""

# -- reading -------------------------------------------------------------------------------------------------------------
GET_SCHEDULE = f"SELECT {', '.join(SCHEDULE_COLUMNS)} FROM schedules WHERE id = :id"
REVISIONS = "SELECT id, workflow, created, revision, paused FROM schedules"
GET_BACKFILL = f"SELECT {', '.join(BACKFILL_COLUMNS)} FROM backfills WHERE id = :id"
LIST_BACKFILLS = (
    f"SELECT {', '.join(BACKFILL_COLUMNS)} FROM backfills WHERE schedule = :schedule ORDER BY created DESC, id DESC"
)
LIST_HOOKS = f"SELECT {', '.join(HOOK_COLUMNS)} FROM hooks ORDER BY app, event, function"
OLDEST_TICK = "SELECT min(nominal) FROM ticks WHERE schedule = :schedule AND request = ''"
FUNCTIONS = "SELECT functions FROM workers"
_ENTRIES = PerDatabase(  # the keys of a JSON object, for which each database has its own function
    postgres="workers, json_object_keys(crontab::json) AS entry WHERE crontab <> '{}' AND entry",
    sqlite="(SELECT e.key AS entry FROM workers, json_each(workers.crontab) e) AS entries WHERE entry",
)
LISTED = per_database("SELECT DISTINCT entry FROM {entries} = ANY(:ids)", entries=_ENTRIES)
WILL_ACT = "(NOT paused OR resume_at IS NOT NULL) AND stopped IS NULL AND coalesce(remaining, 1) > 0"
"""Whether a schedule acts on its next time without a request."""
_HAS_ATTRIBUTES = PerDatabase(
    postgres="attributes @> :attributes::jsonb",
    sqlite="""NOT EXISTS (
    SELECT 1 FROM json_each(:attributes) w WHERE NOT EXISTS (
      SELECT 1 FROM json_each(CASE WHEN json_valid(schedules.attributes) THEN schedules.attributes END) h
      WHERE h.key = w.key AND h.value IS w.value))""",
)
_LISTED_OR_OTHER = f"(app IS NULL OR app <> '{CRONTAB}' OR EXISTS (SELECT 1 FROM {{entries}} = schedules.id))"


def schedules_page(wanted: ScheduleFilter) -> tuple[Sql, dict[str, Any]]:
    """The statement and its parameters for a page of schedules."""
    where = Where(limit=wanted.limit)
    where.begins("id", wanted.id_prefix)
    where.holds("paused", wanted.paused)
    where.holds("(failures > 0)", wanted.failing)
    where.one_of("workflow", wanted.workflow)
    where.add("{has_attributes}", attributes=wanted.attributes)
    where.add(f"upcoming < :due_before AND {WILL_ACT} AND {_LISTED_OR_OTHER}", due_before=wanted.due_before)
    where.add("app = :app", app=wanted.app)
    where.add("id > :after", after=wanted.after)
    statement = f"SELECT {', '.join(SCHEDULE_COLUMNS)} FROM schedules {where} ORDER BY id LIMIT :limit"
    return per_database(statement, entries=_ENTRIES, has_attributes=_HAS_ATTRIBUTES), where.values


def ticks_page(wanted: TickFilter) -> tuple[Sql, dict[str, Any]]:
    """The statement and its parameters for a page of ticks."""
    where = Where("schedule = :schedule", schedule=wanted.schedule, limit=wanted.limit)
    where.add("coalesce(until, nominal) >= :since", since=wanted.since)
    where.add("nominal <= :until", until=wanted.until)
    where.one_of("outcome", wanted.outcomes)
    where.add("request = :request", request=wanted.request)
    if wanted.runs_only:
        where.add("run IS NOT NULL")
    before, request = wanted.before or (None, None)
    older = "(nominal < :before OR (nominal = :before AND request < :before_request))"
    where.add(older, before=before, before_request=request)
    order = "ORDER BY nominal DESC, request DESC"
    return f"SELECT {', '.join(TICK_COLUMNS)} FROM ticks {where} {order} LIMIT :limit", where.values


# -- data for plans ------------------------------------------------------------------------------------------------------
_UNPROCESSED = f"completed IS NOT NULL AND {{end_unprocessed}} AND state IN {ENDED} AND completed"
DUE = per_database(
    f"""
  WITH n AS (
    SELECT (SELECT min(due) FROM schedules WHERE due >= :due_floor) AS due,
      (SELECT min(due) FROM schedules WHERE due > :now) AS later,
      (SELECT min(completed) FROM {{ended_runs}}
       WHERE {_UNPROCESSED} BETWEEN (SELECT CAST(:ended_floor AS bigint)) AND (SELECT {NO_TIME})) AS ended)
  SELECT n.due, n.later, n.ended, f.id, f.workflow FROM n LEFT JOIN (
    SELECT found.id, min(found.workflow) AS workflow, min(found.at) AS at FROM (
      SELECT * FROM (
        SELECT id, workflow, due AS at FROM schedules WHERE due >= :due_floor AND due <= :now AND id <> ALL(:passed)
        ORDER BY due LIMIT :limit) a
      UNION ALL SELECT * FROM (
        SELECT schedule, workflow, completed FROM {{ended_runs}}
        WHERE {_UNPROCESSED} BETWEEN (SELECT ended FROM n) AND (SELECT {NO_TIME}) AND schedule <> ALL(:passed)
        ORDER BY completed LIMIT :limit) b) found
    GROUP BY found.id ORDER BY min(found.at), found.id LIMIT :limit) f ON true
  ORDER BY f.at, f.id
""",
    **_PARTS,
)
"""The schedules to plan, first due first: due ones, and those with unprocessed ends of runs.

Each row also has the next due time of all schedules, the next one after now, and the first unprocessed end. If there is no schedule to
plan, one row without a schedule is returned.

Ends are searched from the first one, and not at all if there is none. Bounds that PostgreSQL does not know when it plans stand for a short
range, so it uses the index also while a small table of runs is full of dead versions.
"""
LOOK = f"SELECT {', '.join(SCHEDULE_COLUMNS)} FROM schedules WHERE id = ANY(:ids) ORDER BY id"
LOCK = f"{LOOK} FOR NO KEY UPDATE"
LOCK_FREE = f"{LOCK} SKIP LOCKED"
PRESENT = per_database(
    """
  SELECT s.id,
    EXISTS (SELECT 1 FROM {runs_of_schedules} WHERE {end_unprocessed} AND schedule = s.id AND uid >= s.runs_since),
    EXISTS (SELECT 1 FROM {waiting_ticks} WHERE outcome IN ('pending', 'buffered') AND schedule = s.id),
    EXISTS (SELECT 1 FROM backfills b WHERE b.completed IS NULL AND b.schedule = s.id),
    EXISTS (SELECT 1 FROM backfills b WHERE b.schedule = s.id AND b.until > s.cursor),
    EXISTS (SELECT 1 FROM hooks)
  FROM schedules s WHERE s.id = ANY(:ids)
""",
    **_PARTS,
)
"""Whether schedules have rows that most of them do not have: one statement instead of five.

The fourth column: whether a backfill may have ticks at times after the schedule's cursor. Runs are searched from `runs_since`: while another
transaction keeps an old snapshot open, a search from the beginning passes over an entry of each earlier run of the schedule.
"""
_REQUEST = PerDatabase("tick ->> 'request'", "CASE WHEN json_valid(tick) THEN json_extract(tick, '$.request') END")
UNPROCESSED_ENDS = per_database(
    f"""
  SELECT id, uid, state, reason, completed, CASE WHEN state IN {ENDED} THEN output END,
    CASE WHEN state IN {ENDED} THEN error END, coalesce({{request}}, ''), schedule
  FROM {{runs_of_schedules}} WHERE {{end_unprocessed}} AND schedule = ANY(:ids) AND uid >= :since ORDER BY uid
""",
    request=_REQUEST,
    **_PARTS,
)
WAITING_TICKS = per_database(
    f"""
  SELECT {", ".join(TICK_COLUMNS)} FROM {{waiting_ticks}} WHERE outcome IN ('pending', 'buffered') AND schedule = ANY(:ids)
  ORDER BY due, nominal, request
""",
    **_PARTS,
)
OPEN_BACKFILLS = f"""
  SELECT {", ".join(BACKFILL_COLUMNS)} FROM backfills WHERE completed IS NULL AND schedule = ANY(:ids) ORDER BY created, id
"""
TAKEN_TIMES = """
  SELECT DISTINCT nominal FROM ticks WHERE schedule = :schedule AND nominal > :after AND nominal <= :until
    AND source <> 'trigger' AND (run IS NOT NULL OR outcome IN ('pending', 'buffered')) ORDER BY nominal LIMIT :most
"""
BACKFILLED_AHEAD = """
  SELECT nominal, request FROM ticks WHERE schedule = :schedule AND nominal > :cursor AND nominal <= :now
    AND source = 'backfill' AND (run IS NOT NULL OR outcome IN ('pending', 'buffered'))
"""

# -- writing -------------------------------------------------------------------------------------------------------------
CREATE = insert("schedules", SCHEDULE_COLUMNS, _schedule_type, "ON CONFLICT (id) DO NOTHING RETURNING id")
MADE_BY = "SELECT id, made_by FROM schedules WHERE id = ANY(:ids)"
MOVE, LEARN, REDEFINE = (
    update("schedules", columns, _schedule_type) for columns in (PLANNED_FIELDS, LEARNED_FIELDS, REDEFINED)
)
WRITE_TICKS = insert(
    "ticks",
    TICK_COLUMNS,
    _tick_type,
    """ON CONFLICT (schedule, nominal, request) DO UPDATE SET source = excluded.source, due = excluded.due,
    outcome = excluded.outcome, reason = excluded.reason, acted = excluded.acted, run = excluded.run,
    until = excluded.until, count = excluded.count
  WHERE ticks.outcome IN ('pending', 'buffered')""",
)
"""A tick with a final outcome is never changed."""
WRITE_BACKFILLS = insert(
    "backfills",
    BACKFILL_COLUMNS,
    _backfill_type,
    """ON CONFLICT (id) DO UPDATE SET cursor = excluded.cursor, completed = excluded.completed,
    stopped = excluded.stopped, started = excluded.started, skipped = excluded.skipped""",
)
LOCK_SCHEDULES_OF_RUNS = """
  SELECT id FROM schedules WHERE id IN (SELECT schedule FROM runs WHERE id = ANY(:ids)) ORDER BY id FOR NO KEY UPDATE
"""
FORGET_RUNS_SINCE = "UPDATE schedules SET runs_since = '' WHERE id = :id"
OF_SCHEDULE = "UPDATE runs SET schedule = :schedule, tick = :tick::json, end_unprocessed = true WHERE id = :id"
RELEASE_PROMISED = (
    "UPDATE runs SET state = 'queued', due = :due, tick = :tick::json WHERE id = :id AND state = 'scheduled'"
)
MARK_PROCESSED = "UPDATE runs SET end_unprocessed = false WHERE id = ANY(:ids)"
MARK_STRAYS_PROCESSED = per_database(
    """
  UPDATE runs SET end_unprocessed = false WHERE id IN (
    SELECT id FROM {runs_of_schedules} WHERE {end_unprocessed} AND schedule = ANY(:ids)
      AND NOT EXISTS (SELECT 1 FROM schedules s WHERE s.id = runs.schedule))
""",
    **_PARTS,
)
"""The end of a run whose schedule was deleted is never processed."""
DELETE = (
    "DELETE FROM schedules WHERE id = ANY(:ids)",
    "DELETE FROM ticks WHERE schedule = ANY(:ids)",
    "DELETE FROM backfills WHERE schedule = ANY(:ids)",
    MARK_STRAYS_PROCESSED,
)
KEEP_HOOK = f"""
  {insert_one("hooks", HOOK_COLUMNS)}
  ON CONFLICT (app, event, function) DO UPDATE SET kind = excluded.kind, parameter = excluded.parameter,
    after = excluded.after, version = excluded.version
"""
FORGET_HOOK = "DELETE FROM hooks WHERE app = :app AND event = :event AND function = :function AND version = :version"
PRUNABLE = """
  SELECT t.schedule, t.nominal, t.request FROM schedules s CROSS JOIN ticks t
  WHERE t.schedule = s.id AND t.nominal < :before AND coalesce(t.until, t.nominal) < :before AND coalesce(t.acted, 0) < :before
    AND t.outcome NOT IN ('pending', 'buffered')
  LIMIT :limit
"""
"""By schedule, where the index finds old ticks at once: a long history costs nothing while there is nothing to delete.

Without CROSS JOIN, which fixes the order, SQLite would read all ticks.
"""
PRUNE = PerDatabase(  # a list of keys is JSON, which each database reads in its own way
    postgres="""
  DELETE FROM ticks WHERE (schedule, nominal, request) IN (
    SELECT v ->> 0, (v ->> 1)::bigint, v ->> 2 FROM json_array_elements(:keys::json) v)
""",
    sqlite="""
  DELETE FROM ticks WHERE (schedule, nominal, request) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(:keys))
""",
)

# -- schedules that are ahead of the clock ---------------------------------------------------------------------------------
AHEAD = 60 * SECOND
"""A schedule whose cursor is further ahead of the clock than this was advanced by another clock."""
_IS_AHEAD = "(due > :ahead OR due IS NULL) AND cursor > :ahead"
"""The due time, if there is one, is after the cursor. It is part of the condition because it has an index."""
ANY_AHEAD = f"SELECT 1 FROM schedules WHERE {_IS_AHEAD} LIMIT 1"
LOCK_AHEAD = f"""
  SELECT id, skips, missed, skipped, dropped FROM schedules WHERE {_IS_AHEAD} ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
_NOT_STARTED_AHEAD = """schedule = :schedule AND request = '' AND run IS NULL
    AND outcome NOT IN ('pending', 'buffered') AND coalesce(until, nominal) > :now"""
TICKS_AHEAD = f"SELECT nominal, outcome, count FROM ticks WHERE {_NOT_STARTED_AHEAD} ORDER BY nominal"
FORGET_TICKS_AHEAD = f"DELETE FROM ticks WHERE {_NOT_STARTED_AHEAD}"
REWIND = """
  UPDATE schedules SET cursor = :cursor, due = :now, skips = :skips::json, missed = :missed, skipped = :skipped, dropped = :dropped
  WHERE id = :schedule
"""


# -- rows ----------------------------------------------------------------------------------------------------------------
def to_schedule(row: Sequence[Any]) -> Schedule:
    made = Schedule(*row)
    made.paused = bool(made.paused)
    return made


def to_tick(row: Sequence[Any]) -> Tick:
    made = Tick(*row)
    made.source, made.outcome = TickSource(made.source), TickOutcome(made.outcome)
    made.overlap = None if made.overlap is None else Overlap(made.overlap)
    return made


def to_backfill(row: Sequence[Any]) -> Backfill:
    made = Backfill(*row)
    made.overlap, made.again, made.stopped = Overlap(made.overlap), bool(made.again), bool(made.stopped)
    return made


def to_run_of(row: Sequence[Any]) -> ScheduleRun:
    """Decode a row of UNPROCESSED_ENDS."""
    run_id, uid, state, reason, completed, output, error, request, _ = row
    return ScheduleRun(run_id, uid, State(state), reason, completed, output, error, request)
