"""The action of a schedule: the function that it starts, and the id and attributes of its runs."""

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
from mainspring.store.sealing.payloads import readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.schedules import Schedule, Tick
    from mainspring.schedules.due_ticks import Times


LATE = 60.0
"""Seconds after which a tick of a crontab counts as backfilled."""


class Action(Struct, frozen=True):
    """How a schedule's function is started, beside its name and arguments."""

    id: str
    """The first part of its runs' ids. Empty in a definition: the id of the schedule."""
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
    """The parameter whose `_cron` gets the time of the tick, for an entry of a crontab."""
    times: bool = False
    """Whether the function is called with the scheduled and the actual time instead of arguments."""

    def named(self, schedule: str) -> Action:
        """Return the action with an id, by default that of the schedule."""
        return self if self.id else msgspec.structs.replace(self, id=schedule)

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


@lru_cache(maxsize=4096)
def action_of(text: str) -> Action:
    """Return the action of a schedule's row."""
    return msgspec.json.decode(text, type=Action)


def stamp(micros: int) -> str:
    """Return a nominal time for ids and attributes: RFC 3339, UTC, whole seconds."""
    return f"{to_datetime(micros // SECOND * SECOND).isoformat()[:19]}Z"


def beginning(schedule: Schedule, tick: Tick, times: Times, now: int, new_uid: Callable[[], str]) -> Beginning:
    """Return the run that a tick starts."""
    action = action_of(schedule.action)
    nominal = stamp(tick.nominal)
    attributes = {**action.attributes, "schedule_id": schedule.id, "scheduled_at": nominal}
    return Beginning(
        NewRun(
            id=f"{action.id}-{nominal}-{tick.request}" if tick.request else f"{action.id}-{nominal}",
            uid=new_uid(),
            workflow=schedule.workflow,
            kind=action.kind,
            input=schedule.input if action.cron is None else _with_cron(schedule, action.cron, tick, now),
            state=State.QUEUED,
            due=min(tick.due, now),  # runs that should have begun first are claimed first
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


def _with_cron(schedule: Schedule, parameter: str, tick: Tick, now: int) -> str:
    """Return the payload of a crontab entry, with the time of the tick and whether it is backfilled.

    A process that cannot read the payload cannot start the entry.
    """
    values: dict[str, Any] = json.loads(readable(schedule.input, f"the payload of the crontab entry {schedule.id!r}"))
    late = now - tick.nominal > LATE * SECOND
    ts = to_datetime(tick.nominal).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    values[parameter]["_cron"] = {"ts": ts, "backfilled": late}
    return json.dumps(values)


def _known(schedule: Schedule, tick: Tick, times: Times, now: int, *, called_with_them: bool) -> str:
    """Return what the run can read about its tick, as of the start."""
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
