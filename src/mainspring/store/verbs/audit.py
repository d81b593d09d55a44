"""The audit log of operators, and their sessions in the dashboard. The same statements in every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from mainspring.store.sql.dialect import insert_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.transaction import Transactor

_KEEP_SESSION = "INSERT INTO meta (key, value) VALUES (:key, :value)"
_SESSION = "SELECT value FROM meta WHERE key = :key"
_SESSIONS = "SELECT key, value FROM meta WHERE key LIKE :like"
_END_SESSION = "DELETE FROM meta WHERE key = :key"
_SESSION_KEY = "session "
_SET_OUTCOME = "UPDATE actions SET outcome = :outcome WHERE id = :id"


class Entry(Struct):
    """An action of an operator. `subject`, `details` and `outcome` are JSON. `outcome` is None until the action has ended."""

    id: str
    at: int
    who: str
    action: str
    subject: str
    reason: str | None
    details: str
    outcome: str | None = None


_COLUMNS = ", ".join(Entry.__struct_fields__)
_NOTE = insert_one("actions", Entry.__struct_fields__)


class Audit:
    """The actions of operators, each recorded before it is executed, and the sessions of users who are signed in."""

    def __init__(self, transactor: Transactor) -> None:
        self._rows = transactor.read
        self._do = transactor.execute_many

    # -- actions of operators ------------------------------------------------------------------------------------------
    def note(self, entry: Entry) -> None:
        """Record an action before the operator's call is executed."""
        self._do((_NOTE, [asdict(entry)]))

    def record_outcome(self, entry: str, outcome: str) -> None:
        """Record the outcome of an action."""
        self._do((_SET_OUTCOME, [{"id": entry, "outcome": outcome}]))

    def entries(self, before: str | None, limit: int) -> list[Entry]:
        """Recorded actions, latest first."""
        where = "WHERE id < :before" if before is not None else ""
        values: dict[str, Any] = {"limit": limit} | ({"before": before} if before is not None else {})
        return [
            Entry(*row)
            for row in self._rows(f"SELECT {_COLUMNS} FROM actions {where} ORDER BY id DESC LIMIT :limit", **values)
        ]

    # -- sessions ------------------------------------------------------------------------------------------------------
    def keep_session(self, session: str, value: str) -> None:
        self._do((_KEEP_SESSION, [{"key": f"{_SESSION_KEY}{session}", "value": value}]))

    def session(self, session: str) -> str | None:
        found = self._rows(_SESSION, key=f"{_SESSION_KEY}{session}")
        return found[0][0] if found else None

    def sessions(self) -> dict[str, str]:
        """All stored sessions."""
        found = self._rows(_SESSIONS, like=f"{_SESSION_KEY}%")
        return {key.removeprefix(_SESSION_KEY): value for key, value in found}

    def end_sessions(self, sessions: Sequence[str]) -> None:
        self._do((_END_SESSION, [{"key": f"{_SESSION_KEY}{each}"} for each in sessions]))
