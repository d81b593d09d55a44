"""Seeing, stopping and managing runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  (a run that asks for a RunInfo records it, and reads it back by its annotations)
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from mainspring.errors import NotFound
from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.records import UNSEEN, error_of
from mainspring.model.states import State  # noqa: TC001  (what is recorded is read back by its annotations)
from mainspring.operations.appearance import appearance, moment
from mainspring.operations.filter_values import page_size
from mainspring.operations.functions import ScheduledFunctions
from mainspring.operations.managing import Managing, check_reason
from mainspring.operations.pages import Page
from mainspring.operations.run_filters import RunFilters, RunTraits, run_filter
from mainspring.operations.run_lists import GlancePage, glance, quickly
from mainspring.store.unreadable import read, readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.clock import Clock
    from mainspring.model.records import Run, Step
    from mainspring.store.protocol import Store


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as people look at it: times are aware datetimes, values are plain JSON values."""

    id: str
    workflow: str
    kind: str
    state: State
    reason: str | None
    input: dict[str, Any]
    output: Any
    error: dict[str, Any] | None
    due: datetime | None
    created: datetime
    started: datetime | None
    completed: datetime | None
    deadline: datetime | None
    worker: str | None
    epoch: int
    recoveries: int
    version: str | None
    parent: str | None
    scheduled_by: str | None
    attributes: dict[str, Any]
    stranded: str | None
    """Why no worker can go on with it."""
    timeout: float | None = None
    """Seconds that it may take."""
    schedule: str | None = None
    """The schedule that started it …"""
    tick: datetime | None = None
    """… for this nominal time."""
    queue: str | None = None
    priority: int = 0
    partition: str = ""
    key: str | None = None
    attempts: int = 0
    """How many attempts were made, with the one that is under way. An operator's `retry` or `resume` begins to count anew."""
    forked_from: str | None = None
    forked_at: str | None = None
    """The position of the first operation that was not copied from there."""
    generation: int = 0
    """How often it began anew with `run.continue_as`."""


@dataclass(frozen=True, slots=True)
class Try:
    """An attempt of a step that was made more than once."""

    started: datetime
    ended: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class StepInfo:
    """An operation of a run as people look at it."""

    position: str
    kind: str
    name: str
    output: Any
    error: dict[str, Any] | None
    started: datetime | None
    completed: datetime | None
    attempts: int
    tried: list[str]
    """What went wrong in earlier attempts."""
    child: str | None
    due: datetime | None
    interrupted: bool
    tries: list[Try] = field(default_factory=list[Try])
    """All attempts that are over, if there was more than one, with their times."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """What was logged inside a run."""

    at: datetime
    level: str
    logger: str
    message: str
    step: str | None
    position: str | None
    attempt: int | None
    worker: str | None


@dataclass(frozen=True, slots=True)
class RunPage(Page[RunInfo]):
    """A page of runs. Hand `next` back for the page after it; None is the last."""

    runs: list[RunInfo]
    next: str | None

    @property
    def _items(self) -> list[RunInfo]:
        return self.runs


Lines: TypeAlias = list[LogLine]


class Runs(Managing):
    """The verbs. All of them block."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self._store: Store = store

    @property
    def functions(self) -> ScheduledFunctions:
        """Those that were scheduled with run_after and run_at."""
        return ScheduledFunctions(self._store, self._clock)

    def get(self, run_id: str) -> RunInfo:
        run = read("runs", run_id, lambda: self._store.run(run_id))
        if run is None:
            raise NotFound(f"there is no run {run_id!r}, or no longer")
        return read("runs", run_id, lambda: run_info(run))

    def steps(self, run_id: str) -> list[StepInfo]:
        found = self._store.steps(run_id)
        if not found:
            self.get(run_id)
        shown = [step for step in found if step.kind != "mark"]
        return readable("steps", shown, step_info, lambda step: f"{step.run}/{step.position}")

    def list(self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]) -> RunPage:
        """A page of runs, newest first. Runs that come or change meanwhile do not shift the pages that follow."""
        wanted = run_filter(filters, before=after, limit=page_size(limit, "run") + 1)
        page = self._store.runs(quickly(self._store.watching, wanted))
        more = len(page) > limit
        page = page[:limit]
        return RunPage(readable("runs", page, run_info, lambda run: run.id), page[-1].uid if more else None)

    def glance(self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]) -> GlancePage:
        """A page of runs without their values, newest first. It takes the same short time however long the history is."""
        return glance(self._store.watching, run_filter(filters, before=after, limit=page_size(limit, "run") + 1))

    def logs(self, run_id: str, limit: int = 1_000) -> Lines:
        """The last lines that were logged inside a run, if they are kept (setting keep_logs)."""
        return [LogLine(to_datetime(at), *rest) for _, at, *rest in self._store.management.logs(run_id, limit)]

    def counts(self) -> dict[str, int]:
        """How many runs are in each state that is not an end."""
        return self._store.counts()

    def cancel(
        self, ids: Sequence[str], reason: str | None = None, filters: RunTraits | None = None
    ) -> dict[str, bool]:
        """Ask runs and their children to stop before their next step."""
        check_reason(reason)
        return self._to("cancel", ids, filters, lambda chosen: self._store.cancel(chosen, reason, self._clock.now()))

    def terminate(
        self, ids: Sequence[str], reason: str | None = None, filters: RunTraits | None = None
    ) -> dict[str, bool]:
        """End runs and their children at once."""
        check_reason(reason)
        return self._to(
            "terminate", ids, filters, lambda chosen: self._store.terminate(chosen, reason, self._clock.now())
        )


def run_info(run: Run) -> RunInfo:
    shown = appearance(run)
    return RunInfo(
        id=run.id,
        workflow=run.workflow,
        kind=run.kind,
        state=shown.state,
        reason=shown.reason,
        input=json.loads(run.input),
        output=_value(run.output),
        error=_value(run.error),
        due=moment(run.due),
        created=to_datetime(run.created),
        started=moment(run.started),
        completed=moment(run.completed),
        deadline=moment(run.deadline),
        worker=run.owner,
        epoch=run.epoch,
        recoveries=run.recoveries,
        version=run.version,
        parent=run.parent,
        scheduled_by=run.scheduled_by,
        attributes=json.loads(run.attributes),
        stranded=shown.stranded,
        timeout=None if run.timeout is None else run.timeout / SECOND,
        schedule=run.schedule,
        tick=_tick(run.tick),
        queue=run.queue,
        priority=run.priority,
        partition=run.partition,
        key=run.key,
        attempts=run.attempts,
        forked_from=run.forked_from,
        forked_at=run.forked_at,
        generation=run.generation,
    )


def step_info(step: Step) -> StepInfo:
    trail: list[str | dict[str, Any]] = _value(step.trail) or []
    return StepInfo(
        position=step.position,
        kind=step.kind,
        name=step.name,
        output=_value(step.output),
        error=_value(step.error),
        started=moment(step.started),
        completed=moment(step.completed),
        attempts=step.attempts,
        tried=[error for each in trail if (error := error_of(each)) is not None],
        tries=[_try(each, step.completed) for each in trail if isinstance(each, dict)],
        child=step.child
        if step.child != step.run
        else None,  # a run that waits to be told something waits for nobody else
        due=None if step.due == UNSEEN else moment(step.due),
        interrupted=step.interrupted,
    )


def _try(attempt: dict[str, Any], completed: int | None) -> Try:
    return Try(to_datetime(attempt["from"]), moment(attempt.get("to", completed)), attempt["error"])


def _tick(text: str | None) -> datetime | None:
    return None if text is None else to_datetime(json.loads(text)["nominal"])


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
