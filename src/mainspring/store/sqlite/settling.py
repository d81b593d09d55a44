"""A run of a schedule that ends well while nothing waits for its end: its schedule takes note of that in the same transaction.

All other ends are left to the next pass over the schedule, as they all are on PostgreSQL, where a run that ends waits for nobody.
Here whoever writes has the whole database anyway, and a pass less is a commit less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.states import State
from mainspring.store.schedule_sql import ENDED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

    from mainspring.store.ops import Finish

# The indexes are named because others would have to read the whole history of the schedule.
_REMEMBER = f"""
  UPDATE schedules SET failures = 0, last_result = :output, last_failure = NULL
  WHERE id = :schedule
    AND NOT EXISTS (SELECT 1 FROM ticks INDEXED BY ticks_waiting
      WHERE outcome IN ('pending', 'buffered') AND schedule = :schedule)
    AND NOT EXISTS (SELECT 1 FROM backfills WHERE completed IS NULL AND schedule = :schedule)
    AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_unsettled
      WHERE unsettled = 1 AND schedule = :schedule AND state IN {ENDED} AND id <> :run)
    AND EXISTS (SELECT 1 FROM runs WHERE id = :run AND unsettled = 1)
"""
_SETTLE = "UPDATE runs SET unsettled = 0 WHERE id = :run"


def settle(db: sqlite3.Connection, finishes: Iterable[Finish], ended: Collection[str]) -> None:
    """Take note of those that can be taken note of at once."""
    for op in finishes:
        op.settled = False
        if op.schedule is not None and op.state is State.SUCCEEDED and op.run in ended:
            values = {"schedule": op.schedule, "run": op.run, "output": op.output}
            if db.execute(_REMEMBER, values).rowcount:
                db.execute(_SETTLE, values)
                op.settled = True
