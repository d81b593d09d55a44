"""Parameters of statements, in one notation for all databases.

SQLite takes `?` and `:name`, psycopg `%s` and `%(name)s`. A transaction's statements may use either on every database.
"""

from __future__ import annotations

import re
from functools import lru_cache

_PIECES = re.compile(
    r"""
      (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\2\$ )
    | (?P<cast> :: )
    | (?P<question> \? )
    | :(?P<colon> [A-Za-z_]\w* )
    | (?P<escaped> %% )
    | (?P<bare> %s )
    | %\((?P<percent> [^)]+ )\)s
    | (?P<sign> % )
    """,
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=512)
def for_sqlite(text: str) -> str:
    """Convert a statement to `?` and `:name`."""

    def piece(found: re.Match[str]) -> str:
        if found["bare"]:
            return "?"
        if found["percent"]:
            return f":{found['percent']}"
        return found[0]

    return _PIECES.sub(piece, text)


@lru_cache(maxsize=512)
def for_psycopg(text: str) -> str:
    """Convert a statement to `%s` and `%(name)s`. One that already has those stays as it is: its `?` is an operator."""
    if any(found["bare"] or found["percent"] for found in _PIECES.finditer(text)):
        return text

    def piece(found: re.Match[str]) -> str:
        if found["question"]:
            return "%s"
        if found["colon"]:
            return f"%({found['colon']})s"
        return found[0].replace("%", "%%") if not found["escaped"] else found[0]

    return _PIECES.sub(piece, text)
