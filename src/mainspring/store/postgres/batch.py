"""Applying a batch of writes on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from mainspring.store.ops import Verdict, Written
from mainspring.store.postgres import statements as text
from mainspring.store.postgres.database import LOCKED, translate
from mainspring.store.postgres.news import News
from mainspring.store.postgres.one import Held, One, Taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.ops import Op, Result
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect


class Applier:
    """Applies writes on the connections of one store."""

    def __init__(self, database: Database, dialect: Dialect, origin: str) -> None:
        self._database = database
        self._sql = dialect
        self._origin = origin

    def apply(self, ops: Sequence[Op], now: int, news: News) -> list[Result | Exception]:
        with self._database.connection() as connection:
            return [self._alone(connection, op, now, news) for op in ops]

    def _alone(self, connection: Connection, op: Op, now: int, news: News) -> Result | Exception:
        """Apply one write in a transaction of its own. Bad data comes back as its exception."""
        while True:
            heard = News()
            try:
                with connection.transaction():
                    answer = One(connection, self._sql, now, heard).apply(op)
                    heard.notify(connection, self._sql, self._origin)
            except Taken as taken:
                return Written(Verdict.TAKEN, taken.taken)
            except Held as held:
                self._wait(connection, held)
            except LOCKED:
                pass
            except (psycopg.Error, UnicodeError, OverflowError) as error:
                if isinstance(error, psycopg.Error) and translate(error, "") is not error:
                    raise
                return error
            else:
                news.add(heard)
                return answer

    def _wait(self, connection: Connection, held: Held) -> None:
        for run in held.runs:
            try:
                connection.execute(self._sql(text.WAIT), {"patience": text.PATIENCE, "id": run})
            except LOCKED:
                return
