"""Forgetting old runs on SQLite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import to_builtins

from mainspring.store import retention as sql
from mainspring.store.deleting import TABLES_OF_RUN
from mainspring.store.retention import Pruned

if TYPE_CHECKING:
    import sqlite3

    from mainspring.store.retention import Keep, Rule
    from mainspring.store.sqlite.database import Database

_OLD = {
    function: f"""
  FROM json_each(:rules) k CROSS JOIN runs r
  WHERE r.workflow = json_extract(k.value, '$.name') AND r.completed <= json_extract(k.value, '$.before')
    AND {sql.part("r", function=function)} AND r.unsettled = 0 AND {sql.UNNEEDED}
"""
    for function in (False, True)
}
"""CROSS JOIN: names first, then their runs by the index."""


class SqliteRetention:
    """See `mainspring.store.retention.Retention` for what each verb promises."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def prune(self, keep: Keep, now: int, limit: int) -> Pruned:
        with self._db.read() as db:  # looking holds nobody up
            due, next_due = _due(db, keep, now)
        if not due:
            return Pruned(0, next_due)
        with self._db.write() as db:
            ids: list[str] = []
            for function, rules in due.items():
                values = {"rules": json.dumps(to_builtins(rules)), "limit": limit - len(ids)}
                ids += [row[0] for row in db.execute(f"SELECT r.id {_OLD[function]} LIMIT :limit", values)]
            gone = (json.dumps(ids),)
            for table in TABLES_OF_RUN:
                db.execute(f"DELETE FROM {table} WHERE run IN (SELECT value FROM json_each(?))", gone)
            db.execute("DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?))", gone)
        return Pruned(len(ids), next_due)

    def expired(self, keep: Keep, now: int) -> dict[str, int]:
        with self._db.read() as db:
            found: dict[str, int] = {}
            for function, rules in _due(db, keep, now)[0].items():
                values = {"rules": json.dumps(to_builtins(rules))}
                for name, count in db.execute(f"SELECT r.workflow, count(*) {_OLD[function]} GROUP BY 1", values):
                    found[name] = found.get(name, 0) + count
            return found


def _due(db: sqlite3.Connection, keep: Keep, now: int) -> tuple[dict[bool, list[Rule]], int | None]:
    due: dict[bool, list[Rule]] = {}
    later: list[int] = []
    for function, names in sql.NAMES.items():
        rules, next_due = sql.rules(db.execute(names).fetchall(), keep, now, function=function)
        if rules:
            due[function] = rules
        if next_due is not None:
            later.append(next_due)
    return due, min(later, default=None)
