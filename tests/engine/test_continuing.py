"""Workflows that never end begin anew, with a bounded record; changed code keeps old runs on their old path."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pytest

from mainspring import App, Retry, run
from mainspring.errors import InvalidInput
from mainspring.testing import crash, world
from tests.support.samples import calls

app = App("sqlite://")
done: list[int] = []


@app.step
async def count(number: int) -> int:
    done.append(number)
    return number


@app.workflow
async def child(number: int) -> int:
    return number


@app.workflow
async def counter(number: int, last: int) -> list[Any]:
    await count(number)
    arrived = await run.receive("word", timeout=0)
    await run.set_event("number", number)
    got = await child(number)
    if number < last:
        await run.continue_as(number + 1, last)
    return [number, got, arrived, run.id]


@app.workflow
def blocking_counter(number: int, last: int) -> int:
    if number < last:
        count.sync(number)
        run.continue_as.sync(number + 1, last=last)
    return number


@app.workflow
async def inside_undo() -> None:
    async with run.undo():
        await run.continue_as()


@app.workflow
async def wrong_arguments() -> None:
    await run.continue_as(1, 2, 3)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def test_a_run_begins_anew_under_its_id_with_a_bounded_record(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await counter.options(id="a").start(1, 5)
        assert await handle.result() == [5, 5, None, "a"]
        assert done == [1, 2, 3, 4, 5]
        found = await app.runs.get("a")
        assert (found.generation, found.input) == (4, {"number": 5, "last": 5})
        assert len(await app.runs.steps("a")) == 4
        assert await app.get_events("a") == {"number": 5}
        assert len((await app.runs.list(parent="a")).runs) <= 1
        assert await blocking_counter.aio(0, 3) == 3


async def test_messages_that_were_not_received_are_there_afterwards(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await counter.options(id="a", after="1m").start(1, 3)
        for word in ("x", "y", "z"):
            await app.send("a", "word", word)
        assert (await handle.result())[2] == "z"


async def test_what_cannot_begin_anew_is_an_error(store_url: str) -> None:
    async with world(app, url=store_url):
        with pytest.raises(InvalidInput, match=r"inside a run\.undo block"):
            await inside_undo()
        with pytest.raises(InvalidInput):
            await wrong_arguments()


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_changes_nothing(store_url: str, when: Literal["before", "after"]) -> None:
    for at in calls(when):
        done.clear()

        async def work(at: int = at) -> Any:
            handle = await counter.options(id=f"a{at}").start(1, 3)
            return await handle.result()

        outcome = await crash(app, work, at=at, when=when, url=store_url)
        assert outcome.result == [3, 3, None, f"a{at}"]
        assert sorted(set(done)) == [1, 2, 3]
        assert len(done) <= 4, "only a step that was under way is executed again"
        if not outcome.crashed:
            assert at > 10
            return
    raise AssertionError("it never came to its end without a crash")


async def test_a_message_with_a_key_is_received_once_however_often_the_run_begins_anew(store_url: str) -> None:
    bank, got = App(), list[str]()

    @bank.workflow
    async def account(balance: int) -> None:
        amount, what = await run.receive("deposit")
        got.append(what)
        await run.set_event("balance", balance + amount)
        await run.continue_as(balance + amount)

    @bank.step(retry=Retry(3, first=60))
    async def pay() -> None:
        await bank.send("acct", "deposit", (7, "by a step"))
        if run.attempt == 1:
            raise ConnectionError("after it was sent")

    async with world(bank, url=store_url) as w:
        await account.options(id="acct").start(0)
        for _ in range(3):
            await bank.send("acct", "deposit", (100, "by a hook"), key="payment-4711")
            await bank.send("acct", "deposit", (1, "plain"))
            await w.drain()
        paying = await pay.start()
        await w.advance("10m")
        await paying.result()
        await w.drain()
        assert await bank.get_event("acct", "balance") == 100 + 3 + 7
        assert (await bank.runs.get("acct")).generation == 5
        stored = bank._runtime.connection().store.messages.received("acct")
        assert stored == [], "what was received is gone, but for the keys"
        lines = await bank.runs.export("acct")
    assert sorted(got) == ["by a hook", "by a step", "plain", "plain", "plain"]
    keys = [each for each in map(json.loads, lines) if each.get("table") == "messages"]
    assert [(each.get("body"), each["received"] > 0) for each in keys] == [(None, True), (None, True)]


async def test_a_question_that_was_accepted_and_not_answered_is_answered_by_the_next_generation(store_url: str) -> None:
    desk, asked, first = App(), list[int](), asyncio.Event()

    @desk.workflow
    async def clerk(generation: int) -> None:
        async def reply(value: int) -> str:
            asked.append(generation)
            if generation == 0:
                first.set()
                await run.sleep("1d")
            return f"{value} from {generation}"

        run.answer("number", reply)
        if generation == 0:
            await run.receive("go on")
            await run.continue_as(1)
        await run.receive("stop")

    async with world(desk, url=store_url):
        await clerk.options(id="clerk").start(0)
        asking = asyncio.ensure_future(desk.ask("clerk", "number", 7))
        await first.wait()
        await desk.send("clerk", "go on", None)
        assert await asking == "7 from 1"
        await desk.send("clerk", "stop", None)
    assert asked == [0, 1]


async def test_an_answer_that_a_run_has_not_seen_yet_outlives_generations(store_url: str) -> None:
    desk, asked = App(), list[int]()

    @desk.workflow
    async def clerk(generation: int) -> None:
        def reply(value: int) -> int:
            asked.append(value)
            return value + 1

        run.answer("number", reply)
        await run.receive("go on")
        await run.continue_as(generation + 1)

    @desk.step(retry=Retry(3, first=7_200, factor=1))
    async def ask_in_step() -> int:
        found: int = await desk.ask("clerk", "number", 7)
        if run.attempt < 3:
            raise ConnectionError("after it was answered")
        return found

    async with world(desk, url=store_url) as w:
        await clerk.options(id="clerk").start(0)
        handle = await ask_in_step.start()
        for _ in range(3):
            await w.drain()
            await desk.send("clerk", "go on", None)
            await w.advance("2h1m")
        assert await handle.result() == 8
        await w.drain()
        assert (await desk.runs.get("clerk")).generation == 3
    assert asked == [7], "asked once, although the step was tried three times"


async def test_a_run_that_began_anew_can_be_forked_at_a_step(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await counter.options(id="a").start(1, 3)
        assert (await handle.result())[0] == 3
        first = (await app.runs.steps("a"))[0]
        for step, generation in ((first.position, 0), ("child", 2), (None, 0)):
            done.clear()
            fork = await app.runs.fork("a", step=step)
            assert (await fork.result())[:3] == [3, 3, None]
            assert done == ([] if step == "child" else [3])
            assert (await app.runs.get(fork.id)).generation == generation


async def test_each_generation_may_be_attempted_as_often_as_its_retry_policy_says(store_url: str) -> None:
    shop = App()

    @shop.workflow(retry=Retry(2, first="1m"))
    async def fails_once_a_generation(number: int) -> int:
        if run.attempt == 1:
            raise ConnectionError(str(number))
        if number < 3:
            await run.continue_as(number + 1)
        return number

    async with world(shop, url=store_url) as w:
        handle = await fails_once_a_generation.options(id="a").start(0)
        for number in range(4):
            await w.drain()
            found = await shop.runs.get("a")
            assert (found.generation, found.attempts, found.error and found.error["message"]) == (
                number,
                1,
                str(number),
            )
            await w.advance("1m")
        assert await handle.result() == 3
        assert (await shop.runs.get("a")).attempts == 2
