"""Ends of runs that had no owner (cancelled while they waited, ended by an operator, out of time, lost too often).

No worker noticed such an end, so the transaction that ends the run marks the row. One worker removes each mark, reports the end and counts
it. Until then, queries for figures add the marked ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.model.clock import SECOND
from mainspring.model.states import State
from mainspring.store.sql.dialect import PerDatabase, for_sqlite
from mainspring.store.verbs.duration_classes import CLASSES

if TYPE_CHECKING:
    from mainspring.store.transaction import Script, Transaction, Transactor

_UNREPORTED = "completed IS NOT NULL AND end_unreported"
"""The condition of an index, which also has the ends that schedules must process."""


def _by_index(text: str) -> PerDatabase:
    """A statement about unreported ends. On SQLite it names the index: without statistics, SQLite prefers the index of all ended runs."""
    return PerDatabase(
        text, for_sqlite(text.replace("FROM runs WHERE", "FROM runs INDEXED BY runs_end_unhandled WHERE"))
    )


_ANY = _by_index(f"SELECT 1 FROM runs WHERE {_UNREPORTED} LIMIT 1")
_TAKE = _by_index(f"""
  UPDATE runs SET end_unreported = false
  WHERE end_unreported AND id IN (SELECT id FROM runs WHERE {_UNREPORTED} ORDER BY completed LIMIT :limit)
  RETURNING id, workflow, state, reason, attempts, queue, started, completed
""")
_TOOK = "completed - coalesce(started, completed)"
_CLASS = " ".join(f"WHEN {_TOOK} <= {round(longest * SECOND)} THEN {number}" for number, longest in enumerate(CLASSES))
UNREPORTED_MINUTES = _by_index(f"""
  SELECT 'duration', completed / :width * :width, state, count(*), CAST(sum({_TOOK}) AS bigint)
  FROM runs WHERE {_UNREPORTED} AND completed >= :since GROUP BY 2, 3
""")
UNREPORTED_TOTALS = _by_index(f"""
  SELECT workflow, 'duration', state, CASE {_CLASS} ELSE {len(CLASSES)} END, count(*), CAST(sum({_TOOK}) AS bigint)
  FROM runs WHERE {_UNREPORTED} GROUP BY 1, 3, 4
""")


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
