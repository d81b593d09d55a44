"""Functions of the app that are told when a schedule missed a tick, was late, or was paused by a failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (read by annotation)
from typing import TYPE_CHECKING

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.engine.registry import Function


@dataclass(frozen=True, slots=True)
class Alert:
    """What happened to a schedule. A stretch of ticks is one alert, with `until` and `count`."""

    event: str
    """missed, late or paused_by_failure."""
    schedule: str
    reason: str | None = None
    nominal: datetime | None = None
    until: datetime | None = None
    count: int = 1
    outcome: str | None = None
    run: str | None = None
    late: float | None = None
    """Seconds after the time to act."""


def parameter_of(function: Function) -> str:
    """The name of the one parameter that takes the alert."""
    names = list(function.codec.signature.parameters)
    if len(names) != 1:
        raise InvalidInput(
            f"{function.name!r} is to be told of what happens to schedules: it takes one argument, the Alert, and not "
            f"{function.codec.signature}"
        )
    return names[0]
