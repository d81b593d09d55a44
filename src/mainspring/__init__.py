"""Durable workflows, schedules and queues on SQLite or PostgreSQL. No server, no broker.

`App` registers functions and executes them, `run` is the run whose code is executing, `Client` starts and manages runs without the
app's code. Errors are in `mainspring.errors`, times in `mainspring.recurrence`, tools for tests in `mainspring.testing`.
"""

from typing import TYPE_CHECKING

from mainspring._exports import exported

if TYPE_CHECKING:
    from mainspring.app.app import App as App
    from mainspring.app.client import Client as Client
    from mainspring.app.declarations.alerts import Alert as Alert
    from mainspring.app.declarations.declared import DeclaredQueue as DeclaredQueue
    from mainspring.app.declarations.schedules import Declaration as Declaration
    from mainspring.app.events import QueueEvent as QueueEvent
    from mainspring.app.events import RunEvent as RunEvent
    from mainspring.app.events import ScheduleEvent as ScheduleEvent
    from mainspring.app.events import WorkerEvent as WorkerEvent
    from mainspring.app.functions.functions import AsyncFn as AsyncFn
    from mainspring.app.functions.functions import Call as Call
    from mainspring.app.functions.functions import SyncFn as SyncFn
    from mainspring.app.functions.options import Debounce as Debounce
    from mainspring.app.functions.options import Duration as Duration
    from mainspring.app.functions.options import Moment as Moment
    from mainspring.app.functions.scope import Blueprint as Blueprint
    from mainspring.app.handle import Handle as Handle
    from mainspring.app.messages.names import Event as Event
    from mainspring.app.messages.names import Question as Question
    from mainspring.app.messages.names import Stream as Stream
    from mainspring.app.messages.names import Topic as Topic
    from mainspring.app.messages.verbs import Message as Message
    from mainspring.app.resources import Resource as Resource
    from mainspring.app.run import run as run
    from mainspring.app.settings import Settings as Settings
    from mainspring.codec.values import JSON as JSON
    from mainspring.engine.operations.ticks import RunTick as RunTick
    from mainspring.engine.retry import Retry as Retry
    from mainspring.model.clock import Clock as Clock
    from mainspring.model.schedules import Overlap as Overlap
    from mainspring.model.schedules import TickOutcome as TickOutcome
    from mainspring.model.schedules import TickSource as TickSource
    from mainspring.model.states import State as State
    from mainspring.operations.figures import Figures as Figures
    from mainspring.operations.figures import StepFigures as StepFigures
    from mainspring.operations.queues import PartitionInfo as PartitionInfo
    from mainspring.operations.queues import QueueInfo as QueueInfo
    from mainspring.operations.queues import QueueLimits as QueueLimits
    from mainspring.operations.queues import Rate as Rate
    from mainspring.operations.runs.actions import Changed as Changed
    from mainspring.operations.runs.actions import Loaded as Loaded
    from mainspring.operations.runs.info import LogLine as LogLine
    from mainspring.operations.runs.info import RunInfo as RunInfo
    from mainspring.operations.runs.info import RunPage as RunPage
    from mainspring.operations.runs.info import StepInfo as StepInfo
    from mainspring.operations.runs.info import Try as Try
    from mainspring.operations.scheduled_functions import FunctionPage as FunctionPage
    from mainspring.operations.scheduled_functions import ScheduledFunction as ScheduledFunction
    from mainspring.operations.schedules.audit import ScheduleAudit as ScheduleAudit
    from mainspring.operations.schedules.info import BackfillInfo as BackfillInfo
    from mainspring.operations.schedules.info import ScheduleDescription as ScheduleDescription
    from mainspring.operations.schedules.info import ScheduleInfo as ScheduleInfo
    from mainspring.operations.schedules.info import SchedulePage as SchedulePage
    from mainspring.operations.schedules.info import TickInfo as TickInfo
    from mainspring.operations.schedules.info import TickPage as TickPage
    from mainspring.operations.versions import PatchInfo as PatchInfo
    from mainspring.operations.versions import VersionInfo as VersionInfo
    from mainspring.operations.workers import WorkerInfo as WorkerInfo
    from mainspring.recurrence import Calendar as Calendar
    from mainspring.recurrence import Cron as Cron
    from mainspring.recurrence import CronItem as CronItem
    from mainspring.recurrence import CronOptions as CronOptions
    from mainspring.recurrence import Interval as Interval
    from mainspring.recurrence import ParsedCronItem as ParsedCronItem
    from mainspring.recurrence import Spec as Spec
    from mainspring.recurrence import parse_cron_items as parse_cron_items
    from mainspring.recurrence import parse_crontab as parse_crontab
    from mainspring.schedules.policy import Policy as Policy
    from mainspring.store.external.tx import Tx as Tx

__version__ = "0.1.0"

if not TYPE_CHECKING:
    _HOMES = {
        "app.app": ("App",),
        "app.client": ("Client",),
        "app.declarations.alerts": ("Alert",),
        "app.declarations.declared": ("DeclaredQueue",),
        "app.declarations.schedules": ("Declaration",),
        "app.events": ("QueueEvent", "RunEvent", "ScheduleEvent", "WorkerEvent"),
        "app.functions.functions": ("AsyncFn", "Call", "SyncFn"),
        "app.functions.options": ("Debounce", "Duration", "Moment"),
        "app.functions.scope": ("Blueprint",),
        "app.messages.names": ("Event", "Question", "Stream", "Topic"),
        "app.messages.verbs": ("Message",),
        "codec.values": ("JSON",),
        "app.resources": ("Resource",),
        "app.run": ("run",),
        "app.settings": ("Settings",),
        "app.handle": ("Handle",),
        "engine.operations.ticks": ("RunTick",),
        "engine.retry": ("Retry",),
        "model.clock": ("Clock",),
        "model.schedules": ("Overlap", "TickOutcome", "TickSource"),
        "model.states": ("State",),
        "operations.queues": ("PartitionInfo", "QueueInfo", "QueueLimits", "Rate"),
        "operations.runs.actions": ("Changed", "Loaded"),
        "operations.runs.info": ("LogLine", "RunInfo", "RunPage", "StepInfo", "Try"),
        "operations.scheduled_functions": ("FunctionPage", "ScheduledFunction"),
        "operations.schedules.audit": ("ScheduleAudit",),
        "operations.schedules.info": (
            "BackfillInfo",
            "ScheduleDescription",
            "ScheduleInfo",
            "SchedulePage",
            "TickInfo",
            "TickPage",
        ),
        "operations.figures": ("Figures", "StepFigures"),
        "operations.versions": ("PatchInfo", "VersionInfo"),
        "operations.workers": ("WorkerInfo",),
        "recurrence": (
            "Calendar",
            "Cron",
            "CronItem",
            "CronOptions",
            "Interval",
            "ParsedCronItem",
            "Spec",
            "parse_cron_items",
            "parse_crontab",
        ),
        "schedules.policy": ("Policy",),
        "store.external.tx": ("Tx",),
    }
    """The public names, by the module that is imported when one of them is used. The imports above are for type checkers."""

    __all__ = [name for names in _HOMES.values() for name in names]
    __getattr__ = exported(globals(), _HOMES)
    __dir__ = lambda: [*__all__, "__version__"]  # noqa: E731
