"""Executors for SQLite connections, and transactions of the store's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.store.sql.bulk import Bulk
from mainspring.store.sql.dialect import for_sqlite
from mainspring.store.sqlite.borrowed import as_text
from mainspring.store.sqlite.dialect import DIALECT
from mainspring.store.transaction import Transaction, run_script

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mainspring.store.changes import Changes
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.sqlite.database import Database
    from mainspring.store.transaction import Rows, Script, Values


_SIZES = (64, 16, 4, 1)
_SOURCE = re.compile(r"\s*FROM \(VALUES \{rows\}\) v\b")
_VALUE = re.compile(r"\bv\.column(\d+)")


class Blocks:
    """One statement for many rows. It has `{rows}` in place of them; `v.column1` … are their values, if it reads from them.

    `executemany` releases the interpreter's lock once per row, and waits for it while the event loop's thread has it: a batch of a hundred
    can take longer than its commit. So rows are the parameters of one statement, in blocks of a few fixed sizes whose statements stay
    prepared. A single row is not read from a VALUES table, which would take longer than the rest.
    """

    def __init__(self, text: str, width: int) -> None:
        text = for_sqlite(text)
        row = f"({', '.join('?' * width)})"
        self._statements = {size: text.replace("{rows}", ", ".join([row] * size)) for size in _SIZES}
        self._order: tuple[int, ...] = tuple(range(width))
        if _SOURCE.search(text):  # not `?1`: Python 3.12 warns of it
            alone = _SOURCE.sub("", text)
            self._order = tuple(int(number) - 1 for number in _VALUE.findall(alone))
            self._statements[1] = _VALUE.sub("?", alone)

    def run(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        """Execute the statement for all rows. Return the number of changed rows."""
        return sum(cursor.rowcount for cursor in self._executed(db, rows))

    def rows(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Execute the statement for all rows. Return the rows that it returns."""
        return [found for cursor in self._executed(db, rows) for found in cursor.fetchall()]

    def _executed(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> Iterator[sqlite3.Cursor]:
        begin = 0
        for size in _SIZES:
            while len(rows) - begin >= size:
                if size == 1:
                    values = [rows[begin][number] for number in self._order]
                else:
                    values = [value for row in rows[begin : begin + size] for value in row]
                yield db.execute(self._statements[size], values)
                begin += size


T = TypeVar("T")


_blocks: dict[Bulk, Blocks] = {}


class SqliteExecutor:
    """Executes statements on the store's own connection. A bulk statement gets its rows as values, not as JSON."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def execute(self, sql: Sql, values: Values) -> Rows:
        if isinstance(sql, Bulk):
            blocks = _blocks.get(sql)
            if blocks is None:
                blocks = _blocks[sql] = Blocks(sql.values, len(sql.columns))
            return blocks.rows(self._db, values["rows"].tuples)
        return self._db.execute(DIALECT.spelled(sql), DIALECT.values(values)).fetchall()


class UsersExecutor:
    """Executes statements on a user's `sqlite3` connection, whatever its settings. `prepare` is called before each."""

    def __init__(self, connection: sqlite3.Connection, prepare: Callable[[], None] | None = None) -> None:
        self._db = connection
        self._prepare = prepare

    async def execute(self, sql: Sql, values: Values) -> Rows:
        if self._prepare is not None:
            self._prepare()
        cursor = self._db.cursor()
        cursor.row_factory = None
        statement, parameters = DIALECT.spelled(sql), DIALECT.values(values)
        if self._db.text_factory is str:
            return cursor.execute(statement, parameters).fetchall()
        with as_text(self._db):
            return cursor.execute(statement, parameters).fetchall()


class UsersAsyncExecutor:
    """Executes statements on a user's `aiosqlite` connection, which SQLAlchemy's async connections use as well."""

    def __init__(self, connection: Any) -> None:
        self._db = connection
        self._begun = False

    async def execute(self, sql: Sql, values: Values) -> Rows:
        if not self._begun:
            self._begun = True
            if (
                not self._db.in_transaction
            ):  # a transaction that begins by reading cannot write after another process has written
                await self._db.execute("BEGIN IMMEDIATE")
        async with self._db.execute(DIALECT.spelled(sql), DIALECT.values(values)) as cursor:
            cursor.row_factory = None
            with as_text(self._db):
                return list(await cursor.fetchall())


class SqliteTransactor:
    """Runs scripts in the store's own transactions. Writers take turns, so a script runs once."""

    def __init__(self, database: Database, publish: Callable[[Changes], None]) -> None:
        self._db = database
        self._publish = publish

    def change(self, work: Callable[[Transaction], Script[T]], now: int = 0) -> T:
        tx = Transaction(DIALECT, now)
        with self._db.write() as connection:
            executor = SqliteExecutor(connection)
            answer = run_script(work(tx), executor)
            run_script(tx.close(), executor)
        self._publish(tx.changes)
        return answer

    def execute(self, sql: Sql, **values: Any) -> Rows:
        with self._db.write_alone() as connection:
            return self._db.patiently(lambda: SqliteExecutor(connection).execute(sql, values))

    def execute_many(self, *work: tuple[str, Sequence[Mapping[str, Any]]]) -> None:
        with self._db.write() as connection:
            for statement, values in work:
                connection.executemany(DIALECT.spelled(statement), values)

    def read(self, sql: Sql, **values: Any) -> Rows:
        with self._db.read() as connection:
            return SqliteExecutor(connection).execute(sql, values)

    def snapshot(self, script: Script[T], ids: Sequence[str] = ()) -> T:
        del ids  # a snapshot needs no locks
        with self._db.snapshot() as connection:
            return run_script(script, SqliteExecutor(connection))
