"""The verbs of `store/joining.py` in SQLite's words, and how they are said on a connection. Writers take turns, so nothing is locked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.store import sql
from mainspring.store.joining import Texts
from mainspring.store.sqlite.batch import ON_STEP
from mainspring.store.sqlite.stops import CANCEL_AT_ONCE, CANCEL_IN_HAND, TREE

if TYPE_CHECKING:
    import sqlite3

    from mainspring.store.joining import Rows

_IDS = "(SELECT value FROM json_each(:ids))"

TEXTS = Texts(
    start=f"""
  INSERT INTO runs ({", ".join(sql.NEW_RUN_COLUMNS)})
  SELECT {", ".join(f"json_extract(value, '$.{column}')" for column in sql.NEW_RUN_COLUMNS)} FROM json_each(:rows)
  WHERE true ON CONFLICT (id) DO NOTHING RETURNING uid
""",
    there=f"SELECT id, uid, workflow, state FROM runs WHERE id IN {_IDS}",
    askers=f"SELECT id, state FROM runs WHERE id IN {_IDS}",
    checkpoint=f"""
  INSERT INTO steps ({", ".join(sql.STEP_COLUMNS)})
  SELECT {", ".join(f":{column}" for column in sql.STEP_COLUMNS)} FROM runs
  WHERE id = :run AND owner = :owner AND epoch = :epoch AND state IN ('running', 'waiting', 'cancelling')
  {ON_STEP} RETURNING run
""",
    mood="UPDATE runs SET state = :mood, due = :due WHERE id = :run AND state IN ('running', 'waiting')",
    state="SELECT state FROM runs WHERE id = :id",
    born_cancelled=f"""
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now
  WHERE id IN {_IDS} AND state IN ('scheduled', 'queued')
""",
    lock_tree=f"{TREE} SELECT id FROM tree",
    cancel_in_hand=CANCEL_IN_HAND,
    cancel_at_once=CANCEL_AT_ONCE,
    lock_waiters="SELECT 1 WHERE false",
    wake=f"""
  UPDATE runs SET
    poked = CASE WHEN owner IS NULL THEN 0 ELSE 1 END,
    state = CASE WHEN owner IS NULL THEN 'queued' ELSE state END,
    due   = CASE WHEN owner IS NULL THEN :now ELSE due END
  WHERE id IN (SELECT run FROM steps WHERE completed IS NULL AND child IN {_IDS})
    AND ((owner IS NULL AND state = 'waiting') OR (owner IS NOT NULL AND state IN ('running', 'waiting', 'cancelling')))
  RETURNING owner
""",
    notify=None,
    ids=lambda ids: json.dumps(list(ids)),
)


class Words:
    """Statements said on a `sqlite3` connection, whatever its owner has made of its rows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def ask(self, text: str, values: dict[str, Any]) -> Rows:
        cursor = self._db.cursor()
        cursor.row_factory = None
        return cursor.execute(text, values).fetchall()
