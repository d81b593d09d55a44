"""Durable workflows and the schedules that start them. Nothing to run but a database."""

from mainspring.app.app import App
from mainspring.app.functions import AsyncFn, Call, SyncFn
from mainspring.app.handle import Handle
from mainspring.app.names import Event, Stream, Topic
from mainspring.app.resources import Resource
from mainspring.app.run import run
from mainspring.app.scope import Blueprint
from mainspring.app.settings import Settings
from mainspring.app.talk import Message
from mainspring.engine.retry import Retry
from mainspring.model.states import State
from mainspring.operations.runs import RunInfo, StepInfo
from mainspring.store.transactions import Tx

__all__ = [
    "App",
    "AsyncFn",
    "Blueprint",
    "Call",
    "Event",
    "Handle",
    "Message",
    "Resource",
    "Retry",
    "RunInfo",
    "Settings",
    "State",
    "StepInfo",
    "Stream",
    "SyncFn",
    "Topic",
    "Tx",
    "run",
]

__version__ = "0.1.0"
