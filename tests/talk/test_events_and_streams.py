"""Events and streams: what a run says can be read by anybody, live and after its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mainspring import App, Event, Stream, Tx, run
from mainspring.errors import InvalidInput, NotFound, StillRunning
from mainspring.testing import crash, world
from tests.support.samples import calls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

app = App("sqlite://")
progress = Event("progress", int)
tokens = Stream("tokens", str)


@app.workflow
async def worker(rounds: int) -> str:
    for number in range(rounds):
        await run.set_event(progress, number)
        await run.write_stream(tokens, f"token {number}")
        await run.sleep("1m")
    await run.close_stream(tokens)
    await run.sleep("1m")
    return "done"


@app.workflow
async def silent() -> None:
    await run.sleep("1h")


@app.workflow
async def watcher(other: str) -> list[Any]:
    first = await app.get_event(other, progress)
    never = await app.get_event(other, "never", timeout="90s")
    streamed = [value async for value in app.read_stream(other, tokens)]
    return [first, never, streamed]


@app.workflow
def blocking_worker() -> None:
    run.set_event.sync("k", 1)
    run.write_stream.sync("s", 1)
    run.close_stream.sync("s")


@app.step
async def noisy_step() -> None:
    await run.write_stream("s", "from a step")
    await run.set_event("k", "from a step")


@app.workflow
async def with_noisy_step() -> None:
    await noisy_step()


async def test_the_last_value_of_an_event_counts_also_after_the_end(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await worker.options(id="a").start(3)
        assert await app.get_event("a", progress) == 0
        await handle.result()
        assert await app.get_event("a", progress) == 2
        assert await app.get_events("a") == {"progress": 2}


async def test_an_event_that_never_comes_is_none_by_timeout_and_by_the_end_of_its_run(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        await silent.options(id="a").start()
        assert await app.get_event("a", progress, timeout="10m") is None
        assert w.now.isoformat() == "2026-01-01T00:10:00+00:00"
        assert await app.get_event("a", progress) is None
        assert w.now.isoformat() == "2026-01-01T01:00:00+00:00"
        with pytest.raises(NotFound):
            await app.get_event("nobody", progress)


async def test_a_stream_is_read_live_from_any_offset_by_many(store_url: str) -> None:
    async with world(app, url=store_url):
        await worker.options(id="a").start(3)

        async def read(offset: int) -> list[str]:
            return [value async for value in app.read_stream("a", tokens, offset)]

        whole, rest, none = await asyncio.gather(read(0), read(2), read(9))
        assert (whole, rest, none) == (["token 0", "token 1", "token 2"], ["token 2"], [])
        assert await read(1) == ["token 1", "token 2"]
        with pytest.raises(NotFound):
            await anext(app.read_stream("nobody", tokens))


async def test_a_stream_ends_with_its_run(store_url: str) -> None:
    async with world(app, url=store_url):
        await with_noisy_step.options(id="a").start()
        assert [value async for value in app.read_stream("a", "s")] == ["from a step"]
        assert await app.get_event("a", "k") == "from a step"


async def test_runs_wait_for_what_other_runs_say(store_url: str) -> None:
    async with world(app, url=store_url):
        await worker.options(id="a").start(3)
        assert await watcher("a") == [0, None, ["token 0", "token 1", "token 2"]]


async def test_def_runs_speak_too(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await blocking_worker.options(id="a").start()
        await handle.result()
        assert await app.get_event("a", "k") == 1
        assert [value async for value in app.read_stream("a", "s")] == [1]


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_changes_nothing_of_what_is_said(
    store_url: str, when: Literal["before", "after"]
) -> None:
    for at in calls(when):
        name = f"c{at}"

        async def work(name: str = name) -> Any:
            speaker = await worker.options(id=name).start(2)
            listener = await watcher.options(id=f"{name}-watcher").start(name)
            await speaker.result()
            arrived = await listener.result()
            return [arrived[1:], [value async for value in app.read_stream(name, tokens)], await app.get_events(name)]

        outcome = await crash(app, work, at=at, when=when, url=store_url)
        assert outcome.result == [[None, ["token 0", "token 1"]], ["token 0", "token 1"], {"progress": 1}], at
        if not outcome.crashed:
            assert at > 10
            return
    raise AssertionError("it never came to its end without a crash")


async def test_every_verb_calls_the_name_of_an_event_or_stream_key(store_url: str) -> None:
    app = App(store_url)

    @app.workflow
    async def telling() -> None:
        await run.set_event(key="progress", value=1)
        await run.write_stream(key="tokens", value="a")
        await run.close_stream(key="tokens")

    async with app:
        await telling.options(id="telling")()
        assert await app.get_event("telling", key="progress") == 1
        assert [token async for token in app.read_stream("telling", key="tokens")] == ["a"]


@app.workflow
async def impatient(other: str) -> list[Any]:
    found, late = await read_until_late(other)
    return [*found, type(late).__name__]


async def read_until_late(other: str) -> tuple[list[str], TimeoutError | None]:
    found: list[str] = []
    try:
        async for value in app.read_stream(other, tokens, timeout="90s"):
            found.append(value)  # noqa: PERF401  (what came before the exception counts)
    except TimeoutError as late:
        return found, late
    return found, None


@app.workflow
async def stalls() -> None:
    await run.write_stream(tokens, "one")
    await run.sleep("1m")
    await run.write_stream(tokens, "two")
    await run.sleep("10m")
    await run.write_stream(tokens, "three")


async def test_a_reader_waits_for_each_value_of_a_stream_no_longer_than_its_timeout(store_url: str) -> None:
    async with world(app, url=store_url):
        await stalls.options(id="slow").start()
        values, late = await read_until_late("slow")
        assert values == ["one", "two"]
        assert isinstance(late, StillRunning)
        assert "offset=2" in str(late)
        assert [value async for value in app.read_stream("slow", tokens, offset=2, timeout="1h")] == ["three"]


async def test_a_run_records_that_a_stream_gave_no_value_in_time(store_url: str) -> None:
    async with world(app, url=store_url):
        await stalls.options(id="slow").start()
        handle = await impatient.start("slow")
        assert await handle.result() == ["one", "two", "StillRunning"]
        *_, last = await app.runs.steps(handle.id)
        assert "StillRunning" in str(last.error)


async def test_writing_to_a_stream_that_is_closed_is_an_error_also_after_a_replay(store_url: str) -> None:
    app = App(store_url)

    @app.step
    async def write_in_step() -> None:
        await run.write_stream("s", 2)

    @app.transaction
    def write_in_transaction(tx: Tx) -> None:
        del tx
        run.write_stream.sync("s", 3)

    @app.step
    def close_and_write() -> None:
        run.close_stream.sync("other")
        run.write_stream.sync("other", 4)

    @app.workflow
    async def work() -> list[str]:
        await run.write_stream("s", 0)
        await run.close_stream("s")
        await run.set_event("closed", value=True)
        await run.receive("go on")
        refused: list[str] = []
        writes: list[Callable[[], Awaitable[None]]] = [
            lambda: run.write_stream("s", 1),
            write_in_step,
            write_in_transaction.aio,
            close_and_write.aio,
        ]
        for write in writes:
            with pytest.raises(InvalidInput, match="is closed, and its readers have ended") as error:
                await write()
            refused.append(str(error.value).split(";")[0])
        await run.receive("end")
        return refused

    async with app:
        await work.options(id="w").start()
        await app.get_event("w", "closed")
    async with app:
        await app.send("w", "go on", None)
        assert [value async for value in app.read_stream("w", "s")] == [0]
    async with app:
        await app.send("w", "end", None)
        closed, other = (f"stream {name!r} of run 'w' is closed, and its readers have ended" for name in ("s", "other"))
        assert await app.handle("w").result() == [closed, closed, closed, other]
        assert [value async for value in app.read_stream("w", "s")] == [0]
        assert [step.error is None for step in await app.runs.steps("w") if step.kind == "write_stream"] == [
            True,
            False,
        ]
    app.close()
