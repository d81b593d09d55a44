"""What a run that a schedule started knows of its tick."""

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
    """The time that the spec names; for a trigger, when it was asked for."""
    actual: datetime
    """When the schedule acted on it."""
    source: TickSource
    previous: datetime | None
    """The nominal time before this one."""
    upcoming: datetime | None
    """The nominal time after this one."""
    last_result: Any
    """Result of the schedule's run that had succeeded last."""
    last_failure: BaseException | None
    """How the schedule's run that had ended last failed, if it did."""


_NOTHING = msgspec.Raw()


class _Known(Struct):
    """What a schedule says to a run of its tick, as `schedules.actions` writes it."""

    nominal: int
    actual: int
    source: str
    previous: int | None = None
    upcoming: int | None = None
    times: bool = False
    last_result: msgspec.Raw = _NOTHING
    last_failure: msgspec.Raw = _NOTHING


_read = msgspec.json.Decoder(_Known).decode


def tick_of(run: Run, result: ValueCodec) -> RunTick | None:
    """The tick that started a run, or None if none did."""
    if run.tick is None or run.schedule is None:
        return None
    known = _read(run.tick)
    return RunTick(
        run.schedule,
        to_datetime(known.nominal),
        to_datetime(known.actual),
        TickSource(known.source),
        _time(known.previous),
        _time(known.upcoming),
        _result(_text(known.last_result), result) if known.last_result else None,
        decode_exception(_text(known.last_failure)) if known.last_failure else None,
    )


def times_of(run: Run) -> tuple[datetime, datetime] | None:
    """The scheduled time and the time of the first claim, for a function that is called with these."""
    if run.tick is None or run.started is None:
        return None
    known = _read(run.tick)
    return (to_datetime(known.nominal), to_datetime(run.started)) if known.times else None


def _result(text: str, codec: ValueCodec) -> Any:
    """As the function's annotation says; as plain JSON if it says something else by now."""
    try:
        return codec.decode(text)
    except MainspringError:
        return json.loads(text)


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode()


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else to_datetime(micros)
