"""Print the ends and retries of runs in the terminal. Those of a busy app are summed up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.commands import note
from mainspring.cli.terminal import safe

if TYPE_CHECKING:
    from mainspring.app.app import App
    from mainspring.app.events import RunEvent

_PRINTED = ("run.retrying", "run.succeeded", "run.failed", "run.cancelled")
_MOST_PER_SECOND = 8


class Showing:
    """Prints one line for each run that ends or is retried, up to a number per second. The others are counted."""

    def __init__(self) -> None:
        self._second = 0
        self._printed = 0
        self._left_out = 0

    def show(self, event: RunEvent) -> None:
        now = int(event.time.timestamp())
        if now != self._second:
            if self._left_out:
                note(f"          … and {self._left_out} more")
            self._second, self._printed, self._left_out = now, 0, 0
        if self._printed == _MOST_PER_SECOND and event.name == "run.succeeded":
            self._left_out += 1
            return
        self._printed += event.name == "run.succeeded"
        reason = f": {safe(event.reason)}" if event.reason else ""
        what = event.name.removeprefix("run.")
        note(f"{event.time.astimezone():%H:%M:%S}  {what:<9}  {safe(event.workflow)}  {safe(event.run)}{reason}")


def show_runs(app: App) -> None:
    """Print the ends and retries of the runs that this process executes."""
    showing = Showing()
    for event in _PRINTED:
        app.on(event, showing.show)
