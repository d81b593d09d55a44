"""The fields of records that hold users' values, and how to seal and open them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from mainspring.errors import PayloadError
from mainspring.model.runs import Claim, Ending, NewRun, Run, Step
from mainspring.model.schedules import Schedule, ScheduleRun
from mainspring.store.messages import Entry, Message, Post, PublishedValue, Reading, Reply
from mainspring.store.schedules import Beginning, Plan, Situation
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

    from mainspring.store.sealing.payloads import Direction, Payloads

R = TypeVar("R")


How: TypeAlias = "Callable[[Direction, str, str], str]"
"""Seals or opens the text of a field, given its name for messages."""
_SEALED_IN_TRAIL = ("error", "input")
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


# -- kinds of fields -----------------------------------------------------------------------------------------------------
def _value(to: Direction, text: str, what: str) -> str:
    return to.value(text, what)


def _error(to: Direction, text: str, what: str) -> str:
    return to.error(text, what)


def _trail(to: Direction, text: str, what: str) -> str:
    """The attempts of a step, whose errors and hash of the input are values."""
    attempts: list[dict[str, Any]] = json.loads(text)
    for attempt in attempts:
        for name in _SEALED_IN_TRAIL:
            if attempt.get(name) is not None:
                # As compact as a sealed value, which is recognized by its beginning.
                attempt[name] = json.loads(to.value(json.dumps(attempt[name], separators=(",", ":")), what))
    return json.dumps(attempts, ensure_ascii=False)


def _tick(to: Direction, text: str, what: str) -> str:
    """The tick of a run, with what its schedule remembers of earlier runs."""
    remembered = {"last_result": to.value, "last_failure": to.error}
    if not any(f'"{name}"' in text for name in remembered):
        return text
    parts = _parts(text)
    for name, change in remembered.items():
        if name in parts:
            parts[name] = msgspec.Raw(change(bytes(parts[name]).decode(), what).encode())
    return msgspec.json.encode(parts).decode()


def _declared(to: Direction, text: str, what: str) -> str:
    """The declaration of a schedule, with its arguments."""
    declared: dict[str, Any] = json.loads(text)
    if isinstance(declared.get("input"), str):
        declared["input"] = to.value(declared["input"], what)
    return json.dumps(declared)


# -- fields --------------------------------------------------------------------------------------------------------------
_OF_STEP = "{0.kind} {0.name!r} of run {0.run}"
_OUTGOING = "a message, event or stream value of run {0.run}"
_MESSAGE = "message {0.number} of run {0.run}"
_AUDIT = "audit entry {0.id}"
_FIELDS: Mapping[type, Mapping[str, tuple[How, str]]] = {
    # runs and steps
    NewRun: {"input": (_value, "the input of run {0.id}")},
    Run: {
        "input": (_value, "the input of run {0.id}"),
        "output": (_value, "the result of run {0.id}"),
        "error": (_error, "run {0.id}"),
        "tick": (_tick, "the tick of run {0.id}"),
    },
    Ending: {"output": (_value, "the result of run {0.id}"), "error": (_error, "run {0.id}")},
    FunctionRow: {"input": (_value, "the input of run {0.id}"), "error": (_error, "run {0.id}")},
    Step: {"output": (_value, _OF_STEP), "error": (_error, _OF_STEP), "trail": (_trail, _OF_STEP)},
    # writes
    Finish: {"output": (_value, "the result of run {0.run}"), "error": (_error, "run {0.run}")},
    RetryLater: {"error": (_error, "run {0.run}")},
    ContinueAs: {"input": (_value, "the input of run {0.run}")},
    # messages
    Post: {"body": (_value, _OUTGOING)},
    Entry: {"value": (_value, _OUTGOING)},
    Reply: {"answer": (_value, _OUTGOING), "error": (_error, "run {0.run}")},
    Message: {"body": (_value, _MESSAGE), "answer": (_value, f"the answer to {_MESSAGE}"), "error": (_error, _MESSAGE)},
    PublishedValue: {"value": (_value, "{0.key!r} of run {0.run}")},
    # schedules
    Schedule: {
        "input": (_value, "the input of schedule {0.id}"),
        "last_result": (_value, "schedule {0.id}"),
        "last_failure": (_error, "schedule {0.id}"),
        "declared": (_declared, "schedule {0.id}"),
    },
    ScheduleRun: {"output": (_value, "run {0.id}"), "error": (_error, "run {0.id}")},
    Beginning: {"tick": (_tick, "the tick of run {0.run.id}")},
    # actions of operators, which often contain values
    audit.Entry: {"details": (_value, _AUDIT), "outcome": (_value, _AUDIT)},
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
    made: R = _changed(record, lambda how, text, what: how(payloads.sealing, text, what))
    return made


def opened(payloads: Payloads, record: R) -> R:
    """Open a stored record, or a collection of records, as far as possible: a value whose codec fails stays sealed, and is shown so."""

    def change(how: How, text: str, what: str) -> str:
        try:
            return how(payloads.opening, text, what)
        except PayloadError:
            return text

    made: R = _changed(record, change)
    return made


def opened_exactly(payloads: Payloads, record: R) -> R:
    """Open a record for the code that needs its values. Raises `PayloadError` if one cannot be decoded."""
    made: R = _changed(record, lambda how, text, what: how(payloads.opening, text, what))
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
