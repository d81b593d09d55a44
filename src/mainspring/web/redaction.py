"""Redaction: every value of a user passes through here before it is shown."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from mainspring.model.schedules import TickOutcome
from mainspring.model.states import State
from mainspring.operations.schedules.info import ScheduleDescription

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.operations.audit import AuditEntry
    from mainspring.operations.figures import StepFigures
    from mainspring.operations.overview import AwaitedMessage
    from mainspring.operations.runs.info import Conversation, LogLine, RunInfo, StepInfo
    from mainspring.operations.runs.lists import RunSummary
    from mainspring.operations.scheduled_functions import ScheduledFunction
    from mainspring.operations.schedules.info import ScheduleInfo, TickInfo
    from mainspring.operations.schedules.pictures import ScheduleCard

What: TypeAlias = Literal[
    "input",
    "output",
    "error",
    "attributes",
    "step",
    "message",
    "event",
    "stream",
    "log",
    "reason",
    "note",
    "name",
    "partition",
    "key",
    "action",
]
S = TypeVar("S", "ScheduleInfo", ScheduleDescription)
log = logging.getLogger("mainspring.web")
_OURS = frozenset({"recovery exhausted"})
"""Reasons that the pages depend on. They contain nothing of the user's."""


@dataclass(frozen=True, slots=True)
class About:
    """The place of a value: the input, output … of a run of `workflow`. `id` is the run's or the schedule's.

    `error` is an exception as a dict, or its message. `reason` is the reason of a run's or tick's state, `note` a schedule's,
    `name` that of a step, topic, event or stream, `action` an operator's action: its request or its result.
    """

    what: What
    workflow: str
    id: str


Redact: TypeAlias = "Callable[[Any, About], Any]"
"""A function of the user's that returns what to show instead of a value."""


class Redactor:
    """Applies a user's function to all of the user's values in the result of an operation."""

    def __init__(self, redact: Redact | None) -> None:
        self._redact = redact

    def run(self, run: RunInfo) -> RunInfo:
        if self._redact is None:
            return run
        of = _Of(self, run.workflow, run.id)
        return replace(
            run,
            input=of.value(run.input, "input"),
            output=of.value(run.output, "output"),
            error=of.error(run.error),
            attributes=of.value(run.attributes, "attributes"),
            reason=of.reason(run.reason, failed=run.state is State.FAILED),
            stranded=of.text(run.stranded, "reason"),
            partition=of.text(run.partition, "partition"),
            key=of.text(run.key, "key"),
        )

    def summary(self, run: RunSummary) -> RunSummary:
        if self._redact is None:
            return run
        of = _Of(self, run.workflow, run.id)
        return replace(
            run,
            message=of.text(run.message, "error"),
            reason=of.reason(run.reason, failed=run.state is State.FAILED),
            stranded=of.text(run.stranded, "reason"),
        )

    def step(self, step: StepInfo, run: RunInfo) -> StepInfo:
        if self._redact is None:
            return step
        of = _Of(self, run.workflow, run.id)
        return replace(
            step,
            name=of.text(step.name, "name"),
            output=of.value(step.output, "step"),
            error=of.error(step.error),
            tried=[of.text(each, "error") for each in step.tried],
            tries=[replace(each, error=of.text(each.error, "error")) for each in step.tries],
        )

    def step_figures(self, figures: StepFigures, workflow: str) -> StepFigures:
        return replace(figures, name=_Of(self, workflow, "").text(figures.name, "name"))

    def shows_step(self, workflow: str, name: str) -> bool:
        """Whether the name of a step is shown as it is. Metrics leave out the others: two hidden names would be one series."""
        return bool(_Of(self, workflow, "").text(name, "name") == name)

    def line(self, line: LogLine, run: RunInfo) -> LogLine:
        if self._redact is None:
            return line
        of = _Of(self, run.workflow, run.id)
        return replace(line, message=of.text(line.message, "log"), step=of.text(line.step, "name"))

    def awaited(self, wait: AwaitedMessage) -> AwaitedMessage:
        if self._redact is None:
            return wait
        return replace(wait, topic=_Of(self, wait.workflow, wait.run).text(wait.topic, "name"))

    def conversation(self, found: Conversation, run: RunInfo) -> Conversation:
        if self._redact is None:
            return found
        of = _Of(self, run.workflow, run.id)
        return replace(
            found,
            messages=[
                replace(
                    each,
                    topic=of.text(each.topic, "name"),
                    body=of.value(each.body, "message"),
                    answer=of.value(each.answer, "message"),
                    error=of.error(each.error),
                )
                for each in found.messages
            ],
            events=[
                replace(each, key=of.text(each.key, "name"), value=of.value(each.value, "event"))
                for each in found.events
            ],
            streams=[
                replace(each, key=of.text(each.key, "name"), value=of.value(each.value, "stream"))
                for each in found.streams
            ],
        )

    def schedule(self, schedule: S) -> S:
        if self._redact is None:
            return schedule
        of = _Of(self, schedule.workflow, schedule.id)
        kinds: dict[str, What] = {"input": "input", "attributes": "attributes", "partition": "partition", "key": "key"}
        hidden = {name: of.value(schedule.action.get(name), what) for name, what in kinds.items()}
        shown = replace(
            schedule,
            action={name: hidden.get(name, value) for name, value in schedule.action.items()},
            attributes=of.value(schedule.attributes, "attributes"),
            last_result=of.value(schedule.last_result, "output"),
            last_failure=of.error(schedule.last_failure),
            note=of.text(schedule.note, "note"),
            pause_note=of.text(schedule.pause_note, "note"),
            fault=of.text(schedule.fault, "error"),
            stopped=of.text(schedule.stopped, "reason"),
        )
        if isinstance(shown, ScheduleDescription):
            shown = replace(
                shown,
                recent=[self.tick(tick, schedule.workflow) for tick in shown.recent],
                recent_starts=[self.tick(tick, schedule.workflow) for tick in shown.recent_starts],
            )
        return shown

    def card(self, card: ScheduleCard) -> ScheduleCard:
        if self._redact is None:
            return card
        last = None if card.last is None else self.tick(card.last, card.info.workflow)
        return replace(card, info=self.schedule(card.info), last=last)

    def tick(self, tick: TickInfo, workflow: str) -> TickInfo:
        if self._redact is None:
            return tick
        of = _Of(self, workflow, tick.schedule)
        return replace(tick, reason=of.reason(tick.reason, failed=tick.outcome is TickOutcome.START_FAILED))

    def function(self, function: ScheduledFunction) -> ScheduledFunction:
        if self._redact is None:
            return function
        of = _Of(self, function.name, function.id)
        return replace(
            function, args=[of.value(each, "input") for each in function.args], error=of.text(function.error, "error")
        )

    def partition(self, name: str) -> str:
        """Redact the name of a queue's partition, whose runs may be of any workflow."""
        return name if self._redact is None else _Of(self, "", "").text(name, "partition")

    def entry(self, entry: AuditEntry) -> AuditEntry:
        """Redact an operator's action: requests contain values, and so do error messages."""
        if self._redact is None:
            return entry
        of = _Of(self, "", entry.subject[0] if entry.subject else "")
        return replace(
            entry,
            reason=of.text(entry.reason, "reason"),
            details=of.value(entry.details or None, "action") or {},
            outcome=of.value(entry.outcome or None, "action") if entry.outcome else entry.outcome,
        )

    def may_filter(self, attributes: dict[str, Any], workflow: str) -> bool:
        """Whether runs may be filtered by attributes: a filter by hidden attributes would reveal them."""
        return self._redact is None or self.shown(attributes, About("attributes", workflow, "")) == attributes

    @property
    def hides(self) -> bool:
        return self._redact is not None

    def shown(self, value: Any, about: About) -> Any:
        """Return the value to show: the one that the user's function returns, or a placeholder if the function raises."""
        if value is None or self._redact is None:
            return value
        try:
            found = self._redact(value, about)
        except Exception as error:  # noqa: BLE001  (it is the user's own, and the value must not be seen)
            log.warning("redact raised %s for the %s of %r; it is hidden", type(error).__name__, about.what, about.id)
            return f"[hidden: redact raised {type(error).__name__}]"
        try:
            msgspec.json.encode(found)
        except (TypeError, ValueError, RecursionError, OverflowError):
            return str(found)
        return found


class _Of:
    """Redacts the values of one run or schedule."""

    def __init__(self, redactor: Redactor, workflow: str, owner: str) -> None:
        self._redactor = redactor
        self._workflow = workflow
        self._owner = owner

    def value(self, value: Any, what: What) -> Any:
        return self._redactor.shown(value, About(what, self._workflow, self._owner))

    def text(self, value: Any, what: What) -> Any:
        """Redact a text. The result is a text or None."""
        if not value:
            return value
        found = self.value(value, what)
        return found if found is None or isinstance(found, str) else msgspec.json.encode(found).decode()

    def reason(self, value: str | None, *, failed: bool) -> Any:
        """Redact a reason. The reason of a failure is the exception's message."""
        return value if value in _OURS else self.text(value, "error" if failed else "reason")

    def error(self, value: dict[str, Any] | None) -> dict[str, Any] | None:
        """Redact an exception. The result has an exception's fields, which pages and programs expect."""
        if value is None:
            return None
        found = self.value(value, "error")
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
        return {"type": "hidden", "message": found if isinstance(found, str) else msgspec.json.encode(found).decode()}
