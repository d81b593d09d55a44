"""Telling functions of the user's about changes of runs: `app.on("run.failed", fn)`."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput
from mainspring.model.clock import to_datetime

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from mainspring.model.runs import Run, Step
    from mainspring.store.verbs.unnotified import UnreportedEnd

log = logging.getLogger("mainspring.app")

EVENTS = (
    "run.started",
    "run.resumed",
    "run.waiting",
    "run.retrying",
    "run.cancelling",
    "run.succeeded",
    "run.failed",
    "run.cancelled",
)


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened to a run."""

    name: str
    run: str
    """Its id."""
    workflow: str
    reason: str | None
    attempt: int
    """The number of the attempt, from 1; 0 for a run that has ended without any."""
    queue: str | None
    time: datetime


class Listeners:
    """Which listener wants which events. An exception of one is logged and does not reach the others."""

    def __init__(self) -> None:
        self._all: dict[str, list[Callable[[RunEvent], Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.operations: list[Callable[[Run, Step], None]] = []
        """Called when an operation of a run here is over, on whatever thread it is. They must not block, nor raise."""
        self.around: Callable[[Run, str], Callable[[], None]] | None = None
        """Called before each attempt of a step, where it is executed; what it returns is called afterwards."""

    def add(self, name: str, fn: Callable[[RunEvent], Any]) -> None:
        if name != "*" and name not in EVENTS:
            raise InvalidInput(f"there is no event {name!r}; there are {', '.join(EVENTS)}, and * for all of them")
        if not callable(fn):
            raise InvalidInput(f"app.on takes a function that is given the event, not {fn!r}")
        self._all.setdefault(name, []).append(fn)

    def __bool__(self) -> bool:
        return bool(self._all)

    def tell(self, name: str, run: Run | UnreportedEnd, reason: str | None, at: int) -> None:
        """Call the listeners, on the loop: no caller waits for them."""
        if not self._all:
            return
        interested = [*self._all.get(name, ()), *self._all.get("*", ())]
        if not interested:
            return
        event = RunEvent(name, run.id, run.workflow, reason, run.attempts, run.queue, to_datetime(at))
        for fn in interested:
            contextvars.Context().run(
                self._tell, fn, event
            )  # what they do is no part of the run that the event is about

    def _tell(self, fn: Callable[[RunEvent], Any], event: RunEvent) -> None:
        try:
            answer = fn(event)
        except Exception:
            log.exception("a listener of %s failed", event.name)
        else:
            if inspect.iscoroutine(answer):
                self._follow(answer, event.name)

    def _follow(self, answer: Any, name: str) -> None:
        async def followed() -> None:
            try:
                await answer
            except Exception:
                log.exception("a listener of %s failed", name)

        task = asyncio.get_running_loop().create_task(followed())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
