"""The statements for many writes of one kind at once, and for a single one.

All rows of a batch are sent as one JSON parameter: psycopg takes longer to write arrays column by column than PostgreSQL takes for
everything else. A single row is sent as it is. Each statement applies the writes that meet no obstacle. A write whose run is fenced,
locked, being cancelled or already has that outcome is not among the returned rows, and has changed nothing.
"""

from __future__ import annotations

from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING

from mainspring.model.runs import NewRun
from mainspring.store.changes import FRESH, LONGEST_PAYLOAD, READY, SOME_WORKERS, WORKER
from mainspring.store.sql.conditions import ENDED, next_wake
from mainspring.store.sql.dialect import column_type, travel_type
from mainspring.store.sql.messages import RETURNED
from mainspring.store.sql.records import NEW_RUN_COLUMNS, RECORDED_COLUMNS
from mainspring.store.sql.runs import finish, release, set_state, suspend, wake
from mainspring.store.sql.steps import DISCARD_OUTCOME, ON_STEP, outcome

if TYPE_CHECKING:
    from collections.abc import Collection

    from mainspring.store.changes import Changes

NOTIFY = "(SELECT pg_notify(:channel, :payload))"
"""Uncorrelated, so it is called once, and only if there is a row to return."""
_SUSPENDED, _MAY_SUSPEND = suspend("r", "a.no_later_than", "a.park", ":now")
SUSPEND = f"""
  UPDATE runs r SET {_SUSPENDED}
  FROM json_to_recordset(:ops::json) AS a (n integer, run text, no_later_than bigint, park boolean)
  WHERE r.id = a.run AND {_MAY_SUSPEND} RETURNING a.n
"""
SUSPEND_AND_NOTIFY = f"{SUSPEND}, {NOTIFY}"
_RELEASED, _MAY_RELEASE = release("a.blocked", "a.unbegun")
RELEASE_AND_NOTIFY = f"""
  UPDATE runs r SET {_RELEASED}
  FROM json_to_recordset(:ops::json) AS a (n integer, run text, unbegun text, blocked text)
  WHERE r.id = a.run AND {_MAY_RELEASE} RETURNING a.n, {NOTIFY}
"""

STEP = ", ".join(RECORDED_COLUMNS)
_RUN = ", ".join(NEW_RUN_COLUMNS)


def _typed(columns: tuple[str, ...]) -> dict[str, str]:
    return {column: travel_type(column) for column in columns}


_FENCE = {"n": "integer", "run": "text", "owner": "text", "epoch": "bigint"}
STEP_WRITE = _typed(RECORDED_COLUMNS) | {
    "n": "integer",
    "owner": "text",
    "run_state": "text",
    "wake": "bigint",
    "watch": "text",
}
_DISCARD = _FENCE | {"position": "text"}
_FINISH = {"run": "text", "owner": "text", "epoch": "bigint"} | _typed(
    ("state", "completed", "reason", "output", "error", "after")
)
FINISH_COLUMNS = tuple(_FINISH)


def rows(columns: dict[str, str], parameter: str = "ops", *, lone: bool = False) -> str:
    if lone:
        return f"SELECT {', '.join(f':{column}::{kind} AS {column}' for column, kind in columns.items())}"
    listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    return f"SELECT * FROM json_to_recordset(:{parameter}::json) AS rows ({listed})"


def values(columns: tuple[str, ...], source: str) -> str:
    return ", ".join(f"{source}.{column}::{column_type(column)}" for column in columns)


_ASKED_FOR = {
    name: default
    for name, default in zip(
        NewRun.__struct_fields__[-len(NewRun.__struct_defaults__) :], NewRun.__struct_defaults__, strict=True
    )
    if name in NEW_RUN_COLUMNS
}
_BEGUN, _ONCE = "CASE WHEN a.owner IS NOT NULL THEN a.created END", "(a.owner IS NOT NULL)::integer"
_OWNED = {"started": _BEGUN, "attempt_started": _BEGUN, "epoch": _ONCE, "attempts": _ONCE}


def _new_run(column: str) -> str:
    """A column of a new run: the requested value, without the default. A run with an owner counts as claimed once."""
    default = _ASKED_FOR.get(column)
    if default is None:
        return _OWNED.get(column) or f"a.{column}::{column_type(column)}"
    return f"coalesce(a.{column}, '{default}')::{column_type(column)}"


@cache
def start(*, lone: bool, notify: bool) -> str:
    """The statement that inserts runs. It waits for an id that an open transaction has inserted, because that may be rolled back.

    Without ON CONFLICT, for which PostgreSQL logs each row twice. An id or a key that was taken a moment ago fails the statement, and each
    start is then applied alone.
    """
    return f"""
  INSERT INTO runs ({_RUN})
  SELECT {values(NEW_RUN_COLUMNS, "a") if lone else ", ".join(map(_new_run, NEW_RUN_COLUMNS))}
  FROM set_config('lock_timeout', :patience, true), ({rows(_typed(NEW_RUN_COLUMNS), lone=lone)}) a
  WHERE (SELECT 1 FROM runs r WHERE r.id = a.id) IS NULL
    AND (a.key IS NULL OR (SELECT 1 FROM runs r WHERE r.key = a.key AND r.completed IS NULL) IS NULL)
  RETURNING uid{f", {NOTIFY}" if notify else ""}
"""


_OWN = {"id": "a.id", "uid": "a.id", "input": f"a.input::{column_type('input')}"}
_COMMON = [number for number, column in enumerate(NEW_RUN_COLUMNS) if column not in _OWN]
COMMON_COLUMNS = tuple(NEW_RUN_COLUMNS[number] for number in _COMMON)
common_values = itemgetter(*_COMMON)


@cache
def start_alike(*, notify: bool) -> str:
    """The statement that inserts runs which differ in their ids and inputs only: the server reads every other value once.

    Their ids were created a moment ago, so it does not look for them first. An id that is taken fails the statement.
    """
    chosen = (_OWN.get(column) or f":{column}::{column_type(column)}" for column in NEW_RUN_COLUMNS)
    return f"""
  INSERT INTO runs ({_RUN}) SELECT {", ".join(chosen)}
  FROM set_config('lock_timeout', :patience, true){", pg_notify(:channel, :payload)" if notify else ""},
    unnest(:ids::text[], :inputs::text[]) AS a (id, input)
"""


CHECKPOINT = f"""
  WITH mine AS MATERIALIZED (
    SELECT 1 FROM runs WHERE id = :run AND owner = :owner AND epoch = :epoch AND state <> 'cancelling'
    FOR SHARE SKIP LOCKED)
  INSERT INTO steps ({STEP})
  SELECT {", ".join(f":{column}::{column_type(column)}" for column in RECORDED_COLUMNS)} FROM mine
  {ON_STEP} RETURNING 0
"""
"""The most frequent write: the outcome of a single step and nothing else. It is short, so that it is parsed quickly."""


MOVE = f"""
    UPDATE runs r SET {set_state("d.run_state", "d.wake", "d.due", next_wake("r", "d.position"))}
    FROM done d WHERE r.id = d.run AND d.run_state IS NOT NULL AND r.state IN ('running', 'waiting')"""
"""Sets the states of the runs whose steps are `done`. This statement does not see the rows of those steps, so their due times are added."""


@cache
def write(*, lone: bool, starts: bool, run_state: bool, watch: bool, notify: bool) -> str:
    """The statement for writes of steps, with the parts that these writes need.

    `mine` is the fence. `watched` are the runs that others begin to wait for, locked until the commit. The transaction that ends a watched
    run has either committed, which is seen here, or runs later and finds the waiting step (see `UNBLOCK`). A watched run that is locked now
    may be ending, so the write that watches it is not applied here.

    An operation that has begun has a row without an outcome, `is_open`. Others are inserted without ON CONFLICT, for which PostgreSQL logs each
    row twice. A row that appeared a moment ago fails the statement, and each write is then applied alone.

    The parts are combined by `IN (…) IS TRUE`, not by joins: PostgreSQL estimates a row or two for every part and would join them by nested
    loops, which takes a second for a batch of a thousand. Membership that is not a plain condition is hashed.
    """
    parts = [
        f"asked AS MATERIALIZED ({rows(STEP_WRITE, lone=lone)})",
        f"""mine AS MATERIALIZED (
    SELECT id, owner, epoch, state FROM runs WHERE id = ANY(ARRAY(SELECT run FROM asked))
    ORDER BY id FOR {"NO KEY UPDATE" if run_state else "SHARE"} SKIP LOCKED)""",
    ]
    clean = ["m.state <> 'cancelling'"]
    if watch:
        parts.append(
            """watched AS MATERIALIZED (
    SELECT id, state, reason, output, error FROM runs WHERE id = ANY(ARRAY(SELECT watch FROM asked))
    ORDER BY id FOR SHARE SKIP LOCKED)"""
        )
        clean.append(
            "(a.watch IS NULL OR a.watch IN (SELECT id FROM watched)"
            " OR NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = a.watch))"
        )
    if starts:
        parts.append(f"new AS MATERIALIZED ({rows({'n': 'integer'} | _typed(NEW_RUN_COLUMNS), 'starts')})")
        clean.append("(a.n IN (SELECT new.n FROM new JOIN runs r ON r.id = new.id)) IS NOT TRUE")
    parts += [
        f"""clean AS MATERIALIZED (
    SELECT a.*, (SELECT s.completed IS NULL FROM steps s WHERE s.run = a.run AND s.position = a.position) AS is_open
    FROM asked a JOIN mine m ON m.id = a.run AND m.owner = a.owner AND m.epoch = a.epoch
    WHERE {" AND ".join(clean)})""",
        f"""written AS (
    INSERT INTO steps ({STEP}) SELECT {values(RECORDED_COLUMNS, "clean")} FROM clean WHERE is_open IS NULL RETURNING run, position)""",
        f"""closed AS (
    UPDATE steps s SET {outcome("c")}, epoch = c.epoch FROM clean c
    WHERE s.run = ANY(ARRAY(SELECT run FROM clean WHERE is_open)) AND s.run = c.run AND s.position = c.position AND s.completed IS NULL
    RETURNING s.run, s.position)""",
        """done AS MATERIALIZED (
    SELECT n, run, position, due, run_state, wake, watch FROM clean
    WHERE ((run, position) IN (SELECT run, position FROM written UNION ALL SELECT run, position FROM closed)) IS TRUE)""",
    ]
    if starts:
        # Without ON CONFLICT: an id that was taken a moment ago fails the statement, and each write is then applied alone.
        parts.append(
            f"""started_runs AS (
    INSERT INTO runs ({_RUN}) SELECT {values(NEW_RUN_COLUMNS, "new")}
    FROM set_config('lock_timeout', :patience, true), new WHERE (new.n IN (SELECT n FROM done)) IS TRUE)"""
        )
    if run_state:
        over = f"AND (d.watch IN (SELECT id FROM watched WHERE state IN {ENDED})) IS NOT TRUE" if watch else ""
        parts.append(f"""moved AS ({MOVE} {over})""")
    notified = f"{NOTIFY}::text" if notify else "NULL"
    answer = f"SELECT n, {notified}, NULL AS id, NULL AS state, NULL AS reason, NULL AS output, NULL AS error FROM done"
    if watch:
        answer += " UNION ALL SELECT NULL, NULL, id, state, reason, output::text, error::text FROM watched"
    return f"WITH {', '.join(parts)} {answer}"


DISCARD = f"""
  WITH asked AS MATERIALIZED ({rows(_DISCARD)}),
  mine AS MATERIALIZED (
    SELECT id, owner, epoch FROM runs WHERE id = ANY(ARRAY(SELECT run FROM asked)) ORDER BY id FOR SHARE SKIP LOCKED),
  returned AS (
    UPDATE messages r SET {RETURNED}
    FROM asked a JOIN mine m ON m.id = a.run AND m.owner = a.owner AND m.epoch = a.epoch
    WHERE r.run = a.run AND r.position = a.position AND r.answered IS NULL)
  UPDATE steps s SET {DISCARD_OUTCOME}
  FROM asked a JOIN mine m ON m.id = a.run AND m.owner = a.owner AND m.epoch = a.epoch
  WHERE s.run = a.run AND s.position = a.position
  RETURNING a.n
"""
"""Discards outcomes. A message that the workflow's code never saw goes to the next receive."""


_END = finish("a.state", "a.reason", "a.output", "a.error", "a.completed")
_MAY_END = """r.id = ANY(ARRAY(SELECT run FROM a)) AND r.id = a.run AND coalesce(r.owner, '') = a.owner AND r.epoch = a.epoch
    AND CASE r.state WHEN 'cancelling' THEN a.state = 'cancelled' ELSE r.state IN ('running', 'waiting') AND a.run IS NOT NULL END
    AND (a.after IS NULL OR (SELECT s.completed FROM steps s WHERE s.run = a.run AND s.position = a.after) IS NOT NULL)"""
"""An outcome that precedes the end in the same batch must have been recorded.

The array makes PostgreSQL find runs by their ids: for the join alone it would read all of a medium-sized table. A condition on the state
alone would make it expect a single run, for which it would choose a nested loop.
"""
_WAIT_BRIEFLY = "set_config('lock_timeout', '10ms', true)"
"""Long enough for the lock under which PostgreSQL extends a table or an index, which also counts."""


def _finish(ends: str) -> str:
    return f"""
  WITH a AS MATERIALIZED ({ends})
  UPDATE runs r SET {_END} FROM {_WAIT_BRIEFLY}, a WHERE {_MAY_END} RETURNING a.run
"""


FINISH_ONE, FINISH = _finish(rows(_FINISH, lone=True)), _finish(rows(_FINISH))
FINISH_ALIKE = _finish(
    """SELECT run, :owner AS owner, epoch, :state AS state, completed, NULL AS reason, output, NULL AS error, after
    FROM unnest(:runs::text[], :epochs::bigint[], :completed::bigint[], :outputs::text[], :after::text[])
      AS ends (run, epoch, completed, output, after)"""
)
"""Ends runs. `UNBLOCK` follows in the same transaction. Ends of one worker and one state without a reason are sent as arrays, which the
server reads in less time than JSON.

Rows are not locked before, which would be a record in the log for each. A row that another transaction keeps locked fails the
statement, and the batch is halved until that run is alone.
"""

_AWAKE, _MAY_WAKE = wake("w")
WOKEN = f"""woken AS (
    UPDATE runs r SET {_AWAKE} FROM waiting w WHERE r.id = w.id AND {_MAY_WAKE} RETURNING r.owner),
  to_notify AS (SELECT coalesce(string_agg(DISTINCT coalesce(' {WORKER}' || owner, ' {FRESH}'), ''), '') AS tokens FROM woken)"""
"""Wakes the runs that are `waiting`, except those whose worker learns of the end in memory."""


def notify_woken(tokens: str = "tokens") -> str:
    """Sends the payload with the tokens of `WOKEN`, or says that any run may be ready if they are too long."""
    return (
        f"pg_notify(:channel, :payload || CASE WHEN length(tokens) < {LONGEST_PAYLOAD} THEN {tokens} "
        f"ELSE ' {READY} {SOME_WORKERS}' END)"
    )


def woken(changes: Changes, tokens: Collection[str]) -> None:
    """Add the tokens of `WOKEN` to the changes: runs without an owner can be claimed, and the owners of the others are notified."""
    owners = {token.removeprefix(WORKER) for token in tokens if token != FRESH}
    changes.fresh = changes.fresh or FRESH in tokens
    changes.woke(owners)


UNBLOCK = f"""
  WITH waiting AS MATERIALIZED (
    SELECT id, owner, state FROM set_config('lock_timeout', :patience, true) CROSS JOIN runs
    WHERE id = ANY(ARRAY(
      SELECT s.run FROM steps s WHERE s.completed IS NULL AND s.child = ANY(:ended)
        AND (SELECT c.state FROM runs c WHERE c.id = s.child) IN {ENDED}))
    ORDER BY id FOR NO KEY UPDATE OF runs),
  {WOKEN}
  SELECT tokens, {notify_woken()} FROM to_notify
"""
"""Wakes the runs that wait for runs that have just ended, and notifies other processes.

This is always a later statement than the one that ended the runs and locked their rows. A run that begins to wait for one of them holds its
row until the commit (`watched` above). So every such waiter has either committed, and this new statement sees it, or it does not have the
row yet, and will see the end.

All waiters are locked, also those that need no change because their worker is notified in memory: `Suspend` checks for ended children in a
later statement than the one that locks its run, so one of the two sees the other. (Hence MATERIALIZED: a condition on a plain subquery
would be pushed down below its lock.)
"""
