"""Forgetting old runs on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import to_builtins

from mainspring.store import retention as sql
from mainspring.store.deleting import TABLES_OF_RUN
from mainspring.store.postgres.wire import to_json
from mainspring.store.retention import Pruned

if TYPE_CHECKING:
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.retention import Keep, Rule

_OLD = {
    function: f"""
  FROM json_to_recordset(:rules::json) AS k (name text, before bigint) CROSS JOIN LATERAL (
    SELECT r.id FROM runs r WHERE r.workflow = k.name AND r.completed <= k.before
      AND {sql.part("r", function=function)} AND NOT r.unsettled AND {sql.UNNEEDED}
    ORDER BY r.completed LIMIT :limit) old
"""
    for function in (False, True)
}
"""A name at a time, each by the index: LIMIT inside keeps PostgreSQL from reading all of history."""
_LOCK = """
  SELECT r.id FROM runs r WHERE r.id = ANY(:ids) AND r.completed IS NOT NULL ORDER BY r.id FOR UPDATE OF r SKIP LOCKED
"""
"""What somebody has brought back to life meanwhile is not ended any more."""


class PostgresRetention:
    """See `mainspring.store.retention.Retention` for what each verb promises."""

    def __init__(self, database: Database, dialect: Dialect) -> None:
        self._db = database
        self._sql = dialect

    def prune(self, keep: Keep, now: int, limit: int) -> Pruned:
        with self._db.connection() as db:
            due, next_due = self._due(db, keep, now)
            ids: list[str] = []
            for function, rules in due.items():
                values = {"rules": to_json(to_builtins(rules)), "limit": limit - len(ids)}
                ids += [row[0] for row in db.execute(self._sql(f"SELECT old.id {_OLD[function]} LIMIT :limit"), values)]
            if not ids:
                return Pruned(0, next_due)
            with db.transaction():
                ids = [row[0] for row in db.execute(self._sql(_LOCK), {"ids": ids})]
                for table in TABLES_OF_RUN:
                    db.execute(self._sql(f"DELETE FROM {table} WHERE run = ANY(:ids)"), {"ids": ids})
                db.execute(self._sql("DELETE FROM runs WHERE id = ANY(:ids)"), {"ids": ids})
        return Pruned(len(ids), next_due)

    def expired(self, keep: Keep, now: int) -> dict[str, int]:
        with self._db.connection() as db:
            found: dict[str, int] = {}
            for function, rules in self._due(db, keep, now)[0].items():
                values = {"rules": to_json(to_builtins(rules)), "limit": None}
                count = self._sql(f"SELECT k.name, count(*) {_OLD[function]} GROUP BY 1")
                for name, number in db.execute(count, values).fetchall():
                    found[name] = found.get(name, 0) + number
            return found

    def _due(self, db: Connection, keep: Keep, now: int) -> tuple[dict[bool, list[Rule]], int | None]:
        due: dict[bool, list[Rule]] = {}
        later: list[int] = []
        for function, names in sql.NAMES.items():
            rules, next_due = sql.rules(db.execute(self._sql(names)).fetchall(), keep, now, function=function)
            if rules:
                due[function] = rules
            if next_due is not None:
                later.append(next_due)
        return due, min(later, default=None)
