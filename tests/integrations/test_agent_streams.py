"""What a durable agent streams: chunks that survive the process, and a mark where a request begins again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic_ai import Agent
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from mainspring import App
from mainspring.integrations.pydantic_ai import Chunk, DurableAgent
from mainspring.testing import world
from tests.engine.lives import another_process, names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydantic_ai.messages import ModelMessage


def joined(chunks: list[Chunk]) -> list[tuple[str, int, str]]:
    """Chunks with texts of one kind put together, and without what a later beginning of the same request has made void."""
    found: list[tuple[str, int, str]] = []
    for chunk in chunks:
        if chunk.kind == "request":
            found = [each for each in found if each[1] != chunk.request]
        elif found and found[-1][:2] == (chunk.kind, chunk.request) and chunk.kind == "text":
            found[-1] = (chunk.kind, chunk.request, found[-1][2] + chunk.text)
        else:
            found.append((chunk.kind, chunk.request, chunk.text))
    return found


async def test_responses_tool_calls_and_pending_approvals_are_streamed(store_url: str) -> None:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        del info
        if len(messages) == 1:
            yield "let me "
            yield "see"
            yield {1: DeltaToolCall("refund", '{"order": ', tool_call_id="1")}
            yield {1: DeltaToolCall(json_args='"o-7"}')}
        else:
            for word in ("It ", "is ", "done."):
                yield word

    app, agent = App(), Agent(FunctionModel(stream_function=respond), name="support")

    @agent.tool_plain(requires_approval=True)
    async def refund(order: str) -> str:
        return f"refunded {order}"

    support = DurableAgent(agent, app, stream=True)

    @app.workflow
    async def answer() -> str:
        return (await support.run("refund")).output

    async with world(app, url=store_url):
        handle = await answer.options(id="a").start()
        seen: list[Chunk] = []
        async for chunk in app.read_stream("a", support.stream):
            seen.append(chunk)
            if chunk.kind == "pending":
                assert (chunk.tool, chunk.call) == ("refund", "1")
                await support.approve("a", chunk.call or "")
        assert await handle.result() == "It is done."
        recorded = names(app, "a")
    assert joined(seen) == [
        ("text", 1, "let me see"),
        ("call", 1, '{"order":"o-7"}'),
        ("pending", 1, '{"order":"o-7"}'),
        ("result", 1, "refunded o-7"),
        ("text", 2, "It is done."),
    ]
    assert recorded.count("support.model.stream") == 2


async def test_a_response_that_a_crash_cut_off_is_streamed_again_and_the_half_is_void(store_url: str) -> None:
    app, half = App(), asyncio.Event()
    lives: list[str] = []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        del messages, info
        lives.append("life")
        yield "one "
        if len(lives) == 1:
            half.set()
            await asyncio.Event().wait()
        yield "two"

    support = DurableAgent(Agent(FunctionModel(stream_function=respond), name="support"), app, stream=True)

    @app.workflow
    async def answer() -> str:
        return (await support.run("count")).output

    async with world(app, url=store_url) as w:
        handle = await answer.options(id="a").start()
        await half.wait()
        first = [chunk async for chunk in _until(app.read_stream("a", support.stream), "one ")]
        await another_process(w)
        assert await handle.result() == "one two"
        seen = [chunk async for chunk in app.read_stream("a", support.stream)]
    assert [chunk.kind for chunk in first] == ["request", "text"]
    assert [chunk.kind for chunk in seen].count("request") == 2
    assert joined(seen) == [("text", 1, "one two")]


async def _until(chunks: AsyncIterator[Chunk], text: str) -> AsyncIterator[Chunk]:
    async for chunk in chunks:
        yield chunk
        if chunk.text == text:
            return


async def test_an_event_handler_of_a_run_sees_the_events_in_the_workflow(store_url: str) -> None:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        del messages, info
        yield "hello"

    app = App()
    support = DurableAgent(Agent(FunctionModel(stream_function=respond), name="support"), app)

    @app.workflow
    async def answer() -> list[str]:
        async with support.run_stream("hi") as result:
            return [text async for text in result.stream_text(debounce_by=None)]

    async with world(app, url=store_url):
        assert (await answer.options(id="a")())[-1] == "hello"
        assert names(app, "a") == ["support.model.stream"]
