"""A run of a schedule that ends well while nothing waits for its end: its schedule takes note of that in the same transaction.

All other ends are left to the next pass over the schedule, as they all are on PostgreSQL, where a run that ends waits for nobody.
Here whoever writes has the whole database anyway, and a pass less is a commit less.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store.schedule_sql import ENDED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from mainspring.store.ops import Finish

# The indexes are named because others would have to read the whole history of the schedule.
_REMEMBER = f"""
  UPDATE schedules SET failures = 0, last_result = :output, last_failure = NULL
  WHERE id = :schedule
    AND EXISTS (SELECT 1 FROM runs
      WHERE id = :run AND owner = :owner AND epoch = :epoch AND unsettled = 1 AND state IN ('running', 'waiting'))
    AND NOT EXISTS (SELECT 1 FROM ticks INDEXED BY ticks_waiting
      WHERE outcome IN ('pending', 'buffered') AND schedule = :schedule)
    AND NOT EXISTS (SELECT 1 FROM backfills WHERE completed IS NULL AND schedule = :schedule)
    AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_unsettled
      WHERE unsettled = 1 AND schedule = :schedule AND state IN {ENDED})
"""


def settle(db: sqlite3.Connection, finishes: Sequence[Finish]) -> None:
    """Take note of those that can be taken note of at once, in the moment before they are made.

    Several runs of one schedule are left to the pass: it matters which of them ended last.
    """
    of_schedule = Counter(op.schedule for op in finishes)
    for op in finishes:
        op.settled = (
            op.schedule is not None
            and op.state is State.SUCCEEDED
            and of_schedule[op.schedule] == 1
            and db.execute(_REMEMBER, _values(op)).rowcount == 1
        )


def _values(op: Finish) -> dict[str, Any]:
    return {"schedule": op.schedule, "run": op.run, "owner": op.owner, "epoch": op.epoch, "output": op.output}
