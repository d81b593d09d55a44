"""Turning the texts of statements into what psycopg takes.

Tables stand unqualified in the texts, parameters as `:name`, as in the statements that all stores share. The schema is put
in front of the tables here, once per statement and store. The alternatives are session state: a `search_path` set on the
connection is lost, or left to strangers, behind a pooler that lends connections by transaction, and one in the connection
string is refused by such poolers.
"""

from __future__ import annotations

import re

from psycopg import sql

from mainspring.errors import InvalidSettings

_LONGEST_SCHEMA = 50
_TABLE = re.compile(r"\b(FROM|INTO|UPDATE|JOIN)(\s+)(runs|steps|workers|versions|migrations)\b")
_PARAMETER = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")


class Dialect:
    """The statements of one store. Calling it with a text gives the statement, made on first use and kept."""

    def __init__(self, schema: str) -> None:
        if not schema or "\0" in schema or len(schema.encode()) > _LONGEST_SCHEMA:
            raise InvalidSettings(
                f"schema: {schema!r} cannot be the name of a schema; it has 1 to {_LONGEST_SCHEMA} bytes"
            )
        self.schema = sql.Identifier(schema).as_string(None)
        self.channel = f"mainspring:{schema}"
        self._made: dict[str, bytes] = {}

    def __call__(self, text: str) -> bytes:
        made = self._made.get(text)
        if made is None:
            made = self._made[text] = self._make(text)
        return made

    def _make(self, text: str) -> bytes:
        text = text.replace("%", "%%")
        text = _TABLE.sub(lambda found: f"{found[1]}{found[2]}{self.schema.replace('%', '%%')}.{found[3]}", text)
        return _PARAMETER.sub(r"%(\1)s", text).encode()
