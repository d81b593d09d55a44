"""Calls the user's listeners for events of runs, schedules, queues and workers: `app.on("run.failed", fn)`."""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mainspring.errors import InvalidInput
from mainspring.model.clock import to_datetime
from mainspring.model.schedules import TickOutcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from mainspring.model.runs import Run, Step
    from mainspring.model.schedules import Tick
    from mainspring.store.verbs.unreported_ends import UnreportedEnd

log = logging.getLogger("mainspring.app")

RunEventName: TypeAlias = Literal[
    "run.started",
    "run.resumed",
    "run.waiting",
    "run.retrying",
    "run.cancelling",
    "run.succeeded",
    "run.failed",
    "run.cancelled",
    "run.*",
]
ScheduleEventName: TypeAlias = Literal[
    "schedule.fired",
    "schedule.skipped",
    "schedule.missed",
    "schedule.dropped",
    "schedule.start_failed",
    "schedule.created",
    "schedule.changed",
    "schedule.paused",
    "schedule.resumed",
    "schedule.deleted",
    "schedule.*",
]
QueueEventName: TypeAlias = Literal[
    "queue.created", "queue.changed", "queue.paused", "queue.resumed", "queue.deleted", "queue.*"
]
WorkerEventName: TypeAlias = Literal[
    "worker.started",
    "worker.paused",
    "worker.resumed",
    "worker.lost",
    "worker.died",
    "worker.stopping",
    "worker.stopped",
    "worker.*",
]
EVENTS: tuple[str, ...] = tuple(
    name
    for names in (RunEventName, ScheduleEventName, QueueEventName, WorkerEventName)
    for name in names.__args__  # type: ignore[attr-defined]
)
_CHANGES = ("created", "changed", "paused", "resumed", "deleted")
"""The events of queues and schedules that report a change."""
_CHANGED = {"queue", "schedule"}
_OF_TICKS = {
    TickOutcome.FIRED: "schedule.fired",
    TickOutcome.LATE: "schedule.fired",
    TickOutcome.SKIPPED_OVERLAP: "schedule.skipped",
    TickOutcome.SKIPPED_BY_REQUEST: "schedule.skipped",
    TickOutcome.MISSED: "schedule.missed",
    TickOutcome.DROPPED: "schedule.dropped",
    TickOutcome.REPLACED: "schedule.dropped",
    TickOutcome.START_FAILED: "schedule.start_failed",
}


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An event of a run."""

    name: str
    run: str
    """The run's id."""
    workflow: str
    reason: str | None
    attempt: int
    """The number of the attempt, from 1; 0 for a run that ended without any."""
    queue: str | None
    time: datetime


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """A tick of a schedule, or a change of a schedule."""

    name: str
    schedule: str
    """The schedule's id."""
    workflow: str
    time: datetime
    outcome: TickOutcome | None = None
    """The outcome of the tick; None for a change of the schedule itself."""
    scheduled_at: datetime | None = None
    """The nominal time of the tick."""
    count: int = 1
    """The number of ticks in a row that had this outcome."""
    run: str | None = None
    """The id of the run that was started."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """A change of a queue: created, deleted, paused, resumed, or its limits changed."""

    name: str
    queue: str
    time: datetime


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """An event of a worker: of this one or, for `worker.died`, of another one."""

    name: str
    worker: str
    """The worker's id."""
    host: str
    time: datetime
    reason: str | None = None


AnyEvent: TypeAlias = RunEvent | ScheduleEvent | QueueEvent | WorkerEvent


class Listeners:
    """Listeners by event. An exception in one is logged and does not reach the others."""

    follows_runs = False
    """Whether it is called for each event of a run, also if no listener wants one."""

    def __init__(self) -> None:
        self._all: dict[str, list[Callable[[Any], Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.operations: list[Callable[[Run, Step], None]] = []
        """Callbacks for the end of an operation of a run here, on any thread. They must not block or raise."""
        self.around: Callable[[Run, str], Callable[[], None]] | None = None
        """Called before each attempt of a step, where the step is executed. It returns the function to call after the attempt.
        """
        self.changes: set[str] = set()
        """The nouns whose changes have listeners: queue, schedule."""

    def add(self, name: str, fn: Callable[[Any], Any]) -> None:
        if name != "*" and name not in EVENTS:
            near = difflib.get_close_matches(str(name), EVENTS, 1)
            hint = f"did you mean {near[0]!r}? There are" if near else "there are"
            raise InvalidInput(f"there is no event {name!r}; {hint} {', '.join(EVENTS)}, and * for all of them")
        if not callable(fn):
            raise InvalidInput(f"app.on takes a function that is given the event, not {fn!r}")
        self._all.setdefault(name, []).append(fn)
        noun, _, what = name.partition(".")
        if what in {*_CHANGES, "*", ""}:
            self.changes |= {noun} & _CHANGED if what else _CHANGED

    def __bool__(self) -> bool:
        return bool(self._all)

    def wants(self, noun: str) -> bool:
        """Whether there is a listener for changes of queues or of schedules."""
        return noun in self.changes

    def _interested(self, name: str) -> list[Callable[[Any], Any]]:
        return [fn for key in (name, f"{name.partition('.')[0]}.*", "*") for fn in self._all.get(key, ())]

    # -- the events, on the loop: no caller waits for the listeners -------------------------------------------------------
    def emit(self, name: str, run: Run | UnreportedEnd, reason: str | None, at: int) -> None:
        """Call the listeners for an event of a run."""
        if self._all and (interested := self._interested(name)):
            event = RunEvent(name, run.id, run.workflow, reason, run.attempts, run.queue, to_datetime(at))
            self._tell_all(interested, event)

    def tell_tick(self, workflow: str, tick: Tick, at: int) -> None:
        """Call the listeners for a tick."""
        name = _OF_TICKS.get(tick.outcome)
        if name is not None and (interested := self._interested(name)):
            nominal = to_datetime(tick.nominal)
            values = (tick.outcome, nominal, tick.count, tick.run, tick.reason)
            self._tell_all(interested, ScheduleEvent(name, tick.schedule, workflow, to_datetime(at), *values))

    def tell_schedule(self, what: str, schedule: str, workflow: str, at: int) -> None:
        """Call the listeners for a change of a schedule."""
        if interested := self._interested(f"schedule.{what}"):
            self._tell_all(interested, ScheduleEvent(f"schedule.{what}", schedule, workflow, to_datetime(at)))

    def tell_queue(self, what: str, queue: str, at: int) -> None:
        """Call the listeners for a change of a queue."""
        if interested := self._interested(f"queue.{what}"):
            self._tell_all(interested, QueueEvent(f"queue.{what}", queue, to_datetime(at)))

    def tell_worker(self, what: str, worker: str, host: str, at: int, reason: str | None = None) -> None:
        """Call the listeners for an event of a worker."""
        if interested := self._interested(f"worker.{what}"):
            self._tell_all(interested, WorkerEvent(f"worker.{what}", worker, host, to_datetime(at), reason))

    def _tell_all(self, interested: list[Callable[[Any], Any]], event: AnyEvent) -> None:
        for fn in interested:
            contextvars.Context().run(
                self._tell, fn, event
            )  # a listener's calls are no part of the run that the event is about

    def _tell(self, fn: Callable[[Any], Any], event: AnyEvent) -> None:
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

    async def finish(self, grace: float) -> None:
        """Wait for listeners that are coroutine functions, for a limited time: the loop may be closed next."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace)
