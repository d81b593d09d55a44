"""Seeing, stopping and managing runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  (a run that asks for a RunInfo records it, and reads it back by its annotations)
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, Unpack

from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.runs import UNSEEN
from mainspring.model.states import State  # noqa: TC001  (what is recorded is read back by its annotations)
from mainspring.operations.filter_values import page_size
from mainspring.operations.paging import Page
from mainspring.operations.runs.actions import RUN_ACTIONS, Changed, RunActions, RunAnswer
from mainspring.operations.runs.bulk import meant
from mainspring.operations.runs.filters import RunFilters, run_filter
from mainspring.operations.runs.lists import SummaryPage, search, summaries
from mainspring.operations.runs.state import appearance, moment, shown
from mainspring.operations.scheduled_functions import ScheduledFunctions
from mainspring.store.bad_rows import read, readable
from mainspring.store.schedules import ScheduleFilter
from mainspring.store.sealing.payloads import HIDDEN, is_sealed

if TYPE_CHECKING:
    import builtins

    from mainspring.model.clock import Clock
    from mainspring.model.runs import Run, Step
    from mainspring.operations.runs.bulk import Progress
    from mainspring.store.protocol import Store

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    H = TypeVar("H", default=Any)  # so that `RunInfo` alone is a type
else:
    from typing import TypeVar

    H = TypeVar("H")


class _WithHandle(Generic[H]):
    """The handle that an app or a client adds to what it read. It is no part of the record."""

    __slots__ = ("_handle",)
    _handle: H

    @property
    def handle(self) -> H:
        """The run itself: wait for its result, stop it. Its own function says how the result is decoded, where the app has it; a client
        gives plain JSON.
        """
        try:
            return self._handle
        except AttributeError:
            raise InvalidInput(
                "this was passed on as a value, without the app that it was read by; write app.handle(info.id)"
            ) from None


@dataclass(frozen=True, slots=True)
class RunInfo(_WithHandle[H]):
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
    expects: dict[str, Any] | None = None
    """Of a wait for a message or question: the JSON schema of what it takes; None: anything."""
    tries: list[Try] = field(default_factory=list[Try])
    """All attempts that are over, if there was more than one, with their times."""

    @property
    def awaited(self) -> bool:
        """Whether it waits for a message or a question, which an operator could send."""
        return self.completed is None and not self.interrupted and self.kind in {"receive", "question"}


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


def with_handle(info: RunInfo, handle: H) -> RunInfo[H]:
    """The same record, with its handle."""
    object.__setattr__(info, "_handle", handle)
    return info


@dataclass(frozen=True, slots=True)
class RunPage(Page[RunInfo[H]]):
    """A page of runs. Hand `next` back for the page after it; None is the last.

    `further`: no index helps with these filters, so only some of the runs were looked at, and the next page goes on from there; this one
    may be short, or empty.
    """

    runs: list[RunInfo[H]]
    next: str | None
    further: bool = False

    @property
    def _items(self) -> list[RunInfo[H]]:
        return self.runs


@dataclass(frozen=True, slots=True)
class StepPage:
    """Some operations of a run, how many there are, and those that wait for a message or a question."""

    steps: list[StepInfo]
    count: int
    waiting: list[StepInfo]


_MOST_KNOWN = 200
Lines: TypeAlias = list[LogLine]


class Runs(RunActions):
    """The verbs. All of them block."""

    def __init__(self, store: Store, clock: Clock, progress: Progress | None = None) -> None:
        super().__init__(store, clock, progress)
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
        return self.steps_page(run_id).steps

    def steps_page(self, run_id: str, offset: int = 0, limit: int | None = None) -> StepPage:
        """Some operations of a run. Of a long history only those are read in full."""
        found = self._store.steps(run_id)
        if not found:
            self.get(run_id)
        every = [step for step in found if step.kind != "mark"]
        asked = every[offset : None if limit is None else offset + limit]
        return StepPage(_infos(asked), len(every), _infos([step for step in every if _takes_a_message(step)]))

    def list(self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]) -> RunPage:
        """A page of runs, newest first. Runs that come or change meanwhile do not shift the pages that follow.

        It takes the same short time however long the history is: see `RunPage.further`.
        """
        wanted = run_filter(filters, before=after, limit=page_size(limit, "run") + 1)
        page, following, further = search(self._store.watching, wanted, self._store.runs)
        return RunPage(readable("runs", page, run_info, lambda run: run.id), following, further)

    def summaries(self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]) -> SummaryPage:
        """A page of runs without their values, newest first. It takes the same short time however long the history is."""
        return summaries(self._store.watching, run_filter(filters, before=after, limit=page_size(limit, "run") + 1))

    def logs(self, run_id: str, limit: int = 1_000) -> Lines:
        """The last lines that were logged inside a run, if they are kept (setting keep_logs)."""
        lines = self._store.management.logs(run_id, limit)
        return [
            LogLine(to_datetime(at), level, logger, HIDDEN if is_sealed(message) else message, *rest)
            for _, at, level, logger, message, *rest in lines
        ]

    def live(self) -> dict[str, int]:
        """How many runs are in each state that is not an end, each counted up to a limit. It takes a short time."""
        return self._store.watching.live()

    def known(self) -> dict[str, builtins.list[str]]:
        """Values that filters can have: functions that workers have described, queues and schedules, some of each."""
        schedules = self._store.schedules.page(ScheduleFilter(limit=_MOST_KNOWN))
        return {
            "workflow": sorted(self._store.watching.functions())[:_MOST_KNOWN],
            "queue": sorted(queue.name for queue in self._store.queues.all())[:_MOST_KNOWN],
            "schedule": [schedule.id for schedule in schedules],
        }

    def counts(self) -> dict[str, int]:
        """How many runs are in each state that is not an end."""
        return self._store.counts()

    def count(self, verb: str, filters: RunFilters) -> int:
        """How many runs a verb would act on now."""
        rows = self._management.aggregate(meant(filters, RUN_ACTIONS[verb].states), (), None)
        return sum(row[-4] for row in rows)

    def answer(self, verb: str, changed: Changed) -> RunAnswer:
        """The answer of a verb in words, with the runs among those left unchanged that do not exist."""
        missing = [run_id for run_id, was in changed.items() if not was and self._store.run(run_id) is None]
        found = RUN_ACTIONS[verb].answer([*changed], changed, missing)
        assert isinstance(found, RunAnswer)  # noqa: S101
        return found


def run_info(run: Run) -> RunInfo:
    seen = appearance(run)
    return shown(
        RunInfo,
        run,
        state=seen.state,
        reason=seen.reason,
        stranded=seen.stranded,
        worker=run.owner,
        timeout=None if run.timeout is None else run.timeout / SECOND,
        tick=_tick(run.tick),
    )


def _infos(steps: list[Step]) -> list[StepInfo]:
    return readable("steps", steps, step_info, lambda step: f"{step.run}/{step.position}")


def step_info(step: Step) -> StepInfo:
    trail: list[dict[str, Any]] = [] if step.trail is None else json.loads(step.trail)
    trail = [{**each, "error": HIDDEN} if isinstance(each["error"], dict) else each for each in trail]
    return shown(
        StepInfo,
        step,
        tried=[each["error"] for each in trail if each["error"] is not None],
        tries=[_try(each, step.completed) for each in trail],
        child=step.child if step.child != step.run else None,  # a run that waits for a message waits for no other run
        due=None if step.due == UNSEEN else moment(step.due),
        expects=json.loads(step.output) if step.output is not None and _takes_a_message(step) else None,
        **({"output": None} if step.completed is None else {}),
    )


def _takes_a_message(step: Step) -> bool:
    return step.completed is None and step.kind in {"receive", "question"}


def _try(attempt: dict[str, Any], completed: int | None) -> Try:
    return Try(to_datetime(attempt["from"]), moment(attempt.get("to", completed)), attempt["error"])


def _tick(text: str | None) -> datetime | None:
    return None if text is None else to_datetime(json.loads(text)["nominal"])
