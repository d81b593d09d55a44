"""Ends of runs that no worker had in hand (cancelled while they waited, ended by an operator, out of time, lost too often).

Nobody saw them happen, so they are marked in the transaction that makes them, and one worker takes each mark away and tells.
Whoever takes a mark counts the end as well; until then it is counted by those who ask for figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.model.clock import SECOND
from mainspring.model.states import State
from mainspring.store.classes import CLASSES

if TYPE_CHECKING:
    from mainspring.store.desk import Change, Desk
    from mainspring.store.message_sql import Rows

_ANY = "SELECT 1 FROM runs WHERE untold LIMIT 1"
_TAKE = """
  UPDATE runs SET untold = :no
  WHERE untold AND id IN (SELECT id FROM runs WHERE untold ORDER BY completed LIMIT :limit)
  RETURNING id, workflow, state, reason, attempts, queue, started, completed
"""
_TOOK = "completed - coalesce(started, completed)"
_CLASS = " ".join(f"WHEN {_TOOK} <= {round(longest * SECOND)} THEN {number}" for number, longest in enumerate(CLASSES))
UNTOLD_MINUTES = f"""
  SELECT 'duration', completed / :width * :width, state, count(*), CAST(sum({_TOOK}) AS bigint) FROM runs
  WHERE untold AND completed >= :since GROUP BY 2, 3
"""
UNTOLD_TOTALS = f"""
  SELECT workflow, 'duration', state, CASE {_CLASS} ELSE {len(CLASSES)} END, count(*), CAST(sum({_TOOK}) AS bigint) FROM runs
  WHERE untold GROUP BY 1, 3, 4
"""


class Untold(Struct, frozen=True):
    """How a run ended."""

    id: str
    workflow: str
    state: State
    reason: str | None
    attempts: int
    queue: str | None
    started: int | None
    completed: int


class Telling:
    """The marks of a store, which says how rows are read and how a transaction is had."""

    def __init__(self, change: Change, rows: Rows) -> None:
        self._change = change
        self._rows = rows

    def take(self, now: int, limit: int) -> list[Untold]:
        """Up to so many ends that nobody has been told of, first ones first. Nobody else gets them."""
        if not self._rows(_ANY):
            return []

        def act(desk: Desk) -> list[Untold]:
            rows = desk.rows(_TAKE, no=False, limit=limit)
            found = [Untold(run, workflow, State(state), *rest) for run, workflow, state, *rest in rows]
            return sorted(found, key=lambda each: (each.completed, each.id))

        return self._change((), now, act)
