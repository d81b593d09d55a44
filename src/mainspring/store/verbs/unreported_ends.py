"""Ends of runs that had no owner (cancelled while they waited, ended by an operator, out of time, lost too often).

No worker noticed such an end, so the transaction that ends the run marks the row. One worker removes each mark, reports the end and counts
it. Until then, queries for figures add the marked ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.model.states import State
from mainspring.store.sql.dialect import PerDatabase, per_database

if TYPE_CHECKING:
    from mainspring.store.transaction import Script, Transaction, Transactor

_CONDITION = "WHERE completed IS NOT NULL AND end_unreported"
UNREPORTED = PerDatabase(f"runs {_CONDITION}", f"runs INDEXED BY runs_end_unhandled {_CONDITION}")
"""Unreported ends. Without statistics, SQLite prefers the index of all ended runs, so the index is named.

The index also has the ends that schedules must process.
"""
_ANY = per_database("SELECT 1 FROM {unreported} LIMIT 1", unreported=UNREPORTED)
_TAKE = per_database(
    """
  UPDATE runs SET end_unreported = false
  WHERE end_unreported AND id IN (SELECT id FROM {unreported} ORDER BY completed LIMIT :limit)
  RETURNING id, workflow, state, reason, attempts, queue, started, completed
""",
    unreported=UNREPORTED,
)


class UnreportedEnd(Struct, frozen=True):
    """The end of a run."""

    id: str
    workflow: str
    state: State
    reason: str | None
    attempts: int
    queue: str | None
    started: int | None
    completed: int


class UnreportedEnds:
    """Takes unreported ends, in transactions of a `Transactor`."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor

    def take(self, now: int, limit: int) -> list[UnreportedEnd]:
        """Take up to so many unreported ends, oldest first. No other worker gets them."""
        if not self._transactor.read(_ANY):
            return []

        def work(tx: Transaction) -> Script[list[UnreportedEnd]]:
            rows = yield from tx.execute(_TAKE, limit=limit)
            found = [UnreportedEnd(run, workflow, State(state), *rest) for run, workflow, state, *rest in rows]
            return sorted(found, key=lambda each: (each.completed, each.id))

        return self._transactor.change(work, now)
