"""An agent's output and tool calls, written to a durable stream as they happen: `app.read_stream(run_id, support.stream)`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)

from mainspring.app.messages.names import Stream
from mainspring.app.run import run
from mainspring.engine.replay.context import branch

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Sequence

    from pydantic_ai.messages import AgentStreamEvent
    from pydantic_ai.tools import RunContext

    from mainspring.integrations.pydantic_ai.decisions import Pending

Kind = Literal["request", "text", "thinking", "call", "result", "pending"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an agent's output, or a tool call.

    `request` counts the model requests of an agent's run. A chunk of the kind "request" begins one. It voids the earlier chunks
    of the request with the same number: that attempt failed or its process died.
    """

    kind: Kind
    request: int
    text: str = ""
    """A piece of text or thinking, the arguments of a call as JSON, or its result."""
    tool: str | None = None
    call: str | None = None


class Publisher:
    """Writes chunks to the stream of an agent."""

    def __init__(self, agent: str) -> None:
        self.stream: Stream[Chunk] = Stream(f"{agent}.stream", Chunk)

    async def publish(self, ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        """Write the events of a model request, inside its step, or of tool calls, in the workflow."""
        if branch() is not None:
            async for event in events:
                chunk = _chunk(event, ctx.run_step)
                if chunk is not None:
                    await run.write_stream(self.stream, chunk)
            return
        writer = _Writer(self.stream)
        writer.add(Chunk("request", ctx.run_step))
        async for event in events:
            chunk = _chunk(event, ctx.run_step)
            if chunk is not None:
                writer.add(chunk)
        await writer.written()

    async def announce(self, ctx: RunContext[Any], pending: Sequence[Pending]) -> None:
        """Write that tool calls wait for decisions."""
        for each in pending:
            chunk = Chunk("pending", ctx.run_step, json.dumps(each.args, separators=(",", ":")), each.tool, each.call)
            await run.write_stream(self.stream, chunk)


class _Writer:
    """Writes chunks while others arrive: those gathered during one commit are written with the next, so that no token waits."""

    def __init__(self, stream: Stream[Chunk]) -> None:
        self._stream = stream
        self._gathered: list[Chunk] = []
        self._writing: asyncio.Task[None] | None = None

    def add(self, chunk: Chunk) -> None:
        last = self._gathered[-1] if self._gathered else None
        if last is not None and chunk.kind in {"text", "thinking"} and last.kind == chunk.kind:
            self._gathered[-1] = replace(last, text=last.text + chunk.text)
        else:
            self._gathered.append(chunk)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._gathered:
            chunks, self._gathered = self._gathered, []
            for chunk in chunks:
                await run.write_stream(self._stream, chunk)

    async def written(self) -> None:
        """Wait until all chunks are stored."""
        if self._writing is not None:
            await self._writing


def _chunk(event: AgentStreamEvent, request: int) -> Chunk | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return Chunk("text", request, text) if text else None
        case PartStartEvent(part=ThinkingPart(content=text)):
            return Chunk("thinking", request, text) if text else None
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=thought)):
            return Chunk("thinking", request, thought) if thought else None
        case FunctionToolCallEvent(part=part):
            return Chunk("call", request, part.args_as_json_str(), part.tool_name, part.tool_call_id)
        case FunctionToolResultEvent(part=part):
            return Chunk("result", request, part.model_response_str(), part.tool_name, part.tool_call_id)
        case _:
            return None
