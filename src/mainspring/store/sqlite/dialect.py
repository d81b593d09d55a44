"""SQLite's SQL, rendered from statements that are written once for both databases (`store/sql/dialect.py`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.store.sql.dialect import PerDatabase, for_sqlite, prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.store.sql.dialect import Sql


class SqliteDialect:
    """See `mainspring.store.sql.dialect.Dialect`."""

    locks = False
    name = ""
    channel = ""

    def __init__(self) -> None:
        self._rendered: dict[Sql, str] = {}

    def spelled(self, text: Sql) -> str:
        found = self._rendered.get(text)
        if found is None:
            found = self._rendered[text] = prefixed(text.sqlite) if isinstance(text, PerDatabase) else for_sqlite(text)
        return found

    def values(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        if any(type(value) is list for value in values.values()):
            return {name: json.dumps(value) if type(value) is list else value for name, value in values.items()}
        return values


DIALECT = SqliteDialect()
