"""Statements about the table `runs`: reading, locking, starting, suspending, ending and stopping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.store.sql.bulk import insert
from mainspring.store.sql.claims import INSTANCE, same_source
from mainspring.store.sql.conditions import (
    ENDED,
    EXPIRES,
    IN_FAILED,
    LATER,
    OWNED,
    READY,
    RESUMES,
    awaited_end,
    has_wait,
    next_wake,
    stays_waiting,
    undoable,
)
from mainspring.store.sql.dialect import PerDatabase, column_type, distinct, earliest, per_database, typed
from mainspring.store.sql.messages import RETURNED, arrived
from mainspring.store.sql.records import NEW_RUN_COLUMNS, RUN_COLUMNS, SCHEDULED_RUN_COLUMNS

if TYPE_CHECKING:
    from mainspring.store.sql.dialect import Where


OF_OTHER_UID = "(id <> uid OR id < '1k' OR id >= '2')"
"""The condition of the index `runs_uid`, the same text. Ids that are made from July 2025 to September 2039 lie between the two bounds, most ids
that users choose do not, so that a statement that reads the primary key in this range passes over few of them.
"""
OF_OWN_UID = "id >= '1k' AND id < '2' AND CASE WHEN id = uid THEN true ELSE false END"
"""The opposite. CASE, because PostgreSQL expects a single run for which two columns are equal, and would read and sort the whole table."""


def by_uids(columns: str) -> str:
    """A statement that finds runs by their uids, `:uids`."""
    return f"""
  SELECT {columns} FROM runs WHERE id = ANY(:uids) AND uid = id
  UNION ALL SELECT {columns} FROM runs WHERE uid = ANY(:uids) AND id <> uid AND {OF_OTHER_UID}
"""


def newest(other: Where, own: Where, limit: str = ":limit") -> str:
    """A statement for the ids of the newest runs, up to a limit, that meet conditions, and of some older ones.

    `other` has the conditions for runs by the index of uids, `own` the same for runs by the primary key. The second part reads no runs that are
    older than the page that the first part fills. It would otherwise pass over all children of a run, whose ids begin with its id.
    """
    return f"""
    WITH others AS MATERIALIZED (SELECT id, uid FROM runs {other & OF_OTHER_UID} ORDER BY uid DESC LIMIT {limit})
    SELECT id FROM others UNION ALL SELECT id FROM (
      SELECT id FROM runs {own & OF_OWN_UID} AND id >= (SELECT CASE WHEN count(*) < {limit} THEN '' ELSE min(uid) END FROM others)
      ORDER BY id DESC LIMIT {limit}) x"""


def oldest_of(*, before: bool) -> str:
    """A statement for the uid of a run such that about `:within` runs are newer, but older than `:before`; NULL: there are fewer runs.

    They are up to twice as many, if the ids of half of the runs are not their uids. The second part ends where the first does, as in `newest`.
    """
    other, own = ("AND uid < :before", "AND id < :before") if before else ("", "")
    return f"""
  WITH others AS MATERIALIZED (
    SELECT uid FROM runs WHERE {OF_OTHER_UID} {other} ORDER BY uid DESC LIMIT 1 OFFSET :within)
  SELECT max(uid) FROM (SELECT uid FROM others UNION ALL SELECT id FROM (
    SELECT id FROM runs WHERE {OF_OWN_UID} {own} AND id >= coalesce((SELECT uid FROM others), '')
    ORDER BY id DESC LIMIT 1 OFFSET :within) x) AS found
"""


# -- reading -------------------------------------------------------------------------------------------------------------
GET_RUN = f"SELECT {', '.join(RUN_COLUMNS)} FROM runs WHERE id = :id"
LIST_CHILDREN = f"SELECT {', '.join(RUN_COLUMNS)} FROM runs WHERE parent = :id ORDER BY uid"
ENDINGS = "SELECT id, state, reason, output, error FROM runs WHERE id = ANY(:ids)"
ORPHANED = f"""{distinct("owner", OWNED)}
  SELECT name FROM names WHERE name IS NOT NULL AND name NOT IN (SELECT id FROM workers)
"""
OWNED_RUNS = "SELECT id, epoch, state, reason FROM runs WHERE owner = :worker"
OWNED_STATE = """
  SELECT state FROM runs
  WHERE id = :id AND owner = :worker AND epoch = :epoch AND state IN ('running', 'waiting', 'cancelling')
"""
COUNT_BY_STATE = f"""
  SELECT state, CAST(sum(found) AS bigint) FROM (
    SELECT state, count(*) AS found FROM runs WHERE {OWNED} GROUP BY state
    UNION ALL SELECT state, count(*) FROM runs WHERE {LATER} GROUP BY state
    UNION ALL SELECT 'queued', count(*) FROM runs WHERE {READY}
    UNION ALL SELECT 'queued', count(*) FROM runs WHERE {RESUMES}
  ) AS parts GROUP BY state HAVING sum(found) > 0
"""
"""Unfinished runs, each part by its own index, so that ended runs are not read."""

GENERATIONS = by_uids("uid, id, generation")
PARENTS = "SELECT parent FROM runs WHERE parent IS NOT NULL AND id = ANY(:ids)"

# -- locking -------------------------------------------------------------------------------------------------------------
EXISTING = "SELECT id FROM runs WHERE id = ANY(:ids)"
LOCKED_COLUMNS = "id, owner, epoch, state, reason, output, error, completed"
LOCK_RUNS = f"SELECT {LOCKED_COLUMNS} FROM runs WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE"
SHARE_RUNS = f"SELECT {LOCKED_COLUMNS} FROM runs WHERE id = ANY(:ids) ORDER BY id FOR SHARE"
SKIP_LOCKED = " SKIP LOCKED"


def _trees(which: str) -> PerDatabase:
    """Runs and all their descendants. SQLite has no LATERAL and needs none.

    OFFSET 0 keeps PostgreSQL, until it has statistics, from reading the whole table to find a few children.
    """
    return PerDatabase(
        postgres=f"""
  WITH RECURSIVE tree (id) AS (
    SELECT id FROM runs WHERE id = ANY(:ids)
    UNION SELECT child.id FROM tree CROSS JOIN LATERAL (
      SELECT r.id FROM runs r WHERE r.parent = tree.id AND {which} OFFSET 0) child)
  SELECT id FROM tree
""",
        sqlite=f"""
  WITH RECURSIVE tree (id) AS (
    SELECT value FROM json_each(:ids) UNION SELECT r.id FROM runs r JOIN tree ON r.parent = tree.id WHERE {which})
  SELECT id FROM tree
""",
    )


TREE = _trees("true")
TREE_WITH_DEADLINE = _trees("r.deadline IS NOT NULL")
"""A run whose deadline has passed does not stop children that were started without a deadline."""

# -- starting ------------------------------------------------------------------------------------------------------------
INSERT_RUNS = insert("runs", NEW_RUN_COLUMNS, column_type, "ON CONFLICT DO NOTHING RETURNING uid")
INSERT_SCHEDULED_RUNS = insert("runs", SCHEDULED_RUN_COLUMNS, column_type, "ON CONFLICT DO NOTHING RETURNING uid")
DISCARD_STARTED = "DELETE FROM runs WHERE id = ANY(:ids) AND uid = ANY(:uids)"
"""For runs that this transaction has inserted and does not start after all."""
STARTED_RUNS = "SELECT id, uid, workflow, state FROM runs WHERE id = ANY(:ids)"
CANCEL_STARTED = """
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, owner = NULL, end_unreported = true
  WHERE id = ANY(:ids) AND state IN ('scheduled', 'queued', 'running')
"""
KEY_HOLDER = f"""
  SELECT id, workflow, state, due, attempt_started IS NOT NULL OR undo_reason IS NOT NULL OR (error IS NULL AND {undoable("runs")}) AS begun,
    attempts, debounce_until, last_request, epoch > 0 AS claimed
  FROM runs WHERE key = :key AND completed IS NULL
  FOR NO KEY UPDATE"""
"""A run that executes its compensations has begun, and so has a resumed one that may have some to execute. Between attempts, with the error of
the last one, a run has executed them.
"""
KEY_HOLDERS = "SELECT key, id FROM runs WHERE key = ANY(:keys) AND completed IS NULL"
REQUESTED_COLUMNS = (
    *("workflow", "kind", "input", "state", "due", "timeout", "deadline", "version", "attributes"),
    *("queue", "priority", "partition", "retry"),
)
REPLACE_REQUEST = f"""
  UPDATE runs SET {", ".join(f"{column} = {typed(column)}" for column in REQUESTED_COLUMNS)},
    attempts = 0, error = NULL, reason = NULL, blocked = NULL, fingerprint = '', last_request = :last_request, started = NULL,
    recoveries = 0, generation = CASE WHEN epoch = 0 THEN generation ELSE generation + 1 END
  WHERE id = :id
"""
"""A run that was claimed for its old request begins another generation: ids and keys are made from positions, and positions begin with it."""
DROP_KEY = f"UPDATE runs SET key = NULL, retry = coalesce({typed('retry')}, retry) WHERE id = :id"
KEY_TAKEN = "SELECT id FROM runs WHERE key = :key AND id <> :id AND completed IS NULL"


# -- writes of a run, after its row is locked ------------------------------------------------------------------------------
# These functions make the SET clause, for a run `r`, of the verb and of the bulk statements. Their parameters are expressions of a single write
# or of a row of a batch.
def set_state(state: str, due: str, *wakes: str) -> str:
    """The SET clause for a run that begins to wait or to run. A run that waits wakes at `due` or at one of the times `wakes`."""
    return f"state = {state}, due = CASE WHEN {state} = 'waiting' THEN {earliest(due, *wakes)} ELSE {due} END"


def finish(state: str, reason: str, output: str, error: str, completed: str) -> str:
    """The SET clause that ends a run."""
    return f"""state = {state}, reason = coalesce({reason}, r.reason), output = {output}::json, error = {error}::json,
    completed = {completed}, owner = NULL, needs_attention = false, blocked = NULL"""


def wake(found: str) -> tuple[str, str]:
    """The SET clause that wakes a run, and its condition. `found` is the row of the run that was locked.

    A worker that is `:informed` learns of the change in memory.
    """
    return (
        f"""needs_attention = {found}.owner IS NOT NULL,
    state = CASE WHEN {found}.owner IS NULL THEN 'queued' ELSE r.state END,
    due = CASE WHEN {found}.owner IS NULL THEN :now ELSE r.due END""",
        f"""(({found}.owner IS NULL AND {found}.state = 'waiting')
    OR ({found}.state IN ('running', 'waiting', 'cancelling') AND {found}.owner <> ALL(:informed)))""",
    )


def suspend(run: str, no_later_than: str, park: str, now: str) -> tuple[str, str]:
    """The SET clause that suspends a run, and its condition.

    The worker may have read a notification that the run has not processed yet, and a suspended run will not process it. So a run that has
    something to receive, or whose time has come, is not suspended.
    """
    due = earliest(no_later_than, next_wake(run))
    return (
        f"state = 'waiting', due = {due}, owner = CASE WHEN {park} THEN NULL ELSE {run}.owner END",
        f"""NOT {run}.needs_attention AND {has_wait(run)} AND NOT {awaited_end(run)}
    AND NOT ({park} AND ({arrived(run)} OR ({due} <= {now}) IS TRUE))""",
    )


def release(blocked: str, unbegun: str) -> tuple[str, str]:
    """The SET clause that releases a run `r`, and its condition, as in `suspend`.

    A run that has not begun its attempt under this claim, `unbegun`, begins it under the next.
    """
    waits = f"{blocked} IS NULL AND {stays_waiting('r')}"
    as_before = f"({unbegun} IS NOT NULL AND r.epoch = r.began_epoch)"
    return (
        f"""owner = NULL, needs_attention = false, blocked = {blocked}::json,
    state = CASE WHEN {waits} THEN 'waiting' ELSE 'queued' END,
    due = {earliest("r.due", f"CASE WHEN {waits} THEN {next_wake('r')} ELSE :now END")},
    undo_reason = CASE WHEN r.state = 'cancelling' THEN coalesce(r.reason, '') ELSE r.undo_reason END,
    attempts = CASE WHEN {as_before} THEN greatest(r.attempts - 1, 0) ELSE r.attempts END,
    started = CASE WHEN {as_before} AND r.attempts <= 1 THEN NULL ELSE r.started END,
    attempt_started = CASE WHEN {as_before} THEN NULL ELSE r.attempt_started END""",
        f"({unbegun} IS NULL OR r.uid = {unbegun}) AND (r.state <> 'cancelling' OR {undoable('r')})",
    )


SET_WAITING = f"""
  UPDATE runs AS r SET {set_state(":state", ":due::bigint", next_wake("r"))} WHERE id = :run AND state IN ('running', 'waiting')
"""
SUSPEND = "UPDATE runs AS r SET {} WHERE id = :run AND {} RETURNING id".format(
    *suspend("r", ":no_later_than::bigint", ":park", ":now")
)
RELEASE = "UPDATE runs AS r SET {} WHERE id = :run AND {} RETURNING id".format(
    *release(":blocked::text", ":unbegun::text")
)
RETRY_LATER = """
  UPDATE runs SET state = :state, due = :due, error = :error::json, attempt_started = NULL, owner = NULL, needs_attention = false, blocked = NULL
  WHERE id = :id
"""
COMPENSATE = """
  UPDATE runs SET owner = NULL, needs_attention = false, state = 'queued', due = :now, undo_reason = :undo_reason WHERE id = :run
"""
_OVER = "(position IS NOT NULL OR answered IS NOT NULL)"
"""The same text as the condition of the index `messages_over`, which SQLite requires. Keys of deleted messages are not in it."""
_ASKER = "r.uid || '-' || CASE r.generation WHEN 0 THEN '' ELSE 'g' || r.generation || '.' END"
"""The prefix of the keys of questions that a run `r` asked in its present generation."""
CONTINUE_AS = """
  UPDATE runs SET owner = NULL, needs_attention = false, blocked = NULL, state = 'queued', due = :now, input = :input::json,
    generation = generation + 1, began_epoch = epoch + 1, attempts = least(attempts, 1), error = NULL, recoveries = 0,
    version = NULL, fingerprint = ''
  WHERE id = :run
"""
START_OVER = tuple(
    per_database(each, messages=PerDatabase("messages", "messages INDEXED BY messages_over"))
    for each in (
        "DELETE FROM steps WHERE run = :run",
        f"""
  UPDATE {{messages}} SET {RETURNED}
  WHERE run = :run AND {_OVER} AND kind = 'question' AND answered IS NULL
""",
        f"""
  UPDATE {{messages}} SET body = 'null', position = NULL
  WHERE run = :run AND {_OVER} AND kind = 'message' AND key IS NOT NULL
""",
        f"""
  DELETE FROM {{messages}} WHERE run = :run AND {_OVER} AND (kind = 'message' OR (answered < :long_ago AND NOT EXISTS (
    SELECT 1 FROM runs r WHERE r.id = messages.sender AND r.completed IS NULL
      AND substr(messages.key, 1, length({_ASKER})) = {_ASKER})))
""",
        """
  DELETE FROM events WHERE run = :run AND number < (
    SELECT max(e.number) FROM events e WHERE e.run = events.run AND e.key = events.key)
""",
        f"""
  UPDATE runs SET parent = NULL, scheduled_by = :run WHERE id IN (
    SELECT id FROM runs WHERE parent = :run AND state IN {ENDED} FOR NO KEY UPDATE SKIP LOCKED)
""",
    )
)
"""The statements for a run that begins another generation. They delete its steps, received messages and older values of events.

The key of a message stays, without a position, so that a second message with that key is never stored. An accepted question without an
answer goes to the next generation. An answer is kept for an hour, and for as long as the asking run may read it: until that run ends or
starts over itself. Without the hint SQLite uses the primary key, and reads the keys of all messages that the run has received.
"""
LONG_AGO = 3_600_000_000
"""How long an answer is kept for a run that has started over, in microseconds."""
FINISH = f"UPDATE runs AS r SET {finish(':state', ':reason', ':output', ':error', ':completed')} WHERE id = :run"
WAKE = "UPDATE runs AS r SET {} WHERE id = ANY(:ids) AND {} RETURNING owner".format(*wake("r"))
NOTICE_READ = f"needs_attention = false, owner = CASE WHEN state IN {ENDED} THEN NULL ELSE owner END"
"""The SET clause for a run whose owner has read that it was changed from outside. The owner of an ended run releases it."""

# -- stopping, after rows are locked ---------------------------------------------------------------------------------------
CANCEL_OWNED = """
  UPDATE runs SET state = 'cancelling', reason = :reason, needs_attention = true
  WHERE id = ANY(:ids) AND owner IS NOT NULL AND kind = 'workflow' AND state IN ('running', 'waiting')
  RETURNING id, owner, epoch
"""
CANCEL_TO_COMPENSATE = f"""
  UPDATE runs AS r SET state = 'queued', reason = :reason, undo_reason = coalesce(:reason, ''), due = :now
  WHERE id = ANY(:ids) AND owner IS NULL AND state IN ('queued', 'waiting') AND undo_reason IS NULL AND {undoable("r")}
  RETURNING id
"""
CANCEL_UNOWNED = """
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, owner = NULL, needs_attention = false, end_unreported = true
  WHERE id = ANY(:ids) AND state IN ('scheduled', 'queued', 'running', 'waiting')
    AND undo_reason IS NULL AND (owner IS NULL OR kind <> 'workflow')
  RETURNING id
"""
TERMINATE = """
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, epoch = epoch + 1, end_unreported = true, needs_attention = owner IS NOT NULL
  WHERE id = ANY(:ids) AND state IN ('scheduled', 'queued', 'running', 'waiting', 'cancelling')
  RETURNING id, owner, epoch
"""
_OVERDUE = f"deadline <= :now AND {EXPIRES}"
FIND_OVERDUE = f"SELECT id FROM runs WHERE {_OVERDUE}"
EXPIRE_TO_COMPENSATE = f"""
  UPDATE runs AS r SET state = 'queued', reason = 'timeout', undo_reason = 'timeout', due = :now
  WHERE id = ANY(:ids) AND {_OVERDUE} AND {undoable("r")}
  RETURNING id
"""
EXPIRE = f"""
  UPDATE runs SET state = 'cancelled', reason = 'timeout', completed = :now, end_unreported = true
  WHERE id = ANY(:ids) AND {_OVERDUE} RETURNING id
"""
FIND_OWNED = "SELECT id FROM runs WHERE owner = :worker"
_CANCELLED = f"r.state = 'cancelling' AND NOT {undoable('r')}"
_MOST_RECOVERIES = PerDatabase(
    postgres="coalesce(CAST(CAST(:limits AS json) ->> r.workflow AS bigint), :most)",
    sqlite="coalesce((SELECT f.value FROM json_each(:limits) f WHERE f.key = r.workflow), :most)",
)
"""How often a run may lose its worker. `limits` are those of single functions, as JSON, which each database reads in its own way."""
_EXHAUSTED = "r.state = 'running' AND r.recoveries >= {most}"
RETIRE = per_database(
    f"""
  UPDATE runs AS r SET owner = NULL, needs_attention = false,
    state = CASE state
      WHEN 'running' THEN CASE WHEN r.recoveries >= {{most}} THEN 'failed' ELSE 'queued' END
      WHEN 'waiting' THEN CASE WHEN {stays_waiting("r")} THEN 'waiting' ELSE 'queued' END
      WHEN 'cancelling' THEN CASE WHEN {undoable("r")} THEN 'queued' ELSE 'cancelled' END ELSE state END,
    undo_reason = CASE WHEN state = 'cancelling' AND {undoable("r")} THEN coalesce(reason, '') ELSE undo_reason END,
    due = CASE WHEN state IN ('running', 'cancelling') THEN least(coalesce(due, :now), :now)
               WHEN state = 'waiting' THEN {earliest("due", f"CASE WHEN {stays_waiting('r')} THEN {next_wake('r')} ELSE :now END")}
               ELSE due END,
    reason = CASE WHEN {_EXHAUSTED} THEN 'recovery exhausted' ELSE reason END,
    error = CASE WHEN {_EXHAUSTED} THEN :exhausted::json ELSE error END,
    completed = CASE WHEN ({_CANCELLED}) OR ({_EXHAUSTED}) THEN :now ELSE completed END,
    end_unreported = ({_CANCELLED}) OR ({_EXHAUSTED}),
    recoveries = CASE WHEN state = 'running' THEN recoveries + 1 ELSE recoveries END
  WHERE owner = :worker AND id = ANY(:ids) RETURNING id, state
""",
    most=_MOST_RECOVERIES,
)
"""Releases the runs of a dead worker."""

# -- runs that nothing can continue ----------------------------------------------------------------------------------------
_SAME_SOURCE = PerDatabase(
    postgres=f"""SELECT 1 FROM workers w
        WHERE {same_source("r.fingerprint", "w.functions ->> r.workflow")}""",
    sqlite=f"""SELECT 1 FROM workers w, json_each(CASE WHEN json_valid(w.functions) THEN w.functions END) f
        WHERE f.key = r.workflow AND {same_source("r.fingerprint", "f.value")}""",
)
_HAS_INSTANCE = PerDatabase(
    postgres=f"""CASE WHEN w.instances -> r.workflow IS NOT NULL
        THEN jsonb_exists(w.instances -> r.workflow, {INSTANCE.postgres}) ELSE true END""",
    sqlite=f"""(NOT EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(w.instances) THEN w.instances END) m WHERE m.key = r.workflow)
        OR EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(w.instances) THEN w.instances END) m, json_each(m.value) i
                   WHERE m.key = r.workflow AND i.value IS {INSTANCE.sqlite}))""",
)
STRAND = per_database(
    f"""
  WITH lost AS MATERIALIZED (
    SELECT id FROM runs r
    WHERE state = 'queued' AND {IN_FAILED} AND blocked IS NULL AND fingerprint <> ''
      AND NOT EXISTS ({{same_source}} AND {{has_instance}})
    ORDER BY id FOR NO KEY UPDATE OF r SKIP LOCKED)
  UPDATE runs AS r SET blocked = {{object}}('versions', {{array}}(), 'reason',
    CASE WHEN EXISTS ({{same_source}}) THEN 'no live worker has the instance ' || {{instance}} || ' that ' || workflow || ' needs'
      WHEN workflow = ANY(:names)
      THEN 'the source of ' || workflow || ' has changed since this run began under version ' || coalesce(version, '?')
           || '; no live worker has that source'
      ELSE 'no live worker knows ' || workflow || '; if it was renamed, declare it with name=''' || workflow || '''' END)
  WHERE id IN (SELECT id FROM lost) RETURNING id
""",
    same_source=_SAME_SOURCE,
    has_instance=_HAS_INSTANCE,
    instance=INSTANCE,
    object=PerDatabase("json_build_object", "json_object"),
    array=PerDatabase("json_build_array", "json_array"),
)
"""Marks queued runs that no live worker can continue. Searches the functions of all workers, which are JSON.

PostgreSQL skips runs that another transaction has locked.
"""
