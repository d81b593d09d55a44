"""The fields of records that hold users' values, and how to seal and open them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import replace

from mainspring.errors import PayloadError
from mainspring.model.runs import Claim, Ending, NewRun, Run, Step
from mainspring.model.schedules import Schedule, ScheduleRun
from mainspring.store.messages import Entry, Message, Post, PublishedValue, Reading, Reply
from mainspring.store.schedules import Beginning, Plan, Situation
from mainspring.store.sealing.payloads import Payloads
from mainspring.store.verbs import audit
from mainspring.store.verbs.scheduled_functions import FunctionRow
from mainspring.store.writes import (
    Complete,
    ContinueAs,
    Finish,
    RecordAndRevive,
    RecordAndSend,
    Recorded,
    RecordStep,
    RetryLater,
    Send,
    Start,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

R = TypeVar("R")


class How(NamedTuple):
    """How a field is sealed and opened."""

    seal: Callable[[Payloads, str, str], str]
    open: Callable[[Payloads, str, str], str]


_VALUE = How(Payloads.seal, Payloads.open)
_ERROR = How(Payloads.seal_error, Payloads.open_error)
_TRAIL = How(Payloads.seal_trail, Payloads.open_trail)
_TICK = How(Payloads.seal_tick, Payloads.open_tick)
_DECLARED = How(Payloads.seal_declared, Payloads.open_declared)

_OF_STEP = "{0.kind} {0.name!r} of run {0.run}"
_OUTGOING = "a message, event or stream value of run {0.run}"
_MESSAGE = "message {0.number} of run {0.run}"
_AUDIT = "audit entry {0.id}"
_FIELDS: Mapping[type, Mapping[str, tuple[How, str]]] = {
    # runs and steps
    NewRun: {"input": (_VALUE, "the input of run {0.id}")},
    Run: {
        "input": (_VALUE, "the input of run {0.id}"),
        "output": (_VALUE, "the result of run {0.id}"),
        "error": (_ERROR, "run {0.id}"),
        "tick": (_TICK, "the tick of run {0.id}"),
    },
    Ending: {"output": (_VALUE, "the result of run {0.id}"), "error": (_ERROR, "run {0.id}")},
    FunctionRow: {"input": (_VALUE, "the input of run {0.id}"), "error": (_ERROR, "run {0.id}")},
    Step: {"output": (_VALUE, _OF_STEP), "error": (_ERROR, _OF_STEP), "trail": (_TRAIL, _OF_STEP)},
    # writes
    Finish: {"output": (_VALUE, "the result of run {0.run}"), "error": (_ERROR, "run {0.run}")},
    RetryLater: {"error": (_ERROR, "run {0.run}")},
    ContinueAs: {"input": (_VALUE, "the input of run {0.run}")},
    # messages
    Post: {"body": (_VALUE, _OUTGOING)},
    Entry: {"value": (_VALUE, _OUTGOING)},
    Reply: {"answer": (_VALUE, _OUTGOING), "error": (_ERROR, "run {0.run}")},
    Message: {"body": (_VALUE, _MESSAGE), "answer": (_VALUE, f"the answer to {_MESSAGE}"), "error": (_ERROR, _MESSAGE)},
    PublishedValue: {"value": (_VALUE, "{0.key!r} of run {0.run}")},
    # schedules
    Schedule: {
        "input": (_VALUE, "the input of schedule {0.id}"),
        "last_result": (_VALUE, "schedule {0.id}"),
        "last_failure": (_ERROR, "schedule {0.id}"),
        "declared": (_DECLARED, "schedule {0.id}"),
    },
    ScheduleRun: {"output": (_VALUE, "run {0.id}"), "error": (_ERROR, "run {0.id}")},
    Beginning: {"tick": (_TICK, "the tick of run {0.run.id}")},
    # actions of operators, which often contain values
    audit.Entry: {"details": (_VALUE, _AUDIT), "outcome": (_VALUE, _AUDIT)},
}
"""The fields with users' values. The text names the value in messages of errors."""
_PARTS: Mapping[type, tuple[str, ...]] = {
    Claim: ("run", "steps"),
    Start: ("run",),
    RecordStep: ("step", "starts"),
    Complete: ("step", "starts"),
    RecordAndSend: ("step", "starts", "outgoing"),
    RecordAndRevive: ("step", "starts"),
    Send: ("outgoing",),
    Recorded: ("ending",),
    Reading: ("entries",),
    Beginning: ("run",),
    Plan: ("schedule", "starts", "releases", "alerts"),
    Situation: ("schedule", "runs"),
}
"""The fields with other records."""

_VALUE_KINDS = frozenset({"step", "transaction", "call", "result", "receive", "event", "stream", "question", "answer"})
"""Operations whose outcome is a user's value. Other outcomes are the library's own, and read by its statements."""
_PLAIN_REASONS = {"interrupted"}
"""Reasons of failed runs that do not contain the message of an exception."""


def sealed(payloads: Payloads, record: R) -> R:
    """Seal a record, or a collection of records, before it is stored. Raises `PayloadError` if the codec fails."""
    made: R = _changed(record, lambda how, text, what: how.seal(payloads, text, what))
    return made


def opened(payloads: Payloads, record: R) -> R:
    """Open a stored record, or a collection of records, as far as possible: a value whose codec fails stays sealed, and is shown so."""

    def change(how: How, text: str, what: str) -> str:
        try:
            return how.open(payloads, text, what)
        except PayloadError:
            return text

    made: R = _changed(record, change)
    return made


def opened_exactly(payloads: Payloads, record: R) -> R:
    """Open a record for the code that needs its values. Raises `PayloadError` if one cannot be decoded."""
    made: R = _changed(record, lambda how, text, what: how.open(payloads, text, what))
    return made


def _changed(record: Any, change: Callable[[How, str, str], str]) -> Any:
    """Change the values of a record and of the records in it."""
    kind: type = type(record)  # pyright: ignore[reportUnknownVariableType]
    if kind is list:
        return [_changed(each, change) for each in record]
    if kind is tuple:
        return tuple(_changed(each, change) for each in record)
    if kind is dict:
        return {key: _changed(each, change) for key, each in record.items()}
    found = {name: _changed(getattr(record, name), change) for name in _PARTS.get(kind, ())}
    for name, (how, what) in _FIELDS.get(kind, {}).items():
        text = getattr(record, name)
        if text is not None and not (isinstance(record, Step) and name == "output" and not _has_value(record)):
            found[name] = change(how, text, what.format(record))
    if isinstance(record, Finish) and record.error is not None:
        found["reason"] = _without_message(record.reason)
    elif isinstance(record, (Run, Ending)) and record.error is not None:
        found["reason"] = _with_message(record.reason, record.error, found["error"])
    return replace(record, **found) if found else record


def _has_value(step: Step) -> bool:
    return step.completed is not None and step.kind in _VALUE_KINDS


def _without_message(reason: str | None) -> str | None:
    """The reason of a failed run, without the message of the exception."""
    return reason if reason is None or reason in _PLAIN_REASONS else reason.partition(":")[0]


def _with_message(reason: str | None, stored: str, error: str) -> str | None:
    """The reason of a failed run as it would be without a codec: with the message of the exception."""
    if reason is None or stored == error or reason in _PLAIN_REASONS:
        return reason
    message = json.loads(error).get("message", "")
    return f"{reason}: {message}"[:500] if not reason.endswith(message) else reason
