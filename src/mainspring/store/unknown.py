"""Runs of functions that nobody knows: started by name from outside, or left behind when a function was removed.

They wait, marked with the reason, and fail when no live worker has known their function for long enough. A worker that comes to
know it meanwhile takes the mark away.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.store.unreadable import readable

if TYPE_CHECKING:
    from mainspring.store.desk import Change, Desk
    from mainspring.store.message_sql import Rows

_AT_ONCE = 200
_KNOWN = "SELECT functions FROM workers"
_NAMES = """
  SELECT DISTINCT workflow FROM runs WHERE state = 'queued' AND fingerprint = '' AND stranded IS NULL AND due <= :now
"""
_UNMARKED = """
  SELECT id FROM runs WHERE state = 'queued' AND fingerprint = '' AND stranded IS NULL AND due <= :now AND workflow = :workflow
  LIMIT :limit
"""
_MARKED = "SELECT id, workflow, stranded FROM runs WHERE stranded IS NOT NULL AND state = 'queued' AND fingerprint = ''"
_MARK = "UPDATE runs SET stranded = :mark WHERE id = :id AND state = 'queued' AND stranded IS NULL RETURNING id"
_UNMARK = "UPDATE runs SET stranded = NULL WHERE id = :id AND state = 'queued' RETURNING id"
_FAIL = """
  UPDATE runs SET state = 'failed', reason = :reason, error = :error, completed = :now, stranded = NULL, untold = :yes
  WHERE id = :id AND state = 'queued' RETURNING id
"""


class Reviewed(Struct, frozen=True):
    """How many runs were found whose function nobody knows, and how many of an earlier time have failed for it."""

    marked: int = 0
    failed: int = 0


class Unknown:
    """Looks after them, for a store that says how rows are read and how a transaction is had."""

    def __init__(self, change: Change, rows: Rows) -> None:
        self._change = change
        self._rows = rows

    def review(self, now: int, patience: int) -> Reviewed:
        """Mark those whose function no live worker knows, fail those that have been marked for `patience` microseconds."""
        known = {
            name for names in readable("workers", self._rows(_KNOWN), lambda row: json.loads(row[0])) for name in names
        }
        names = [name for (name,) in self._rows(_NAMES, now=now) if name not in known]
        there = self._rows(_MARKED)
        found = [run for run, name, _ in there if name in known]
        lost = {run: name for run, name, mark in there if name not in known and _since(mark) <= now - patience}
        if not (names or found or lost):
            return Reviewed()
        ids = {run: name for name in names for (run,) in self._rows(_UNMARKED, now=now, workflow=name, limit=_AT_ONCE)}

        def act(desk: Desk) -> Reviewed:
            for run in found:
                desk.rows(_UNMARK, id=run)
            marked = sum(bool(desk.rows(_MARK, id=run, mark=_mark(name, now))) for run, name in ids.items())
            failed = sum(_fail(desk, run, name, now) for run, name in lost.items())
            return Reviewed(marked, failed)

        return self._change([*found, *ids, *lost], now, act)


def _mark(workflow: str, now: int) -> str:
    return json.dumps({"versions": [], "reason": f"no live worker knows {workflow!r}", "since": now})


def _since(mark: str) -> int:
    since: int = json.loads(mark).get("since", 2**62)
    return since


def _fail(desk: Desk, run: str, workflow: str, now: int) -> bool:
    reason = f"no worker knows {workflow!r}"
    message = f"no live worker has known a function called {workflow!r} for too long (setting unknown_after)"
    error = json.dumps({"type": "mainspring.errors:UnknownFunction", "message": message, "args": [message]})
    if not desk.rows(_FAIL, id=run, reason=reason, error=error, now=now, yes=True):
        return False
    desk.ended(run)
    return True
