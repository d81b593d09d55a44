"""What a schedule starts: a call, and what a run of it is called and carries."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.runs import NewRun
from mainspring.model.states import State
from mainspring.store.schedules import Beginning

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.schedules import Schedule, Tick
    from mainspring.schedules.due_ticks import Times


LATE = 60.0
"""Seconds after which a tick of a crontab counts as made up for."""


class Action(Struct, frozen=True):
    """How a schedule's function is started, beside its name and arguments."""

    id: str
    """The first part of its runs' ids."""
    kind: str = "workflow"
    timeout: int | None = None
    attributes: dict[str, Any] = {}
    version: str | None = None
    queue: str | None = None
    priority: int = 0
    partition: str = ""
    key: str | None = None
    key_mode: str | None = None
    retry: str | None = None
    cron: str | None = None
    """The parameter whose `_cron` says which tick it is: an entry of a crontab."""
    times: bool = False
    """It is called with the scheduled and the actual time instead of arguments."""

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


@lru_cache(maxsize=4096)
def action_of(text: str) -> Action:
    """The action as a schedule's row has it."""
    return msgspec.json.decode(text, type=Action)


def stamp(micros: int) -> str:
    """A nominal time as it stands in ids and attributes: RFC 3339, UTC, whole seconds."""
    return f"{to_datetime(micros // SECOND * SECOND).isoformat()[:19]}Z"


def beginning(schedule: Schedule, tick: Tick, times: Times, now: int, new_uid: Callable[[], str]) -> Beginning:
    """The run that a tick starts."""
    action = action_of(schedule.action)
    nominal = stamp(tick.nominal)
    attributes = {**action.attributes, "schedule_id": schedule.id, "scheduled_at": nominal}
    return Beginning(
        NewRun(
            id=f"{action.id}-{nominal}-{tick.request}" if tick.request else f"{action.id}-{nominal}",
            uid=new_uid(),
            workflow=schedule.workflow,
            kind=action.kind,
            input=schedule.input if action.cron is None else _with_cron(schedule.input, action.cron, tick, now),
            state=State.QUEUED,
            due=min(tick.due, now),  # what should have begun first is taken first
            created=now,
            timeout=action.timeout,
            version=action.version,
            queue=action.queue,
            priority=action.priority,
            partition=action.partition,
            key=action.key,
            key_mode=action.key_mode,
            retry=action.retry,
            attributes=msgspec.json.encode(attributes).decode(),
        ),
        _known(schedule, tick, times, now, called_with_them=action.times),
    )


def _with_cron(text: str, parameter: str, tick: Tick, now: int) -> str:
    """The payload of a crontab entry, with the time it was due and whether that is made up for."""
    values: dict[str, Any] = json.loads(text)
    late = now - tick.nominal > LATE * SECOND
    ts = to_datetime(tick.nominal).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    values[parameter]["_cron"] = {"ts": ts, "backfilled": late}
    return json.dumps(values)


def _known(schedule: Schedule, tick: Tick, times: Times, now: int, *, called_with_them: bool) -> str:
    """What the run gets to know of its tick, captured at the moment at which it is started."""
    known: dict[str, Any] = {
        "nominal": tick.nominal,
        "actual": now,
        "source": tick.source,
        "request": tick.request,
        "previous": times.before(tick.nominal),
        "upcoming": times.next(tick.nominal),
    }
    if called_with_them:
        known["times"] = True
    if schedule.last_result is not None:
        known["last_result"] = msgspec.Raw(schedule.last_result)
    if schedule.last_failure is not None:
        known["last_failure"] = msgspec.Raw(schedule.last_failure)
    return msgspec.json.encode(known).decode()
