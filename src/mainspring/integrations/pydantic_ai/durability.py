"""The capability that executes an agent's operations as steps, on Pydantic AI's interface for durable engines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CallableOperationBackend,
    CapabilityOperationId,
    DurabilityEngineSpec,
    EventStreamHandlerId,
    JournalOperationNamer,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
    conversation_id_from_run_id,
)
from pydantic_ai.tools import AgentDepsT

from mainspring.app.run import run
from mainspring.engine.replay.context import branch
from mainspring.integrations.pydantic_ai.options import StepOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.capabilities import (
        RawToolArgs,
        ValidatedToolArgs,
        WrapToolExecuteHandler,
        WrapToolValidateHandler,
    )
    from pydantic_ai.durable_exec import DurableOperationId
    from pydantic_ai.messages import ModelResponse, ToolCallPart
    from pydantic_ai.models import Model, ModelRequestContext
    from pydantic_ai.tools import RunContext, ToolDefinition

    from mainspring.integrations.pydantic_ai.options import Options
    from mainspring.integrations.pydantic_ai.positions import Positions


class Durability(BaseDurabilityCapability[AgentDepsT]):
    """Executes model requests, tool calls and MCP calls as steps, while the agent runs inside a workflow."""

    engine_spec = DurabilityEngineSpec(
        engine_name="Mainspring",
        durable_unit_noun="step",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        # Connections belong to steps: a workflow that sleeps for a night holds none, and a replay opens none.
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-never", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    )

    def __init__(
        self,
        name: str,
        options: Options,
        positions: Positions,
        *,
        models: Mapping[str, Model],
        publish: EventStreamHandler[AgentDepsT] | None,
    ) -> None:
        super().__init__(name=name, models=models, event_stream_handler=publish)
        self._positions = positions
        self._steps = _Steps(_Names(name), options, positions)

    @property
    def in_durable_context(self) -> bool:
        return branch() is not None

    def get_durable_operation_backend(self) -> _Steps:
        return self._steps

    # -- positions -----------------------------------------------------------------------------------------------------
    async def after_model_request(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        self._positions.expect(response.tool_calls)
        return await super().after_model_request(ctx, request_context=request_context, response=response)

    async def wrap_tool_validate(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        handler: WrapToolValidateHandler,
    ) -> ValidatedToolArgs:
        with self._positions.of_call(call):
            return await super().wrap_tool_validate(ctx, call=call, tool_def=tool_def, args=args, handler=handler)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        with self._positions.of_call(call):
            return await super().wrap_tool_execute(ctx, call=call, tool_def=tool_def, args=args, handler=handler)

    # -- the same in every replay --------------------------------------------------------------------------------------
    def get_default_run_id(self) -> str | None:
        return str(run.uuid()) if self.in_durable_context else None

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_run_clock(self) -> Callable[[], datetime] | None:
        return run.now if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        del run_id
        return run.now() if self.in_durable_context else None


class _Steps(CallableOperationBackend[StepOptions]):
    """Executes each operation as a step of the current run."""

    def __init__(self, names: _Names, options: Options, positions: Positions) -> None:
        super().__init__(namer=names, config=options)
        self._positions = positions

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepOptions,
    ) -> object:
        if isinstance(operation_id, EventStreamHandlerId):
            with self._positions.own():
                return await body()  # it writes to a stream of the run, which is an operation of its own

        async def attempt(*_: object) -> Any:
            return await body()

        step = run.step.options(retry=config.retry, timeout=config.timeout, at_most_once=config.at_most_once)
        with self._positions.here():
            outcome = step(name, attempt, *cache_key)  # the call takes its position; the key is its input
        return await outcome


class _Names(JournalOperationNamer):
    """Short names of steps for the dashboard: `support.model`, `support.refund`, `support.weather.forecast`."""

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self._agent = agent

    def operation_name(self, operation_id: DurableOperationId) -> str:
        return f"{self._agent}.{_short(operation_id)}"

    def invocation_name(self, operation_id: DurableOperationId, *, label: str | None) -> Any:
        found = super().invocation_name(operation_id, label=label)
        if not isinstance(operation_id, (ToolsetCallToolId, ToolsetValidateToolArgumentsId)) or label is None:
            return found
        server = f"{operation_id.toolset_id}." if operation_id.toolset_kind == "mcp" else ""
        check = ".check" if isinstance(operation_id, ToolsetValidateToolArgumentsId) else ""
        return replace(found, operation_name=f"{self._agent}.{server}{label}{check}")


def _short(operation_id: DurableOperationId) -> str:
    match operation_id:
        case ModelRequestId() | ModelCompactMessagesId() | ModelCancelSuspendedResponseId():
            model = "model" if operation_id.model_id is None else f"model.{operation_id.model_id}"
            return f"{model}{_purpose(operation_id)}"
        case ToolsetGetToolsId(toolset_id=toolset):
            return f"{toolset}.tools"
        case ToolsetGetInstructionsId(toolset_id=toolset):
            return f"{toolset}.instructions"
        case CapabilityOperationId(capability_id=capability, operation=operation):
            return f"{capability}.{operation}"
        case _:  # Pydantic AI may add kinds of operations in minor releases
            return type(operation_id).__name__


def _purpose(operation_id: ModelRequestId | ModelCompactMessagesId | ModelCancelSuspendedResponseId) -> str:
    if isinstance(operation_id, ModelRequestId):
        return ".stream" if operation_id.streaming else ""
    return ".compact" if isinstance(operation_id, ModelCompactMessagesId) else ".cancel"
