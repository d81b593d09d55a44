"""The verbs of `store/joining.py` in PostgreSQL's words, and how they are said on a connection.

These wait for locks, unlike everything else here: the transaction is somebody's own and holds what it holds. Who waits for whom in
a circle is found out by the database; it rolls one of them back, and that one is made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import tuple_row

from mainspring.store import sql
from mainspring.store.joining import Texts
from mainspring.store.postgres import news, stops
from mainspring.store.postgres.statements import MOOD_ONE, ON_STEP, cast

if TYPE_CHECKING:
    from mainspring.store.joining import Rows
    from mainspring.store.postgres.dialect import Dialect


def _travels(column: str) -> str:
    return "text" if "json" in cast(column) else cast(column)


TEXTS = Texts(
    start=f"""
  INSERT INTO runs ({", ".join(sql.NEW_RUN_COLUMNS)})
  SELECT {", ".join(f"a.{column}::{cast(column)}" for column in sql.NEW_RUN_COLUMNS)}
  FROM json_to_recordset(:rows::json) AS a ({", ".join(f"{column} {_travels(column)}" for column in sql.NEW_RUN_COLUMNS)})
  ON CONFLICT (id) DO NOTHING RETURNING uid
""",
    there="SELECT id, uid, workflow, state FROM runs WHERE id = ANY(:ids)",
    askers="SELECT id, state FROM runs WHERE id = ANY(:ids) ORDER BY id FOR SHARE",
    checkpoint=f"""
  WITH mine AS MATERIALIZED (SELECT owner, epoch, state FROM runs WHERE id = :run FOR SHARE)
  INSERT INTO steps ({", ".join(sql.STEP_COLUMNS)})
  SELECT {", ".join(f":{column}::{cast(column)}" for column in sql.STEP_COLUMNS)} FROM mine
  WHERE owner = :owner AND epoch = :epoch AND state IN ('running', 'waiting', 'cancelling')
  {ON_STEP} RETURNING run
""",
    mood=MOOD_ONE,
    state="SELECT state FROM runs WHERE id = :id",
    born_cancelled="""
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now
  WHERE id = ANY(:ids) AND state IN ('scheduled', 'queued')
""",
    lock_tree=f"""
  SELECT id FROM runs WHERE id IN ({stops.TREE_FIND}) ORDER BY id FOR NO KEY UPDATE
""",
    cancel_in_hand=stops.CANCEL_IN_HAND,
    cancel_at_once=stops.CANCEL_AT_ONCE,
    lock_waiters="""
  SELECT id FROM runs WHERE id IN (SELECT s.run FROM steps s WHERE s.completed IS NULL AND s.child = ANY(:ids))
  ORDER BY id FOR NO KEY UPDATE
""",
    wake="""
  UPDATE runs SET
    poked = owner IS NOT NULL,
    state = CASE WHEN owner IS NULL THEN 'queued' ELSE state END,
    due   = CASE WHEN owner IS NULL THEN :now ELSE due END
  WHERE id IN (SELECT s.run FROM steps s WHERE s.completed IS NULL AND s.child = ANY(:ids))
    AND ((owner IS NULL AND state = 'waiting') OR (owner IS NOT NULL AND state IN ('running', 'waiting', 'cancelling')))
  RETURNING owner
""",
    notify=news.NOTIFY,
    ids=list,
)


class Words:
    """Statements said on a psycopg connection, whatever its owner has made of its rows and cursors."""

    def __init__(self, connection: psycopg.Connection[Any], dialect: Dialect) -> None:
        self._db = connection
        self._sql = dialect

    def ask(self, text: str, values: dict[str, Any]) -> Rows:
        with psycopg.Cursor(self._db, row_factory=tuple_row) as cursor:
            cursor.execute(self._sql(text), values)
            return cursor.fetchall() if cursor.description else []


class AsyncWords:
    """The same on an asynchronous one."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], dialect: Dialect) -> None:
        self._db = connection
        self._sql = dialect

    async def ask(self, text: str, values: dict[str, Any]) -> Rows:
        async with psycopg.AsyncCursor(self._db, row_factory=tuple_row) as cursor:
            await cursor.execute(self._sql(text), values)
            return await cursor.fetchall() if cursor.description else []
