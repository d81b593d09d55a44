"""Functions of the app that receive an alert when a schedule missed a tick, was late, or was paused by a failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (read by annotation)
from typing import TYPE_CHECKING, TypeVar

from mainspring.app.functions.functions import AsyncFn, SyncFn
from mainspring.app.functions.options import micros
from mainspring.errors import InvalidInput
from mainspring.model.schedules import Hook

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.functions.options import Duration

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that happened to a schedule. A long stretch of missed ticks is one alert, with `until` and `count`."""

    event: str
    """missed, late or paused_by_failure."""
    schedule: str
    reason: str | None = None
    """In words, as with the tick; for a pause, the note."""
    nominal: datetime | None = None
    until: datetime | None = None
    count: int = 1
    """Ticks; for a pause, failures in a row."""
    run: str | None = None
    """The run that was late, or failed."""
    late: float | None = None
    """Seconds after the time to act."""


class Hooks:
    """The part of an app or blueprint in which such functions are declared. They are workflows or steps, and take an `Alert`."""

    def _hook(self, hook: Hook) -> None:
        raise NotImplementedError

    def on_missed(self, fn: F, /) -> F:
        """Call the function below with an `Alert` when no worker acted on a tick until its catch-up window had closed."""
        return self._declared("missed", fn)

    def on_late(self, after: Duration, /) -> Callable[[F], F]:
        """Call the function below with an `Alert` when a run was begun more than `after` too late, whatever the reason."""
        length = micros(after)
        return lambda fn: self._declared("late", fn, length)

    def on_paused_by_failure(self, fn: F, /) -> F:
        """Call the function below with an `Alert` when a schedule was paused because of runs that failed."""
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
