"""Statements that find and delete runs whose retention has ended."""

from __future__ import annotations

from mainspring.store.sql.dialect import PerDatabase, distinct

TABLES_OF_RUN = ("steps", "messages", "events", "streams", "logs")
"""The tables with rows of a run, besides `runs`."""

VALUES = {
    "runs": ("tick", "input", "output", "error"),
    "steps": ("output", "error", "trail"),
    "messages": ("body", "answer", "error"),
    "events": ("value",),
    "streams": ("value",),
    "logs": ("message",),
    "schedules": ("declared", "input", "last_result", "last_failure"),
    "actions": ("details", "outcome"),
}
"""The columns with users' values, which a codec encodes."""


def ended_runs(alias: str, function: str) -> str:
    """A condition: the run has ended. `function` is 1 for scheduled functions and 0 for others. It is the same text as that of an index."""
    return (
        f"{alias}.completed IS NOT NULL AND (CASE WHEN {alias}.scheduled_time IS NULL THEN 0 ELSE 1 END) = {function}"
    )


_NAMES = distinct("workflow", "completed IS NOT NULL")
ENDED_NAMES = f"{_NAMES} SELECT name FROM names"
OLDEST_ENDS = f"""
  SELECT function, name, oldest FROM ({_NAMES}
    SELECT kinds.function, name,
      (SELECT min(o.completed) FROM runs o WHERE o.workflow = names.name AND {ended_runs("o", "kinds.function")}) AS oldest
    FROM names CROSS JOIN (SELECT 0 AS function UNION ALL SELECT 1) AS kinds WHERE name IS NOT NULL) AS found
  WHERE oldest IS NOT NULL
"""
"""The names of ended runs and of ended scheduled functions, each with its oldest end."""

NTH_END = f"""
  SELECT r.completed FROM runs r WHERE r.workflow = :name AND {ended_runs("r", ":function")}
  ORDER BY r.completed DESC LIMIT 1 OFFSET :newer
"""
"""The end of the run of a name after which `newer` others ended. All that ended before it are surplus."""

_UNNEEDED = """
  NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.parent AND p.completed IS NULL)
  AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.scheduled_by AND p.completed IS NULL)
  AND NOT EXISTS (SELECT 1 FROM runs c WHERE c.parent = r.id AND c.completed IS NULL)
  AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.child = r.id AND s.completed IS NULL)
"""
"""A condition: no unfinished run started the run, waits for it or is its child."""


_OLD_ON_POSTGRES = f"""
  FROM json_to_recordset(:rules::json) AS k (name text, oldest bigint, before bigint, function integer) CROSS JOIN LATERAL (
    SELECT r.id FROM runs r WHERE r.workflow = k.name AND r.completed >= k.oldest AND r.completed <= k.before
      AND {ended_runs("r", "k.function")} AND NOT r.end_unprocessed AND {_UNNEEDED}
    ORDER BY r.completed LIMIT :limit) old
"""
"""One name at a time, each by the index. The inner LIMIT keeps PostgreSQL from reading all ended runs."""
_OLD_ON_SQLITE = f"""
  FROM json_each(:rules) k CROSS JOIN runs r
  WHERE r.workflow = json_extract(k.value, '$.name') AND r.completed <= json_extract(k.value, '$.before')
    AND {ended_runs("r", "json_extract(k.value, '$.function')")} AND NOT r.end_unprocessed AND {_UNNEEDED}
"""
"""CROSS JOIN fixes the order: names first, then their runs by the index."""
COUNT_OLD = PerDatabase(
    postgres=f"SELECT k.name, count(*) {_OLD_ON_POSTGRES} GROUP BY 1",
    sqlite=f"SELECT r.workflow, count(*) {_OLD_ON_SQLITE} GROUP BY 1",
)
FIND_OLD = f"SELECT r.id {_OLD_ON_SQLITE} LIMIT :limit"
"""For SQLite, which cannot delete inside a WITH."""
_DELETED = ", ".join(
    f"in_{table} AS (DELETE FROM {table} WHERE run = ANY(ARRAY(SELECT id FROM locked)))" for table in TABLES_OF_RUN
)
PRUNE = f"""
  WITH found AS MATERIALIZED (
    SELECT old.id {_OLD_ON_POSTGRES} LIMIT :limit),
  locked AS MATERIALIZED (
    SELECT r.id FROM runs r WHERE r.id = ANY(ARRAY(SELECT id FROM found)) AND r.completed IS NOT NULL
    ORDER BY r.id FOR UPDATE OF r SKIP LOCKED),
  {_DELETED}
  DELETE FROM runs WHERE id = ANY(ARRAY(SELECT id FROM locked)) RETURNING workflow, (scheduled_time IS NOT NULL)::integer, completed
"""
"""For PostgreSQL, in one round trip. Runs that were locked or resumed in the meantime are skipped."""
