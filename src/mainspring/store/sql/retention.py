"""Statements that find and delete runs which were kept long enough."""

from __future__ import annotations

from mainspring.store.sql.dialect import PerDatabase

TABLES_OF_RUN = ("steps", "messages", "events", "streams", "logs")
"""The tables that have rows of a run besides its own."""

_ENDED = {
    False: ("completed IS NOT NULL", "scheduled_time IS NULL"),
    True: ("completed IS NOT NULL", "scheduled_time IS NOT NULL"),
}


def ended_runs(alias: str, *, function: bool) -> str:
    """The runs, or the scheduled functions, that have ended: exactly what one index is about."""
    return " AND ".join(f"{alias}.{term}" for term in _ENDED[function])


def _names(*, function: bool) -> str:
    """The names of runs, or of functions, that have ended: from name to name through the index, however many runs each has."""
    return f"""
    WITH RECURSIVE names (name) AS (
      SELECT min(f.workflow) FROM runs f WHERE {ended_runs("f", function=function)}
      UNION ALL
      SELECT (SELECT min(n.workflow) FROM runs n WHERE n.workflow > names.name AND {ended_runs("n", function=function)})
      FROM names WHERE name IS NOT NULL)"""


ENDED_NAMES = {function: f"{_names(function=function)} SELECT name FROM names" for function in (False, True)}


def _oldest(*, function: bool) -> str:
    return f"""
  SELECT {str(function).lower()}, name, oldest FROM ({_names(function=function)}
    SELECT name, (SELECT min(o.completed) FROM runs o WHERE o.workflow = names.name AND {ended_runs("o", function=function)}) AS oldest
    FROM names WHERE name IS NOT NULL) AS found
"""


OLDEST_ENDS = f"{_oldest(function=False)} UNION ALL {_oldest(function=True)}"
"""The names of runs and of functions that have ended, each with its oldest end."""

NTH_END = {
    function: f"""
  SELECT r.completed FROM runs r WHERE r.workflow = :name AND {ended_runs("r", function=function)}
  ORDER BY r.completed DESC LIMIT 1 OFFSET :newer
"""
    for function in (False, True)
}
"""When the run of a name ended after which `newer` others have: all that ended before it are more than are kept."""


def _latest_steps(*, function: bool) -> str:
    """The steps of the runs of a function that ended last."""
    return f"""
  SELECT s.name, s.kind, s.completed - s.started, s.attempts, s.error IS NOT NULL
  FROM (SELECT r.id FROM runs r WHERE r.workflow = :workflow AND {ended_runs("r", function=function)}
    ORDER BY r.completed DESC LIMIT :runs) AS latest JOIN steps s ON s.run = latest.id
  WHERE s.kind IN ('step', 'transaction') AND s.completed IS NOT NULL AND s.started IS NOT NULL
"""


LATEST_STEPS = f"{_latest_steps(function=False)} UNION ALL {_latest_steps(function=True)} LIMIT :most"

_UNNEEDED = """
  NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.parent AND p.completed IS NULL)
  AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.scheduled_by AND p.completed IS NULL)
  AND NOT EXISTS (SELECT 1 FROM runs c WHERE c.parent = r.id AND c.completed IS NULL)
  AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.child = r.id AND s.completed IS NULL)
"""
"""No run that has not ended started it, waits for it or is its child."""


def _old_on_postgres(*, function: bool) -> str:
    """A name at a time, each by the index: LIMIT inside keeps PostgreSQL from reading all of history."""
    return f"""
  FROM json_to_recordset(:rules::json) AS k (name text, before bigint, function boolean) CROSS JOIN LATERAL (
    SELECT r.id FROM runs r WHERE r.workflow = k.name AND r.completed <= k.before
      AND {ended_runs("r", function=function)} AND NOT r.end_unprocessed AND {_UNNEEDED}
    ORDER BY r.completed LIMIT :limit) old
  WHERE k.function = {str(function).lower()}
"""


def _old_on_sqlite(*, function: bool) -> str:
    """CROSS JOIN: names first, then their runs by the index."""
    return f"""
  FROM json_each(:rules) k CROSS JOIN runs r
  WHERE json_extract(k.value, '$.function') = {str(function).lower()}
    AND r.workflow = json_extract(k.value, '$.name') AND r.completed <= json_extract(k.value, '$.before')
    AND {ended_runs("r", function=function)} AND NOT r.end_unprocessed AND {_UNNEEDED}
"""


COUNT_OLD = PerDatabase(
    postgres=" UNION ALL ".join(
        f"SELECT k.name, count(*) {_old_on_postgres(function=function)} GROUP BY 1" for function in (False, True)
    ),
    sqlite=" UNION ALL ".join(
        f"SELECT r.workflow, count(*) {_old_on_sqlite(function=function)} GROUP BY 1" for function in (False, True)
    ),
)
FIND_OLD = " UNION ALL ".join(f"SELECT r.id {_old_on_sqlite(function=function)}" for function in (False, True)) + (
    " LIMIT :limit"
)
"""For SQLite, which cannot delete inside a WITH."""
_DELETED = ", ".join(
    f"in_{table} AS (DELETE FROM {table} WHERE run = ANY(ARRAY(SELECT id FROM locked)))" for table in TABLES_OF_RUN
)
PRUNE = f"""
  WITH found AS MATERIALIZED (
    SELECT id FROM ({" UNION ALL ".join(f"SELECT old.id {_old_on_postgres(function=function)}" for function in (False, True))}) AS old
    LIMIT :limit),
  locked AS MATERIALIZED (
    SELECT r.id FROM runs r WHERE r.id = ANY(ARRAY(SELECT id FROM found)) AND r.completed IS NOT NULL
    ORDER BY r.id FOR UPDATE OF r SKIP LOCKED),
  {_DELETED}
  DELETE FROM runs WHERE id = ANY(ARRAY(SELECT id FROM locked)) RETURNING id
"""
"""For PostgreSQL: one round trip, however far away the database is. A run that was locked or resumed meanwhile is left alone."""
