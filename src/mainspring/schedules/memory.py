"""The last result and the last failure of a schedule's runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mainspring.model.states import State

if TYPE_CHECKING:
    from mainspring.model.schedules import Schedule, ScheduleRun


def remember(schedule: Schedule, run: ScheduleRun) -> bool | None:
    """Record the end of a run in the schedule. Return whether it failed, or None if it does not count.

    A success replaces the last result and clears the failure. A failure keeps the result. A cancelled run changes neither, unless its own
    timeout cancelled it: that is a failure.
    """
    if run.state is State.SUCCEEDED:
        schedule.last_result, schedule.last_failure, schedule.failures = run.output, None, 0
        return False
    timed_out = run.state is State.CANCELLED and run.reason == "timeout"
    if run.state is not State.FAILED and not timed_out:
        return None
    schedule.last_failure = _timed_out(run.id) if timed_out else run.error
    schedule.failures += 1
    return True


def _timed_out(run_id: str) -> str:
    message = f"run {run_id!r} did not end before its timeout"
    return json.dumps({"type": "mainspring.errors:RunTimedOut", "message": message, "args": [message]})
