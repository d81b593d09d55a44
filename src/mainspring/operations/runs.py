"""Seeing and stopping runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (a run that asks for a RunInfo records it, and reads it back by its annotations)
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import to_datetime
from mainspring.model.states import State
from mainspring.operations.functions import ScheduledFunctions
from mainspring.store.ops import FAR
from mainspring.store.protocol import RunFilter

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


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs. Hand `next` back for the page after it; None is the last."""

    runs: list[RunInfo]
    next: str | None


class Runs:
    """The verbs. All of them block."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @property
    def functions(self) -> ScheduledFunctions:
        """Those that were scheduled with run_after and run_at."""
        return ScheduledFunctions(self._store, self._clock)

    def get(self, run_id: str) -> RunInfo:
        run = self._store.run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id!r}, or no longer")
        return run_info(run)

    def steps(self, run_id: str) -> list[StepInfo]:
        found = self._store.steps(run_id)
        if not found:
            self.get(run_id)
        return [step_info(step) for step in found]

    def list(
        self,
        *,
        state: Sequence[str] = (),
        workflow: str | None = None,
        id_prefix: str | None = None,
        parent: str | None = None,
        stranded: bool | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> RunPage:
        unknown = [name for name in state if name not in {*State}]
        if unknown:
            raise InvalidInput(f"there is no state {', '.join(unknown)}; there are {', '.join(State)}")
        if limit < 1:
            raise InvalidInput(f"a page has at least one run, not {limit}")
        page = self._store.runs(
            RunFilter(
                states=tuple(state),
                workflow=workflow,
                id_prefix=id_prefix,
                parent=parent,
                stranded=stranded,
                before=after,
                limit=limit + 1,
            )
        )
        more = len(page) > limit
        page = page[:limit]
        return RunPage([run_info(run) for run in page], page[-1].uid if more else None)

    def counts(self) -> dict[str, int]:
        """How many runs are in each state that is not an end."""
        return self._store.counts()

    def cancel(self, ids: Sequence[str], reason: str | None = None) -> dict[str, bool]:
        return self._store.cancel(ids, reason, self._clock.now())

    def terminate(self, ids: Sequence[str], reason: str | None = None) -> dict[str, bool]:
        return self._store.terminate(ids, reason, self._clock.now())


def run_info(run: Run) -> RunInfo:
    return RunInfo(
        id=run.id,
        workflow=run.workflow,
        kind=run.kind,
        state=run.state,
        reason=run.reason,
        input=json.loads(run.input),
        output=_value(run.output),
        error=_value(run.error),
        due=_time(run.due),
        created=to_datetime(run.created),
        started=_time(run.started),
        completed=_time(run.completed),
        deadline=_time(run.deadline),
        worker=run.owner,
        epoch=run.epoch,
        recoveries=run.recoveries,
        version=run.version,
        parent=run.parent,
        scheduled_by=run.scheduled_by,
        attributes=json.loads(run.attributes),
        stranded=json.loads(run.stranded)["reason"] if run.stranded and run.state is State.QUEUED else None,
    )


def step_info(step: Step) -> StepInfo:
    return StepInfo(
        position=step.position,
        kind=step.kind,
        name=step.name,
        output=_value(step.output),
        error=_value(step.error),
        started=_time(step.started),
        completed=_time(step.completed),
        attempts=step.attempts,
        tried=_value(step.trail) or [],
        child=step.child,
        due=_time(step.due),
        interrupted=step.interrupted,
    )


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _time(micros: int | None) -> datetime | None:
    return None if micros is None or micros >= FAR else to_datetime(micros)
