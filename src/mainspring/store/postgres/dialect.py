"""Render statements for psycopg.

In the texts, tables are unqualified and parameters are `:name`, as in the statements that all stores share. The schema is added to the
tables here, once per statement and store. The alternatives are session state: behind a pooler in transaction mode, a `search_path` set on
the connection is lost or left to other clients, and such poolers refuse one in the connection string.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from mainspring.errors import InvalidSettings
from mainspring.store.sql.dialect import TABLE, PerDatabase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.store.sql.dialect import Sql

_LONGEST_SCHEMA = 50
_TABLE = re.compile(TABLE)
_PARAMETER = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement for libpq: numbered parameters, and the names of their values."""

    query: bytes
    order: tuple[str, ...]


class Dialect:
    """The statements of one store, rendered on first use and cached: for psycopg by a call, for the wire by `raw`.

    See `mainspring.store.sql.dialect.Dialect`. With `notify=False` no statement notifies: transactions that notify wait for each other when
    they commit, in all databases of a server.
    """

    locks = True

    def __init__(self, schema: str, *, notify: bool = True) -> None:
        if not schema or "\0" in schema or len(schema.encode()) > _LONGEST_SCHEMA:
            raise InvalidSettings(
                f"schema: {schema!r} cannot be the name of a schema; it has 1 to {_LONGEST_SCHEMA} bytes"
            )
        self.name = schema
        self.schema = sql.Identifier(schema).as_string(None)
        self.channel = f"mainspring:{schema}" if notify else ""
        self._made: dict[Sql, bytes] = {}
        self._raw: dict[Sql, Statement] = {}

    def __call__(self, text: Sql) -> bytes:
        made = self._made.get(text)
        if made is None:
            bare = _PARAMETER.sub(r"%(\1)s", self._text(text).replace("%", "%%"))
            made = self._made[text] = _qualified(bare, self.schema.replace("%", "%%")).encode()
        return made

    def spelled(self, text: Sql) -> str:
        return _qualified(_postgres(text), self.schema)

    def _text(self, text: Sql) -> str:
        made = _postgres(text)
        return (
            made if self.channel else made.replace("pg_notify(", "textcat(")
        )  # takes the same parameters and does nothing

    def values(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values

    def raw(self, text: Sql) -> Statement:
        made = self._raw.get(text)
        if made is None:
            order: dict[str, int] = {}
            bare = _PARAMETER.sub(lambda found: f"${order.setdefault(found[1], len(order) + 1)}", self._text(text))
            made = self._raw[text] = Statement(_qualified(bare, self.schema).encode(), tuple(order))
        return made


def _postgres(text: Sql) -> str:
    return text.postgres if isinstance(text, PerDatabase) else text


def _qualified(text: str, schema: str) -> str:
    return _TABLE.sub(lambda found: f"{found[1]}{found[2]}{schema}.{found[3]}", text)
