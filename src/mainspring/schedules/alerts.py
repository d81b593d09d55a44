"""Alerts: report problems of a schedule to functions of the app.

An alert is a run, started in the transaction of the event, with an id that names the event. So each event is reported once, whichever
process noticed it, and the alert survives a crash.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.runs import NewRun
from mainspring.model.schedules import TickOutcome
from mainspring.model.states import State
from mainspring.schedules.actions import stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainspring.model.schedules import Hook, Tick
    from mainspring.store.schedules import Plan

MISSED, LATE, PAUSED = "missed", "late", "paused_by_failure"


def alerts(
    plan: Plan, hooks: Sequence[Hook], now: int, new_uid: Callable[[], str], *, paused_by: str | None
) -> list[NewRun]:
    """Return the alert runs of a plan. `paused_by` is the run whose failure paused the schedule."""
    return [
        _run(hook, what, {"event": hook.event, "schedule": plan.schedule.id, **about}, due=due, now=now, uid=new_uid())
        for hook in hooks
        for what, about, due in _events(plan, hook, now, paused_by)
    ]


def _events(plan: Plan, hook: Hook, now: int, paused_by: str | None) -> Iterator[tuple[str, dict[str, Any], int]]:
    if hook.event == PAUSED:
        if paused_by is not None:
            schedule = plan.schedule
            yield (
                f"r{schedule.revision}",
                {"reason": schedule.pause_note, "count": schedule.failures, "run": paused_by},
                now,
            )
        return
    for tick in plan.ticks:
        if _concerns(hook, tick, now):
            yield (
                f"{stamp(tick.nominal)}-{tick.request}".rstrip("-"),
                _about(tick),
                min(tick.due, now),
            )  # in their order


def _concerns(hook: Hook, tick: Tick, now: int) -> bool:
    if hook.event == MISSED:
        return tick.outcome is TickOutcome.MISSED
    return tick.outcome.started and now - tick.due > hook.after


def _about(tick: Tick) -> dict[str, Any]:
    return {
        "nominal": to_datetime(tick.nominal).isoformat(),
        "until": None if tick.until is None else to_datetime(tick.until).isoformat(),
        "count": tick.count,
        "reason": tick.reason,
        "run": tick.run,
        "late": None if tick.acted is None else (tick.acted - tick.due) / SECOND,
    }


def _run(hook: Hook, what: str, alert: dict[str, Any], *, due: int, now: int, uid: str) -> NewRun:
    schedule = alert["schedule"]
    return NewRun(
        id=f"{hook.function}-{hook.event}-{schedule}-{what}",
        uid=uid,
        workflow=hook.function,
        kind=hook.kind,
        input=json.dumps({hook.parameter: alert}),
        state=State.QUEUED,
        due=due,
        created=now,
        attributes=json.dumps({"alert": hook.event, "schedule_id": schedule}),
    )
