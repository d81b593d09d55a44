"""Telling the app's own functions what went wrong with a schedule.

An alert is a run like any other, made in the transaction in which the thing happened, under an id that names the event: so each
is told once, whichever worker noticed, and survives a crash as everything does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.model.clock import to_datetime
from mainspring.model.records import NewRun
from mainspring.model.schedules import Outcome
from mainspring.model.states import State
from mainspring.schedules.actions import stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.schedules import Schedule, Tick
    from mainspring.store.schedules import Plan

MISSED, LATE, PAUSED = "missed", "late", "paused_by_failure"


class Hook(Struct, frozen=True):
    """A function that wants to be told of an event. `after` (microseconds) is how late is late."""

    event: str
    function: str
    kind: str
    parameter: str
    after: int = 0


def add_alerts(
    plan: Plan, before: Schedule, hooks: Sequence[Hook], now: int, new_uid: Callable[[], str]
) -> None:
    """Make the runs that tell of what a plan brings about part of it."""
    for hook in hooks:
        if hook.event == PAUSED:
            schedule = plan.schedule
            if schedule.paused and not before.paused and (schedule.note or "").startswith("paused after failure"):
                _add(plan, hook, f"r{schedule.revision}", {"reason": schedule.note, "count": schedule.failures}, now, new_uid)
            continue
        for tick in plan.ticks:
            if _concerns(hook, tick, now):
                _add(plan, hook, f"{stamp(tick.nominal)}{tick.request and '-'}{tick.request}", _about(tick), now, new_uid)


def _concerns(hook: Hook, tick: Tick, now: int) -> bool:
    if hook.event == MISSED:
        return tick.outcome is Outcome.MISSED
    return tick.outcome.started and now - tick.due > hook.after


def _about(tick: Tick) -> dict[str, object]:
    return {
        "nominal": to_datetime(tick.nominal).isoformat(),
        "until": None if tick.until is None else to_datetime(tick.until).isoformat(),
        "count": tick.count,
        "outcome": tick.outcome.value,
        "reason": tick.reason,
        "run": tick.run,
        "late": None if tick.acted is None else (tick.acted - tick.due) / 1_000_000,
    }


def _add(plan: Plan, hook: Hook, what: str, about: dict[str, object], now: int, new_uid: Callable[[], str]) -> None:
    alert = {"event": hook.event, "schedule": plan.schedule.id, **about}
    plan.alerts.append(
        NewRun(
            id=f"{hook.function}-{hook.event}-{plan.schedule.id}-{what}",
            uid=new_uid(),
            workflow=hook.function,
            kind=hook.kind,
            input=json.dumps({hook.parameter: alert}),
            state=State.QUEUED,
            due=now,
            created=now,
            attributes=json.dumps({"alert": hook.event, "schedule_id": plan.schedule.id}),
        )
    )
