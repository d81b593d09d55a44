"""Durable agents: a Pydantic AI agent whose model requests, tool calls and MCP calls are steps of a workflow.

    support = DurableAgent(Agent("openai:gpt-5.2", name="support", tools=[refund]), app)

    @app.workflow
    async def answer(question: str) -> str:
        return (await support.run(question)).output

After a crash the run is replayed from its record: a model request that was answered is not sent again. Outside workflows a
`DurableAgent` is the agent that it wraps.
"""

from mainspring.errors import MissingExtra

try:
    from mainspring.integrations.pydantic_ai.agent import DurableAgent
    from mainspring.integrations.pydantic_ai.decisions import Answer, Approval, Pending
    from mainspring.integrations.pydantic_ai.options import StepOptions
    from mainspring.integrations.pydantic_ai.streaming import Chunk
except ImportError as error:
    if not (error.name or "").startswith("pydantic_ai"):
        raise
    raise MissingExtra(
        f"durable agents need Pydantic AI with its interface for durable engines ({error}); "
        "pip install -U 'mainspring[pydantic-ai]'"
    ) from error

__all__ = ["Answer", "Approval", "Chunk", "DurableAgent", "Pending", "StepOptions"]
