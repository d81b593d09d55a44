"""Positions of an agent's operations in its run: by model request and by tool call, not by the tasks that Pydantic AI creates.

A run is replayed by positions, so they must not change when Pydantic AI changes how it schedules its work: an agent that sleeps over
night is continued in the morning by a newer release. Tool calls get their branches in the order in which the model asks for them,
so that two calls of one tool that run side by side cannot be taken for each other.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from mainspring.engine.replay.context import current

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pydantic_ai.messages import ToolCallPart

    from mainspring.engine.replay.context import Branch

_of_call: ContextVar[tuple[Positions | None, Branch | None]] = ContextVar("mainspring_tool_call", default=(None, None))
"""The agent's run whose tool call is being executed, and the branch of that call."""


class Positions:
    """The branches of one run of an agent inside a workflow."""

    def __init__(self, where: Branch) -> None:
        self._own = where.create_branch()
        self._calls = where.create_branch()
        self._by_call: dict[str, Branch] = {}

    def expect(self, calls: Sequence[ToolCallPart]) -> None:
        """Assign branches to the tool calls of a model response."""
        for call in calls:
            self._by_call[call.tool_call_id] = self._calls.create_branch()

    @contextmanager
    def of_call(self, call: ToolCallPart) -> Generator[None]:
        """Make operations inside the block belong to a tool call: those of the agent and those of the tool's own code."""
        if call.tool_call_id not in self._by_call:  # a call of an earlier response, in a given history
            self.expect([call])
        branch = self._by_call[call.tool_call_id]
        token = _of_call.set((self, branch))
        try:
            with _at(branch):
                yield
        finally:
            _of_call.reset(token)

    @contextmanager
    def here(self) -> Generator[None]:
        """Make operations inside the block belong to the current tool call, or to the agent outside of tool calls."""
        agent, branch = _of_call.get()
        with _at(branch if agent is self and branch is not None else self._own):
            yield

    @contextmanager
    def own(self) -> Generator[None]:
        """Make operations inside the block belong to the agent."""
        with _at(self._own):
            yield


@contextmanager
def _at(branch: Branch) -> Generator[None]:
    token = current.set(branch)
    try:
        yield
    finally:
        current.reset(token)
