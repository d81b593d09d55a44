# pyright: reportPrivateUsage=false
"""Messages: each is received once, in the order of commits, across waiting, parking and crashes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mainspring import App, Message, Settings, Topic, run
from mainspring.cli.runs.page import unfinished
from mainspring.errors import InvalidInput, NotFound, NotInRun, NotSerializable, StoreUnavailable
from mainspring.store.writes import Send
from mainspring.testing import crash, world
from tests.support.samples import calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.writes import Op, Result

app = App("sqlite://")


@dataclass(frozen=True)
class Decision:
    yes: bool
    by: str


decided = Topic("decided", Decision)


@app.workflow
async def collect(count: int, topic: str = "t") -> list[Any]:
    return [await run.receive(topic) for _ in range(count)]


@app.workflow
def collect_blocking(count: int) -> list[Any]:
    return [run.receive.sync("t") for _ in range(count)]


@app.workflow
async def decide() -> str:
    decision = await run.receive(decided)
    return decision.by


@app.workflow
async def patient() -> list[Any]:
    return [await run.receive("t", timeout="1h"), run.now().isoformat()]


@app.workflow
async def two_lines() -> list[Any]:
    async def line() -> list[Any]:
        return [await run.receive("t") for _ in range(3)]

    left, right = await asyncio.gather(line(), line())
    return sorted([*left, *right])


@app.step
async def tell_in_step(to: str, value: int) -> None:
    await app.send(to, "t", value)


@app.workflow
async def chatter(to: str) -> str:
    await app.send(to, "t", 1)
    await app.send_many([Message(to, "t", 2), Message(to, "t", 3)])
    await tell_in_step(to, 4)
    return "done"


@app.workflow
def blocking_chatter(to: str) -> None:
    app.send.sync(to, "t", "from a def run")


@app.workflow
async def misdirected() -> str:
    try:
        await app.send("nobody", "t", 1)
    except NotFound:
        return "refused"
    return "sent"


@app.workflow
async def impatient() -> list[Any]:
    try:
        async with asyncio.timeout(0):
            await run.receive("t")
    except TimeoutError:
        pass
    return [await run.receive("t")]


async def test_messages_of_a_topic_arrive_once_and_in_order(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await collect.options(id="a").start(5)
        for number in range(3):
            await app.send("a", "t", number)
        await app.send_many([Message("a", "t", 3), Message("a", "t", 4)])
        assert await handle.result() == [0, 1, 2, 3, 4]


async def test_messages_wait_for_their_run_and_topics_do_not_mix(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await collect.options(id="a", after="1h").start(2, "x")
        await app.send("a", "y", "not this")
        await app.send("a", "x", 1)
        await app.send("a", "x", None)
        assert await handle.result() == [1, None]


async def test_a_typed_topic_carries_its_type(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await decide.options(id="a").start()
        with pytest.raises(NotSerializable):
            await app.send("a", decided, "yes")  # type: ignore[misc]
        await app.send("a", decided, Decision(yes=True, by="ada"))
        assert await handle.result() == "ada"


async def test_a_key_makes_a_message_idempotent_per_destination(store_url: str) -> None:
    async with world(app, url=store_url):
        first, second = await collect.options(id="a").start(2), await collect.options(id="b").start(1)
        for _ in range(3):
            await app.send("a", "t", "once", key="k")
        await app.send("b", "t", "other run", key="k")
        await app.send("a", "t", "last")
        assert await first.result() == ["once", "last"]
        assert await second.result() == ["other run"]
        with pytest.raises(InvalidInput, match="same key"):
            await app.send_many([Message("a", "t", 1, key="x"), Message("a", "t", 2, key="x")])


async def test_a_message_whose_answer_is_lost_says_whether_it_can_be_sent_again(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await collect.options(id="a").start(4)
        committer = app._runtime.connection().committer
        apply, lost = committer._apply, list[str]()

        def deaf(ops: Sequence[Op], now: int) -> list[Result | Exception]:
            answers = apply(ops, now)
            if lost and any(isinstance(op, Send) for op in ops):
                raise StoreUnavailable(lost.pop())
            return answers

        committer._apply = deaf
        for key, again in (
            ("k", "with its key, it is received once"),
            (None, "without a key, it may be received twice"),
        ):
            lost.append("the answer was lost")
            with pytest.raises(
                StoreUnavailable, match=f"the answer was lost; the message may have been stored: sent again {again}"
            ):
                await app.send("a", "t", again, key=key)
            await app.send("a", "t", again, key=key)
        await app.send("a", "t", "last")
        assert [text.split()[0] for text in await handle.result()] == ["with", "without", "without", "last"]


async def test_an_unknown_destination_is_refused_and_nothing_of_a_bulk_is_sent(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await collect.options(id="a").start(1)
        with pytest.raises(NotFound, match="nobody"):
            await app.send_many([Message("a", "t", 1), Message("nobody", "t", 1)])
        await app.send("a", "t", 2)
        assert await handle.result() == [2]
        assert await misdirected() == "refused"


async def test_a_timeout_is_durable_and_gives_none(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handle = await patient.start()
        await w.advance("59m")
        assert (await handle.describe()).state == "waiting"
        (waiting,) = await app.runs.steps(handle.id)
        assert waiting.child is None
        assert (
            unfinished(waiting, datetime(2026, 1, 1, 0, 59, tzinfo=UTC)) == "waits for a message, gives up in 1 min 0 s"
        )
        assert await handle.result() == [None, "2026-01-01T01:00:00+00:00"]


async def test_two_lines_of_one_run_never_receive_the_same_message(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await two_lines.options(id="a").start()
        for number in range(6):
            await app.send("a", "t", number)
        assert await handle.result() == list(range(6))


async def test_runs_and_steps_send_and_def_runs_do_so_too(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await collect.options(id="a").start(5)
        await chatter("a")
        await blocking_chatter.aio("a")
        assert await handle.result() == [1, 2, 3, 4, "from a def run"]


async def test_a_def_run_receives(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await collect_blocking.options(id="a").start(2)
        await app.send("a", "t", 1)
        await app.send("a", "t", 2)
        assert await handle.result() == [1, 2]


async def test_a_parked_run_is_woken_by_a_message(store_url: str) -> None:
    runtime = app._runtime
    before, runtime.settings = runtime.settings, Settings(resident=0)
    try:
        async with world(app, url=store_url) as w:
            handle = await collect.options(id="a").start(2)
            await w.drain()
            assert (await handle.describe()).worker is None
            await app.send("a", "t", 1)
            await w.drain()
            await app.send("a", "t", 2)
            assert await handle.result() == [1, 2]
    finally:
        runtime.settings = before


async def test_a_receive_that_the_code_cancels_loses_no_message(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await impatient.options(id="a").start()
        await app.send("a", "t", 1)
        assert await handle.result() == [1]


async def test_receiving_belongs_in_a_workflow(store_url: str) -> None:
    with pytest.raises(NotInRun):
        await run.receive("t")


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_loses_and_doubles_no_message(
    store_url: str, when: Literal["before", "after"]
) -> None:
    for at in calls(when):
        name = f"c{at}"

        async def work(name: str = name) -> Any:
            receiver = await collect.options(id=name).start(4)
            sender = await chatter.options(id=f"{name}-sender").start(name)
            await sender.result()
            return await receiver.result()

        outcome = await crash(app, work, at=at, when=when, url=store_url)
        assert outcome.result == [1, 2, 3, 4], at
        if not outcome.crashed:
            assert at > 10
            return
    raise AssertionError("it never came to its end without a crash")
