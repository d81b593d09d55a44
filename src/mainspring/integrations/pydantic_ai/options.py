"""The options of an agent's steps: those of `@app.step`, by kind of operation and by tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic_ai.durable_exec import ToolsetGetInstructionsId, ToolsetGetToolsId
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UserError,
)

from mainspring.engine.retry import Retry
from mainspring.errors import InvalidInput
from mainspring.recurrence.durations import micros

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.durable_exec import DurableOperationId, OperationConfigRole

    from mainspring.app.functions.options import Duration

_RETRIED_STATUS = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True)
class StepOptions:
    """The options of a step: its retry policy, the timeout of one attempt, and whether it is started at most once."""

    retry: Retry | int | None = None
    timeout: Duration | None = None
    at_most_once: bool = False

    def __post_init__(self) -> None:
        if Retry.of(self.retry).attempts > 1 and self.at_most_once:
            raise InvalidInput(
                "StepOptions: a step is never started a second time (at_most_once), so it cannot be retried"
            )
        if self.timeout is not None and micros(self.timeout) <= 0:
            raise InvalidInput(f"StepOptions: a timeout must be longer than zero, not {self.timeout!r}")


def is_transient(error: BaseException) -> bool:
    """Whether a model request that failed with this error may succeed when it is retried."""
    if isinstance(error, (ModelRequestRejectedError, ModelQuotaExceededError)):
        return False
    if isinstance(error, ModelHTTPError):
        return error.status_code in _RETRIED_STATUS or error.status_code >= 500
    return isinstance(error, (ModelAPIError, OSError))  # a TimeoutError is an OSError


MODEL = StepOptions(Retry(5, first=1, factor=3, cap="1m", jitter=0.3, on=is_transient), "10m")
"""Default options of model requests."""
TOOL = StepOptions()
"""Default options of tool calls: one attempt, because a tool may do something that must not happen twice."""
LISTING = StepOptions(Retry(5, first=1, factor=3, cap="1m", jitter=0.3, unless=UserError), "1m")
"""Options of listing the tools of an MCP server."""


class Options:
    """Finds the options of each operation of an agent. Implements Pydantic AI's `DurableOperationConfig`."""

    def __init__(self, model: StepOptions, tool: StepOptions, tools: Mapping[str, StepOptions | None]) -> None:
        self._model = model
        self._tool = tool
        self._tools = dict(tools)

    def base(self, role: OperationConfigRole, *, operation_id: DurableOperationId) -> StepOptions:
        """Return the options of an operation that is not a tool call."""
        if role == "model":
            return self._model
        return LISTING if isinstance(operation_id, (ToolsetGetToolsId, ToolsetGetInstructionsId)) else self._tool

    def for_tool(
        self, role: OperationConfigRole, *, operation_id: DurableOperationId, tool: object | None, tool_name: str
    ) -> StepOptions | Literal[False]:
        """Return the options of a tool call; False if the workflow's code calls the tool itself."""
        del role, operation_id, tool
        found = self._tools.get(tool_name, self._tool)
        return False if found is None else found
