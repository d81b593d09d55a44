"""Queries of one run: its state, its steps, its messages, events and streams."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  (a run that asks for a RunInfo records it, and reads it back by its annotations)
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, Unpack

from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.given import check_name
from mainspring.model.retry_scope import ONCE, is_once
from mainspring.model.states import State  # noqa: TC001  (what is recorded is read back by its annotations)
from mainspring.operations.figures import LATEST, MOST_RUNS, Figures, StepFigures, run_figures, step_figures_of
from mainspring.operations.filters import RunFilters, page_size, run_filter, text
from mainspring.operations.records import Page, appearance, moment, shown
from mainspring.operations.runs.actions import RUN_ACTIONS, Changed, RunActions, RunAnswer, not_found
from mainspring.operations.runs.bulk import meant
from mainspring.operations.runs.lists import SummaryPage, search, summaries
from mainspring.operations.scheduled_functions import ScheduledFunctions
from mainspring.store.bad_rows import read, readable
from mainspring.store.schedules import ScheduleFilter
from mainspring.store.sealing.payloads import HIDDEN, is_sealed

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from datetime import timedelta

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
    """The handle that an app or a client adds to a run that it read. It is not part of the record."""

    __slots__ = ("_handle",)
    _handle: H

    @property
    def handle(self) -> H:
        """The handle of the run: wait for its result, stop it.

        An app decodes the result by its function's annotation. A client returns plain JSON. Raises `InvalidInput` if the record was passed
        on as a value.
        """
        try:
            return self._handle
        except AttributeError:
            raise InvalidInput(
                "this was passed on as a value, without the app that it was read by; write app.handle(info.id)"
            ) from None


@dataclass(frozen=True, slots=True)
class RunInfo(_WithHandle[H]):
    """A run for display: times are aware datetimes, values are plain JSON values. `handle` is the run itself, to wait for or to stop."""

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
    """Why no worker can continue the run, if it is stranded."""
    timeout: float | None = None
    """The timeout in seconds."""
    schedule: str | None = None
    """The schedule that started the run."""
    tick: datetime | None = None
    """The nominal time for which the schedule started the run."""
    queue: str | None = None
    priority: int = 0
    partition: str = ""
    key: str | None = None
    attempts: int = 0
    """The number of attempts, including the present one. `retry` and `resume` by an operator start a new count."""
    forked_from: str | None = None
    forked_at: str | None = None
    """The position of the first operation that was not copied from `forked_from`."""
    generation: int = 0
    """How often the run has restarted with `run.continue_as`."""


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt of a step that was retried."""

    started: datetime
    ended: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class StepInfo:
    """An operation of a run for display."""

    position: str
    kind: str
    name: str
    output: Any
    error: dict[str, Any] | None
    started: datetime | None
    completed: datetime | None
    attempts: int
    tried: list[str]
    """The errors of earlier attempts."""
    child: str | None
    due: datetime | None
    interrupted: bool
    expects: dict[str, Any] | None = None
    """For a wait for a message or question: the JSON schema of the value. None: any value."""
    tries: list[Try] = field(default_factory=list[Try])
    """All finished attempts with their times, if there was more than one."""

    @property
    def awaited(self) -> bool:
        """Whether the operation waits for a message or a question, which an operator could send."""
        return self.completed is None and not self.interrupted and self.kind in {"receive", "question"}


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that was logged inside a run."""

    at: datetime
    level: str
    logger: str
    message: str
    step: str | None
    position: str | None
    attempt: int | None
    worker: str | None


def with_handle(info: RunInfo, handle: H) -> RunInfo[H]:
    """Add the handle to a record, and return it."""
    object.__setattr__(info, "_handle", handle)
    return info


@dataclass(frozen=True, slots=True)
class RunPage(Page[RunInfo[H]]):
    """A page of runs. Pass `next` as `after` to get the following page. None: this is the last page.

    `further`: no index supports these filters, so only some runs were examined. The following page continues from there, and this one may
    be short or empty.
    """

    runs: list[RunInfo[H]]
    next: str | None
    further: bool = False

    @property
    def _items(self) -> list[RunInfo[H]]:
        return self.runs


@dataclass(frozen=True, slots=True)
class StepPage:
    """Some operations of a run, their total number, and those that wait for a message or a question."""

    steps: list[StepInfo]
    count: int
    waiting: list[StepInfo]


_MOST_KNOWN = 200
Lines: TypeAlias = list[LogLine]


class Runs(RunActions):
    """The queries and actions of runs. All of them block."""

    def __init__(self, store: Store, clock: Clock, progress: Progress | None = None) -> None:
        super().__init__(store, clock, progress)
        self._store: Store = store

    @property
    def functions(self) -> ScheduledFunctions:
        """The runs that were scheduled with `run_after` and `run_at`."""
        return ScheduledFunctions(self._store, self._clock)

    def get(self, run_id: str) -> RunInfo:
        """Return one run. Raises `NotFound`."""
        check_name("the id of a run", run_id)
        run = read("runs", run_id, lambda: self._store.run(run_id))
        if run is None:
            raise NotFound(not_found(run_id))
        return read("runs", run_id, lambda: run_info(run))

    def steps(self, run_id: str) -> list[StepInfo]:
        """Return all operations of a run. Raises `NotFound`."""
        return self.steps_page(run_id).steps

    def steps_page(self, run_id: str, offset: int = 0, limit: int | None = None) -> StepPage:
        """Return some operations of a run. Only those are decoded in full."""
        found = self._store.steps(check_name("the id of a run", run_id))
        if not found:
            self.get(run_id)
        every = [step for step in found if step.kind != "mark" and not step.position.startswith(ONCE)]
        asked = every[offset : None if limit is None else offset + limit]
        return StepPage(_infos(asked), len(every), _infos([step for step in every if _takes_a_message(step)]))

    def list(self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]) -> RunPage:
        """Return a page of runs, newest first. Runs that are started or changed later do not shift the following pages.

        A page takes the same short time however long the history is: see `RunPage.further`.
        """
        wanted = run_filter(filters, before=after, limit=page_size(limit) + 1)
        page, following, further = search(self._store.dashboard, wanted, self._store.runs)
        return RunPage(readable("runs", page, run_info, lambda run: run.id), following, further)

    def summaries(self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]) -> SummaryPage:
        """Return a page of runs without their values, newest first. It takes the same short time however long the history is."""
        return summaries(self._store.dashboard, run_filter(filters, before=after, limit=page_size(limit) + 1))

    def aggregate(
        self, by: str | Sequence[str] = ("state",), bucket: timedelta | None = None, filters: RunFilters | None = None
    ) -> builtins.list[Figures]:
        """Return statistics of runs by state, workflow, queue … and by intervals of their creation.

        Without `created_after` they are those of the newest runs: see `Figures.newest`. Raises `InvalidInput` for an unknown field, or an
        interval below a second.
        """
        return run_figures(self._store, run_filter(filters or {}), by, bucket)

    def logs(self, run_id: str, limit: int = 1_000) -> Lines:
        """Return the last lines that were logged inside a run, if they are kept (setting `keep_logs`)."""
        lines = self._store.management.logs(check_name("the id of a run", run_id), page_size(limit))
        return [
            LogLine(to_datetime(at), level, logger, HIDDEN if is_sealed(message) else message, *rest)
            for _, at, level, logger, message, *rest in lines
        ]

    def live(self) -> dict[str, int]:
        """Return the number of unfinished runs by state, each counted up to a limit, in a short time."""
        return self._store.dashboard.live()

    def known(self) -> dict[str, builtins.list[str]]:
        """Return some values for filters: functions that workers have described, queues and schedules."""
        schedules = self._store.schedules.page(ScheduleFilter(limit=_MOST_KNOWN))
        return {
            "workflow": sorted(self._store.declared_functions.list())[:_MOST_KNOWN],
            "queue": sorted(queue.name for queue in self._store.queues.all())[:_MOST_KNOWN],
            "schedule": [schedule.id for schedule in schedules],
        }

    def counts(self) -> dict[str, int]:
        """Return the number of unfinished runs by state."""
        return self._store.counts()

    def count(self, verb: str, filters: RunFilters) -> int:
        """Return how many runs a verb would act on now."""
        rows = self._store.dashboard.aggregate(meant(filters, RUN_ACTIONS[verb].states), (), None)
        return sum(row[-4] for row in rows)

    def lag(self) -> float | None:
        """Return the seconds for which the longest waiting run has been ready for a worker. None: no run waits."""
        since = self._store.dashboard.oldest_ready()
        return None if since is None else max(0, self._clock.now() - since) / SECOND

    def step_figures(self, workflow: str, last: int = LATEST) -> builtins.list[StepFigures]:
        """How the steps of a function have gone in its runs that ended last, those that take longest first."""
        if isinstance(last, bool) or not isinstance(last, int) or not 1 <= last <= MOST_RUNS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"last is a number of runs from 1 to {MOST_RUNS:,}, not {last!r}")
        return step_figures_of(self._store.dashboard.step_times(text("workflow", workflow) or "", last))

    def answer(self, verb: str, changed: Changed) -> RunAnswer:
        """Return the answer of a verb as text, with the unchanged runs that do not exist."""
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
    trail = [] if is_once(step) else trail  # a note on its input
    trail = [{**each, "error": HIDDEN} if isinstance(each["error"], dict) else each for each in trail]
    return shown(
        StepInfo,
        step,
        tried=[each["error"] for each in trail if each["error"] is not None],
        tries=[_try(each, step.completed) for each in trail],
        child=step.child if step.child != step.run else None,  # a wait for a message is stored with the run's own id
        interrupted=step.interrupted,
        expects=json.loads(step.output) if step.output is not None and _takes_a_message(step) else None,
        **({"output": None} if step.completed is None else {}),
    )


def _takes_a_message(step: Step) -> bool:
    return step.completed is None and step.kind in {"receive", "question"}


def _try(attempt: dict[str, Any], completed: int | None) -> Try:
    return Try(to_datetime(attempt["from"]), moment(attempt.get("to", completed)), attempt["error"])


def _tick(text: str | None) -> datetime | None:
    return None if text is None else to_datetime(json.loads(text)["nominal"])


MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """A message or question for a run."""

    number: int
    kind: str
    topic: str
    body: Any
    sender: str | None
    sent: datetime
    received: datetime | None
    answer: Any
    error: dict[str, Any] | None
    answered: datetime | None


@dataclass(frozen=True, slots=True)
class PublishedInfo:
    """A value of an event or a stream of a run. `closed`: the stream ends here."""

    key: str
    number: int
    value: Any
    closed: bool
    set_at: datetime


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages, events and streams of a run. At most `MOST_SHOWN` of each, messages and streams from their beginning."""

    messages: list[MessageInfo]
    events: list[PublishedInfo]
    streams: list[PublishedInfo]


def conversation(store: Store, run: str) -> Conversation:
    """Return the messages, events and streams of a run."""
    messages = store.messages
    return Conversation(
        [shown(MessageInfo, each) for each in messages.received(run)[:MOST_SHOWN]],
        [shown(PublishedInfo, each, closed=False) for each in messages.events(run).entries[:MOST_SHOWN]],
        [shown(PublishedInfo, each, closed=each.value is None) for each in messages.streams(run, MOST_SHOWN)],
    )
