"""Durable workflows and the schedules that start them. Nothing to run but a database."""

from typing import TYPE_CHECKING

from mainspring.app.app import App
from mainspring.app.events import RunEvent
from mainspring.app.functions import AsyncFn, Call, SyncFn
from mainspring.app.handle import Handle
from mainspring.app.names import Event, Question, Stream, Topic
from mainspring.app.options import Debounce
from mainspring.app.resources import Resource
from mainspring.app.run import run
from mainspring.app.scope import Blueprint
from mainspring.app.settings import Settings
from mainspring.app.talk import Message
from mainspring.engine.retry import Retry
from mainspring.model.states import State
from mainspring.operations.queues import QueueInfo, Rate
from mainspring.operations.runs import RunInfo, StepInfo
from mainspring.store.transactions import Tx

if TYPE_CHECKING:
    from mainspring.app.alerts import Alert
    from mainspring.app.client import Client
    from mainspring.app.declared import Declaration
    from mainspring.engine.ticks import RunTick
    from mainspring.model.schedules import Outcome, Overlap, Source
    from mainspring.operations.schedule_audit import ScheduleAudit
    from mainspring.operations.schedule_infos import BackfillInfo, ScheduleDescription, ScheduleInfo, TickInfo
    from mainspring.recurrence import (
        Calendar,
        Cron,
        CronItem,
        CronOptions,
        Interval,
        ParsedCronItem,
        Spec,
        parse_cron_items,
        parse_crontab,
    )
    from mainspring.schedules.policy import Policy

__all__ = [
    "Alert",
    "App",
    "AsyncFn",
    "BackfillInfo",
    "Blueprint",
    "Calendar",
    "Call",
    "Client",
    "Cron",
    "CronItem",
    "CronOptions",
    "Debounce",
    "Declaration",
    "Event",
    "Handle",
    "Interval",
    "Message",
    "Outcome",
    "Overlap",
    "ParsedCronItem",
    "Policy",
    "Question",
    "QueueInfo",
    "Rate",
    "Resource",
    "Retry",
    "RunEvent",
    "RunInfo",
    "RunTick",
    "ScheduleAudit",
    "ScheduleDescription",
    "ScheduleInfo",
    "Settings",
    "Source",
    "Spec",
    "State",
    "StepInfo",
    "Stream",
    "SyncFn",
    "TickInfo",
    "Topic",
    "Tx",
    "parse_cron_items",
    "parse_crontab",
    "run",
]

__version__ = "0.1.0"

_LATER = {
    "Alert": "app.alerts",
    "BackfillInfo": "operations.schedule_infos",
    "Calendar": "recurrence",
    "Client": "app.client",
    "Cron": "recurrence",
    "CronItem": "recurrence",
    "CronOptions": "recurrence",
    "Declaration": "app.declared",
    "Interval": "recurrence",
    "Outcome": "model.schedules",
    "Overlap": "model.schedules",
    "ParsedCronItem": "recurrence",
    "Policy": "schedules.policy",
    "RunTick": "engine.ticks",
    "ScheduleAudit": "operations.schedule_audit",
    "ScheduleDescription": "operations.schedule_infos",
    "ScheduleInfo": "operations.schedule_infos",
    "Source": "model.schedules",
    "Spec": "recurrence",
    "TickInfo": "operations.schedule_infos",
    "parse_cron_items": "recurrence",
    "parse_crontab": "recurrence",
}
"""Names that not every program uses, and the modules that are imported when one does."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    value: object = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value
