"""Decisions of people about an agent's tool calls: the pending calls, and messages that approve, deny or answer them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic_ai.tools import ToolApproved, ToolDenied

from mainspring.app.messages.names import Event, Topic
from mainspring.app.run import run
from mainspring.model.clock import SECOND
from mainspring.recurrence.durations import micros

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults

    from mainspring.app.functions.options import Duration

log = logging.getLogger("mainspring.integrations")


@dataclass(frozen=True, slots=True)
class Pending:
    """A tool call that waits for an approval, or for its result from outside."""

    call: str
    tool: str
    args: dict[str, Any]
    waits_for: Literal["approval", "answer"]
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Approval:
    """A decision about a tool call. `message` tells the model why the call was denied; `args` replaces the call's arguments."""

    call: str
    approved: bool = True
    message: str | None = None
    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a tool call that is executed outside."""

    call: str
    value: Any = None


class Decisions:
    """Waits inside a run until every deferred tool call is decided."""

    def __init__(self, agent: str, timeout: Duration | None) -> None:
        self.pending: Event[list[Pending]] = Event(f"{agent}.pending", list[Pending])
        self.approvals: Topic[Approval] = Topic(f"{agent}.approvals", Approval)
        self.answers: Topic[Answer] = Topic(f"{agent}.answers", Answer)
        self._timeout = None if timeout is None else micros(timeout) / SECOND

    async def announce(self, requests: DeferredToolRequests) -> list[Pending]:
        """Publish the tool calls that wait for a decision."""
        found = [_pending(call, requests, "approval") for call in requests.approvals]
        found += [_pending(call, requests, "answer") for call in requests.calls]
        await run.set_event(self.pending, found)
        return found

    async def receive(self, requests: DeferredToolRequests, pending: list[Pending]) -> DeferredToolResults:
        """Receive the decisions about all of the tool calls, as messages."""
        waiting = {each.call: each for each in pending}
        began = run.now()
        approvals: dict[str, bool | ToolApproved | ToolDenied] = {}
        calls: dict[str, Any] = {}
        while len(approvals) < len(requests.approvals):
            decision = await run.receive(self.approvals, timeout=self._left(began))
            if decision is None:
                late = ToolDenied(f"Nothing was decided within {self._timeout:g} seconds.")
                approvals |= {
                    call.tool_call_id: late for call in requests.approvals if call.tool_call_id not in approvals
                }
            elif self._is_expected(decision.call, "approval", waiting):
                approvals[decision.call] = _verdict(decision)
        while len(calls) < len(requests.calls):
            answer = await run.receive(self.answers, timeout=self._left(began))
            if answer is None:
                late_answer = f"No result came within {self._timeout:g} seconds."
                calls |= {call.tool_call_id: late_answer for call in requests.calls if call.tool_call_id not in calls}
            elif self._is_expected(answer.call, "answer", waiting):
                calls[answer.call] = answer.value
        await run.set_event(self.pending, [])
        return requests.build_results(approvals=approvals, calls=calls)

    def _left(self, began: datetime) -> float | None:
        if self._timeout is None:
            return None
        return max(self._timeout - (run.now() - began).total_seconds(), 0)

    @staticmethod
    def _is_expected(call: str, waits_for: str, waiting: dict[str, Pending]) -> bool:
        """Whether a decision is the first about a call that waits for it. Other decisions are logged and ignored."""
        if call in waiting and waiting[call].waits_for == waits_for:
            del waiting[call]
            return True
        log.warning(
            "run %s: ignored a message for the tool call %r, which does not wait for a %s", run.id, call, waits_for
        )
        return False


def _pending(call: ToolCallPart, requests: DeferredToolRequests, waits_for: Literal["approval", "answer"]) -> Pending:
    metadata = requests.metadata.get(call.tool_call_id, {})
    return Pending(call.tool_call_id, call.tool_name, call.args_as_dict(), waits_for, metadata)


def _verdict(decision: Approval) -> ToolApproved | ToolDenied:
    if decision.approved:
        return ToolApproved(override_args=decision.args)
    return ToolDenied() if decision.message is None else ToolDenied(decision.message)
