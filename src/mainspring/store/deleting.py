"""Deleting ended runs, with their children and all they recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import Conflict
from mainspring.store.desk import find, tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.records import Run
    from mainspring.store.desk import Desk

_MANY_NAMED = 5
TABLES_OF_RUN = ("steps", "messages", "events", "streams", "logs")
_UNSETTLED = "SELECT id FROM runs WHERE id = :id AND unsettled = :yes"
_AWAITED = """
  SELECT w.id FROM steps s JOIN runs w ON w.id = s.run WHERE s.child = :id AND s.completed IS NULL AND w.completed IS NULL
"""


def delete(desk: Desk, ids: Sequence[str]) -> dict[str, bool]:
    """Delete runs and all that descend from them, or none. False: there is no such run."""
    there = {run_id: find(desk, run_id) for run_id in ids}
    doomed = {each.id: each for run in there.values() if run is not None for each in tree(desk, run)}
    _refuse_live(desk, list(doomed.values()))
    for run_id in doomed:
        for table in TABLES_OF_RUN:
            desk.rows(f"DELETE FROM {table} WHERE run = :id", id=run_id)
        desk.rows("DELETE FROM runs WHERE id = :id", id=run_id)
    return {run_id: run is not None for run_id, run in there.items()}


def _refuse_live(desk: Desk, runs: list[Run]) -> None:
    live = [run for run in runs if not run.state.ended]
    if live:
        shown = ", ".join(f"{run.id} ({run.state})" for run in live[:_MANY_NAMED])
        raise Conflict(
            f"only runs that have ended can be deleted; not so {shown}. Cancel them first. Nothing was deleted"
        )
    waiting = [run.id for run in runs if run.schedule is not None and desk.rows(_UNSETTLED, id=run.id, yes=True)]
    if waiting:
        raise Conflict(
            f"the schedule of {', '.join(waiting[:_MANY_NAMED])} has not taken note of its end yet; "
            "try again when a worker has. Nothing was deleted"
        )
    for run in runs:
        waiters = [row[0] for row in desk.rows(_AWAITED, id=run.id)]
        if waiters:
            raise Conflict(
                f"run {waiters[0]!r} waits for {run.id!r} and has not taken note of its end yet; try again when it has. "
                "Nothing was deleted"
            )
