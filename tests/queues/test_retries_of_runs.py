"""A run that fails is tried again as its policy says, from what it has achieved."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Retry, Settings, Tx, run
from mainspring.errors import InvalidInput
from mainspring.testing import world
from tests.support.samples import covering

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from datetime import datetime

    from mainspring.testing import World


class Shop:
    """An app with a step that fails as often as the test says."""

    def __init__(self, url: str) -> None:
        self.app = App(url, settings=Settings(poll=0.05))
        self.failures = 0
        self.error: Exception = ValueError("no luck")
        self.calls: list[str] = []
        self.times: list[datetime] = []
        self.world: World

        @self.app.step
        async def good(name: str) -> str:
            self.calls.append(name)
            return name

        @self.app.step
        async def shaky(name: str) -> str:
            self.calls.append(name)
            if self.failures > 0:
                self.failures -= 1
                raise self.error
            return name

        async def body() -> list[str]:
            self.times.append(run.now())
            return [await good("first"), await shaky("second"), await good("third"), str(run.attempt)]

        self.shaky = shaky
        self.plain = self.app.workflow(name="plain")(body)
        self.tried = self.app.workflow(name="tried", retry=Retry(3, first=10, factor=3))(body)


@asynccontextmanager
async def shop_at(url: str) -> AsyncGenerator[Shop]:
    made = Shop(url)
    async with world(made.app, url=url) as made.world:
        yield made


async def test_a_failed_run_goes_on_from_its_successful_steps(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        shop.failures = 2
        handle = await shop.tried.start()
        assert await handle.result() == ["first", "second", "third", "3"]
        info = await handle.describe()
        assert (info.state, info.attempts, info.error, info.reason) == ("succeeded", 3, None, None)
    assert shop.calls == ["first", "second", "second", "second", "third"]
    assert [(moment - shop.times[0]).total_seconds() for moment in shop.times] == [0, 10, 40]


async def test_between_attempts_the_run_is_scheduled_and_shows_its_last_error(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        shop.failures = 1
        handle = await shop.tried.start()
        await shop.world.advance(1)
        info = await handle.describe()
        assert (info.state, info.attempts) == ("scheduled", 1)
        assert info.error is not None
        assert info.error["message"] == "no luck"


async def test_when_attempts_run_out_the_run_has_failed_and_can_be_retried_by_hand(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        shop.failures = 3
        handle = await shop.tried.start()
        with pytest.raises(ValueError, match="no luck"):
            await handle.result()
        assert (await handle.describe()).state == "failed"
        assert await shop.app.runs.retry(handle.id) == {handle.id: True}
        assert (await handle.result())[:3] == ["first", "second", "third"]


async def test_without_a_policy_a_run_is_tried_once(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        shop.failures = 1
        with pytest.raises(ValueError, match="no luck"):
            await shop.plain()


async def test_a_policy_can_come_with_the_options_or_with_the_queue(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        await shop.app.queues.set("q", retry=Retry(2, first=5))
        for tried in (shop.plain.options(retry=2), shop.plain.options(queue="q")):
            shop.failures = 1
            assert (await tried())[3] == "2"
        shop.failures = 2
        with pytest.raises(ValueError, match="no luck"):
            await shop.plain.options(queue="q")()


async def test_a_declared_queue_has_a_policy(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", retry=Retry(2, first=5))
    async with world(shop.app, url=store_url):
        shop.failures = 1
        assert (await shop.plain.options(queue="q")())[3] == "2"


@pytest.mark.parametrize(
    ("policy", "attempts"),
    [
        (Retry(3, first=1, on=(ValueError,)), 3),
        (Retry(3, first=1, on=LookupError), 1),
        (Retry(3, first=1, unless=ValueError), 1),
        (Retry(3, first=1, unless=(KeyError,)), 3),
    ],
)
async def test_exceptions_are_told_apart_by_type(store_url: str, policy: Retry, attempts: int) -> None:
    async with shop_at(store_url) as shop:
        shop.failures = 99
        with pytest.raises(ValueError, match="no luck"):
            await shop.plain.options(retry=policy)()
    assert shop.calls.count("second") == attempts


async def test_a_policy_that_asks_a_function_belongs_to_the_workflow(store_url: str) -> None:
    async with shop_at(store_url) as shop:

        @shop.app.workflow(retry=Retry(4, first=1, on=lambda error: "luck" in str(error)))
        async def picky() -> str:
            return await shop.shaky("x")

        shop.failures = 2
        assert await picky() == "x"
        shop.failures, shop.error = 1, ValueError("hopeless")
        with pytest.raises(ValueError, match="hopeless"):
            await picky()
        with pytest.raises(InvalidInput, match=r"only in @app\.workflow"):
            picky.options(retry=Retry(3, on=lambda _: True))


async def test_what_the_body_itself_raises_is_tried_again_with_all_steps_kept(store_url: str) -> None:
    async with shop_at(store_url) as shop:

        @shop.app.workflow(retry=Retry(3, first=1))
        async def wraps() -> str:
            found = await shop.shaky("once")
            if run.attempt < 3:
                raise RuntimeError(f"attempt {run.attempt}")
            return found

        assert await wraps() == "once"
    assert shop.calls == ["once"]


async def test_a_child_that_failed_is_tried_again_with_its_parent(store_url: str) -> None:
    async with shop_at(store_url) as shop:

        @shop.app.workflow(retry=Retry(2, first=1))
        async def parent() -> list[str]:
            return await shop.plain()

        shop.failures = 1
        assert (await parent())[:3] == ["first", "second", "third"]
    assert shop.calls == ["first", "second", "second", "third"]


async def test_a_step_or_transaction_as_a_run_is_tried_again_too(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        shop.failures = 2
        handle = await shop.shaky.options(retry=Retry(3, first=1)).start("x")
        assert await handle.result() == "x"
        assert (await handle.describe()).attempts == 3


async def test_a_def_workflow_is_tried_again(store_url: str) -> None:
    app = App(store_url, settings=Settings(poll=0.05))
    calls: list[int] = []

    @app.workflow(retry=Retry(3, first=0))
    def work() -> int:
        calls.append(run.attempt)
        if run.attempt < 3:
            raise ValueError("not yet")
        return run.attempt

    async with app:
        assert await work.aio() == 3
    assert calls == [1, 2, 3]


async def test_a_failing_job_does_not_block_its_serial_queue(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        await shop.app.queues.set("q", concurrency=1)
        shop.failures = 1
        bad = await shop.plain.options(queue="q", retry=Retry(2, first=60)).start()
        await shop.world.drain()
        good = await shop.plain.options(queue="q").start()
        await shop.world.advance(1)
        assert (await good.describe()).state == "succeeded"
        assert (await bad.describe()).state == "scheduled"
        assert (await bad.result())[3] == "2"


async def test_a_cancelled_run_is_not_tried_again_and_its_deadline_counts_for_all_attempts(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        shop.failures = 99
        handle = await shop.tried.start()
        await shop.world.advance(1)
        assert await handle.cancel()
        limited = await shop.tried.options(timeout=20).start()
        await shop.world.advance(100)
        info = await limited.describe()
        assert (info.state, info.reason) == ("cancelled", "timeout")
        assert (await handle.describe()).state == "cancelled"


async def test_jobs_can_back_off_exponentially_as_graphile_does(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        shop.failures = 3
        await shop.plain.options(retry=Retry(25, first=math.e, factor=math.e, cap=math.exp(10)))()
    gaps = [(b - a).total_seconds() for a, b in zip(shop.times, shop.times[1:], strict=False)]
    assert gaps == pytest.approx([math.exp(n) for n in (1, 2, 3)], abs=1e-3)


def test_what_is_never_started_twice_cannot_be_retried() -> None:
    app = App("sqlite://")

    async def once() -> None: ...

    for register in (app.workflow, app.step):
        with pytest.raises(InvalidInput, match="never started a second time"):
            register(at_most_once=True, retry=3)(once)
    fn: Any = app.workflow(at_most_once=True)(once)
    with pytest.raises(InvalidInput, match="never started a second time"):
        fn.options(retry=3).bind()


@covering
@pytest.mark.parametrize("kind", ["workflow", "step", "transaction"])
@pytest.mark.parametrize("queue", [None, "q"])
async def test_every_attempt_is_counted_in_the_code_and_in_the_record(
    store_url: str, kind: str, queue: str | None
) -> None:
    app, seen = App(store_url, settings=Settings(poll=0.05)), list[int]()
    app.queue("q")

    async def attempted() -> None:
        seen.append(run.attempt)
        raise OSError("no luck")

    def transacted(_tx: Tx) -> None:
        seen.append(run.attempt)
        raise OSError("no luck")

    jobs: dict[str, Callable[[], Any]] = {
        "workflow": lambda: app.workflow(name="job")(attempted),
        "step": lambda: app.step(name="job")(attempted),
        "transaction": lambda: app.transaction(name="job")(transacted),
    }
    job = jobs[kind]()
    how: Any = {"retry": Retry(3, first=60), **({} if queue is None else {"queue": queue})}
    async with world(app, url=store_url) as w:
        later = await job.options(after="1d", **how).start()
        handle = await job.options(**how).start()
        counted: list[tuple[str, int]] = []
        for _ in range(4):
            await w.drain()
            info = await handle.describe()
            counted.append((info.state, info.attempts))
            await w.advance(120)
        assert counted == [("scheduled", 1), ("scheduled", 2), ("failed", 3), ("failed", 3)]
        assert (await later.describe()).attempts == 0
        assert await app.runs.retry(handle.id)
        await w.drain()
        assert (await handle.describe()).attempts == 1, "another life, and it counts from the beginning"
    assert seen == [1, 2, 3, 1]


async def test_a_run_that_succeeds_at_once_or_loses_its_worker_has_made_one_attempt(store_url: str) -> None:
    app, gate = App(store_url, settings=Settings(poll=0.05)), asyncio.Event()

    @app.workflow
    async def plain() -> int:
        await run.sleep("1h")
        await gate.wait()
        return run.attempt

    async with world(app, url=store_url) as w:
        handle = await plain.options(id="a").start()
        await w.drain()
        assert (await handle.describe()).attempts == 1
    async with world(app, url=store_url) as w:
        gate.set()
        await w.advance("2h")
        assert (await handle.result(), (await handle.describe()).attempts) == (1, 1)
