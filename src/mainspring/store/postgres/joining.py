"""The verbs of `store/joining.py` in PostgreSQL's words, and how they are said on a connection.

These wait for locks, unlike everything else here: the transaction is the user's own and keeps its locks. PostgreSQL finds a deadlock
and rolls one transaction back; only the owner of that transaction can retry it, so nothing here does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self
from typing import cast as seen_as

import psycopg
from psycopg.pq import PipelineStatus
from psycopg.rows import tuple_row
from psycopg.types.string import TextLoader

from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.functions import Functions
from mainspring.store.joined import Inside
from mainspring.store.joined_management import joined_management
from mainspring.store.joining import Texts
from mainspring.store.keyed import HOLDER, KeyTexts
from mainspring.store.postgres import messages, news, stops
from mainspring.store.postgres.one import Held
from mainspring.store.postgres.queues import PostgresQueues
from mainspring.store.postgres.schedule_work import Taken
from mainspring.store.postgres.schedules import PostgresSchedules
from mainspring.store.postgres.statements import MOOD_ONE, ON_STEP, ON_STEP_OR_FAIL, cast
from mainspring.store.run_filters import POSTGRES_ATTRIBUTES, POSTGRES_MESSAGE, Filters

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.store.conversations import Rows, Talk, Tongue
    from mainspring.store.joining import Joining
    from mainspring.store.ops import Write
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect

_PART = "mainspring_part"


def _travels(column: str) -> str:
    return "text" if "json" in cast(column) else cast(column)


_CHECKPOINT = f"""
  WITH mine AS MATERIALIZED (SELECT owner, epoch, state FROM runs WHERE id = :run FOR SHARE)
  INSERT INTO steps ({", ".join(sql.STEP_COLUMNS)})
  SELECT {", ".join(f":{column}::{cast(column)}" for column in sql.STEP_COLUMNS)} FROM mine
  WHERE owner = :owner AND epoch = :epoch AND state IN ('running', 'waiting', 'cancelling')
  {ON_STEP} RETURNING (SELECT state FROM mine)
"""


RECORD = f"""
  WITH mine AS MATERIALIZED (SELECT id, owner, epoch, state FROM runs WHERE id = :run FOR SHARE)
  INSERT INTO steps ({", ".join(sql.STEP_COLUMNS)})
  VALUES (
    (SELECT id FROM mine WHERE owner = :owner AND epoch = :epoch AND state IN ('running', 'waiting', 'cancelling')),
    {", ".join(f":{column}::{cast(column)}" for column in sql.STEP_COLUMNS[1:])})
  {ON_STEP_OR_FAIL} RETURNING (SELECT state FROM mine)
"""
"""The same, for who must not go on where it is refused: it is an error then, because the run or the epoch of the step is missing."""


def _checkpoint(write: Write) -> Talk[State | None]:
    rows = yield _CHECKPOINT, dict(zip(sql.STEP_COLUMNS, sql.step_values(write.step), strict=True), owner=write.owner)
    return State(rows[0][0]) if rows else None


TEXTS = Texts(
    start=f"""
  INSERT INTO runs ({", ".join(sql.NEW_RUN_COLUMNS)})
  SELECT {", ".join(f"a.{column}::{cast(column)}" for column in sql.NEW_RUN_COLUMNS)}
  FROM json_to_recordset(:rows::json) AS a ({", ".join(f"{column} {_travels(column)}" for column in sql.NEW_RUN_COLUMNS)})
  ON CONFLICT DO NOTHING RETURNING uid
""",
    there="SELECT id, uid, workflow, state FROM runs WHERE id = ANY(:ids)",
    askers="SELECT id, state FROM runs WHERE id = ANY(:ids) ORDER BY id FOR SHARE",
    checkpoint=_checkpoint,
    mood=MOOD_ONE,
    succeed="""
  UPDATE runs SET state = 'succeeded', output = :output::json, error = NULL, completed = :completed, owner = NULL, poked = false,
    stranded = NULL
  WHERE id = :run
""",
    born_cancelled="""
  UPDATE runs SET state = 'cancelled', reason = :reason, completed = :now, untold = true
  WHERE id = ANY(:ids) AND state IN ('scheduled', 'queued')
""",
    lock_tree=f"""
  SELECT id FROM runs WHERE id IN ({stops.TREE_FIND}) ORDER BY id FOR NO KEY UPDATE
""",
    cancel_in_hand=stops.CANCEL_IN_HAND,
    cancel_undoable=stops.CANCEL_UNDOABLE,
    cancel_at_once=stops.CANCEL_AT_ONCE,
    terminate=stops.TERMINATE,
    lock_runs="SELECT id, owner, epoch FROM runs WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE",
    waiters="SELECT DISTINCT s.run FROM steps s WHERE s.completed IS NULL AND s.child = ANY(:ids)",
    wake="""
  UPDATE runs SET
    poked = owner IS NOT NULL,
    state = CASE WHEN owner IS NULL THEN 'queued' ELSE state END,
    due   = CASE WHEN owner IS NULL THEN :now ELSE due END
  WHERE id = ANY(:ids)
    AND ((owner IS NULL AND state = 'waiting') OR (owner IS NOT NULL AND state IN ('running', 'waiting', 'cancelling')))
  RETURNING owner
""",
    notify=news.NOTIFY,
    ids=list,
    keys=KeyTexts(lambda column: f":{column}::{cast(column)}", f"{HOLDER} FOR NO KEY UPDATE"),
    says=messages.statements,
    listeners=lambda said: (messages.LISTENERS, {"said": messages.listening(said)}),
    generations="SELECT uid, id, generation FROM runs WHERE uid = ANY(:ids)",
    recorded="""
  SELECT run, position, CASE WHEN kind = 'mark' THEN output::text END FROM steps
  WHERE completed IS NOT NULL AND kind IN ('transaction', 'mark') AND run = ANY(:ids)
""",
    old_snapshot="SELECT current_setting('transaction_isolation') <> 'read committed'",
    parents="SELECT parent FROM runs WHERE parent IS NOT NULL AND id = ANY(:ids)",
)


class Words:
    """Statements said on a psycopg connection, whatever its owner has made of its rows and cursors."""

    def __init__(self, connection: psycopg.Connection[Any], dialect: Dialect) -> None:
        self._db = connection
        self._sql = dialect

    def ask(self, text: str, values: Any) -> Rows:
        with psycopg.Cursor(self._db, row_factory=tuple_row) as cursor:
            _as_text(cursor)
            cursor.execute(self._sql(text), values)
            if self._db.info.pipeline_status != PipelineStatus.OFF:
                with _rows_or_none():
                    return cursor.fetchall()
            return cursor.fetchall() if cursor.description else []


class AsyncWords:
    """The same on an asynchronous one."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], dialect: Dialect) -> None:
        self._db = connection
        self._sql = dialect

    async def ask(self, text: str, values: Any) -> Rows:
        async with psycopg.AsyncCursor(self._db, row_factory=tuple_row) as cursor:
            _as_text(cursor)
            await cursor.execute(self._sql(text), values)
            if self._db.info.pipeline_status != PipelineStatus.OFF:
                with _rows_or_none():
                    return await cursor.fetchall()
            return await cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def _rows_or_none() -> Generator[None]:
    """In a pipeline only asking for rows tells whether a statement has any. What the database itself refuses has a code."""
    try:
        yield
    except psycopg.ProgrammingError as error:
        if error.sqlstate is not None:
            raise


def _as_text(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
    """Values are JSON text on both sides, whatever the owner of the connection has made of that type."""
    for name in ("json", "jsonb"):
        cursor.adapters.register_loader(name, TextLoader)


class _Answer(list[tuple[Any, ...]]):
    """The rows of a statement, as a cursor hands them out."""

    def fetchall(self) -> Rows:
        return self


class _OneTransaction:
    """Stands in for the database, and for a connection to it, where everything is part of a transaction that somebody has open."""

    def __init__(self, tongue: Tongue) -> None:
        self._tongue = tongue

    def execute(self, text: str, values: Any = None) -> _Answer:
        return _Answer(self._tongue.ask(text, values or {}))

    @contextlib.contextmanager
    def transaction(self) -> Generator[Self]:
        """What fails in the middle leaves no trace, and what was done before stays."""
        self.execute(f"SAVEPOINT {_PART}")
        try:
            yield self
        except BaseException:
            self.execute(f"ROLLBACK TO SAVEPOINT {_PART}")
            self.execute(f"RELEASE SAVEPOINT {_PART}")
            raise
        self.execute(f"RELEASE SAVEPOINT {_PART}")

    @contextlib.contextmanager
    def connection(self) -> Generator[Self]:
        yield self

    snapshot = connection


class _Unspoken:
    """Leaves statements as they are written: whoever has the connection puts them into its words."""

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def __call__(self, text: str) -> str:
        return text


class JoinedSchedules(PostgresSchedules):
    """The schedules, seen and changed inside an open transaction.

    A deadlock or a serialization failure is for the owner of the transaction: its locks and its snapshot stay what they are, so
    only the whole transaction can be retried.
    """

    _retried = (Held, Taken)

    def _wait(self, db: Connection, held: Exception) -> None:
        """Wait for the rows while holding others, as everything does here."""
        if isinstance(held, Held):
            db.execute(self._sql(TEXTS.lock_runs), {"ids": held.runs})


def inside(tongue: Tongue, joining: Joining) -> Inside:
    """What works inside somebody's open transaction. What it tells is told by its commit."""
    database, dialect = seen_as("Database", _OneTransaction(tongue)), seen_as("Dialect", _Unspoken(joining.channel))

    def tell(told: news.News) -> None:
        joining.add(told.signal())

    return Inside(
        JoinedSchedules(database, dialect, joining.origin, tell),
        Functions(tongue.ask),
        joined_management(tongue, joining, Filters(POSTGRES_ATTRIBUTES, POSTGRES_MESSAGE)),
        PostgresQueues(database, dialect, joining.origin, tell, joined=True),
        joining,
        tongue,
    )
