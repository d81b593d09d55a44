"""Setting schedules back that have acted on times which are yet to come, because a clock was ahead.

What was started stays, and is not started again: its run has the id of its time. What was only accounted for, as missed say, is
forgotten from the first such time on, and decided when that time comes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AHEAD = 60_000_000
"""A schedule whose cursor is further ahead of the clock than that, in microseconds, has gone by another clock."""
_IS_AHEAD = "due > :ahead AND cursor > :ahead"
"""What is due comes after the cursor. Said as well because there is an index for it."""
ANY_AHEAD = f"SELECT 1 FROM schedules WHERE {_IS_AHEAD} LIMIT 1"
_FIND = f"SELECT id, skips, missed, skipped, dropped FROM schedules WHERE {_IS_AHEAD} ORDER BY id"
_TICKS = """
  SELECT nominal, outcome, count FROM ticks WHERE schedule = :schedule AND request = '' AND run IS NULL
    AND outcome NOT IN ('pending', 'buffered') AND coalesce(until, nominal) > :now ORDER BY nominal
"""
_FORGET = """
  DELETE FROM ticks WHERE schedule = :schedule AND request = '' AND run IS NULL
    AND outcome NOT IN ('pending', 'buffered') AND coalesce(until, nominal) > :now
"""
_REWIND = """
  UPDATE schedules SET cursor = :cursor, due = :now, skips = :skips, missed = :missed, skipped = :skipped, dropped = :dropped
  WHERE id = :schedule
"""


def rewind(
    rows: Callable[[str, dict[str, Any]], Sequence[Sequence[Any]]],
    do: Callable[[str, dict[str, Any]], object],
    now: int,
    lock: str = "",
) -> list[str]:
    """Set back all schedules that are ahead of `now`, inside an open transaction; which. `lock` ends the statement that finds them."""
    found = rows(f"{_FIND}{lock}", {"ahead": now + AHEAD})
    for schedule, skips, missed, skipped, dropped in found:
        at = {"schedule": schedule, "now": now}
        ticks = rows(_TICKS, at)
        do(_FORGET, at)
        again = {*json.loads(skips), *(nominal for nominal, outcome, _ in ticks if outcome == "skipped_by_request")}
        values = {
            "cursor": min([now, *(nominal - 1 for nominal, _, _ in ticks)]),
            "skips": json.dumps(sorted(again)),
            "missed": missed - _count(ticks, "missed"),
            "skipped": skipped - _count(ticks, "skipped_overlap"),
            "dropped": dropped - _count(ticks, "dropped"),
        }
        do(_REWIND, at | values)
    return [row[0] for row in found]


def _count(ticks: Sequence[Sequence[Any]], outcome: str) -> int:
    return sum(count for _, each, count in ticks if each == outcome)
