"""More of what is promised of messages, events and streams: keys within a bulk, waits that survive restarts, writers side by side."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from mainspring import App, Message, Settings, run
from mainspring.engine.engine import Engine
from mainspring.errors import InvalidInput
from mainspring.testing import world
from tests.engine.lives import another_process

app = App("sqlite://")


@app.workflow
async def collect(count: int) -> list[Any]:
    return [await run.receive("t") for _ in range(count)]


@app.workflow
async def patient(other: str) -> list[Any]:
    """Waits an hour for an event and an hour for a message."""
    event = await app.get_event(other, "never", timeout="1h")
    message = await run.receive("never", timeout="1h")
    return [event, message, run.now().isoformat()]


@app.step
async def write_in_step(number: int) -> None:
    await run.write_stream("log", f"step {number}")


@app.workflow
async def writers() -> None:
    async def branch(name: str) -> None:
        for number in range(5):
            await run.write_stream("log", f"{name} {number}")

    await asyncio.gather(branch("a"), branch("b"), write_in_step(0), write_in_step(1))


@app.workflow
async def reader(of: str) -> list[Any]:
    return [value async for value in app.read_stream(of, "log")]


@app.workflow
async def slow_writer() -> None:
    for number in range(4):
        await run.write_stream("log", number)
        await run.sleep("1m")
    await run.write_stream("log", "last")


async def test_two_messages_with_one_key_in_a_bulk_are_refused_and_nothing_is_sent(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await collect.options(id="a").start(1)
        with pytest.raises(InvalidInput, match="the same key"):
            await app.send_many([Message("a", "t", number, key="same") for number in range(2)])
        await app.send("a", "t", "plain")
        assert await handle.result() == ["plain"]


async def test_a_wait_for_an_event_and_a_message_is_as_long_as_it_says_whoever_dies(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "patience", 0.02)
    async with world(app, at="2026-01-01T00:00Z", url=store_url) as w:
        await collect.options(id="other").start(1)
        handle = await patient.options(id="a").start("other")
        await w.advance("50m")
        await another_process(w)
        assert await handle.result() == [None, None, "2026-01-01T02:00:00+00:00"]
        event, message = await app.runs.steps("a")
        for step in (event, message):
            assert step.started is not None
            assert step.completed is not None
            assert step.completed - step.started == timedelta(hours=1)


async def test_writers_side_by_side_lose_nothing_and_keep_their_own_order(store_url: str) -> None:
    async with world(app, url=store_url):
        await writers.options(id="w")()
        found = [value async for value in app.read_stream("w", "log")]
        assert len(found) == len(set(found)) == 12
        for name in ("a", "b"):
            assert [value for value in found if value.startswith(name)] == [f"{name} {n}" for n in range(5)]
        assert [value async for value in app.read_stream("w", "log", offset=11)] == found[11:]
        assert [value async for value in app.read_stream("w", "log", offset=12)] == []


async def test_a_run_that_reads_a_stream_is_parked_between_values_and_reads_to_the_end(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app._runtime, "settings", Settings(resident=0))
    async with world(app, url=store_url):
        await slow_writer.options(id="w").start()
        assert await reader.options(id="r")("w") == [0, 1, 2, 3, "last"]
        assert (await app.runs.get("r")).epoch > 1  # it was parked, and came back
