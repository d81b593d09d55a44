"""The durable agent: a Pydantic AI agent that runs inside workflows."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.output import OutputDataT
from pydantic_ai.tools import AgentDepsT

from mainspring.engine.replay.context import branch
from mainspring.errors import InvalidInput, WrongColour
from mainspring.integrations.pydantic_ai.decisions import Answer, Approval, Decisions
from mainspring.integrations.pydantic_ai.durability import Durability
from mainspring.integrations.pydantic_ai.options import MODEL, TOOL, Options
from mainspring.integrations.pydantic_ai.positions import Positions
from mainspring.integrations.pydantic_ai.streaming import Publisher

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.capabilities import AgentCapability
    from pydantic_ai.models import Model
    from pydantic_ai.run import AgentRun, AgentRunResult
    from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext

    from mainspring.app.app import App
    from mainspring.app.functions.options import Duration
    from mainspring.app.messages.names import Event, Stream, Topic
    from mainspring.integrations.pydantic_ai.decisions import Pending
    from mainspring.integrations.pydantic_ai.options import StepOptions
    from mainspring.integrations.pydantic_ai.streaming import Chunk


class DurableAgent(WrapperAgent[AgentDepsT, OutputDataT]):
    """An agent whose model requests, tool calls and MCP calls are steps when it runs inside a workflow of `app`.

    `model` and `tool` are the options of those steps, `tools` those of single tools by name. A tool with None is called by the
    workflow itself, not in a step: then it may sleep, receive messages and call steps and workflows of its own. With `stream`,
    model responses are written to the durable stream `agent.stream` while they arrive. A tool call that needs an approval, or is
    executed outside, waits for a message; after `decide_within` it is denied. `models` names further models that
    `run(model=…)` may use.
    """

    def __init__(
        self,
        agent: AbstractAgent[AgentDepsT, OutputDataT],
        app: App,
        *,
        name: str | None = None,
        model: StepOptions = MODEL,
        tool: StepOptions = TOOL,
        tools: Mapping[str, StepOptions | None] | None = None,
        stream: bool = False,
        decide_within: Duration | None = None,
        models: Mapping[str, Model] | None = None,
    ) -> None:
        super().__init__(agent)
        found = name or agent.name
        if not found:
            raise InvalidInput("a durable agent needs a name, by which its steps are known; write Agent(…, name=…)")
        self._app = app
        self._title = found
        self._options = Options(model, tool, tools or {})
        self._models = dict(models or {})
        self._decisions = Decisions(found, decide_within)
        self._publisher = Publisher(found)
        self._streams = stream

    # -- inside workflows ----------------------------------------------------------------------------------------------
    if not TYPE_CHECKING:  # the signatures are those of the wrapped agent

        @asynccontextmanager
        async def iter(
            self,
            user_prompt: Any = None,
            *,
            capabilities: Sequence[AgentCapability[AgentDepsT]] | None = None,
            **options: Any,
        ) -> AsyncGenerator[AgentRun[AgentDepsT, Any]]:
            where = branch()
            if where is not None:
                capabilities = [*(capabilities or ()), *self._durable(Positions(where))]
            async with super().iter(user_prompt, capabilities=capabilities, **options) as made:
                yield made

        def run_sync(self, *args: Any, **options: Any) -> AgentRunResult[Any]:
            where = branch()
            if where is not None:
                raise WrongColour(
                    f"an agent runs in an `async def` workflow; write {where.execution.function.name!r} with `async def` and "
                    f"`await {self._title}.run(…)`, or call `run_sync` in a step"
                )
            return super().run_sync(*args, **options)

    def _durable(self, positions: Positions) -> list[AgentCapability[AgentDepsT]]:
        """Return the capabilities that make one run of the agent durable."""
        publish = self._publisher.publish if self._streams else None

        async def decide(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
            with positions.own():
                pending = await self._decisions.announce(requests)
                if self._streams:
                    await self._publisher.announce(ctx, pending)
                return await self._decisions.receive(requests, pending)

        return [
            Durability(self._title, self._options, positions, models=self._models, publish=publish),
            HandleDeferredToolCalls(decide),
        ]

    # -- from outside --------------------------------------------------------------------------------------------------
    @property
    def stream(self) -> Stream[Chunk]:
        """The durable stream that the agent writes to: `app.read_stream(run_id, agent.stream)`."""
        return self._publisher.stream

    @property
    def pending(self) -> Event[list[Pending]]:
        """The tool calls of a run that wait for a decision: `await app.get_event(run_id, agent.pending)`."""
        return self._decisions.pending

    @property
    def approvals(self) -> Topic[Approval]:
        """The topic of decisions about tool calls: `await app.send(run_id, agent.approvals, Approval(call))`."""
        return self._decisions.approvals

    @property
    def answers(self) -> Topic[Answer]:
        """The topic of results of tool calls executed outside: `await app.send(run_id, agent.answers, Answer(call, value))`."""
        return self._decisions.answers

    async def approve(self, run_id: str, call: str, *, args: dict[str, Any] | None = None) -> None:
        """Approve a tool call of a run, with other arguments if they are given."""
        await self._app.send(run_id, self.approvals, Approval(call, args=args))

    async def deny(self, run_id: str, call: str, message: str | None = None) -> None:
        """Deny a tool call of a run. The model receives the message."""
        await self._app.send(run_id, self.approvals, Approval(call, approved=False, message=message))

    async def answer(self, run_id: str, call: str, value: Any) -> None:
        """Send the result of a tool call that is executed outside."""
        await self._app.send(run_id, self.answers, Answer(call, value))
