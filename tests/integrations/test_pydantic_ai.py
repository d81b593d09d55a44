"""Durable agents: what a model answered and a tool did is recorded, and neither is asked again."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from mainspring import App, Retry, Settings, run
from mainspring.errors import InvalidInput, StepTimedOut, WrongColour
from mainspring.integrations.pydantic_ai import Approval, DurableAgent, StepOptions
from mainspring.testing import world
from tests.engine.lives import another_process, names, put, record, store_of
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.testing import World


class Script:
    """A model that says what it is told to say, one response after the other, and counts how often it is asked for each."""

    def __init__(self, *responses: Sequence[ToolCallPart | TextPart] | Exception) -> None:
        self._responses = responses
        self.asked: Counter[int] = Counter()
        self.model = FunctionModel(self._respond)

    def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        number = sum(isinstance(message, ModelResponse) for message in messages)
        self.asked[number] += 1
        said = self._responses[min(number + self.failed, len(self._responses) - 1)]
        if isinstance(said, Exception):
            raise said
        parts = [TextPart(returned(messages)) if part == RETURNED else part for part in said]
        return ModelResponse(parts)

    @property
    def failed(self) -> int:
        """How many of its responses were failures so far."""
        total = sum(self.asked.values()) - 1
        return sum(isinstance(each, Exception) for each in self._responses[:total])


RETURNED = TextPart("what the tools returned")
"""Stands for the results of the tool calls before."""


def returned(messages: list[ModelMessage]) -> str:
    found = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return ", ".join(str(part.content) for part in found)


def call(tool: str, call_id: str, **args: Any) -> ToolCallPart:
    return ToolCallPart(tool, args, call_id)


async def replay_once_more(w: World, function: Any, run_id: str) -> Any:
    """Execute a finished run again from its record, as a process would that took it over."""
    put(w.app, function, f"{run_id} again", store_of(w.app).steps(run_id))
    return await w.app.handle(f"{run_id} again").result()


# -- steps -------------------------------------------------------------------------------------------------------------
async def test_model_requests_and_tool_calls_are_steps(store_url: str) -> None:
    script = Script([call("weather", "1", city="Paris"), call("weather", "2", city="Rome")], [RETURNED])
    app, agent, asked, paris_may_end = App(), Agent(script.model, name="support"), list[str](), threading.Event()

    @agent.tool_plain
    def weather(city: str) -> str:  # in a thread of its own: which of the calls ends first is left to chance
        asked.append(city)
        if city == "Paris":
            assert paris_may_end.wait(60)
        return f"sunny in {city}"

    support = DurableAgent(agent, app)

    @app.workflow
    async def answer() -> str:
        return (await support.run("What is the weather?")).output

    async with world(app, url=store_url) as w:
        handle = await answer.options(id="a").start()
        await asyncio.to_thread(eventually, lambda: "sunny in Rome" in str(record(app, "a")), "Rome has an answer")
        paris_may_end.set()
        assert await handle.result() == "sunny in Paris, sunny in Rome"
        assert names(app, "a") == ["support.model", "support.weather", "support.weather", "support.model"]
        there = {step.position: step for step in record(app, "a")}
        assert list(there) == [
            "t0.0",
            "t1.t1.0",
            "t1.t0.0",
            "t0.1",
        ]  # as they ended; positions depend on the code alone
        assert "Paris" in str(there["t1.t0.0"].output)
        assert "Rome" in str(there["t1.t1.0"].output)
        assert await replay_once_more(w, answer, "a") == "sunny in Paris, sunny in Rome"
    assert script.asked == {0: 1, 1: 1}
    assert sorted(asked) == ["Paris", "Rome"]


async def test_pydantic_ais_own_test_model_calls_every_tool_as_a_step(store_url: str) -> None:
    app = App()
    agent = Agent(TestModel(), name="tester")

    @agent.tool
    async def greet(ctx: RunContext[object], name: str) -> str:
        return f"hello {name}, {run.attempt}, {ctx.tool_name}"

    durable = DurableAgent(agent, app)

    @app.workflow
    async def tested() -> str:
        return (await durable.run("go")).output

    async with world(app, url=store_url):
        assert await tested.options(id="a")() == '{"greet":"hello a, 1, greet"}'
        assert names(app, "a") == ["tester.model", "tester.greet", "tester.model"]


async def test_outside_workflows_it_is_the_agent_itself() -> None:
    script = Script([TextPart("hello")])
    support = DurableAgent(Agent(script.model, name="support"), App())
    assert (await support.run("hi")).output == "hello"


async def test_inside_a_step_it_is_part_of_that_step(store_url: str) -> None:
    script, app = Script([TextPart("hello")]), App()
    support = DurableAgent(Agent(script.model, name="support"), app)

    @app.step
    async def whole() -> str:
        return (await support.run("hi")).output

    @app.workflow
    async def answer() -> str:
        return await whole()

    async with world(app, url=store_url):
        assert await answer.options(id="a")() == "hello"
        assert names(app, "a") == ["whole"]


async def test_two_calls_of_one_tool_that_end_in_any_order_keep_their_results(store_url: str) -> None:
    """The second call ends first; a replay must not give its result to the first."""
    script = Script([call("look", "1", what="one"), call("look", "2", what="two")], [RETURNED])
    app, agent, second = App(), Agent(script.model, name="support"), asyncio.Event()

    @agent.tool_plain
    async def look(what: str) -> str:
        if what == "one":
            await second.wait()
        second.set()
        return f"seen {what}"

    support = DurableAgent(agent, app)

    @app.workflow
    async def answer() -> str:
        return (await support.run("look")).output

    async with world(app, url=store_url) as w:
        assert await answer.options(id="a")() == "seen one, seen two"
        assert await replay_once_more(w, answer, "a") == "seen one, seen two"


async def test_two_agents_at_once_and_one_after_the_other(store_url: str) -> None:
    app = App()
    one = DurableAgent(Agent(TestModel(custom_output_text="one"), name="one"), app)
    two = DurableAgent(Agent(TestModel(custom_output_text="two"), name="two"), app)

    @app.workflow
    async def both() -> list[str]:
        found = await asyncio.gather(one.run("a"), two.run("b"))
        return [*(each.output for each in found), (await one.run("c")).output]

    async with world(app, url=store_url) as w:
        assert await both.options(id="a")() == ["one", "two", "one"]
        assert await replay_once_more(w, both, "a") == ["one", "two", "one"]
        assert sorted(names(app, "a")) == ["one.model", "one.model", "two.model"]


class City(BaseModel):
    name: str
    people: int


async def test_an_output_type_is_checked_and_its_repair_is_replayed(store_url: str) -> None:
    """The first answer does not fit; the model is told so and answers again."""
    wrong = ToolCallPart("final_result", {"name": "Paris", "people": "many"}, "1")
    right = ToolCallPart("final_result", {"name": "Paris", "people": 2_100_000}, "2")
    script, app = Script([wrong], [right]), App()
    support = DurableAgent(Agent(script.model, name="support", output_type=City), app)

    @app.workflow
    async def answer() -> City:
        return (await support.run("Paris?")).output

    async with world(app, url=store_url) as w:
        assert await answer.options(id="a")() == City(name="Paris", people=2_100_000)
        assert await replay_once_more(w, answer, "a") == City(name="Paris", people=2_100_000)
    assert script.asked == {0: 1, 1: 1}


# -- options -----------------------------------------------------------------------------------------------------------
async def test_a_model_that_is_overloaded_is_asked_again_and_one_that_refuses_is_not(store_url: str) -> None:
    app = App()
    busy = Script(ModelHTTPError(503, "m"), ModelHTTPError(429, "m"), [TextPart("at last")])
    strict = Script(ModelHTTPError(400, "m"), [TextPart("?")])
    patient = DurableAgent(Agent(busy.model, name="patient"), app)
    refused = DurableAgent(Agent(strict.model, name="refused"), app)

    @app.workflow
    async def first() -> str:
        return (await patient.run("hi")).output

    @app.workflow
    async def second() -> str:
        try:
            return (await refused.run("hi")).output
        except ModelHTTPError as error:
            return f"refused with {error.status_code}"

    async with world(app, url=store_url) as w:
        handle = await first.options(id="a").start()
        await w.advance("10m")
        assert await handle.result() == "at last"
        assert record(app, "a")[0].attempts == 3
        assert await second.options(id="b")() == "refused with 400"
        assert await replay_once_more(w, second, "b") == "refused with 400"
    assert (busy.asked[0], strict.asked[0]) == (3, 1)


async def test_tools_have_options_of_their_own(store_url: str) -> None:
    script = Script([call("flaky", "1"), call("plain", "2")], [call("slow", "3")])
    app, tried = App(), Counter[str]()
    agent = Agent(script.model, name="support")

    @agent.tool_plain
    async def flaky() -> str:
        tried["flaky"] += 1
        if tried["flaky"] < 3:
            raise ConnectionError("not yet")
        return f"attempt {run.attempt}"

    @agent.tool_plain
    async def slow() -> str:
        await asyncio.Event().wait()
        return "?"

    @agent.tool_plain
    async def plain() -> str:
        tried["plain"] += 1
        return "plain"

    flaky_options = StepOptions(Retry(3, first="1m"))
    support = DurableAgent(agent, app, tools={"flaky": flaky_options, "slow": StepOptions(timeout=0.01)})

    @app.workflow
    async def answer() -> str:
        try:
            return (await support.run("go")).output
        except StepTimedOut as error:
            return str(error)

    async with world(app, url=store_url) as w:
        handle = await answer.options(id="a").start()
        await w.advance("10m")
        assert "'support.slow' took longer" in await handle.result()
        attempts = {step.name: step.attempts for step in record(app, "a")}
        assert attempts["support.flaky"] == 3
    assert tried == {"flaky": 3, "plain": 1}


async def test_a_tool_that_wants_other_arguments_tells_the_model_and_is_not_retried(store_url: str) -> None:
    script = Script([call("order", "1", size=0)], [call("order", "2", size=1)], [RETURNED])
    app, agent, sizes = App(), Agent(script.model, name="support"), list[int]()

    @agent.tool_plain
    def order(size: int) -> str:
        sizes.append(size)
        if size == 0:
            raise ModelRetry("a size is at least 1")
        return f"ordered {size}"

    support = DurableAgent(agent, app, tool=StepOptions(retry=5))

    @app.workflow
    async def answer() -> str:
        return (await support.run("order")).output

    async with world(app, url=store_url) as w:
        assert await answer.options(id="a")() == "ordered 1"
        assert await replay_once_more(w, answer, "a") == "ordered 1"
    assert sizes == [0, 1]


async def test_a_tool_that_the_workflow_calls_itself_may_sleep_and_call_steps(store_url: str) -> None:
    script, app = Script([call("think", "1"), call("think", "2")], [RETURNED]), App(settings=Settings(resident=0))
    agent = Agent(script.model, name="support")
    counted = Counter[str]()

    @app.step
    async def count(what: str) -> int:
        counted[what] += 1
        return counted[what]

    @agent.tool_plain
    async def think() -> str:
        await run.sleep("8h")
        return f"thought {await count('thoughts')}"

    support = DurableAgent(agent, app, tools={"think": None})

    @app.workflow
    async def answer() -> str:
        return (await support.run("think")).output

    async with world(app, url=store_url) as w:
        handle = await answer.options(id="a").start()
        await w.drain()
        assert w.app._runtime.engine is not None
        assert "a" not in w.app._runtime.engine.executions  # it sleeps in the database, not in memory
        await w.advance("8h")
        assert await handle.result() == "thought 1, thought 2"
        assert [step.position for step in record(app, "a")] == [
            "t0.0",
            "t1.t0.0",
            "t1.t1.0",
            "t1.t0.1",
            "t1.t1.1",
            "t0.1",
        ]
    assert script.asked == {0: 1, 1: 1}
    assert counted == {"thoughts": 2}


async def test_an_agent_inside_a_tool_of_another_has_steps_of_its_own(store_url: str) -> None:
    app = App()
    expert = DurableAgent(Agent(TestModel(custom_output_text="42"), name="expert"), app)
    script = Script([call("consult", "1"), call("consult", "2")], [RETURNED])
    agent = Agent(script.model, name="support")

    @agent.tool_plain
    async def consult() -> str:
        return (await expert.run("?")).output

    support = DurableAgent(agent, app, tools={"consult": None})

    @app.workflow
    async def answer() -> str:
        return (await support.run("consult")).output

    async with world(app, url=store_url) as w:
        assert await answer.options(id="a")() == "42, 42"
        assert await replay_once_more(w, answer, "a") == "42, 42"
        assert Counter(names(app, "a")) == {"support.model": 2, "expert.model": 2}


async def test_a_run_is_the_same_agent_run_in_every_replay(store_url: str) -> None:
    app, seen, agent = App(), list[str](), Agent(TestModel(call_tools=[]), name="support")

    @agent.instructions
    def note(ctx: RunContext[object]) -> str:
        seen.append(f"{ctx.run_id} {ctx.conversation_id}")
        return "be brief"

    support = DurableAgent(agent, app)

    @app.workflow
    async def answer() -> str:
        found = (await support.run("hi")).output
        await run.receive("go")
        return found

    async with world(app, url=store_url) as w:
        handle = await answer.options(id="a").start()
        await w.drain()
        await another_process(w)
        await app.send("a", "go", None)
        await handle.result()
    assert len(seen) >= 2
    assert len(set(seen)) == 1


# -- decisions ---------------------------------------------------------------------------------------------------------
async def test_a_tool_call_waits_for_its_approval_over_night(store_url: str) -> None:
    script = Script([call("refund", "1", order="o-7", euros=10)], [RETURNED])
    app, agent, paid = App(settings=Settings(resident=0)), Agent(script.model, name="support"), list[int]()

    @agent.tool_plain(requires_approval=True)
    def refund(order: str, euros: int) -> str:
        paid.append(euros)
        return f"refunded {euros} for {order}"

    support = DurableAgent(agent, app)

    @app.workflow
    async def answer() -> str:
        return (await support.run("refund")).output

    async with world(app, url=store_url) as w:
        handle = await answer.options(id="a").start()
        (pending,) = await app.get_event("a", support.pending) or []
        assert (pending.call, pending.tool, pending.waits_for) == ("1", "refund", "approval")
        assert pending.args == {"order": "o-7", "euros": 10}
        await w.advance("10h")
        await another_process(w)
        await app.send("a", support.approvals, Approval("unknown"))
        decision = {
            "call": "1",
            "approved": True,
            "args": {"order": "o-7", "euros": 5},
        }  # from a program without the types
        await app.send("a", "support.approvals", decision)
        assert await handle.result() == "refunded 5 for o-7"
        assert await app.get_event("a", support.pending) == []
    assert paid == [5]
    assert script.asked == {0: 1, 1: 1}


@pytest.mark.parametrize("how", ["denied", "too late"])
async def test_a_tool_call_that_is_not_approved_is_not_made_and_the_model_is_told(store_url: str, how: str) -> None:
    script = Script([call("refund", "1"), call("refund", "2")], [RETURNED])
    app, agent, paid = App(), Agent(script.model, name="support"), list[str]()

    @agent.tool_plain(requires_approval=True)
    def refund() -> str:
        paid.append("refund")
        return "refunded"

    support = DurableAgent(agent, app, decide_within="1h")

    @app.workflow
    async def answer() -> str:
        return (await support.run("refund")).output

    async with world(app, url=store_url) as w:
        handle = await answer.options(id="a").start()
        await support.approve("a", "1")
        if how == "denied":
            await support.deny("a", "2", "not twice")
        else:
            await w.advance("61m")
        expected = "not twice" if how == "denied" else "Nothing was decided within 3600 seconds."
        assert await handle.result() == f"refunded, {expected}"
    assert paid == ["refund"]


async def test_a_tool_that_is_executed_outside_is_answered_by_a_message(store_url: str) -> None:
    script, app = Script([call("measure", "1", room="attic")], [RETURNED]), App()
    schema = {"type": "object", "properties": {"room": {"type": "string"}}}
    outside = ExternalToolset([ToolDefinition(name="measure", parameters_json_schema=schema)], id="robot")
    support = DurableAgent(Agent(script.model, name="support", toolsets=[outside]), app)

    @app.workflow
    async def answer() -> str:
        return (await support.run("measure")).output

    async with world(app, url=store_url):
        handle = await answer.options(id="a").start()
        (pending,) = await app.get_event("a", support.pending) or []
        assert (pending.tool, pending.waits_for) == ("measure", "answer")
        await support.answer("a", "1", {"degrees": 17})
        assert await handle.result() == "{'degrees': 17}"


# -- mistakes ----------------------------------------------------------------------------------------------------------
async def test_mistakes_are_told_with_what_to_write_instead() -> None:
    app = App()
    with pytest.raises(InvalidInput, match="name="):
        DurableAgent(Agent(TestModel()), app)
    with pytest.raises(InvalidInput, match="longer than zero"):
        StepOptions(timeout=0)
    support = DurableAgent(Agent(TestModel(), name="support"), app)

    def shout(text: str) -> str:
        return text.upper()

    @app.workflow
    def blocking() -> str:
        return support.run_sync("hi").output

    @app.workflow
    async def extra() -> str:
        return (await support.run("hi", toolsets=[FunctionToolset([shout])])).output

    async with world(app):
        with pytest.raises(WrongColour, match="async def"):
            await blocking.aio()
        with pytest.raises(UserError, match="cannot be added at runtime with Mainspring"):
            await extra()
