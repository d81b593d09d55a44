"""An agent on the night shift: it sleeps until the morning, waits for a person's approval, and survives kill -9.

    python examples/agent.py                  # asks the agent, which sleeps for a night of 20 seconds; --night 8h for a real one
    python examples/agent.py approve          # in the morning, in another terminal

Kill the first program with kill -9 wherever you like and start it again: it goes on, and no model request that was answered is sent again.
`agent-ledger.txt` has a line for each request and each call of a tool. The model is a function here, so that nothing needs a network
or a key; put a name such as "openai:gpt-5.2" in its place.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from pathlib import Path

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from mainspring import App, Retry, run
from mainspring.integrations.pydantic_ai import DurableAgent, StepOptions

LEDGER = Path("agent-ledger.txt")
"""The world outside: each model request that costs money and each call of a tool adds a line."""
CASE = "case-7"

app = App("sqlite:///agent.db")


@dataclass
class Shift:
    """What the agent knows of its night."""

    night: str


def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """In place of a model: look the order up, wait for the morning, pay back, answer."""
    del info
    number = sum(isinstance(message, ModelResponse) for message in messages)
    note(f"model request {number + 1}")
    plan = [
        ToolCallPart("find_order", {"order": "order-7"}, "call-find"),
        ToolCallPart("wait_for_morning", {}, "call-wait"),
        ToolCallPart("refund", {"order": "order-7", "euros": 20}, "call-refund"),
    ]
    if number < len(plan):
        return ModelResponse([plan[number]])
    answers = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return ModelResponse([TextPart(f"Dear customer, {', '.join(answers)}.")])


agent = Agent(FunctionModel(think), name="support", deps_type=Shift)


@agent.tool_plain
async def find_order(order: str) -> str:
    """Look an order up."""
    note(f"find {order}")
    return f"{order}: 20 euros"


@agent.tool
async def wait_for_morning(ctx: RunContext[Shift]) -> str:
    """Wait until the bank opens."""
    say(f"the bank is closed, sleeping for {ctx.deps.night}")
    await run.sleep(ctx.deps.night)
    return "the bank is open"


@agent.tool_plain(requires_approval=True)
async def refund(order: str, euros: int) -> str:
    """Pay an amount back."""
    note(f"refund {order} {euros}")
    return f"{euros} euros are on their way"


support = DurableAgent(
    agent,
    app,
    tools={
        "find_order": StepOptions(Retry(5, first=1), timeout="30s"),
        "wait_for_morning": None,  # the workflow itself calls it, so it can sleep
        "refund": StepOptions(at_most_once=True),
    },
)


@app.workflow
async def handle_case(question: str, night: str) -> str:
    result = await support.run(question, deps=Shift(night))
    return result.output


def note(what: str) -> None:
    say(what)
    with LEDGER.open("a") as ledger:
        ledger.write(f"{what}\n")


def say(what: str) -> None:
    print(what, flush=True)


async def ask(night: str) -> None:
    async with app:
        handle = await handle_case.options(id=CASE).start("My parcel was empty. May I have my money back?", night)
        say(await handle.result())


async def approve() -> None:
    pending = await app.get_event(CASE, support.pending)
    for each in pending or []:
        say(f"approved: {each.tool} {each.args}")
        await support.approve(CASE, each.call)


def main() -> None:
    arguments = argparse.ArgumentParser(description="An agent on the night shift.")
    arguments.add_argument("what", nargs="?", choices=["ask", "approve"], default="ask")
    arguments.add_argument("--night", default="20s")
    given = arguments.parse_args()
    asyncio.run(approve() if given.what == "approve" else ask(given.night))


if __name__ == "__main__":
    main()
