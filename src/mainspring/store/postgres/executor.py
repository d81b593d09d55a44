"""Executors for PostgreSQL connections, and transactions of the store's own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import psycopg
from psycopg.pq import PipelineStatus
from psycopg.rows import tuple_row
from psycopg.types.string import TextLoader

from mainspring.store.external.colours import entered, ready
from mainspring.store.postgres.database import LOCKED
from mainspring.store.transaction import PATIENCE, Blocked, Transaction, run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from mainspring.store.changes import Changes
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import Rows, Script, Values

T = TypeVar("T")
UsersConnection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

_WAIT = """
  SELECT 1 FROM set_config('lock_timeout', :patience, true) CROSS JOIN runs WHERE id = :id FOR NO KEY UPDATE OF runs
"""
_MOST_ATTEMPTS = 20
"""After so many attempts a transaction waits for rows while it holds others, in the order of ids. The others give up after a moment."""


class PostgresExecutor:
    """Executes statements on the store's own connection."""

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        self._db = connection
        self._dialect = dialect

    def execute(self, sql: Sql, values: Values) -> Rows:
        done = self._db.execute(self._dialect(sql), values)
        # Not `description`: psycopg makes an object for each column each time it is asked.
        return done.fetchall() if done.pgresult is not None and done.pgresult.nfields else []


class UsersExecutor:
    """Executes statements on a user's psycopg connection, blocking or async, whatever its row and cursor factories.

    `check` is called before each.
    """

    def __init__(
        self, connection: UsersConnection, dialect: Dialect, check: Callable[[UsersConnection], None] | None = None
    ) -> None:
        self._db = connection
        self._check = check
        self._dialect = dialect
        self.is_async = isinstance(connection, psycopg.AsyncConnection)
        self._cursor: Any = psycopg.AsyncCursor if self.is_async else psycopg.Cursor

    async def execute(self, sql: Sql, values: Values) -> Rows:
        if self._check is not None:
            self._check(self._db)
        async with entered(self._cursor(self._db, row_factory=tuple_row)) as cursor:
            _load_json_as_text(cursor)
            await ready(cursor.execute(self._dialect(sql), values))
            if self._db.info.pipeline_status != PipelineStatus.OFF:
                with _rows_or_none():
                    return cast("Rows", await ready(cursor.fetchall()))
            return cast("Rows", await ready(cursor.fetchall())) if cursor.description else []


@contextlib.contextmanager
def _rows_or_none() -> Generator[None]:
    """The rows of a statement, or None. In a pipeline, only a fetch shows whether there are rows. Errors of the database have a code."""
    try:
        yield
    except psycopg.ProgrammingError as error:
        if error.sqlstate is not None:
            raise


def _load_json_as_text(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
    """Read JSON as text, whatever the owner of the connection has set for that type."""
    for name in ("json", "jsonb"):
        cursor.adapters.register_loader(name, TextLoader)


class PostgresTransactor:
    """Runs scripts in the store's own transactions.

    A cancelled tree is locked from parents to children, and a child that ends is locked before its parent is woken. Transactions that
    waited for the next row while they held the first would deadlock sooner or later. So a script locks the rows that are free. If another
    transaction has locked the others, everything is rolled back, those rows alone are waited for, and the script is run again.
    """

    def __init__(self, database: Database, dialect: Dialect, origin: str, publish: Callable[[Changes], None]) -> None:
        self._db = database
        self._dialect = dialect
        self._origin = origin
        self._publish = publish

    def change(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        with self._db.connection() as connection:
            answer, changes = self._run(connection, work, now)
        self._publish(changes)
        return answer

    def _run(self, connection: Connection, work: Callable[[Transaction], Script[T]], now: int) -> tuple[T, Changes]:
        executor = PostgresExecutor(connection, self._dialect)
        attempt = 0
        while True:
            attempt += 1
            tx = Transaction(self._dialect, now, attempt=attempt, waits=attempt > _MOST_ATTEMPTS)
            try:
                with connection.transaction():
                    answer = run_script(work(tx), executor)
                    run_script(tx.close(self._origin), executor)
            except Blocked as blocked:
                wait_for(connection, self._dialect, blocked)
            except LOCKED:
                pass
            else:
                return answer, tx.changes

    def execute(self, sql: Sql, **values: Any) -> Rows:
        with self._db.connection() as connection:
            return PostgresExecutor(connection, self._dialect).execute(sql, values)

    read = execute

    def execute_many(self, *work: tuple[str, Sequence[Mapping[str, Any]]]) -> None:
        with self._db.transaction() as connection, connection.cursor() as cursor:
            for statement, values in work:
                cursor.executemany(self._dialect(statement), values)

    def snapshot(self, script: Script[T], ids: Sequence[str] = ()) -> T:
        del ids  # a snapshot needs no locks
        with self._db.snapshot() as connection:
            return run_script(script, PostgresExecutor(connection, self._dialect))


def wait_for(connection: Connection, dialect: Dialect, blocked: Blocked) -> None:
    """Wait a moment for other transactions to unlock rows, without holding any."""
    for run in blocked.runs:
        with contextlib.suppress(*LOCKED):
            connection.execute(dialect(_WAIT), {"patience": PATIENCE, "id": run})
