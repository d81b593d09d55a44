"""Functions of the app that receive an alert when a schedule missed a tick, was late, or was paused by a failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (read by annotation)
from typing import TYPE_CHECKING, TypeVar

from mainspring.app.functions.functions import AsyncFn, SyncFn
from mainspring.errors import InvalidInput
from mainspring.model.schedules import Hook
from mainspring.recurrence.durations import micros

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.functions.options import Duration

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Alert:
    """An event of a schedule that needs attention. A long series of missed ticks is one alert, with `until` and `count`."""

    event: str
    """`missed`, `late` or `paused_by_failure`."""
    schedule: str
    reason: str | None = None
    """The reason in words: that of the tick, or the note of the pause."""
    nominal: datetime | None = None
    until: datetime | None = None
    count: int = 1
    """The number of ticks; for a pause, of failures in a row."""
    run: str | None = None
    """The id of the run that was late or failed."""
    late: float | None = None
    """Seconds between the time at which the run was due and its start."""


class Hooks:
    """The part of an app or blueprint that declares functions for alerts: workflows or steps that take an `Alert`."""

    def _hook(self, hook: Hook) -> None:
        raise NotImplementedError

    def on_missed(self, fn: F, /) -> F:
        """Call the decorated function with an `Alert` when no worker acted on a tick within its catch-up window."""
        return self._declared("missed", fn)

    def on_late(self, after: Duration, /) -> Callable[[F], F]:
        """Call the decorated function with an `Alert` when a run started more than `after` too late, whatever the reason."""
        length = micros(after)
        return lambda fn: self._declared("late", fn, length)

    def on_paused_by_failure(self, fn: F, /) -> F:
        """Call the decorated function with an `Alert` when failed runs paused a schedule."""
        return self._declared("paused_by_failure", fn)

    def _declared(self, event: str, fn: F, after: int = 0) -> F:
        made: object = fn
        if not isinstance(made, (AsyncFn, SyncFn)):
            raise InvalidInput(f"@on_{event} goes above @workflow or @step, and {fn!r} is neither yet")
        function = made._function  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  (its other half)
        names = list(function.codec.signature.parameters)
        if len(names) != 1:
            raise InvalidInput(
                f"{function.name!r} receives the alerts of schedules: it takes one argument, an Alert, and not "
                f"{function.codec.signature}"
            )
        self._hook(Hook("", event, function.name, function.kind, names[0], after, ""))
        return fn
