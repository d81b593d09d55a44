"""Check which database a connection is to: verbs that join a user's transaction must be in the app's own database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.store.postgres.database import Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.transaction import Script

_WHO = """
  SELECT current_database(), extract(epoch FROM pg_postmaster_start_time())::text, to_regclass(:runs)::oid::bigint
"""
"""A server is identified by its start time: names and addresses depend on the route to it."""


class Identity:
    """The identity of the app's own database, read when first needed."""

    def __init__(self, database: Database, dialect: Dialect) -> None:
        self._db = database
        self._sql = dialect
        self._values = {"runs": f"{dialect.schema}.runs"}
        self._own: tuple[Any, ...] | None = None

    def check(self) -> Script[None]:
        """Raise if the connection is to another database or server. Before that, the identity of the app's own is read again."""
        (there,) = yield _WHO, self._values
        if there == self._own or there == self._asked():
            return
        reason = (
            f"which has no table {self._values['runs']}"
            if there[2] is None
            else "on another server"
            if self._own is not None and there[0] == self._own[0]
            else "another one"
        )
        raise InvalidInput(
            f"this connection is to the database {there[0]!r}, {reason}, but the app's database is {self._db.where}; "
            "only what is in one database commits together"
        )

    def _asked(self) -> tuple[Any, ...]:
        with self._db.connection() as db:
            self._own = tuple(db.execute(self._sql(_WHO), self._values).fetchall()[0])
        return self._own
