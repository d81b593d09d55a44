"""The tick of a run that a schedule started, as `run.tick` shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mainspring.codec import decode_exception
from mainspring.errors import MainspringError
from mainspring.model.clock import to_datetime
from mainspring.model.schedules import TickSource

if TYPE_CHECKING:
    from datetime import datetime

    from mainspring.codec import ValueCodec
    from mainspring.model.runs import Run


@dataclass(frozen=True, slots=True)
class RunTick:
    """The tick that started a run. `last_result` and `last_failure` are as they were at that moment."""

    schedule: str
    nominal: datetime
    """The time that the spec names; of a trigger, the time of the request."""
    actual: datetime
    """When the schedule acted on it."""
    source: TickSource
    previous: datetime | None
    """The nominal time before this one."""
    upcoming: datetime | None
    """The nominal time after this one."""
    last_result: Any
    """The result of the last run of the schedule that had succeeded."""
    last_failure: BaseException | None
    """The exception of the schedule's last run, if it had failed."""


_NOTHING = msgspec.Raw()


class _Known(Struct):
    """The stored tick of a run, as `schedules.actions` writes it. A fork of the run also has its schedule and its first start."""

    nominal: int
    actual: int
    source: str
    previous: int | None = None
    upcoming: int | None = None
    times: bool = False
    schedule: str | None = None
    started: int | None = None
    last_result: msgspec.Raw = _NOTHING
    last_failure: msgspec.Raw = _NOTHING


_read = msgspec.json.Decoder(_Known).decode


def tick_of(run: Run, result: ValueCodec) -> RunTick | None:
    """The tick that started a run. None: no schedule started it."""
    if run.tick is None:
        return None
    known = _read(run.tick)
    schedule = run.schedule or known.schedule
    if schedule is None:
        return None
    return RunTick(
        schedule,
        to_datetime(known.nominal),
        to_datetime(known.actual),
        TickSource(known.source),
        _time(known.previous),
        _time(known.upcoming),
        _result(_text(known.last_result), result) if known.last_result else None,
        decode_exception(_text(known.last_failure)) if known.last_failure else None,
    )


def times_of(run: Run) -> tuple[datetime, datetime] | None:
    """The scheduled time and the time of the first claim, for a function that takes them as arguments."""
    if run.tick is None or run.started is None:
        return None
    known = _read(run.tick)
    return (to_datetime(known.nominal), to_datetime(known.started or run.started)) if known.times else None


def _result(text: str, codec: ValueCodec) -> Any:
    """Decode a result by the function's annotation; as plain JSON if the annotation has changed and no longer fits."""
    try:
        return codec.decode(text)
    except MainspringError:
        return json.loads(text)


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode()


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else to_datetime(micros)
