"""Versions of the app that have executed runs, and the patches that unfinished runs have taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.store.sql.run_filters import LIVE_RUNS

if TYPE_CHECKING:
    from mainspring.store.transaction import Script, Transaction, Transactor

_FIRST_SEEN = "SELECT version, first_seen FROM versions"
_SET_NEWEST = "UPDATE versions SET first_seen = :now WHERE version = :version RETURNING version"
_LIVE = f"""
  SELECT version, CASE WHEN state = 'queued' THEN CAST(blocked AS text) END, count(*) FROM runs
  WHERE version IS NOT NULL AND id IN ({LIVE_RUNS}) GROUP BY 1, 2 ORDER BY 1, 2
"""
_PATCHES = f"""
  WITH live AS (SELECT id, workflow, started FROM runs WHERE id IN ({LIVE_RUNS})),
  taken AS (
    SELECT s.name AS name, r.workflow AS workflow, count(*) AS new FROM live r JOIN steps s ON s.run = r.id AND s.kind = 'patch'
    GROUP BY s.name, r.workflow)
  SELECT name, workflow, new, (
    SELECT count(*) FROM live r WHERE r.workflow = taken.workflow AND r.started IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.run = r.id AND s.kind = 'patch' AND s.name = taken.name))
  FROM taken ORDER BY name, workflow
"""


class Versions:
    """The verbs of versions, in transactions of a `Transactor`."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self._read = transactor.read

    def first_seen(self) -> dict[str, int]:
        """The versions that have executed runs, and when each was first seen."""
        return dict(self._read(_FIRST_SEEN))

    def set_newest(self, version: str, now: int) -> bool:
        """Make a version the newest one, as if it were first seen now. Return False if it has never executed a run."""

        def work(tx: Transaction) -> Script[bool]:
            tx.changes.due = True
            return bool((yield from tx.execute(_SET_NEWEST, version=version, now=now)))

        return self._transactor.change(work, now)

    def live(self) -> list[tuple[str, str | None, int]]:
        """Unfinished runs that have begun: version, reason why they are stranded, number."""
        return [(version, reason, count) for version, reason, count in self._read(_LIVE)]

    def patches(self) -> list[tuple[str, str, int, int]]:
        """Patches in unfinished runs: name, workflow, number of runs on the new path, number of runs that began without the patch."""
        return [(name, workflow, new, old) for name, workflow, new, old in self._read(_PATCHES)]
