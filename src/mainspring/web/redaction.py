"""What a user does not want to be shown: every value of theirs passes through here on its way out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.operations.functions import ScheduledFunction
    from mainspring.operations.run_lists import RunGlance
    from mainspring.operations.runs import LogLine, RunInfo, StepInfo
    from mainspring.operations.schedule_infos import ScheduleInfo
    from mainspring.operations.talk import Conversation

What: TypeAlias = Literal["input", "output", "error", "attributes", "step", "message", "event", "stream", "log"]


@dataclass(frozen=True, slots=True)
class About:
    """What a value is: the input, output … of a run of `workflow`; `id` is the run's or the schedule's."""

    what: What
    workflow: str
    id: str


Redact: TypeAlias = "Callable[[Any, About], Any]"
"""A function of the user's own: what to show instead of a value."""


class Redactor:
    """Applies a user's function to everything of theirs in what an operation answered."""

    def __init__(self, redact: Redact | None) -> None:
        self._redact = redact

    def run(self, run: RunInfo) -> RunInfo:
        if self._redact is None:
            return run
        return replace(
            run,
            input=self._value(run.input, "input", run.workflow, run.id),
            output=self._value(run.output, "output", run.workflow, run.id),
            error=self._value(run.error, "error", run.workflow, run.id),
            attributes=self._value(run.attributes, "attributes", run.workflow, run.id),
        )

    def glance(self, run: RunGlance) -> RunGlance:
        if self._redact is None:
            return run
        return replace(run, message=self._value(run.message, "error", run.workflow, run.id))

    def step(self, step: StepInfo, run: RunInfo) -> StepInfo:
        if self._redact is None:
            return step
        return replace(
            step,
            output=self._value(step.output, "step", run.workflow, run.id),
            error=self._value(step.error, "error", run.workflow, run.id),
            tried=[self._value(each, "error", run.workflow, run.id) for each in step.tried],
            tries=[replace(each, error=self._value(each.error, "error", run.workflow, run.id)) for each in step.tries],
        )

    def line(self, line: LogLine, run: RunInfo) -> LogLine:
        if self._redact is None:
            return line
        return replace(line, message=self._value(line.message, "log", run.workflow, run.id))

    def conversation(self, found: Conversation, run: RunInfo) -> Conversation:
        if self._redact is None:
            return found
        return replace(
            found,
            messages=[
                replace(
                    each,
                    body=self._value(each.body, "message", run.workflow, run.id),
                    answer=self._value(each.answer, "message", run.workflow, run.id),
                    error=self._value(each.error, "error", run.workflow, run.id),
                )
                for each in found.messages
            ],
            events=[
                replace(each, value=self._value(each.value, "event", run.workflow, run.id)) for each in found.events
            ],
            streams=[
                replace(each, value=self._value(each.value, "stream", run.workflow, run.id)) for each in found.streams
            ],
        )

    def schedule(self, schedule: ScheduleInfo) -> ScheduleInfo:
        if self._redact is None:
            return schedule
        given = self._value(schedule.action["input"], "input", schedule.workflow, schedule.id)
        return replace(
            schedule,
            action={**schedule.action, "input": given},
            attributes=self._value(schedule.attributes, "attributes", schedule.workflow, schedule.id),
            last_result=self._value(schedule.last_result, "output", schedule.workflow, schedule.id),
            last_failure=self._value(schedule.last_failure, "error", schedule.workflow, schedule.id),
        )

    def function(self, function: ScheduledFunction) -> ScheduledFunction:
        if self._redact is None:
            return function
        return replace(
            function,
            args=[self._value(each, "input", function.name, function.id) for each in function.args],
            error=self._value(function.error, "error", function.name, function.id),
        )

    def _value(self, value: Any, what: What, workflow: str, owner: str) -> Any:
        if value is None or self._redact is None:
            return value
        return self._redact(value, About(what, workflow, owner))
