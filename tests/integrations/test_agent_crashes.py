"""A process that dies at any word to the database: no model request and no tool call that was recorded is made again."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from mainspring import App, run
from mainspring.errors import NotFound
from mainspring.integrations.pydantic_ai import Approval, DurableAgent
from mainspring.testing import crash, world
from tests.engine.lives import another_process, names
from tests.support.samples import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from pydantic_ai.messages import ModelMessage

app = App()
executed: Counter[str] = Counter()
"""Model requests by number and tool calls by argument, of both lives."""
again: Counter[str] = Counter()
"""The same, of the second life."""


def execute(what: str) -> None:
    executed[what] += 1
    again[what] += 1


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    del info
    number = sum(isinstance(message, ModelResponse) for message in messages)
    execute(f"model {number}")
    if number == 0:
        return ModelResponse([ToolCallPart("look", {"what": what}, what) for what in ("left", "right")])
    if number == 1:
        return ModelResponse([ToolCallPart("nap", {}, "nap"), ToolCallPart("refund", {"order": "o-7"}, "refund")])
    found = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return ModelResponse([TextPart(", ".join(found))])


agent = Agent(FunctionModel(respond), name="support")


@agent.tool_plain
async def look(what: str) -> str:
    execute(f"look {what}")
    return f"seen {what}"


@agent.tool_plain
async def nap() -> str:
    await run.sleep("8h")
    return "slept"


@agent.tool_plain(requires_approval=True)
def refund(order: str) -> str:
    execute(f"refund {order}")
    return f"refunded {order}"


support = DurableAgent(agent, app, tools={"nap": None})


@app.workflow
async def answer() -> str:
    return (await support.run("go")).output


def work(run_id: str, recorded: list[str]) -> Callable[[], Coroutine[Any, Any, str]]:
    async def start_and_wait() -> str:
        again.clear()
        recorded.clear()
        try:
            steps = await app.runs.steps(run_id)
        except NotFound:
            steps = []
        recorded.extend(step.name for step in steps if step.completed is not None)
        handle = await answer.options(id=run_id).start()
        await app.send(run_id, support.approvals, Approval("refund"), key="decided")
        return await handle.result()

    return start_and_wait


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_was_recorded_is_not_paid_for_again(store_url: str, when: Literal["before", "after"]) -> None:
    crashed = 0
    for at in calls(when):
        executed.clear()
        recorded: list[str] = []
        outcome = await crash(app, work(f"{when} {at}", recorded), at=at, when=when, url=store_url)
        assert outcome.result == "slept, refunded o-7"
        if not outcome.crashed:
            break
        crashed += 1
        for number in range(recorded.count("support.model")):
            assert again[f"model {number}"] == 0, f"a request that was recorded is sent again: {at}"
        if recorded.count("support.look") == 2:
            assert again["look left"] == again["look right"] == 0
        if "support.refund" in recorded:
            assert again["refund o-7"] == 0
        assert max(executed.values()) <= 2
        assert set(executed) == {"model 0", "model 1", "model 2", "look left", "look right", "refund o-7"}
    assert crashed > 1
    assert executed == dict.fromkeys(executed, 1)  # the last one has not crashed


async def test_a_night_of_crashes_sends_each_request_once(store_url: str) -> None:
    """A process dies every hour, and the agent is in memory at none of these times."""
    executed.clear()
    async with world(app, url=store_url) as w:
        handle = await answer.options(id="night").start()
        for _ in range(9):
            await w.advance("1h")
            await another_process(w)
        await support.approve("night", "refund")
        assert await handle.result() == "slept, refunded o-7"
    assert executed == dict.fromkeys(["model 0", "model 1", "model 2", "look left", "look right", "refund o-7"], 1)


async def test_calls_and_lists_of_an_mcp_server_are_steps_and_a_replay_asks_it_nothing(
    store_url: str, tmp_path: Path
) -> None:
    from pydantic_ai.mcp import MCPToolset  # noqa: PLC0415  (a second of imports, in every process that collects the tests)

    ledger = tmp_path / "ledger"
    server = {"command": sys.executable, "args": [str(Path(__file__).parent / "mcp_server.py"), str(ledger)]}
    requests: list[str] = []

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        requests.append(", ".join(tool.name for tool in info.function_tools))
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("hour", {"city": "Rome"}, "1")])
        found = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        return ModelResponse([TextPart(found[0])])

    own = App()
    clock = MCPToolset({"mcpServers": {"clock": server}}, id="clock", include_instructions=True)
    guide = DurableAgent(Agent(FunctionModel(ask), name="guide", toolsets=[clock]), own)

    @own.workflow
    async def hour() -> str:
        found = (await guide.run("What time is it?")).output
        await run.set_event("answered", True)
        await run.receive("go")
        return found

    async with world(own, url=store_url) as w:
        handle = await hour.options(id="a").start()
        await own.get_event("a", "answered")
        before = ledger.read_text().splitlines()
        assert before.count("hour Rome") == 1
        await another_process(w)
        await own.send("a", "go", None)
        assert await handle.result() == "noon in Rome"
        assert set(names(own, "a")) == {
            "guide.model", "guide.clock.tools", "guide.clock.instructions", "guide.clock.hour", "answered", "go",
        }  # fmt: skip
        assert ledger.read_text().splitlines() == before
        assert requests == ["hour", "hour"]
        async with clock:  # as a resource does: steps share the connection
            handle = await hour.options(id="b").start()
            await own.send("b", "go", None)
            assert await handle.result() == "noon in Rome"
    assert ledger.read_text().splitlines() == [*before, "hour Rome"]
