"""Seal and open the records of a store.

Records that are read for many runs at once are opened as far as possible: a value whose codec fails stays sealed, and is shown as sealed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from mainspring.errors import PayloadError
from mainspring.store.messages import Entry, Post
from mainspring.store.writes import ContinueAs, Finish, RecordAndSend, RecordStep, RetryLater, Send, Start

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.runs import Claim, Ending, NewRun, Run, Step
    from mainspring.model.schedules import Schedule, ScheduleRun
    from mainspring.store.messages import Message, Outgoing, PublishedValue, Reading
    from mainspring.store.schedules import Beginning, Plan, Situation
    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.verbs.scheduled_functions import FunctionRow
    from mainspring.store.writes import Op

R = TypeVar("R")
W = TypeVar("W", bound="Op")

VALUES = frozenset({"step", "transaction", "call", "result", "receive", "event", "stream", "question", "answer"})
"""Operations whose outcome is a user's value. Other outcomes are the library's own, and read by its statements."""
_WORDS = {"interrupted"}
"""Reasons of failed runs that do not contain the message of an exception."""


class Sealer:
    """Seals records before they are stored. Raises `PayloadError` if the codec fails."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads

    def op(self, op: W) -> W:
        """Seal a write of the committer or of a transaction."""
        changed: dict[str, Any] = {}
        match op:
            case RecordStep():
                changed["step"] = self.step(op.step)
                if op.starts:
                    changed["starts"] = [self.new_run(run) for run in op.starts]
                if isinstance(op, RecordAndSend):
                    changed["outgoing"] = [self.outgoing(each) for each in op.outgoing]
            case Start():
                changed["run"] = self.new_run(op.run)
            case Send():
                changed["outgoing"] = [self.outgoing(each) for each in op.outgoing]
            case Finish():
                changed = self._ended(op)
            case RetryLater():
                changed["error"] = self._payloads.seal_error(op.error, f"run {op.run}")
            case ContinueAs():
                changed["input"] = self._payloads.seal(op.input, f"the input of run {op.run}")
            case _:
                pass
        return replace(op, **changed) if changed else op

    def _ended(self, op: Finish) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        if op.output is not None:
            changed["output"] = self._payloads.seal(op.output, f"the result of run {op.run}")
        if op.error is not None:
            changed["error"] = self._payloads.seal_error(op.error, f"run {op.run}")
            if op.reason is not None and op.reason not in _WORDS:
                changed["reason"] = op.reason.partition(":")[0]
        return changed

    def step(self, step: Step) -> Step:
        changed: dict[str, Any] = {}
        if step.output is not None and step.completed is not None and step.kind in VALUES:
            changed["output"] = self._payloads.seal(step.output, _of_step(step))
        if step.error is not None:
            changed["error"] = self._payloads.seal_error(step.error, _of_step(step))
        if step.trail is not None:
            changed["trail"] = self._payloads.seal_trail(step.trail, _of_step(step))
        return replace(step, **changed) if changed else step

    def new_run(self, run: NewRun) -> NewRun:
        return replace(run, input=self._payloads.seal(run.input, f"the input of run {run.id}"))

    def outgoing(self, each: Outgoing) -> Outgoing:
        what = f"a message, event or stream value of run {each.run}"
        if isinstance(each, Post):
            return replace(each, body=self._payloads.seal(each.body, what))
        if isinstance(each, Entry):
            return each if each.value is None else replace(each, value=self._payloads.seal(each.value, what))
        return replace(
            each,
            answer=None if each.answer is None else self._payloads.seal(each.answer, what),
            error=None if each.error is None else self._payloads.seal_error(each.error, f"run {each.run}"),
        )

    def schedule(self, schedule: Schedule) -> Schedule:
        payloads, what = self._payloads, f"schedule {schedule.id}"
        return replace(
            schedule,
            input=payloads.seal(schedule.input, f"the input of {what}"),
            last_result=None if schedule.last_result is None else payloads.seal(schedule.last_result, what),
            last_failure=None if schedule.last_failure is None else payloads.seal_error(schedule.last_failure, what),
            declared=None if schedule.declared is None else payloads.seal_declared(schedule.declared, what),
        )

    def beginning(self, begin: Beginning) -> Beginning:
        tick = self._payloads.seal_tick(begin.tick, f"the tick of run {begin.run.id}")
        return replace(begin, run=self.new_run(begin.run), tick=tick)

    def plan(self, plan: Plan) -> Plan:
        return replace(
            plan,
            schedule=self.schedule(plan.schedule),
            starts=[self.beginning(each) for each in plan.starts],
            releases=[self.beginning(each) for each in plan.releases],
            alerts=[self.new_run(each) for each in plan.alerts],
        )


class Opener:
    """Opens records that were read from the store."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads

    # -- for one run: raise if a value cannot be decoded ---------------------------------------------------------------
    def claim(self, claim: Claim) -> Claim:
        """Open a run to execute. Raises `PayloadError` if a value cannot be decoded."""
        return replace(
            claim, run=self._run(claim.run, _exactly), steps=[self._step(each, _exactly) for each in claim.steps]
        )

    def message(self, message: Message | None) -> Message | None:
        """Open a message to receive. Raises `PayloadError` if it cannot be decoded."""
        return None if message is None else self._message(message, _exactly)

    def value(self, reading: Reading) -> Reading:
        """Open values for a caller. Raises `PayloadError` if one cannot be decoded."""
        return replace(reading, entries=[self._spoken(each, _exactly) for each in reading.entries])

    # -- for many runs: leave sealed what cannot be decoded ------------------------------------------------------------
    def run(self, run: Run) -> Run:
        return self._run(run, kept)

    def step(self, step: Step) -> Step:
        return self._step(step, kept)

    def ending(self, ending: Ending) -> Ending:
        what = f"run {ending.id}"
        error = kept(self._payloads.open_error, ending.error, what)
        return replace(
            ending,
            output=kept(self._payloads.open, ending.output, f"the result of {what}"),
            error=error,
            reason=_in_full(ending.reason, ending.error, error),
        )

    def any_message(self, message: Message) -> Message:
        return self._message(message, kept)

    def spoken(self, spoken: PublishedValue) -> PublishedValue:
        return self._spoken(spoken, kept)

    def function(self, row: FunctionRow) -> FunctionRow:
        what = f"run {row.id}"
        return replace(
            row,
            input=kept(self._payloads.open, row.input, f"the input of {what}") or row.input,
            error=kept(self._payloads.open_error, row.error, what),
        )

    def schedule(self, schedule: Schedule) -> Schedule:
        payloads, what = self._payloads, f"schedule {schedule.id}"
        return replace(
            schedule,
            input=kept(payloads.open, schedule.input, f"the input of {what}") or schedule.input,
            last_result=kept(payloads.open, schedule.last_result, what),
            last_failure=kept(payloads.open_error, schedule.last_failure, what),
            declared=kept(payloads.open_declared, schedule.declared, what),
        )

    def situation(self, situation: Situation) -> Situation:
        runs = [self._run_of(each) for each in situation.runs]
        return replace(situation, schedule=self.schedule(situation.schedule), runs=runs)

    def _run_of(self, run: ScheduleRun) -> ScheduleRun:
        what = f"run {run.id}"
        return replace(
            run,
            output=kept(self._payloads.open, run.output, what),
            error=kept(self._payloads.open_error, run.error, what),
        )

    # -- either --------------------------------------------------------------------------------------------------------
    def _run(self, run: Run, how: Callable[[Callable[[str, str], str], R, str], R]) -> Run:
        payloads, what = self._payloads, f"run {run.id}"
        error: Any = how(payloads.open_error, run.error, what)  # type: ignore[arg-type]
        opened: dict[str, Any] = {
            "input": how(payloads.open, run.input, f"the input of {what}"),  # type: ignore[arg-type]
            "output": how(payloads.open, run.output, f"the result of {what}"),  # type: ignore[arg-type]
            "error": error,
            "tick": how(payloads.open_tick, run.tick, f"the tick of {what}"),  # type: ignore[arg-type]
            "reason": _in_full(run.reason, run.error, error),
        }
        return replace(run, **opened)

    def _step(self, step: Step, how: Any) -> Step:
        payloads, what = self._payloads, _of_step(step)
        opened: dict[str, Any] = {}
        if step.output is not None and step.kind in VALUES:
            opened["output"] = how(payloads.open, step.output, what)
        if step.error is not None:
            opened["error"] = how(payloads.open_error, step.error, what)
        if step.trail is not None:
            opened["trail"] = how(payloads.open_trail, step.trail, what)
        return replace(step, **opened) if opened else step

    def _message(self, message: Message, how: Any) -> Message:
        payloads, what = self._payloads, f"message {message.number} of run {message.run}"
        return replace(
            message,
            body=how(payloads.open, message.body, what),
            answer=how(payloads.open, message.answer, f"the answer to {what}"),
            error=how(payloads.open_error, message.error, what),
        )

    def _spoken(self, spoken: PublishedValue, how: Any) -> PublishedValue:
        return replace(spoken, value=how(self._payloads.open, spoken.value, f"{spoken.key!r} of run {spoken.run}"))


def _exactly(change: Callable[[str, str], str], text: str | None, what: str) -> str | None:
    return None if text is None else change(text, what)


def kept(change: Callable[[str, str], str], text: str | None, what: str) -> str | None:
    """The opened text, or the sealed one if the codec fails."""
    if text is None:
        return None
    try:
        return change(text, what)
    except PayloadError:
        return text


def _in_full(reason: str | None, sealed: str | None, opened: Any) -> str | None:
    """The reason of a failed run as it would be without a codec: with the message of the exception."""
    if reason is None or sealed is None or opened is None or sealed == opened or reason in _WORDS:
        return reason
    import json  # noqa: PLC0415

    message = json.loads(opened).get("message", "")
    return f"{reason}: {message}"[:500] if not reason.endswith(message) else reason


def _of_step(step: Step) -> str:
    return f"{step.kind} {step.name!r} of run {step.run}"
