"""The asyncio tasks of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.engine.replay.empty import UNUSED, own

if TYPE_CHECKING:
    import asyncio

    from mainspring.engine.host import Cancellable

_MOST_WATCHED = 50
"""The most tasks of one run that are inspected between two outcomes."""


class Tasks:
    """The task that executes a run, the tasks that its code created, and the timers that its code set."""

    __slots__ = ("branches", "interruptible", "responders", "root", "timers", "unfinished")

    def __init__(self) -> None:
        self.root: Cancellable | None = None
        """The task that executes the run, or what executes it without one."""
        self.unfinished: dict[asyncio.Future[Any], str] = UNUSED
        """Tasks that the workflow created, with the line that created each."""
        self.branches: dict[asyncio.Future[Any], None] = UNUSED
        """The tasks among them that execute code of the workflow, and not just one operation."""
        self.responders: dict[asyncio.Future[Any], str] = UNUSED
        """The tasks that answer questions until the run ends, with the position of their branch."""
        self.interruptible: dict[asyncio.Task[Any], None] = UNUSED
        """Tasks of steps that may be cancelled while they execute."""
        self.timers: dict[asyncio.TimerHandle, None] = UNUSED
        """Timers that the workflow's code has set on the event loop. They are not durable."""

    def add(self, task: asyncio.Future[Any], site: str, *, branch: bool) -> None:
        """Add a task that the workflow created at `site`."""
        self.unfinished = own(self.unfinished)
        self.unfinished[task] = site
        if branch:
            self.branches = own(self.branches)
            self.branches[task] = None

    def remove(self, task: asyncio.Future[Any]) -> None:
        """Remove a task that is done."""
        self.unfinished.pop(task, None)
        self.branches.pop(task, None)

    def add_responder(self, task: asyncio.Future[Any], at: str) -> None:
        """Note that a task answers questions. `at` is the position of its branch, once it has begun."""
        self.responders = own(self.responders)
        self.responders[task] = at

    def add_interruptible(self, task: asyncio.Task[Any]) -> None:
        """Note a task that executes a step, and that a halt of the run cancels."""
        self.interruptible = own(self.interruptible)
        self.interruptible[task] = None

    def is_busy(self) -> bool | None:
        """Whether one of the tasks is about to continue. None: there are too many tasks to inspect."""
        if len(self.branches) > _MOST_WATCHED:
            return None
        return _is_ready(self.root) or any(map(_is_ready, self.branches))

    def watch_timer(self, timer: asyncio.TimerHandle) -> None:
        """Note a timer that the workflow's code has set on the event loop."""
        self.timers = own(self.timers)
        self.timers[timer] = None

    def process_time(self, now: float) -> float | None:
        """Seconds until the first timer that the workflow's code has set on the event loop. None: there is none."""
        if not self.timers:
            return None
        for timer in [timer for timer in self.timers if timer.cancelled() or timer.when() <= now]:
            del self.timers[timer]
        return min((timer.when() - now for timer in self.timers), default=None)


def _is_ready(task: Any) -> bool:
    """Whether a task is about to continue: it awaits nothing, or a future that is done."""
    if task is None or task.done():
        return False
    waits_for = getattr(task, "_fut_waiter", task)
    return waits_for is None or (waits_for is not task and waits_for.done())
