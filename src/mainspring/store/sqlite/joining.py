"""The verbs of `store/joining.py` in SQLite's words, and how they are said on a connection. Writers take turns, so nothing is locked."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Self, cast

from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.functions import Functions
from mainspring.store.joined import Inside
from mainspring.store.joined_management import joined_management
from mainspring.store.joining import Texts
from mainspring.store.protocol import Signal
from mainspring.store.run_filters import SQLITE_ATTRIBUTES, SQLITE_MESSAGE, Filters
from mainspring.store.sqlite import messages
from mainspring.store.sqlite.lent import as_text
from mainspring.store.sqlite.queues import SqliteQueues
from mainspring.store.sqlite.schedules import SqliteSchedules
from mainspring.store.sqlite.statements import KEY_TEXTS, ON_STEP
from mainspring.store.sqlite.stops import CANCEL_AT_ONCE, CANCEL_IN_HAND, CANCEL_UNDOABLE, TERMINATE, TREE_FIND

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator

    from mainspring.store.conversations import Rows, Talk, Tongue
    from mainspring.store.joining import Joining
    from mainspring.store.ops import Write
    from mainspring.store.sqlite.database import Database

_PART = "mainspring_part"
_IDS = "(SELECT value FROM json_each(:ids))"

_FENCE = """
  SELECT state, owner, epoch, (SELECT completed FROM steps WHERE run = ?1 AND position = ?2) FROM runs WHERE id = ?1
"""
_IN_HAND = (State.RUNNING, State.WAITING, State.CANCELLING)
_RECORD = (
    f"INSERT INTO steps ({', '.join(sql.STEP_COLUMNS)}) VALUES ({', '.join('?' for _ in sql.STEP_COLUMNS)}) {ON_STEP}"
)

_EPOCH, _OWNER = sql.STEP_COLUMNS.index("epoch") + 1, len(sql.STEP_COLUMNS) + 1
RECORD_FIRST = f"""
  INSERT INTO steps ({", ".join(sql.STEP_COLUMNS)}) VALUES (
    (SELECT id FROM runs WHERE id = ?1 AND owner = ?{_OWNER} AND epoch = ?{_EPOCH} AND state = 'running'),
    {", ".join(f"?{number}" for number in range(2, _OWNER))})
"""
"""Both in one statement, in half the time: for a run in hand, and what nothing is recorded of yet. Otherwise a constraint refuses it.
Its values are those of the step, and the owner.
"""


def _checkpoint(write: Write) -> Talk[State | None]:
    """Looking and then writing takes half as long as one statement that does both, and nobody else writes in between."""
    step = write.step
    for state, owner, epoch, completed in (yield _FENCE, (step.run, step.position)):
        if state in _IN_HAND and owner == write.owner and epoch == step.epoch and completed is None:
            yield _RECORD, sql.step_values(step)
            return State(state)
    return None


TEXTS = Texts(
    start=f"""
  INSERT INTO runs ({", ".join(sql.NEW_RUN_COLUMNS)})
  SELECT {", ".join(f"json_extract(value, '$.{column}')" for column in sql.NEW_RUN_COLUMNS)} FROM json_each(:rows)
  WHERE true ON CONFLICT DO NOTHING RETURNING uid
""",
    there=f"SELECT id, uid, workflow, state FROM runs WHERE id IN {_IDS}",
    askers=f"SELECT id, state FROM runs WHERE id IN {_IDS}",
    checkpoint=_checkpoint,
    mood="UPDATE runs SET state = :mood, due = :due WHERE id = :run AND state IN ('running', 'waiting')",
    succeed="""
  UPDATE runs SET state = 'succeeded', output = :output, error = NULL, completed = :completed, owner = NULL, poked = 0,
    stranded = NULL
  WHERE id = :run
""",
    born_cancelled=f"""
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, untold = 1
  WHERE id IN {_IDS} AND state IN ('scheduled', 'queued')
""",
    lock_tree=TREE_FIND,
    cancel_in_hand=CANCEL_IN_HAND,
    cancel_undoable=CANCEL_UNDOABLE,
    cancel_at_once=CANCEL_AT_ONCE,
    terminate=TERMINATE,
    lock_runs=f"SELECT id, owner, epoch FROM runs WHERE id IN {_IDS}",
    waiters=f"SELECT DISTINCT run FROM steps WHERE completed IS NULL AND child IN {_IDS}",
    wake=f"""
  UPDATE runs SET
    poked = CASE WHEN owner IS NULL THEN 0 ELSE 1 END,
    state = CASE WHEN owner IS NULL THEN 'queued' ELSE state END,
    due   = CASE WHEN owner IS NULL THEN :now ELSE due END
  WHERE id IN {_IDS}
    AND ((owner IS NULL AND state = 'waiting') OR (owner IS NOT NULL AND state IN ('running', 'waiting', 'cancelling')))
  RETURNING owner
""",
    notify=None,
    ids=lambda ids: json.dumps(list(ids)),
    keys=KEY_TEXTS,
    says=lambda says: [messages.statement(say) for say in says],
    listeners=messages.listening,
    generations=f"SELECT uid, id, generation FROM runs WHERE uid IN {_IDS}",
    recorded=f"""
  SELECT run, position, CASE WHEN kind = 'mark' THEN output END FROM steps
  WHERE completed IS NOT NULL AND kind IN ('transaction', 'mark') AND run IN {_IDS}
""",
    old_snapshot=None,
    parents=f"SELECT parent FROM runs WHERE parent IS NOT NULL AND id IN {_IDS}",
)


class Words:
    """Statements said on a `sqlite3` connection, whatever its owner has made of its rows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def ask(self, text: str, values: Any) -> Rows:
        cursor = self._db.cursor()
        cursor.row_factory = None
        if self._db.text_factory is str:
            return cursor.execute(text, values).fetchall()
        with as_text(self._db):
            return cursor.execute(text, values).fetchall()


class AsyncWords:
    """The same on an `aiosqlite` connection, of which SQLAlchemy's asynchronous ones are made."""

    def __init__(self, connection: Any) -> None:
        self._db = connection
        self._begun = False

    async def ask(self, text: str, values: Any) -> Rows:
        if not self._begun:
            self._begun = True
            if not self._db.in_transaction:  # one that begins by reading could not write after anybody else has written
                await self._db.execute("BEGIN IMMEDIATE")
        async with self._db.execute(text, values) as cursor:
            cursor.row_factory = None
            with as_text(self._db):
                return list(await cursor.fetchall())


class _Answer(list[tuple[Any, ...]]):
    """The rows of a statement, as a cursor hands them out."""

    rowcount = 0  # nobody who works inside somebody's transaction counts changes

    def fetchall(self) -> Rows:
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        return self[0] if self else None


class _OneTransaction:
    """Stands in for the database where everything is part of a transaction that somebody has open."""

    def __init__(self, tongue: Tongue) -> None:
        self._tongue = tongue

    def execute(self, text: str, values: Any = ()) -> _Answer:
        return _Answer(self._tongue.ask(text, values))

    @contextlib.contextmanager
    def write(self) -> Generator[Self]:
        """What fails in the middle leaves no trace, and what was done before stays."""
        self.execute(f"SAVEPOINT {_PART}")
        try:
            yield self
        except BaseException:
            self.execute(f"ROLLBACK TO {_PART}")
            self.execute(f"RELEASE {_PART}")
            raise
        self.execute(f"RELEASE {_PART}")

    @contextlib.contextmanager
    def read(self) -> Generator[Self]:
        yield self

    snapshot = read


def inside(tongue: Tongue, joining: Joining) -> Inside:
    """What works inside somebody's open transaction. What it tells is told when that has committed."""
    database = cast("Database", _OneTransaction(tongue))
    return Inside(
        SqliteSchedules(database, lambda batch: joining.add(batch.signal())),
        Functions(tongue.ask),
        joined_management(tongue, joining, Filters(SQLITE_ATTRIBUTES, SQLITE_MESSAGE)),
        SqliteQueues(database, lambda: joining.add(Signal(ready=True))),
        joining,
        tongue,
    )
